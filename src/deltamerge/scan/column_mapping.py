"""Spark's types of a mapped table's files: the fields' physical names and their Parquet field ids."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from deltamerge.log.features.column_mapping import COLUMN_ID, NONE, PHYSICAL_NAME
from deltamerge.spark.nested_types import nullable_type

PARQUET_FIELD_ID = "parquet.field.id"
WRITE_IDS = "spark.sql.parquet.fieldId.write.enabled"


def physical_field(field: StructField, mode: str, *, with_ids: bool = False) -> StructField:
    """Return a column as data files have it: nullable at every depth and without metadata but Parquet field ids.

    Without mapping its names are the table's.
    """
    if mode == NONE:
        return StructField(field.name, logical_type(field.dataType), True)
    metadata = field.metadata
    own = {PARQUET_FIELD_ID: metadata[COLUMN_ID]} if with_ids and COLUMN_ID in metadata else {}
    name = metadata.get(PHYSICAL_NAME, field.name)
    inner = nullable_type(field.dataType, lambda f: physical_field(f, mode, with_ids=with_ids))
    return StructField(name, inner, True, own)


def logical_type(data_type: DataType) -> DataType:
    """Return a type as a scan yields it: the table's names, nullable, without metadata."""
    return nullable_type(data_type, lambda f: StructField(f.name, logical_type(f.dataType), True))


def as_logical(value: Column, field: StructField, mode: str) -> Column:
    """Rename the nested fields of a column that was read from data files.

    A cast between structs goes by position and only renames, which costs nothing.

    Args:
        value: The column, of the type that `physical_field` returns.
    """
    nested = isinstance(field.dataType, (StructType, ArrayType, MapType))
    return value.cast(logical_type(field.dataType)) if nested and mode != NONE else value


def as_physical(value: Column, field: StructField, mode: str) -> Column:
    """Return a column to write, with the name, nested names and Parquet field ids that data files have."""
    if mode == NONE:
        return value.alias(field.name)
    physical = physical_field(field, mode, with_ids=True)
    nested = isinstance(field.dataType, (StructType, ArrayType, MapType))
    named = value.cast(physical.dataType) if nested else value
    return named.alias(physical.name, metadata=dict(physical.metadata))
