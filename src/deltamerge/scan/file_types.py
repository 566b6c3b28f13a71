"""Spark's types in Arrow, as data files have them: nullable at every depth, mapped columns with Parquet field ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from inspect import signature
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType, VariantType

from deltamerge.scan.column_mapping import PARQUET_FIELD_ID, field_ids, physical_field
from deltamerge.spark.nested_types import inner_types, stored_type
from deltamerge.workers.table_columns import FIELD_ID, Part, Shape

# Before Spark 4.2 the function had no such argument, and timestamps were in UTC.
_ZONE: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}

_EXACT: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return a schema as Spark takes it in batches of Arrow's."""
    found: pa.Schema = to_arrow_schema(schema, **_ZONE)
    return found


def is_exact(data_type: DataType) -> bool:
    """Return whether Arrow holds a type's values, at any depth, as Spark and Parquet files have them."""
    if isinstance(data_type, (StructType, ArrayType, MapType)):
        return all(is_exact(inner) for _, inner in inner_types(data_type))
    return isinstance(data_type, DecimalType) or data_type.simpleString() in _EXACT


def arrow_of_plain(data_type: DataType | str) -> pa.DataType | None:
    """Return a type that is not nested in Arrow; None for one whose values Arrow does not hold exactly.

    Args:
        data_type: The type, or Spark's name of one that is no decimal.
    """
    if isinstance(data_type, DecimalType):
        return file_type(data_type)
    return _EXACT.get(data_type if isinstance(data_type, str) else data_type.simpleString())


def file_field(field: StructField, mode: str) -> pa.Field:
    """Return a column of a table as new data files have it."""
    return _file_field(physical_field(field, mode, field_ids(mode)))


def _file_field(field: StructField) -> pa.Field:
    number = field.metadata.get(PARQUET_FIELD_ID)
    return pa.field(
        field.name, file_type(field.dataType), metadata=None if number is None else {FIELD_ID: str(number).encode()}
    )


def file_type(data_type: DataType) -> pa.DataType:
    data_type = stored_type(data_type)
    if isinstance(data_type, StructType):
        return pa.struct([_file_field(field) for field in data_type.fields])
    if isinstance(data_type, ArrayType):
        return pa.list_(pa.field("element", file_type(data_type.elementType)))
    if isinstance(data_type, MapType):
        return pa.map_(file_type(data_type.keyType), file_type(data_type.valueType))
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    exact = _EXACT.get(data_type.simpleString())
    return arrow_schema(StructType([StructField("c", data_type)])).field(0).type if exact is None else exact


PartOf: TypeAlias = "Callable[[StructField, DataType, pa.DataType], Part]"
"""Returns how a field is found, by the field, its wanted type in Spark and in Arrow."""


def given_part(field: StructField, wanted: DataType, arrow: pa.DataType) -> Part:
    """Return how Spark has a column that is written: structs have their fields by name."""
    return Part(field.name, shape_by(given_part, field.dataType, wanted, arrow))


def given_shape(target: DataType, arrow: pa.DataType) -> Shape:
    """Return how values of a table's type become those of its files."""
    return shape_by(given_part, target, target, arrow)


def shape_by(part_of: PartOf, found: DataType, wanted: DataType, arrow: pa.DataType) -> Shape:
    """Return how values of a type become those of another one, which may lack fields, in Arrow."""
    found, wanted, inner = stored_type(found), stored_type(wanted), partial(shape_by, part_of)
    parts: Iterable[Part] = ()
    if isinstance(wanted, StructType) and isinstance(found, StructType):
        by_name = {field.name.lower(): field for field in found.fields}
        pairs = zip(wanted.fields, arrow, strict=True)
        parts = (part_of(by_name[field.name.lower()], field.dataType, to.type) for field, to in pairs)
    elif isinstance(wanted, ArrayType) and isinstance(found, ArrayType):
        parts = (Part("element", inner(found.elementType, wanted.elementType, arrow.value_type)),)
    elif isinstance(wanted, MapType) and isinstance(found, MapType):
        key = inner(found.keyType, wanted.keyType, arrow.key_type)
        parts = (Part("key", key), Part("value", inner(found.valueType, wanted.valueType, arrow.item_type)))
    elif isinstance(wanted, VariantType):
        parts = (Part(field.name, Shape(field.type)) for field in arrow)
    return Shape(arrow, tuple(parts))
