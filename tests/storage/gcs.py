"""Google Cloud Storage for tests: its XML API is S3's but for its own headers, so that an S3 server answers it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .forwarding import Forwarding, listening
from .s3 import KEY_ID, S3, server

_NO_GENERATION = "x-goog-if-generation-match"
# The server looks at the form alone; without one it shows no object.
_AUTHORIZATION = f"AWS4-HMAC-SHA256 Credential={KEY_ID}/20240101/us-east-1/s3/aws4_request, SignedHeaders=, Signature="


@dataclass(frozen=True)
class GCS:
    """A server that is running.

    Args:
        s3: The server that has the objects.
        port: Where Google's API is answered.
    """

    s3: S3
    port: int

    @property
    def options(self) -> dict[str, str]:
        """The options under obstore's names, which delta-rs takes as well."""
        key = {
            "gcs_base_url": f"http://127.0.0.1:{self.port}",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {"service_account_key": json.dumps(key), "allow_http": "true"}


@contextmanager
def google_server(folder: Path) -> Iterator[GCS]:
    """Starts a server with an empty bucket."""
    one_at_a_time = threading.Lock()
    with server(folder) as s3:

        class Handler(Forwarding):
            server_port = s3.port

            def forward(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                headers["authorization"] = _AUTHORIZATION
                if headers.pop(_NO_GENERATION, None) != "0":
                    self.pass_on(self.body(), headers)
                    return
                # Google's service looks and writes in one step, the server here in two.
                with one_at_a_time:
                    self.pass_on(self.body(), {**headers, "if-none-match": "*"})

        with listening(Handler) as port:
            yield GCS(s3, port)
