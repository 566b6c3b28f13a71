"""A new file of a store: sent with one request where it is not large, and nothing of it before."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

# One connection sends this much in less time than an upload in parts takes to begin and to end.
_MOST_BYTES = 16 << 20


class StoreUpload(io.RawIOBase):
    """A file that is written from its beginning to its end.

    Args:
        put: Sends a whole file.
        in_parts: Opens the file for an upload in parts.
    """

    def __init__(self, put: Callable[[bytes], object], in_parts: Callable[[], Any]) -> None:
        self._put = put
        self._in_parts = in_parts
        self._written = bytearray()
        self._parts: Any = None
        self._position = 0
        self.is_kept = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:  # noqa: ANN401
        length = memoryview(data).nbytes
        if self._parts is None and len(self._written) + length > _MOST_BYTES:
            self._parts = self._in_parts()
            self._parts.write(bytes(self._written))
            self._written.clear()
        if self._parts is None:
            self._written += data
        else:
            self._parts.write(data)
        self._position += length
        return length

    def close(self) -> None:
        """Send the file if it is to be kept; an upload in parts ends in any case."""
        if self.closed:
            return
        super().close()
        if self._parts is not None:
            self._parts.close()
        elif self.is_kept:
            self._put(bytes(self._written))

    @property
    def has_begun(self) -> bool:
        """Whether something of it was sent before it was closed."""
        return self._parts is not None
