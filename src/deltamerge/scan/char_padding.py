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
    return _padded(value, DataType.fromDDL(text))


def _padded(value: Column, data_type: DataType) -> Column:
    if isinstance(data_type, CharType):
        return F.when(F.length(value) < data_type.length, F.rpad(value, data_type.length, " ")).otherwise(
            value
        )
    if not _has_char(data_type):
        return value
    if isinstance(data_type, ArrayType):
        return F.transform(value, lambda item: _padded(item, data_type.elementType))
    if isinstance(data_type, MapType):
        if _has_char(data_type.keyType):
            value = F.transform_keys(value, lambda key, _: _padded(key, data_type.keyType))
        if _has_char(data_type.valueType):
            value = F.transform_values(value, lambda _, item: _padded(item, data_type.valueType))
        return value
    assert isinstance(data_type, StructType)
    fields = (_padded(value.getField(f.name), f.dataType).alias(f.name) for f in data_type.fields)
    return F.when(value.isNotNull(), F.struct(*fields))


def _has_char(data_type: DataType) -> bool:
    if isinstance(data_type, ArrayType):
        return _has_char(data_type.elementType)
    if isinstance(data_type, MapType):
        return _has_char(data_type.keyType) or _has_char(data_type.valueType)
    if isinstance(data_type, StructType):
        return any(_has_char(f.dataType) for f in data_type.fields)
    return isinstance(data_type, CharType)
