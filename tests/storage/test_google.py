"""Service accounts of Google's: tasks get tokens in the place of keys."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from deltamerge.exceptions import DeltaTableException
from deltamerge.storage import google
from deltamerge.storage.store import open_store
from deltamerge.storage.task_files import NotOpened
from deltamerge.workers.files import Files


@pytest.fixture(scope="module")
def account() -> Iterator[dict[str, str]]:
    """The key of a service account, and a server that gives its tokens."""
    asked = []

    class Tokens(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            content = json.dumps({"access_token": f"ya29.{len(asked)}.secret", "expires_in": 3600}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    server = HTTPServer(("127.0.0.1", 0), Tokens)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    yield {
        "type": "service_account",
        "client_email": "merge@project.iam.gserviceaccount.com",
        "private_key": key.decode(),
        "private_key_id": "1",
        "token_uri": f"http://127.0.0.1:{server.server_address[1]}/token",
    }
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("form", ["google_service_account_key", "service_account", "hadoop"])
def test_tasks_get_tokens(tmp_path: Path, account: dict[str, str], form: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "key.json"
    file.write_text(json.dumps(account))
    given: Any = {
        "google_service_account_key": {"google_service_account_key": json.dumps(account)},
        "service_account": {"service_account": str(file)},
        "hadoop": {"fs.gs.auth.service.account.json.keyfile": str(file)},
    }[form]
    files = open_store("gs://bucket/t", given).files
    assert isinstance(files, Files)
    sent = files.for_tasks()
    token = sent.options["access_token"]
    assert token.startswith("ya29.")
    assert sent.ranged == {"config": {"bearer_token": token}}
    assert files.for_tasks() is sent
    shown = repr(files) + repr(sent) + caplog.text
    assert account["private_key"].splitlines()[1] not in shown
    assert token not in shown


def test_an_emulator_is_asked_without_a_token(account: dict[str, str]) -> None:
    key = json.dumps({**account, "gcs_base_url": "http://127.0.0.1:1", "disable_oauth": True})
    files = open_store("gs://bucket/t", {"service_account_key": key, "allow_http": "true"}).files
    assert isinstance(files, Files)
    options = files.for_tasks().options
    assert (options["endpoint_override"], options["scheme"], options["access_token"]) == ("127.0.0.1:1", "http", "none")


def test_a_server_that_gives_no_token(account: dict[str, str]) -> None:
    key = json.dumps({**account, "token_uri": "http://127.0.0.1:1/token"})
    files = open_store("gs://bucket/t", {"service_account_key": key}).files
    assert isinstance(files, Files)
    with pytest.raises(DeltaTableException, match=r"The service account gives no credentials: it raised TransportErr"):
        files.for_tasks()


def test_without_google_auth(account: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "_TRANSPORT", "no_such_module")
    files = open_store("gs://bucket/t", {"service_account_key": json.dumps(account)}).files
    assert isinstance(files, NotOpened)
    assert "deltamerge[gcs]" in files.reason
