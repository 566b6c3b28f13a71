"""A proxy in front of an S3 server that fails: errors, throttling, no answer, or an answer that is lost."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .forwarding import Forwarding, listening

# What happens to so many of a hundred requests. What was forwarded took place, whatever the client hears of it.
SHARES = {"error": 5, "throttled": 5, "hangs": 5, "answer lost": 3}
_HANGS_FOR = 6
_ERROR = b"<Error><Code>InternalError</Code></Error>"
_THROTTLED = b"<Error><Code>SlowDown</Code></Error>"


@dataclass
class Faults:
    """What is to happen to the next requests.

    Args:
        port: Where the proxy listens.
        are_on: Whether anything happens.
        seen: How often each has happened.
    """

    random: random.Random
    port: int = 0
    are_on: bool = False
    seen: Counter[str] = field(default_factory=Counter)

    def next(self) -> str | None:
        """Returns what happens to a request."""
        if not self.are_on:
            return None
        fault = self.random.choices([*SHARES, None], [*SHARES.values(), 100 - sum(SHARES.values())])[0]
        if fault is not None:
            self.seen[fault] += 1
        return fault


@contextmanager
def proxy(server_port: int, seed: int) -> Iterator[Faults]:
    """Starts a proxy in threads of this process."""
    faults = Faults(random.Random(seed))
    port = server_port

    class Handler(Forwarding):
        server_port = port

        def forward(self) -> None:
            body = self.body()
            fault = faults.next()
            if fault == "hangs":
                time.sleep(_HANGS_FOR)
                self.close_connection = True
            elif fault in ("error", "throttled"):
                self.answer(500, _ERROR) if fault == "error" else self.answer(503, _THROTTLED)
            else:
                self.pass_on(body, dict(self.headers.items()), answers=fault != "answer lost")

        def answer(self, status: int, content: bytes) -> None:
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    with listening(Handler) as faults.port:
        yield faults
