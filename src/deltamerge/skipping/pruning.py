"""Which files may hold a row that a predicate is TRUE for; what is unknown may always match.

A leaf becomes intervals of keys (`literals`, `keys`) and those meet every file's bounds at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from deltamerge.log.file_table import FileTable
from deltamerge.log.schema import StructType
from deltamerge.skipping import predicates
from deltamerge.skipping.bounds import data_bounds
from deltamerge.skipping.columns import ColumnType, TargetColumn, find_column, referenced_columns
from deltamerge.skipping.intervals import interval_of, may_differ, may_meet, may_meet_any, may_start_with
from deltamerge.skipping.keys import Bounds, Key, Mask, as_mask
from deltamerge.skipping.literals import span_function
from deltamerge.skipping.partition_values import partition_bounds

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
    """What leaves are evaluated against."""

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
