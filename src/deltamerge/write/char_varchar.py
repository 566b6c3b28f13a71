"""CHAR and VARCHAR: strings in the log, with a length limit in the field's metadata."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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

from deltamerge.exceptions import DeltaRuntimeException
from deltamerge.scan.char_padding import limits_of_fields
from deltamerge.spark import columns as F
from deltamerge.sql.names import quote

if TYPE_CHECKING:
    from pyspark.sql import Column

METADATA_KEY = "__CHAR_VARCHAR_TYPE_STRING"
_MARKER = "deltamerge-length:"


def as_strings(schema: StructType) -> StructType:
    """Convert CHAR and VARCHAR columns to STRING with the type in the field's metadata, as Spark and Delta store them.

    Spark: CharVarcharUtils.replaceCharVarcharWithStringInSchema.
    """
    return StructType([_as_string(field) for field in schema.fields])


def _as_string(field: StructField) -> StructField:
    metadata = dict(field.metadata or {})
    if _has_length(field.dataType):
        metadata[METADATA_KEY] = _text(field.dataType)
    return StructField(field.name, _plain(field.dataType), field.nullable, metadata)


def _text(data_type: DataType) -> str:
    """Spell a type as Spark reads it back; PySpark never quotes names."""
    if isinstance(data_type, StructType):
        fields = (f"{_quoted(f.name)}:{_text(f.dataType)}" for f in data_type.fields)
        return f"struct<{','.join(fields)}>"
    if isinstance(data_type, ArrayType):
        return f"array<{_text(data_type.elementType)}>"
    if isinstance(data_type, MapType):
        return f"map<{_text(data_type.keyType)},{_text(data_type.valueType)}>"
    return data_type.simpleString()


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else quote(name)


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
    """Pad a CHAR's value and make Spark raise for one that is too long, at any depth; other columns' values stay.

    Delta: CharVarcharConstraint, for which blanks at the end count.
    """
    text = (field.metadata or {}).get(METADATA_KEY)
    return value if text is None else _fitted(value, DataType.fromDDL(text), field.dataType, field.name)


def _fitted(value: Column, limited: DataType, actual: DataType, path: str) -> Column:
    if isinstance(limited, (CharType, VarcharType)):
        return _fitted_text(value, limited, path)
    if not _has_length(limited):
        return value
    if isinstance(limited, ArrayType) and isinstance(actual, ArrayType):
        return F.transform(
            value, lambda x: _fitted(x, limited.elementType, actual.elementType, f"{path}.element")
        )
    if isinstance(limited, MapType) and isinstance(actual, MapType):
        if _has_length(limited.keyType):
            value = F.transform_keys(
                value, lambda k, _: _fitted(k, limited.keyType, actual.keyType, f"{path}.key")
            )
        if _has_length(limited.valueType):
            value = F.transform_values(
                value, lambda _, v: _fitted(v, limited.valueType, actual.valueType, f"{path}.value")
            )
        return value
    if not (isinstance(limited, StructType) and isinstance(actual, StructType)):
        return value
    fields = []
    for field, known in zip(actual.fields, limits_of_fields(limited, actual), strict=True):
        inner = value.getField(field.name)
        if known is not None:
            inner = _fitted(inner, known, field.dataType, f"{path}.{field.name}")
        fields.append(inner.alias(field.name))
    return F.when(value.isNotNull(), F.struct(*fields))


def _fitted_text(value: Column, limited: CharType | VarcharType, path: str) -> Column:
    message = F.concat(F.lit(f"{_MARKER}{path}:{limited.simpleString()}:"), value)
    fitting = F.rpad(value, limited.length, " ") if isinstance(limited, CharType) else value
    return F.when(F.length(value) <= limited.length, fitting).when(
        value.isNotNull(), F.raise_error(message).cast("string")
    )


def excess_in(message: str) -> DeltaRuntimeException | None:
    """Return the user's error for a value that is too long, from a failed job's message; None for other failures."""
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
