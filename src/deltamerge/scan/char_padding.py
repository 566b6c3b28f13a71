"""CHAR columns as they are read: padded with blanks to their length, whoever wrote them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StructField, StructType

from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE

if TYPE_CHECKING:
    from pyspark.sql import Column


def padded(value: Column, field: StructField) -> Column:
    """Pads what a CHAR column holds, at any depth.

    Args:
        value: The column's value as it lies in the file or the log.
        field: The column.

    Returns:
        The value that a reader sees; other columns' as they are. Spark: CharVarcharUtils.addPaddingInStringComparison
        and spark.sql.readSideCharPadding; delta-spark's MERGE leaves the padding to the reader.
    """
    text = (field.metadata or {}).get(CHAR_VARCHAR_TYPE, "")
    # VARCHAR is never padded.
    if not re.search(r"(?<!var)char\(", text, re.IGNORECASE):
        return value
    return _padded(value, DataType.fromDDL(text), field.dataType)


def limits_of_fields(limited: StructType, actual: StructType) -> list[DataType | None]:
    """Finds what a struct's fields are in a column's metadata, which no change of a field changes.

    Args:
        limited: The struct as the metadata has it, with CHAR and VARCHAR.
        actual: The struct as it is now, perhaps with fields renamed, dropped or added.

    Returns:
        For each field of the struct its type in the metadata, None where it has none.
    """
    by_name = {f.name: f.dataType for f in limited.fields}
    otherwise: list[DataType | None] = [None] * len(actual.fields)
    if len(limited.fields) == len(actual.fields):
        otherwise = [f.dataType for f in limited.fields]
    return [by_name.get(f.name, other) for f, other in zip(actual.fields, otherwise, strict=True)]


def _padded(value: Column, data_type: DataType, actual: DataType) -> Column:
    if isinstance(data_type, CharType):
        return F.when(F.length(value) < data_type.length, F.rpad(value, data_type.length, " ")).otherwise(
            value
        )
    if not _has_char(data_type):
        return value
    if isinstance(data_type, ArrayType) and isinstance(actual, ArrayType):
        return F.transform(value, lambda item: _padded(item, data_type.elementType, actual.elementType))
    if isinstance(data_type, MapType) and isinstance(actual, MapType):
        if _has_char(data_type.keyType):
            value = F.transform_keys(value, lambda key, _: _padded(key, data_type.keyType, actual.keyType))
        if _has_char(data_type.valueType):
            value = F.transform_values(
                value, lambda _, item: _padded(item, data_type.valueType, actual.valueType)
            )
        return value
    if not (isinstance(data_type, StructType) and isinstance(actual, StructType)):
        return value
    fields = []
    for field, known in zip(actual.fields, limits_of_fields(data_type, actual), strict=True):
        inner = value.getField(field.name)
        fields.append((inner if known is None else _padded(inner, known, field.dataType)).alias(field.name))
    return F.when(value.isNotNull(), F.struct(*fields))


def _has_char(data_type: DataType) -> bool:
    if isinstance(data_type, ArrayType):
        return _has_char(data_type.elementType)
    if isinstance(data_type, MapType):
        return _has_char(data_type.keyType) or _has_char(data_type.valueType)
    if isinstance(data_type, StructType):
        return any(_has_char(f.dataType) for f in data_type.fields)
    return isinstance(data_type, CharType)
