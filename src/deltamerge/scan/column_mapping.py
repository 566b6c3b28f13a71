"""Spark's types of a mapped table's files: the fields' physical names and their Parquet field ids."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from deltamerge.log.features.column_mapping import COLUMN_ID, NONE, PHYSICAL_NAME
from deltamerge.spark.field_metadata import MetadataOf, no_metadata
from deltamerge.spark.nested_types import as_nullable, nullable_type

PARQUET_FIELD_ID = "parquet.field.id"
WRITE_IDS = "spark.sql.parquet.fieldId.write.enabled"


def physical_field(field: StructField, mode: str, metadata: MetadataOf = no_metadata) -> StructField:
    """Return a column as data files have it, nullable at every depth. Without mapping its names are the table's."""
    name = field.name if mode == NONE else field.metadata.get(PHYSICAL_NAME, field.name)
    inner = nullable_type(field.dataType, lambda f: physical_field(f, mode, metadata))
    return StructField(name, inner, True, metadata(field))


def field_ids(mode: str) -> MetadataOf:
    """Return what gives a field the metadata by which Spark writes a Parquet field id."""
    return no_metadata if mode == NONE else _field_id


def _field_id(field: StructField) -> dict[str, Any]:
    return {PARQUET_FIELD_ID: field.metadata[COLUMN_ID]} if COLUMN_ID in field.metadata else {}


def as_logical(value: Column, field: StructField, mode: str, metadata: MetadataOf = no_metadata) -> Column:
    """Rename the nested fields of a column that was read from data files.

    A cast between structs goes by position and only renames, which costs nothing.

    Args:
        value: The column, of the type that `physical_field` returns.
        metadata: With what metadata the nested fields are read.
    """
    nested = isinstance(field.dataType, (StructType, ArrayType, MapType))
    return value.cast(as_nullable(field.dataType, metadata)) if nested and mode != NONE else value


def as_physical(value: Column, field: StructField, mode: str) -> Column:
    """Return a column to write, with the name, nested names and Parquet field ids that data files have."""
    if mode == NONE:
        return value.alias(field.name)
    physical = physical_field(field, mode, field_ids(mode))
    nested = isinstance(field.dataType, (StructType, ArrayType, MapType))
    named = value.cast(physical.dataType) if nested else value
    return named.alias(physical.name, metadata=dict(physical.metadata))
