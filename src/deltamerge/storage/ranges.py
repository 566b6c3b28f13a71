"""A file that is read by ranges, as Python's raw file."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import IO, Any, TypeAlias

_Buffer: TypeAlias = Any
_BUFFER_BYTES = 1 << 20


def open_ranges(read: Callable[[int, int], Any], size: int) -> IO[bytes]:
    """Return a buffered file of `size` bytes; `read` takes an offset and a length and returns a buffer."""
    return io.BufferedReader(_Ranges(read, size), buffer_size=_BUFFER_BYTES)


class _Ranges(io.RawIOBase):
    def __init__(self, read: Callable[[int, int], Any], size: int) -> None:
        self._read = read
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: _Buffer) -> int:
        length = min(len(buffer), self._size - self._position)
        if length <= 0:
            return 0
        buffer[:length] = memoryview(self._read(self._position, length))
        self._position += length
        return length
