"""Which files may hold a row that a predicate is TRUE for; what is unknown may always match.

A leaf becomes intervals of keys (`literals`, `keys`) and those meet every file's bounds at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.log.arrays import mask_from_numpy
from deltamerge.log.file_table import FileTable
from deltamerge.log.schema import StructType
from deltamerge.skipping import predicates
from deltamerge.skipping.columns import ColumnType, TargetColumn, find_column, referenced_columns
from deltamerge.skipping.intervals import interval_of, may_differ, may_meet, may_meet_any, may_start_with
from deltamerge.skipping.keys import ARRAYS, Bounds, Key, KeyArray, Mask, as_mask, keys_of
from deltamerge.skipping.literals import span_function
from deltamerge.skipping.partition_values import partition_bounds
from deltamerge.skipping.statistics import FileStatistics, read_statistics

_ORDERED = ("integral", "decimal", "string", "date", "timestamp")


def files_that_may_match(
    predicate: predicates.Predicate,
    files: FileTable,
    schema: StructType,
    partition_columns: Iterable[str],
    session_time_zone: str,
    among: Mask | None = None,
) -> Mask:
    """Return which files may hold a row for which a predicate is TRUE.

    FALSE is certain: no row of the file matches, or it was not asked for. TRUE proves nothing. `schema` spells
    names as the predicate does. Only the files of `among` are asked for, one bool per file.
    """
    pushed = predicates.push_not_down(predicate)
    columns = _columns(sorted(referenced_columns(pushed)), schema, partition_columns)
    bounds = _partition_bounds(columns, files, session_time_zone)
    mask = _evaluate(pushed, _Scope(columns, bounds, files.num_files, session_time_zone))
    mask = mask.copy() if among is None else as_mask(mask & among)
    if len(bounds) == len(columns) or not mask.any():
        return mask
    # Statistics are expensive to read: only those of the files that partition values leave.
    bounds = {path: of_column.among(mask) for path, of_column in bounds.items()}
    bounds |= data_bounds(columns.values(), files, mask)
    mask[mask] = _evaluate(pushed, _Scope(columns, bounds, int(mask.sum()), session_time_zone))
    return mask


def extents(
    paths: Iterable[tuple[str, ...]],
    files: FileTable,
    schema: StructType,
    partition_columns: Iterable[str],
    session_time_zone: str,
    among: Mask,
) -> dict[tuple[str, ...], tuple[Key, Key]]:
    """Return the least and the greatest value of columns in a table's files, as far as the log has them.

    Values are integers, unscaled decimals, strings, days and microseconds since 1970; other columns, and those of
    which nothing is known, are left out. Only the files of `among` are asked for, one bool per file.
    """
    found = _columns(paths, schema, partition_columns)
    columns = {path: c for path, c in found.items() if c.type is not None and c.type.kind in _ORDERED}
    of_partitions = _partition_bounds(columns, files, session_time_zone)
    bounds = {path: of_column.among(among) for path, of_column in of_partitions.items()}
    bounds |= data_bounds(columns.values(), files, among)
    ends: dict[tuple[str, ...], tuple[Key, Key]] = {}
    for path, of_column in bounds.items():
        known = of_column.lower_known & of_column.upper_known & of_column.may_be_value
        if known.any():
            low, high = of_column.lower[known].min(), of_column.upper[known].max()
            ends[path] = (low, high) if isinstance(low, str) else (int(low), int(high))
    return ends


def _columns(
    paths: Iterable[tuple[str, ...]], schema: StructType, partition_columns: Iterable[str]
) -> dict[tuple[str, ...], TargetColumn]:
    partitions = frozenset(partition_columns)
    found = (find_column(schema, path, partitions) for path in paths)
    return {column.path: column for column in found if column is not None}


@dataclass(frozen=True)
class _Scope:
    columns: Mapping[tuple[str, ...], TargetColumn]
    bounds: Mapping[tuple[str, ...], Bounds]
    num_files: int
    session_time_zone: str


def _partition_bounds(
    columns: Mapping[tuple[str, ...], TargetColumn], files: FileTable, session_time_zone: str
) -> dict[tuple[str, ...], Bounds]:
    wanted = [column for column in columns.values() if column.partition]
    if not wanted:
        return {}
    maps = files.arrow.column("partition_values")
    values = pa.concat_arrays(maps.chunks) if maps.num_chunks else pa.array([], maps.type)
    return {
        column.path: partition_bounds(values, column.physical_path[0], column.type, session_time_zone)
        for column in wanted
    }


def _evaluate(predicate: predicates.Predicate, scope: _Scope) -> Mask:
    if isinstance(predicate, predicates.And):
        mask = np.ones(scope.num_files, dtype=bool)
        for part in predicate.parts:
            mask &= _evaluate(part, scope)
        return mask
    if isinstance(predicate, predicates.Or):
        mask = np.zeros(scope.num_files, dtype=bool)
        for part in predicate.parts:
            mask |= _evaluate(part, scope)
        return mask
    if isinstance(predicate, (predicates.Unknown, predicates.Not)) or predicate.column.path not in scope.bounds:
        return np.ones(scope.num_files, dtype=bool)
    return _column_matches(predicate, scope)


def _column_matches(predicate: predicates.ColumnPredicate, scope: _Scope) -> Mask:
    bounds = scope.bounds[predicate.column.path]
    if isinstance(predicate, predicates.IsNull):
        return bounds.may_be_null
    if isinstance(predicate, predicates.IsNotNull):
        return bounds.may_be_value
    kind = scope.columns[predicate.column.path].type
    if isinstance(predicate, predicates.StartsWith):
        if kind is None or kind.kind != "string":
            return bounds.may_be_value
        return as_mask(bounds.may_be_value & may_start_with(predicate.prefix, bounds))
    zone = scope.session_time_zone
    if isinstance(predicate, predicates.Comparison):
        return _comparison(predicate, bounds, kind, zone)
    if isinstance(predicate, predicates.In):
        points = ((value, value) for value in predicate.values if value is not None)
        return _in_ranges(points, predicate.type_name, bounds, kind, zone)
    mask = _in_ranges(predicate.ranges, predicate.type_name, bounds, kind, zone)
    return as_mask(mask | bounds.may_be_null) if predicate.or_null else mask


def _comparison(
    predicate: predicates.Comparison, bounds: Bounds, kind: ColumnType | None, session_time_zone: str
) -> Mask:
    if predicate.value is None:
        return bounds.may_be_null if predicate.op == "<=>" else np.zeros(len(bounds.may_be_null), dtype=bool)
    span_of = None if kind is None else span_function(kind, predicate.type_name, session_time_zone)
    span = None if span_of is None else span_of(predicate.value)
    if span is None or kind is None:
        return bounds.may_be_value
    if predicate.op == "<>":
        if predicate.type_name == "string" and kind.kind != "string":
            # Of NOT IN Spark may compare the strings, which several spellings of one value are.
            return bounds.may_be_value
        return as_mask(bounds.may_be_value & may_differ(span, bounds))
    interval = interval_of(predicate.op, span, kind)
    if interval is None:
        return bounds.may_be_value
    return as_mask(bounds.may_be_value & may_meet(interval, bounds, kind))


def _in_ranges(
    ranges: Iterable[tuple[object, object]],
    type_name: str,
    bounds: Bounds,
    kind: ColumnType | None,
    session_time_zone: str,
) -> Mask:
    """Evaluate closed ranges of literals; one that cannot be placed makes every file with values match."""
    span_of = None if kind is None else span_function(kind, type_name, session_time_zone)
    if span_of is None or kind is None:
        return bounds.may_be_value
    lows: list[Key] = []
    highs: list[Key] = []
    for low, high in ranges:
        from_span = span_of(low)
        to_span = from_span if high is low else span_of(high)
        if from_span is None or to_span is None:
            return bounds.may_be_value
        if from_span.low <= to_span.high:  # type: ignore[operator]
            lows.append(from_span.low)
            highs.append(to_span.high)
    return as_mask(bounds.may_be_value & may_meet_any(lows, highs, bounds, kind))


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
