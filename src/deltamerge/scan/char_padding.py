"""CHAR columns padded with blanks to their length, as they are read, whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StructField, StructType, VarcharType

from deltamerge.scan.column_mapping import as_logical
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE, holds_char
from deltamerge.spark import columns as F
from deltamerge.spark.field_metadata import MetadataOf, frame_metadata
from deltamerge.spark.length_limits import with_limits
from deltamerge.spark.nested_types import contains


def length(field: StructField) -> dict[str, Any]:
    """Return the metadata by which Spark pads strings that a CHAR column is compared with; none of other columns."""
    return {CHAR_VARCHAR_TYPE: field.metadata[CHAR_VARCHAR_TYPE]} if holds_char(field.metadata) else {}


def metadata_in_scan(field: StructField) -> dict[str, Any]:
    """Return a field's `frame_metadata` without lengths, by which Spark would put a projection over the scan."""
    return {key: value for key, value in frame_metadata(field).items() if key != CHAR_VARCHAR_TYPE}


def with_length(value: Column, field: StructField, metadata: MetadataOf = length) -> Column:
    """Name a column's value as those of Spark's tables are, with a CHAR column's `length`.

    Args:
        metadata: Returns what metadata the column has.
    """
    known = metadata(field)
    return value.alias(field.name, metadata=known) if known else value.alias(field.name)


def without_length(value: Column, field: StructField) -> Column:
    """Name a column's value as `with_length`, without the length: it is not of data files."""
    return value.alias(field.name, metadata={}) if holds_char(field.metadata) else value.alias(field.name)


def padded(value: Column, field: StructField) -> Column:
    """Pad a CHAR column's stored value, at any depth; other columns' values are returned unchanged.

    Spark: CharVarcharUtils.addPaddingInStringComparison and spark.sql.readSideCharPadding; delta-spark's MERGE leaves
    the padding to the reader.
    """
    return convert_limited(value, with_limits(field), field.name, _padded, (CharType,))


def scanned(value: Column, field: StructField, mode: str) -> Column:
    """Return a column's value as a scan yields it, from one as data files have it."""
    return padded(as_logical(value, field, mode), field)


def _padded(value: Column, limited: CharType | VarcharType, _: str) -> Column:
    long = F.rpad(value, limited.length, " ")
    return F.when(F.length(value) < limited.length, long).otherwise(value)


def convert_limited(
    value: Column,
    limited: DataType,
    path: str,
    convert: Callable[[Column, CharType | VarcharType, str], Column],
    kinds: tuple[type[DataType], ...] = (CharType, VarcharType),
) -> Column:
    """Convert what a value has in places where its type is CHAR or VARCHAR.

    Args:
        limited: The type of the value; see `with_limits`.
    """
    if isinstance(limited, (CharType, VarcharType)):
        return convert(value, limited, path) if isinstance(limited, kinds) else value
    if not contains(limited, kinds):
        return value

    def inner(each: Column, name: str, kind: DataType) -> Column:
        return convert_limited(each, kind, f"{path}.{name}", convert, kinds)

    if isinstance(limited, ArrayType):
        return F.transform(value, lambda x: inner(x, "element", limited.elementType))
    if isinstance(limited, MapType):
        if contains(limited.keyType, kinds):
            value = F.transform_keys(value, lambda k, _: inner(k, "key", limited.keyType))
        if contains(limited.valueType, kinds):
            value = F.transform_values(value, lambda _, v: inner(v, "value", limited.valueType))
        return value
    assert isinstance(limited, StructType)
    fields = [inner(value.getField(f.name), f.name, f.dataType).alias(f.name) for f in limited.fields]
    return F.when(value.isNotNull(), F.struct(*fields))
