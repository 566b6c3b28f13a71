"""CHAR columns padded with blanks to their length, as they are read, whoever wrote them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StructField, StructType

from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark import columns as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def padded(value: Column, field: StructField) -> Column:
    """Pad a CHAR column's stored value, at any depth; other columns' values are returned unchanged.

    Spark: CharVarcharUtils.addPaddingInStringComparison and spark.sql.readSideCharPadding; delta-spark's MERGE leaves
    the padding to the reader.
    """
    ddl = (field.metadata or {}).get(CHAR_VARCHAR_TYPE, "")
    # VARCHAR is never padded.
    if not re.search(r"(?<!var)char\(", ddl, re.IGNORECASE):
        return value
    return _padded(value, DataType.fromDDL(ddl), field.dataType)


def limits_of_fields(limited: StructType, actual: StructType) -> list[DataType | None]:
    """Return each field's type in the column's metadata, None where it has none.

    Renaming, dropping or adding a field does not change the metadata.

    Args:
        limited: The struct as the metadata has it, with CHAR and VARCHAR.
        actual: The struct as it is now.
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
