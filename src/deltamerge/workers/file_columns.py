"""Columns of Parquet files as a table has them: widened, with partition values, and NULL for what a file lacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from itertools import accumulate, chain
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.workers.files import Files, read_rows
from deltamerge.workers.partition_names import NULL_PARTITION
from deltamerge.workers.staged_rows import is_of_other_calendar
from deltamerge.workers.table_columns import has_times, in_plain_types, in_type, paths_of

_INTEGER = re.compile("-?[0-9]+")
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
# The most that the offsets of a string array can address.
_MOST_STRING_BYTES = (1 << 31) - 1

Asked: TypeAlias = Mapping[str, tuple[str, pa.DataType]]
"""Columns of a file by the names that they get: their names in the table, and their types."""


def read_columns(files: Files, path: str, values: Mapping[str, str | None], asked: Asked) -> pa.Table:
    """Read columns of a whole file; else as `read_row_groups`."""
    with files.parquet(path) as file:
        paths = [*chain(*_stored(file, values, asked).values())]
        rows = file.metadata.num_rows
    table = None
    if paths:
        with files.parquet_columns(path, paths) as file:
            table = read_rows(file, range(file.num_row_groups), paths)
    return _typed(table, rows, values, asked)


def read_row_groups(
    files: Files,
    path: str,
    values: Mapping[str, str | None],
    asked: Asked,
    needed: Callable[[int, int], bool],
) -> Iterator[tuple[int, pa.Table]]:
    """Read columns of a file, a row group at a time, each after the position of its first row in the file.

    A column that the file lacks is NULL.

    Args:
        needed: Returns whether some of the rows from one on and before another are needed.

    Raises:
        ValueError: They have other types in the file, another case or another calendar, or readers do not agree on what
            a partition value means.
    """
    with files.parquet(path) as file:
        paths = [*chain(*_stored(file, values, asked).values())]
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    ends = list(accumulate(sizes))
    wanted = [group for group, (rows, end) in enumerate(zip(sizes, ends, strict=True)) if needed(end - rows, end)]
    with files.parquet_columns(path, paths, wanted) as file:
        for group in wanted:
            table = read_rows(file, [group], paths) if paths else None
            yield ends[group] - sizes[group], _typed(table, sizes[group], values, asked)


def check_columns(files: Files, path: str, values: Mapping[str, str | None], asked: Asked) -> None:
    """Raise what `read_row_groups` would about a file, without reading its rows."""
    with files.parquet(path) as file:
        stored = _stored(file, values, asked)
        _typed(file.schema_arrow.empty_table().select(list(stored)), 0, values, asked)


def check_holds_any(files: Files, path: str, names: Sequence[str]) -> None:
    """Refuse a file without any of some columns: it may have been written under other names.

    Raises:
        ValueError: It has none of them.
    """
    with files.parquet(path) as file:
        if names and set(names).isdisjoint(file.schema_arrow.names):
            raise ValueError(f"the file has none of the columns {', '.join(names)}")


def _stored(file: pq.ParquetFile, values: Mapping[str, str | None], asked: Asked) -> dict[str, set[str]]:
    """Return the columns that a file has, and the paths of what is asked of each."""
    schema = file.schema_arrow
    names = {name for name, _ in asked.values() if name not in values}
    stored = {name: schema.field(name).type for name in sorted(names) if schema.get_field_index(name) >= 0}
    lowered = {name.lower() for name in schema.names}
    if any(name.lower() in lowered for name in names.difference(stored)):
        raise ValueError("the file spells a column in another case")
    if any(map(has_times, stored.values())) and is_of_other_calendar(file.metadata):
        raise ValueError("the file's dates and times are in the calendar of Spark 2")
    paths: dict[str, set[str]] = {name: set() for name in stored}
    for name, kind in asked.values():
        if name in stored:
            paths[name].update(paths_of(name, stored[name], kind))
    return paths


def _typed(table: pa.Table | None, rows: int, values: Mapping[str, str | None], asked: Asked) -> pa.Table:
    arrays = []
    table = None if table is None else in_plain_types(table)
    for name, kind in asked.values():
        if name in values:
            array = _constant(values[name], kind, rows)
        elif table is None or name not in table.column_names:
            array = pa.nulls(rows, kind)
        else:
            array = in_type(table.column(name), kind)
        if array is None or array.type != kind:
            raise ValueError(f"column {name} is not {kind}, or its partition value is not spelled as usual")
        arrays.append(array)
    # A table without columns has as many rows, too, where it had one.
    return pa.table([*arrays, pa.nulls(rows)], names=[*asked, ""]).select(list(range(len(arrays))))


def _constant(string: str | None, kind: pa.DataType, rows: int) -> Any:  # noqa: ANN401
    """Return a partition's value for each row; None where readers do not agree on what the string means."""
    if string is None:
        return pa.nulls(rows, kind)
    if string in ("", NULL_PARTITION):
        return None
    if len(string.encode()) * rows > _MOST_STRING_BYTES:
        return None
    value = _read(string, kind)
    return None if value is None else pa.repeat(pa.scalar(value, kind), rows)


def _read(string: str, kind: pa.DataType) -> str | int | bool | date | None:
    """Read a partition's value; None where it is spelled in another way than usual, or is none of the type's."""
    if pa.types.is_string(kind):
        return string
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}.get(string)
    try:
        if pa.types.is_date(kind):
            return date.fromisoformat(string) if _DAY.fullmatch(string) else None
        value = int(string) if _INTEGER.fullmatch(string) else None
    except ValueError:
        return None
    most = 1 << (kind.bit_width - 1)
    return value if value is not None and -most <= value < most else None
