"""CHAR and VARCHAR: strings in the log, whose length the field's metadata limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from deltamerge.errors import DeltaRuntimeException

if TYPE_CHECKING:
    from pyspark.sql import Column

METADATA_KEY = "__CHAR_VARCHAR_TYPE_STRING"
_MARKER = "deltamerge-length:"
_TYPE = re.compile(r"(char|varchar)\((\d+)\)", re.IGNORECASE)


def as_strings(schema: StructType) -> StructType:
    """Turns CHAR and VARCHAR columns into what the log holds: STRING, with the type in the field's metadata.

    Args:
        schema: A schema as the user gives it.

    Returns:
        The schema as Spark and Delta store it. Spark: CharVarcharUtils.replaceCharVarcharWithStringInSchema.
    """
    return StructType([_as_string(field) for field in schema.fields])


def _as_string(field: StructField) -> StructField:
    metadata = dict(field.metadata or {})
    if _has_length(field.dataType):
        metadata[METADATA_KEY] = field.dataType.simpleString()
    return StructField(field.name, _plain(field.dataType), field.nullable, metadata)


def _has_length(data_type: DataType) -> bool:
    if isinstance(data_type, ArrayType):
        return _has_length(data_type.elementType)
    if isinstance(data_type, MapType):
        return _has_length(data_type.keyType) or _has_length(data_type.valueType)
    if isinstance(data_type, StructType):
        return any(_has_length(f.dataType) for f in data_type.fields)
    return isinstance(data_type, (CharType, VarcharType))


def _plain(data_type: DataType) -> DataType:
    if isinstance(data_type, (CharType, VarcharType)):
        return StringType()
    if isinstance(data_type, ArrayType):
        return ArrayType(_plain(data_type.elementType), data_type.containsNull)
    if isinstance(data_type, MapType):
        return MapType(_plain(data_type.keyType), _plain(data_type.valueType), data_type.valueContainsNull)
    if isinstance(data_type, StructType):
        return StructType(
            [StructField(f.name, _plain(f.dataType), f.nullable, f.metadata) for f in data_type.fields]
        )
    return data_type


def fitted(value: Column, field: StructField) -> Column:
    """Pads a CHAR's value and refuses one that is too long.

    Args:
        value: The column's value (STRING).
        field: The column.

    Returns:
        The value to write; other columns' as they are. Spark: CharVarcharCodegenUtils; blanks at the end that are
        too many are dropped.
    """
    found = _TYPE.fullmatch((field.metadata or {}).get(METADATA_KEY, ""))
    if found is None or not isinstance(field.dataType, StringType):
        return value
    kind, length = found.group(1).lower(), int(found.group(2))
    trimmed = F.rtrim(value)
    message = F.concat(F.lit(f"{_MARKER}{field.name}:{kind}({length}):"), value)
    too_long = F.when(
        F.length(trimmed) <= length, F.rpad(trimmed, length, " ") if length else F.lit("")
    ).otherwise(F.raise_error(message).cast("string"))
    short = F.rpad(value, length, " ") if kind == "char" else value
    return F.when(F.length(value) <= length, short).when(value.isNotNull(), too_long)


def excess_in(message: str) -> DeltaRuntimeException | None:
    """Reads a value that is too long out of the message of a failed Spark job.

    Args:
        message: The whole message.

    Returns:
        The error for the user, or None where the job failed for another reason.
    """
    found = re.search(re.escape(_MARKER) + r"(.+?):((?:var)?char\(\d+\)):([^\n]*)", message)
    if found is None:
        return None
    name, data_type, value = found.groups()
    return DeltaRuntimeException(
        "DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
        f'Value "{value.removesuffix(" SQLSTATE: P0001")}" exceeds char/varchar type length limitation. Failed '
        f"check: {data_type.upper()} of column {name}. Nothing was written.",
        sqlstate="22001",
        parameters={"value": value, "expr": data_type},
    )
