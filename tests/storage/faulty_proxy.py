"""A proxy in front of an S3 server that fails: errors, throttling, no answer, or an answer that is lost."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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

    port: int
    random: random.Random
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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:
                self.close_connection = True

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = faults.next()
            if fault == "hangs":
                time.sleep(_HANGS_FOR)
                self.close_connection = True
            elif fault in ("error", "throttled"):
                self.answer(500, _ERROR) if fault == "error" else self.answer(503, _THROTTLED)
            else:
                self.pass_on(body, is_lost=fault == "answer lost")

        def pass_on(self, body: bytes, *, is_lost: bool) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", server_port, timeout=60)
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            found = connection.getresponse()
            content = found.read()
            connection.close()
            if is_lost:
                self.close_connection = True
                return
            self.send_response_only(found.status)
            for name, value in found.getheaders():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            length = found.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(content)

        def answer(self, status: int, content: bytes) -> None:
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward  # noqa: N815

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    faults = Faults(listening.server_address[1], random.Random(seed))
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    try:
        yield faults
    finally:
        listening.shutdown()
        listening.server_close()
