"""Parts of a Parquet file in a store, requested at once: one after another they would take as many times as long."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import pyarrow.parquet as pq

_REQUESTS = 16
_PART_BYTES = 4 << 20
# What lies between two ranges is read with them where a request of its own would take longer.
_GAP_BYTES = 256 << 10


def in_python(source: Any) -> io.RawIOBase:  # noqa: ANN401
    """Return a file with a position of its own over one that is read by ranges."""
    return _Parts(source, [], [])


def fetched(source: Any, metadata: Any, ranges: Iterable[tuple[int, int]]) -> pq.ParquetFile:  # noqa: ANN401
    """Return a Parquet file that has ranges of its bytes in memory, and reads any other when it is asked for.

    Args:
        source: The file, as PyArrow opens it.
        metadata: Its footer.
        ranges: Where each begins, and where it ends.
    """
    parts = list(chain.from_iterable(map(_split, _united(ranges))))
    with ThreadPoolExecutor(max(1, min(len(parts), _REQUESTS))) as pool:
        read = list(pool.map(lambda part: source.read_at(part[1] - part[0], part[0]), parts))
    return pq.ParquetFile(_Parts(source, [first for first, _ in parts], read), metadata=metadata)


def column_ranges(metadata: Any, names: Sequence[str], groups: Iterable[int]) -> list[tuple[int, int]]:  # noqa: ANN401
    """Return where the chunks of columns are, with all their fields, in some row groups."""
    wanted, found = set(names), []
    for number in groups:
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            if column.path_in_schema.partition(".")[0] in wanted or column.path_in_schema in wanted:
                first = column.data_page_offset
                if column.has_dictionary_page and column.dictionary_page_offset:
                    first = min(first, column.dictionary_page_offset)
                found.append((first, first + column.total_compressed_size))
    return found


def _united(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    united: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if united and first - united[-1][1] <= _GAP_BYTES:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((first, end))
    return united


def _split(part: tuple[int, int]) -> list[tuple[int, int]]:
    first, end = part
    return [(start, min(start + _PART_BYTES, end)) for start in range(first, end, _PART_BYTES)]


class _Parts(io.RawIOBase):
    """A file of which some parts, in order of where they begin, are in memory."""

    def __init__(self, source: Any, starts: list[int], parts: list[bytes]) -> None:  # noqa: ANN401
        self._source = source
        self._starts = starts
        self._parts = parts
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size()}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        first = self._position
        end = self._source.size() if size < 0 else min(first + size, self._source.size())
        pieces, at = [], first
        while at < end:
            place = bisect_right(self._starts, at) - 1
            offset = at - self._starts[place] if place >= 0 else 0
            if place < 0 or offset >= len(self._parts[place]):
                until = self._starts[place + 1] if place + 1 < len(self._starts) else end
                pieces.append(self._source.read_at(min(until, end) - at, at))
            else:
                pieces.append(self._parts[place][offset : offset + end - at])
            at += len(pieces[-1])
        self._position = end
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
