"""Which floating-point columns of a Parquet file have NaN, recorded in its footer where PyArrow writes it.

Parquet's own statistics leave NaN out, which Spark has above all numbers: a maximum means something only together with
this. Spark's Python workers run this module by value, so it imports nothing of this package.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NAN_COLUMNS = b"deltamerge.nan_columns"


class NanColumns:
    """Look at rows on their way into a file.

    Args:
        schema: The file's schema; floating-point columns and fields of structs are watched, elements of lists and
            maps, which have no statistics, are not.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._found = {(field.name, *path): False for field in schema for path in _floating_point(field.type, ())}

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(name for name, *_ in self._found)

    def watch(self, table: pa.Table) -> None:
        for path, known in self._found.items():
            self._found[path] = known or (path[0] in table.column_names and _has_nan(table, path))

    def is_in(self, table: pa.Table, column: str) -> bool:
        return any(_has_nan(table, path) for path in self._found if path[0] == column)

    def as_metadata(self) -> dict[bytes, bytes]:
        """Return key-value metadata for the footer; none without floating-point columns."""
        if not self._found:
            return {}
        return {NAN_COLUMNS: json.dumps([[*path, known] for path, known in self._found.items()]).encode()}


def nan_columns(metadata: Mapping[bytes, bytes] | None) -> dict[tuple[str, ...], bool]:
    """Read what `NanColumns` recorded.

    Args:
        metadata: The file's key-value metadata, as a task of this merge or write has returned it; other files may
            carry metadata on from the file they were made of.

    Returns:
        Whether there is NaN, by the column's path in the file; a column that is not there is not known.
    """
    recorded = json.loads((metadata or {}).get(NAN_COLUMNS, b"[]"))
    return {tuple(path): known for *path, known in recorded}


def _floating_point(kind: pa.DataType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        yield path
    if pa.types.is_struct(kind):
        for field in (kind.field(index) for index in range(kind.num_fields)):
            yield from _floating_point(field.type, (*path, field.name))


def _has_nan(table: pa.Table, path: tuple[str, ...]) -> bool:
    return pc.any(pc.is_nan(_column(table, path))).as_py() is True


def _column(table: pa.Table, path: tuple[str, ...]) -> Any:  # noqa: ANN401
    column = table.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, column.type.get_field_index(name))
    return column
