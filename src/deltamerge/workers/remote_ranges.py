"""Ranges of a remote file's bytes, by obstore where this process has it, else by one of PyArrow's file systems."""

from __future__ import annotations

from typing import Any, Protocol

from deltamerge.workers.obstore_client import ObstoreClient

# A request takes as long as the transfer of some megabytes; this much holds most footers.
_TAIL_BYTES = 1 << 16
STORE_GAP = 1 << 20
HDFS_GAP = 1 << 17


class Ranges(Protocol):
    """A remote file as it was when it was opened.

    `version` is its size in bytes and when it was changed, nanoseconds since 1970; `tail` are the bytes at its end that
    are known already; `gap` is how many bytes between two ranges are read with them, since a request of its own would
    take longer.
    """

    gap: int
    version: tuple[int, int]
    tail: Any

    def read(self, first: int, end: int) -> Any:  # noqa: ANN401
        """Request a range of bytes.

        Raises:
            ValueError: obstore found that the file was changed since it was opened. PyArrow's file systems do not look.
            OSError: The store does not return them.
        """


class ArrowRanges:
    """A file that one of PyArrow's file systems opens."""

    def __init__(self, system: Any, key: str, gap: int) -> None:  # noqa: ANN401
        info = system.get_file_info(key)
        if not info.is_file:
            raise FileNotFoundError(key)
        self._file = system.open_input_file(key)
        self.gap = gap
        self.version: tuple[int, int] = (info.size, info.mtime_ns)
        self.tail = self.read(max(0, info.size - _TAIL_BYTES), info.size)

    def read(self, first: int, end: int) -> Any:  # noqa: ANN401
        return self._file.read_at(end - first, first)


class StoreRanges:
    """A file that obstore opens with the request that reads its end.

    Every other request asks for the same version of the file.
    """

    def __init__(self, client: ObstoreClient, key: str, *, has_suffixes: bool) -> None:
        self._client = client
        self._key = key
        self.gap = STORE_GAP
        if has_suffixes:
            meta, self.tail = client.get(key, {"range": {"suffix": _TAIL_BYTES}})
        else:
            meta, self.tail = client.head(key), b""
        self._tag = meta["e_tag"]
        modified = meta["last_modified"]
        self.version: tuple[int, int] = (meta["size"], int(modified.timestamp() * 1_000_000) * 1_000)

    def read(self, first: int, end: int) -> Any:  # noqa: ANN401
        if first >= end:
            return b""
        version = {} if self._tag is None else {"if_match": self._tag}
        return self._client.get(self._key, {"range": (first, end), **version})[1]
