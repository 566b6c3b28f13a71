"""A proxy in front of an S3 server on this machine that is as far away as a real one.

    python benchmarks/slow_proxy.py PORT SERVER_PORT

Each request takes 30 ms more, and each connection takes at most 100 MB a second in each direction. A line on standard
input is answered with the number of requests and the bytes of their bodies since the last one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

DELAY = 0.030
BYTES_PER_SECOND = 100_000_000
_PIECE = 1 << 18


class Proxy:
    """Forwards HTTP/1.1 requests.

    Args:
        server_port: Where the server listens, on this machine.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self.requests: dict[str, int] = {}
        self.bytes = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward the requests of a connection until it ends."""
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port, limit=1 << 20)
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method = head.split(b" ", 1)[0].decode()
                self.requests[method] = self.requests.get(method, 0) + 1
                await asyncio.sleep(DELAY)
                to_server.write(_without_expectation(head))
                if b"100-continue" in head.lower():
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                await self._forward_body(head, reader, to_server, is_request=True)
                answer = await server.readuntil(b"\r\n\r\n")
                while answer.startswith(b"HTTP/1.1 100"):
                    answer = await server.readuntil(b"\r\n\r\n")
                writer.write(answer)
                status = answer.split(b" ", 2)[1]
                if method != "HEAD" and status not in (b"204", b"304"):
                    await self._forward_body(answer, server, writer, is_request=False)
                await writer.drain()
                if b"connection: close" in answer.lower():
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            # Either side has ended the connection.
            return
        finally:
            writer.close()

    async def _forward_body(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool
    ) -> None:
        headers = _headers(head)
        if "chunked" in headers.get("transfer-encoding", "").lower():
            await self._forward_chunks(reader, writer)
        elif "content-length" in headers:
            await self._forward(int(headers["content-length"]), reader, writer)
        elif not is_request:
            while piece := await reader.read(_PIECE):
                await self._send(piece, writer)

    async def _forward_chunks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            line = await reader.readuntil(b"\r\n")
            writer.write(line)
            length = int(line.split(b";")[0], 16)
            await self._forward(length + 2, reader, writer)
            if not length:
                return

    async def _forward(self, length: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while length:
            piece = await reader.readexactly(min(length, _PIECE))
            length -= len(piece)
            await self._send(piece, writer)

    async def _send(self, piece: bytes, writer: asyncio.StreamWriter) -> None:
        began = time.monotonic()
        writer.write(piece)
        await writer.drain()
        self.bytes += len(piece)
        left = len(piece) / BYTES_PER_SECOND - (time.monotonic() - began)
        if left > 0:
            await asyncio.sleep(left)

    def count(self) -> str:
        """Return what was forwarded since the last count, as JSON."""
        found = json.dumps({"requests": self.requests, "bytes": self.bytes})
        self.requests, self.bytes = {}, 0
        return found


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}


def _without_expectation(head: bytes) -> bytes:
    lines = head.split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.lower().startswith(b"expect:"))


async def _serve(port: int, server_port: int) -> None:
    proxy = Proxy(server_port)
    server = await asyncio.start_server(proxy.connected, "127.0.0.1", port, limit=1 << 20)
    loop = asyncio.get_running_loop()
    print("ready", flush=True)
    async with server:
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(proxy.count(), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
