"""Bounds of columns' values in each file: statistics are expensive to read, so each file's are read once.

What was read stays with the table of files, and goes on to the next version's (`FileTable.derived`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.log.arrays import mask_from_numpy
from deltamerge.log.file_table import FileTable
from deltamerge.skipping.columns import TargetColumn
from deltamerge.skipping.keys import ARRAYS, Bounds, KeyArray, Mask, as_mask, keys_of
from deltamerge.skipping.statistics import FileStatistics, read_statistics


@dataclass(frozen=True)
class _Read:
    """What was read of a column: bounds, one element per file of the table, and the files that were read."""

    bounds: Bounds
    files: Mask

    def at_next_version(self, kept: Mask, added: int) -> _Read:
        """Keep what was read of files that are still in the table; see `PerFile`."""

        def with_added(values: KeyArray) -> KeyArray:
            return np.concatenate([values[kept], np.zeros(added, values.dtype)])

        bounds: dict[str, Any] = {name: with_added(getattr(self.bounds, name)) for name in ARRAYS}
        return _Read(replace(self.bounds, **bounds), with_added(self.files))


def data_bounds(columns: Iterable[TargetColumn], files: FileTable, wanted: Mask) -> dict[tuple[str, ...], Bounds]:
    """Return the bounds of some columns by their statistics, by path, one element per wanted file.

    Columns that statistics do not know are left out. `wanted` are the files that are asked for, one bool per file.
    """
    # Structs, arrays and maps have no statistics of their own.
    asked = [column for column in columns if not column.partition and column.counts_nulls]
    derived = {column: files.derived.get(column) for column in asked}
    read = {column: found for column, found in derived.items() if isinstance(found, _Read)}
    lacking = [column for column in asked if column not in read or (wanted & ~read[column].files).any()]
    if lacking:
        # What any of them lacks is read for all of them: the JSON is parsed once.
        have = [read[column].files if column in read else np.zeros_like(wanted) for column in lacking]
        unread = as_mask(wanted & ~np.all(have, axis=0))
        found = read_statistics(_among(files.arrow.column("stats"), unread), lacking)
        read |= {column: _with(read.get(column), unread, _bounds_of(column, found)) for column in lacking}
        files.derived.update({column: read[column] for column in lacking})
    return {column.path: read[column].bounds.among(wanted) for column in asked}


def _among(column: pa.ChunkedArray, wanted: Mask) -> pa.ChunkedArray:
    return column if wanted.all() else column.filter(mask_from_numpy(wanted))


def _with(before: _Read | None, files: Mask, bounds: Bounds) -> _Read:
    if files.all():
        return _Read(bounds, files)
    arrays: dict[str, Any] = {}
    for name in ARRAYS:
        new = getattr(bounds, name)
        whole = np.zeros(len(files), new.dtype) if before is None else getattr(before.bounds, name).copy()
        whole[files] = new
        arrays[name] = whole
    return _Read(replace(bounds, **arrays), files if before is None else as_mask(files | before.files))


def _bounds_of(column: TargetColumn, statistics: FileStatistics) -> Bounds:
    """Return a data column's bounds from statistics.

    Wide bounds (``tightBounds`` false) need no care here: minima and maxima still bound every row, a nullCount of
    zero still means no NULL and one of all physical rows still means no value (Protocol: Per-file Statistics).
    """
    found = statistics.columns[column.path]
    count = len(found.null_count)
    may_be_null = ~_true(pc.equal(found.null_count, 0))
    may_be_value = ~_true(pc.greater_equal(found.null_count, statistics.num_records))
    if found.lower is None or found.upper is None or column.type is None:
        nothing, unknown = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool)
        return Bounds(nothing, nothing, unknown, unknown, may_be_null, may_be_value, False)
    lower, lower_known = keys_of(found.lower, column.type)
    upper, upper_known = keys_of(found.upper, column.type)
    # Bounds that contradict each other prove nothing.
    contradict = lower_known & upper_known & as_mask(lower > upper)
    return Bounds(
        lower=lower,
        upper=upper,
        lower_known=lower_known & ~contradict,
        upper_known=upper_known & ~contradict,
        may_be_null=may_be_null,
        may_be_value=may_be_value,
        hides_nan=column.type.kind in ("float", "double"),
    )


def _true(array: pa.Array) -> Mask:
    return as_mask(pc.fill_null(array, False).to_numpy(zero_copy_only=False))
