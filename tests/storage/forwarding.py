"""What the proxies of tests have in common: they pass requests on to a server of this machine."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Forwarding(BaseHTTPRequestHandler):
    """Passes each request on, and the answer back.

    Args:
        server_port: Where the server listens.
    """

    protocol_version = "HTTP/1.1"
    server_port: int

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def forward(self) -> None:
        """Handles a request."""
        self.pass_on(self.body(), dict(self.headers.items()))

    def body(self) -> bytes:
        """Reads a request's body."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def pass_on(self, body: bytes, headers: Mapping[str, str], *, answers: bool = True) -> None:
        """Asks the server, whose answer the client may not get."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server_port, timeout=60)
        connection.request(self.command, self.path, body, dict(headers))
        found = connection.getresponse()
        content = found.read()
        connection.close()
        if not answers:
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

    def do_GET(self) -> None:
        self.forward()

    do_PUT = do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815


@contextmanager
def listening(handler: type[Forwarding]) -> Iterator[int]:
    """Starts a proxy in threads of this process, and gives its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
