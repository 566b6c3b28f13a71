"""CHAR columns padded with blanks to their length, as they are read, whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StringType, StructField, StructType, VarcharType

from deltamerge.scan.column_mapping import as_logical
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE, holds_char
from deltamerge.spark import columns as F
from deltamerge.spark.length_limits import limits_of_fields
from deltamerge.spark.limited_types import limited_type
from deltamerge.spark.nested_types import contains


def frame_metadata(field: StructField) -> dict[str, Any]:
    """Return what frames have of a column's metadata: its comment, and its length.

    By that Spark pads strings that CHAR is compared with.
    """
    return {key: value for key, value in field.metadata.items() if key in ("comment", CHAR_VARCHAR_TYPE)}


def length(field: StructField) -> dict[str, Any]:
    """Return the metadata by which Spark pads strings that a CHAR column is compared with; none of other columns."""
    return {CHAR_VARCHAR_TYPE: field.metadata[CHAR_VARCHAR_TYPE]} if holds_char(field.metadata) else {}


def with_length(value: Column, field: StructField) -> Column:
    """Name a column's value as those of Spark's tables are, with a CHAR column's `length`."""
    known = length(field)
    return value.alias(field.name, metadata=known) if known else value.alias(field.name)


def without_length(value: Column, field: StructField) -> Column:
    """Name a column's value as `with_length`, without the length: it is not of data files."""
    return value.alias(field.name, metadata={}) if holds_char(field.metadata) else value.alias(field.name)


def padded(value: Column, field: StructField) -> Column:
    """Pad a CHAR column's stored value, at any depth; other columns' values are returned unchanged.

    Spark: CharVarcharUtils.addPaddingInStringComparison and spark.sql.readSideCharPadding; delta-spark's MERGE leaves
    the padding to the reader.
    """
    limited = limited_type(field)
    if limited is None:
        return value
    return convert_limited(value, limited, field.dataType, field.name, _padded, (CharType,))


def scanned(value: Column, field: StructField, mode: str) -> Column:
    """Return a column's value as a scan yields it, from one as data files have it."""
    return padded(as_logical(value, field, mode), field)


def _padded(value: Column, limited: CharType | VarcharType, _: str) -> Column:
    long = F.rpad(value, limited.length, " ")
    return F.when(F.length(value) < limited.length, long).otherwise(value)


def convert_limited(
    value: Column,
    limited: DataType,
    actual: DataType,
    path: str,
    convert: Callable[[Column, CharType | VarcharType, str], Column],
    kinds: tuple[type[DataType], ...] = (CharType, VarcharType),
) -> Column:
    """Convert what a value has in places where its type is CHAR or VARCHAR."""
    if isinstance(limited, (CharType, VarcharType)):
        # Beside a field that another writer has put in the place of one with a limit there is none.
        return convert(value, limited, path) if isinstance(limited, kinds) and isinstance(actual, StringType) else value
    if not contains(limited, kinds):
        return value

    def inner(each: Column, name: str, one: DataType, other: DataType) -> Column:
        return convert_limited(each, one, other, f"{path}.{name}", convert, kinds)

    if isinstance(limited, ArrayType) and isinstance(actual, ArrayType):
        return F.transform(value, lambda x: inner(x, "element", limited.elementType, actual.elementType))
    if isinstance(limited, MapType) and isinstance(actual, MapType):
        if contains(limited.keyType, kinds):
            value = F.transform_keys(value, lambda k, _: inner(k, "key", limited.keyType, actual.keyType))
        if contains(limited.valueType, kinds):
            value = F.transform_values(value, lambda _, v: inner(v, "value", limited.valueType, actual.valueType))
        return value
    if not (isinstance(limited, StructType) and isinstance(actual, StructType)):
        return value
    fields = []
    for field, known in zip(actual.fields, limits_of_fields(limited, actual), strict=True):
        each = value.getField(field.name)
        fields.append((each if known is None else inner(each, field.name, known, field.dataType)).alias(field.name))
    return F.when(value.isNotNull(), F.struct(*fields))
