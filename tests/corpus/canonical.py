"""Rows in canonical form: one JSON line a row, maps with keys of any type as entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    MapType,
    NumericType,
    StringType,
    StructType,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def quoted(name: str) -> str:
    """Quotes a column's name."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    """Gives a column by its whole name."""
    return F.col(quoted(name))


def line_of(schema: StructType, columns: list[Column] | None = None) -> Column:
    """Gives a row's canonical JSON."""
    given = columns or [column(field.name) for field in schema]
    named = [_with_entries(value, field.dataType).alias(field.name) for value, field in zip(given, schema, strict=True)]
    return F.to_json(F.struct(*named), _OPTIONS)


def canonical_lines(frame: DataFrame) -> list[str]:
    """Gives all rows as canonical JSON, sorted."""
    return sorted(row[0] for row in frame.select(line_of(frame.schema)).collect())


def _with_entries(value: Column, data_type: DataType) -> Column:
    """Turns maps whose keys are no names in JSON into lists of entries, at any depth."""
    if not _holds_map_without_names(data_type):
        return value
    if isinstance(data_type, StructType):
        fields = [_with_entries(value.getField(f.name), f.dataType).alias(f.name) for f in data_type.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(data_type, ArrayType):
        return F.transform(value, lambda element: _with_entries(element, data_type.elementType))
    return F.map_entries(value)


def _holds_map_without_names(data_type: DataType) -> bool:
    if isinstance(data_type, StructType):
        return any(_holds_map_without_names(f.dataType) for f in data_type.fields)
    if isinstance(data_type, ArrayType):
        return _holds_map_without_names(data_type.elementType)
    return isinstance(data_type, MapType) and not isinstance(data_type.keyType, (StringType, NumericType, BooleanType))
