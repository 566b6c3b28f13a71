"""A remote Parquet file, whose parts are requested at once: one after another they would take many times as long."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate, chain
from threading import Lock
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.workers.ranged_file import RangedFile
from deltamerge.workers.remote_ranges import Ranges

_REQUESTS = 16
_PART_BYTES = 4 << 20
# A file of this size is requested as a whole: its columns alone would take as long.
_SMALL_BYTES = 4 << 20

_Span: TypeAlias = tuple[int, int]


class RemoteFile:
    """A file as it was when it was opened, with its footer and what is to be kept of its bytes."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._lock = Lock()
        self.size = ranges.version[0]
        tail = _Parts([(self.size - len(ranges.tail), ranges.tail)] if len(ranges.tail) else [])
        self._end = bytes(memoryview(ranges.tail)[-8:])
        self.metadata: Any = pq.read_metadata(RangedFile(self.size, partial(self._read, tail)))
        # Of a larger file the footer is all that its end is good for.
        self._kept = tail if len(ranges.tail) == self.size else _Parts([])

    @property
    def version(self) -> tuple[int, int]:
        """Its size in bytes and when it was changed, nanoseconds since 1970."""
        return self._ranges.version

    @property
    def footer_bytes(self) -> int:
        """The bytes of its footer, by what is written at the file's end."""
        end = self._end or self._read(self._kept, self.size - 8, self.size)
        return int.from_bytes(memoryview(end)[:4], "little")

    def parquet(self, ranges: Iterable[_Span] = (), int96: str | None = None, *, keep: bool = False) -> pq.ParquetFile:
        """Open the file with ranges of its bytes in memory; any other is requested when it is asked for.

        Args:
            ranges: Where each begins, and where it ends.
            int96: The unit of INT96 timestamps.
            keep: Whether they stay as long as this object, for others that open them.
        """
        wanted = _united(ranges, self._ranges.gap)
        if wanted and keep:
            with self._lock:
                self._kept = self._with(self._kept, [(0, self.size)] if self.size <= _SMALL_BYTES else wanted)
        read = partial(self._read, self._kept) if keep else self.reader(wanted)
        # Where all that is read is in memory, to buffer it once more would only copy it.
        return self.opened(read, int96, pre_buffer=not wanted)

    def reader(self, ranges: Iterable[_Span]) -> Callable[[int, int], Any]:
        """Return the function that returns the file's bytes from a place on and before another, ranges from memory."""
        return partial(self._read, self._with(self._kept, _united(ranges, self._ranges.gap)))

    def opened(
        self, read: Callable[[int, int], Any], int96: str | None = None, *, pre_buffer: bool = False
    ) -> pq.ParquetFile:
        """Open the file by a function that returns its bytes."""
        return pq.ParquetFile(
            RangedFile(self.size, read),
            metadata=self.metadata,
            pre_buffer=pre_buffer,
            coerce_int96_timestamp_unit=int96,
            page_checksum_verification=True,
        )

    def _read(self, parts: _Parts, first: int, end: int) -> Any:  # noqa: ANN401
        pieces, at = [], first
        while at < end:
            part, place = parts.at(at)
            if part is None:
                pieces.append(self._ranges.read(at, end if place < 0 else min(place, end)))
            else:
                pieces.append(pa.py_buffer(part).slice(place, min(len(part) - place, end - at)))
            if not len(pieces[-1]):
                raise ValueError(f"it ends at or before byte {at}, not at {self.size}: it was cut off meanwhile")
            at += len(pieces[-1])
        # One piece is not copied.
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _with(self, parts: _Parts, wanted: Sequence[_Span]) -> _Parts:
        missing = list(chain.from_iterable(map(_split, chain.from_iterable(map(parts.missing, wanted)))))
        if not missing:
            return parts
        with ThreadPoolExecutor(min(len(missing), _REQUESTS)) as pool:
            read = list(pool.map(lambda span: self._ranges.read(*span), missing))
        return _Parts([*parts.items, *((first, part) for (first, _), part in zip(missing, read, strict=True))])


def column_ranges(metadata: Any, names: Sequence[str], groups: Iterable[int]) -> list[_Span]:  # noqa: ANN401
    """Return where the chunks of columns and fields (`a.b`) are, with all that is in them, in some row groups."""
    wanted, found = set(names), []
    for number in groups:
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            if not wanted.isdisjoint(accumulate(column.path_in_schema.split("."), "{}.{}".format)):
                first = column.data_page_offset
                if column.has_dictionary_page and column.dictionary_page_offset:
                    first = min(first, column.dictionary_page_offset)
                found.append((first, first + column.total_compressed_size))
    return found


def _united(ranges: Iterable[_Span], gap: int) -> list[_Span]:
    united: list[_Span] = []
    for first, end in sorted(ranges):
        if united and first - united[-1][1] <= gap:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((first, end))
    return united


def _split(part: _Span) -> list[_Span]:
    first, end = part
    return [(start, min(start + _PART_BYTES, end)) for start in range(first, end, _PART_BYTES)]


class _Parts:
    """Bytes in memory, each part with where it begins; no two overlap."""

    def __init__(self, items: Iterable[tuple[int, Any]]) -> None:
        self.items = sorted(items, key=lambda item: item[0])
        self._starts = [first for first, _ in self.items]

    def missing(self, wanted: _Span) -> list[_Span]:
        found, (at, end) = [], wanted
        for first, part in self.items:
            if first >= end:
                break
            if first > at:
                found.append((at, first))
            at = max(at, first + len(part))
        return [*found, (at, end)] if at < end else found

    def at(self, place: int) -> tuple[Any, int]:
        """Return the part that has a place, and where it is there; else nothing, and where the next part begins."""
        index = bisect_right(self._starts, place) - 1
        if index >= 0 and place - self._starts[index] < len(self.items[index][1]):
            return self.items[index][1], place - self._starts[index]
        return None, self._starts[index + 1] if index + 1 < len(self._starts) else -1
