"""Parts of a source's rows: of one that is too large for each task, the row groups that have what the task takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.workers.files import Files, read_rows
from deltamerge.workers.staged_rows import StagedFile, StagedRows, open_staged, taken
from deltamerge.workers.table_columns import in_plain_types

_Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_Found: TypeAlias = tuple[_Numbers, pa.Table]

_BLOCK_BITS = 17
ROW_NUMBER = "row number"
"""The column of an exchanged row group with the rows' numbers in the source."""


@dataclass(frozen=True)
class RowGroup:
    """A row group of a file that `source_exchange` wrote."""

    path: str
    number: int


@dataclass(frozen=True)
class SourcePart:
    """Some rows of a source, or all.

    Args:
        numbers: Their numbers in the source, in order; None where they are all.
    """

    rows: pa.Table
    numbers: _Numbers | None = None

    def places(self, numbers: _Numbers) -> _Numbers:
        """Return where rows of the source are among these.

        Raises:
            ValueError: One is not among them.
        """
        if self.numbers is None:
            return numbers
        places = np.searchsorted(self.numbers, numbers)
        is_there = places < len(self.numbers)
        if not is_there.all() or not np.array_equal(self.numbers[places], numbers):
            raise ValueError("a part of the source lacks rows that it should have")
        return places

    def between(self, first: int, end: int) -> SourcePart:
        """Return those of the rows whose numbers begin at one and end before another."""
        if self.numbers is None:
            return SourcePart(self.rows.slice(first, end - first), np.arange(first, end))
        begin, stop = np.searchsorted(self.numbers, [first, end]).tolist()
        return SourcePart(self.rows.slice(begin, stop - begin), self.numbers[begin:stop])


def rows_opened(numbers: _Numbers) -> int:
    """Estimate how many rows are opened to take some: as if row groups had 131,072 rows."""
    return int(np.count_nonzero(np.bincount(numbers >> _BLOCK_BITS))) << _BLOCK_BITS


class SourceOpener:
    """Opens columns of a source's rows: all at once, and only once, or the parts with the rows that are taken.

    Args:
        prepare: Is called with the rows that were opened, and returns them for their use.
    """

    def __init__(
        self,
        files: Files,
        staged: StagedRows,
        columns: Sequence[str],
        prepare: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    ) -> None:
        self._files = files
        self._staged = staged
        self._columns = columns
        self._prepare = prepare
        self._all: SourcePart | None = None
        self._computed: pa.Table | None = None

    def part_with(self, numbers: _Numbers, exchanged: Sequence[RowGroup] = ()) -> SourcePart:
        """Return rows among which those of some numbers are.

        Args:
            exchanged: Where they are, if they were brought together.

        Raises:
            SourceChanged: A file of the source is another one now.
        """
        if not self._staged.in_parts:
            return self.all
        is_here = bool(exchanged)
        part = _open_exchanged(self._files, exchanged, self._columns) if is_here else self._with_computed(numbers)
        return replace(part, rows=self._prepare(part.rows))

    def _with_computed(self, numbers: _Numbers) -> SourcePart:
        computed = self._staged.beside(self._columns)
        in_files = [name for name in self._columns if name not in computed]
        part = _open_part(self._files, self._staged, in_files, np.sort(numbers))
        if not computed:
            return part
        if self._computed is None:
            self._computed = open_staged(self._files, self._staged, computed)
        assert part.numbers is not None
        beside = {name: taken(self._computed.column(name), part.numbers) for name in computed}
        columns = {name: beside[name] if name in beside else part.rows.column(name) for name in self._columns}
        return replace(part, rows=pa.table(columns))

    @property
    def all(self) -> SourcePart:
        if self._all is None:
            self._all = SourcePart(self._prepare(open_staged(self._files, self._staged, self._columns)))
        return self._all


def _open_part(files: Files, staged: StagedRows, columns: Sequence[str], wanted: _Numbers) -> SourcePart:
    """Return the row groups that have wanted rows; of a file of Arrow, which is mapped into memory, all.

    Args:
        wanted: Their numbers, in order.
    """
    names = [staged.names.get(name, name) for name in columns]
    ends = np.cumsum([file.rows for file in staged.files])
    begins = ends - [file.rows for file in staged.files]
    places = np.searchsorted(wanted, [begins, ends])
    # Without any row there are columns all the same.
    opened = [number for number, has_some in enumerate(places[0] < places[1]) if has_some] or [0]
    some = [(staged.files[number], int(begins[number])) for number in opened]
    work = partial(_rows_of_file, files, names=names, wanted=wanted)
    return _part(list(files.ahead(work, some, [file.path for file, _ in some])), columns)


def _rows_of_file(files: Files, some: tuple[StagedFile, int], names: list[str], wanted: _Numbers) -> _Found:
    """Return the row groups of a file with wanted rows; the number of its first row is given with it."""
    file, first = some
    if file.is_arrow:
        return np.arange(first, first + file.rows), files.arrow(file.path).select(names)
    with file.unchanged(files):
        with files.parquet(file.path, memory_map=file.is_staged) as opened:
            sizes = np.array([opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)], int)
        ends = first + np.cumsum(sizes)
        places = np.searchsorted(wanted, [ends - sizes, ends])
        groups = np.flatnonzero(places[0] < places[1]).tolist()
        with files.parquet_columns(file.path, names, groups, memory_map=file.is_staged) as opened:
            table = _read(opened, groups, names)
    numbers = [np.arange(ends[group] - sizes[group], ends[group]) for group in groups]
    return np.concatenate([*numbers, np.zeros(0, np.int64)]), table


def _open_exchanged(files: Files, groups: Sequence[RowGroup], columns: Sequence[str]) -> SourcePart:
    """Return row groups whose rows are in order."""
    names = [ROW_NUMBER, *columns]

    def rows_of(group: RowGroup) -> _Found:
        with files.parquet_columns(group.path, names, [group.number]) as opened:
            table = _read(opened, [group.number], names)
        return table.column(ROW_NUMBER).to_numpy(), table.select(list(columns))

    return _part(list(files.ahead(rows_of, groups, [group.path for group in groups])), columns)


def _read(opened: pq.ParquetFile, groups: list[int], names: list[str]) -> pa.Table:
    return in_plain_types(read_rows(opened, groups, names).select(names))


def _part(found: Sequence[_Found], columns: Sequence[str]) -> SourcePart:
    rows = pa.concat_tables([table.rename_columns(list(columns)) for _, table in found])
    return SourcePart(rows, np.concatenate([numbers for numbers, _ in found]))
