"""A file that is read by ranges, as Python's raw file."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import IO, Any, TypeAlias

# Whatever has the buffer protocol: the libraries' buffers have no common type.
_Buffer: TypeAlias = Any
_BUFFER_BYTES = 1 << 20


class RangedFile(io.RawIOBase):
    """A file of `size` bytes with a position of its own; `read_range` takes where a range begins and where it ends."""

    def __init__(self, size: int, read_range: Callable[[int, int], _Buffer]) -> None:
        self._size = size
        self._read_range = read_range
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

    def read(self, size: int = -1) -> _Buffer:
        """Read a range as the buffer that has it: PyArrow takes any, and does not copy it."""
        first = self._position
        end = self._size if size < 0 else min(first + size, self._size)
        if first >= end:
            return b""
        self._position = end
        return self._read_range(first, end)

    def readall(self) -> bytes:
        return bytes(self.read())

    def readinto(self, buffer: _Buffer) -> int:
        found = memoryview(self.read(len(buffer))).cast("B")
        buffer[: len(found)] = found
        return len(found)


def open_ranges(size: int, read_range: Callable[[int, int], _Buffer]) -> IO[bytes]:
    """Return a buffered file, for readers that take small pieces; see `RangedFile`."""
    return io.BufferedReader(RangedFile(size, read_range), buffer_size=_BUFFER_BYTES)
