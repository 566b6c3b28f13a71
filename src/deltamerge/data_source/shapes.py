"""Spark's types in Arrow: as tasks hand them to Spark, and as data files have them."""

from __future__ import annotations

import re
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.features.column_mapping import COLUMN_ID, ID, NONE, PHYSICAL_NAME
from deltamerge.scan.column_mapping import PARQUET_FIELD_ID, physical_field
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.workers.table_columns import FIELD_ID, Part, Shape

_LIMITED = re.compile(r"(var)?char\((\d+)\)", re.IGNORECASE)
# Before Spark 4.2 the function had no such argument, and timestamps were in UTC.
_ZONE: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return a schema as Spark takes it in batches of Arrow's."""
    found: pa.Schema = to_arrow_schema(schema, **_ZONE)
    return found


def limited(field: StructField) -> tuple[str, int] | None:
    """Return whether a column is CHAR or VARCHAR, and its length; None for another one."""
    ddl = (field.metadata or {}).get(CHAR_VARCHAR_TYPE)
    if ddl is None:
        return None
    match = _LIMITED.fullmatch(ddl)
    if match is None:
        raise unsupported(f"column {field.name}, whose type {ddl} has CHAR or VARCHAR inside")
    return ("varchar" if match[1] else "char"), int(match[2])


def char_lengths(schema: StructType) -> dict[str, int]:
    """Return the lengths of CHAR columns by their names."""
    limits = ((field.name, limited(field)) for field in schema.fields)
    return {name: limit[1] for name, limit in limits if limit is not None and limit[0] == "char"}


def stored_part(field: StructField, wanted: DataType, arrow: pa.DataType, mode: str) -> Part:
    """Return how data files have a column of a table."""
    metadata = field.metadata or {}
    name = field.name if mode == NONE else metadata.get(PHYSICAL_NAME, field.name)
    length = limited(field)
    pad = length[1] if length is not None and length[0] == "char" else None
    shape = _stored_shape(field.dataType, wanted, arrow, mode, pad)
    return Part(name, shape, metadata.get(COLUMN_ID) if mode == ID else None)


def _stored_shape(stored: DataType, wanted: DataType, arrow: pa.DataType, mode: str, pad: int | None = None) -> Shape:
    if isinstance(wanted, StructType) and isinstance(stored, StructType):
        by_name = {field.name.lower(): field for field in stored.fields}
        return Shape(
            arrow,
            tuple(
                stored_part(by_name[field.name.lower()], field.dataType, arrow.field(index).type, mode)
                for index, field in enumerate(wanted.fields)
            ),
        )
    if isinstance(wanted, ArrayType) and isinstance(stored, ArrayType):
        inner = _stored_shape(stored.elementType, wanted.elementType, arrow.value_type, mode)
        return Shape(arrow, (Part("element", inner),))
    if isinstance(wanted, MapType) and isinstance(stored, MapType):
        key = _stored_shape(stored.keyType, wanted.keyType, arrow.key_type, mode)
        value = _stored_shape(stored.valueType, wanted.valueType, arrow.item_type, mode)
        return Shape(arrow, (Part("key", key), Part("value", value)))
    if isinstance(wanted, VariantType):
        return Shape(arrow, tuple(Part(field.name, Shape(field.type)) for field in arrow))
    return Shape(arrow, (), pad)


def file_field(field: StructField, mode: str) -> pa.Field:
    """Return a column of a table as new data files have it."""
    physical = physical_field(field, mode, with_ids=True)
    return _file_field(physical)


def _file_field(field: StructField) -> pa.Field:
    number = (field.metadata or {}).get(PARQUET_FIELD_ID)
    return pa.field(
        field.name, _file_type(field.dataType), metadata=None if number is None else {FIELD_ID: str(number).encode()}
    )


def _file_type(data_type: DataType) -> pa.DataType:
    if isinstance(data_type, StructType):
        return pa.struct([_file_field(field) for field in data_type.fields])
    if isinstance(data_type, ArrayType):
        return pa.list_(pa.field("element", _file_type(data_type.elementType)))
    if isinstance(data_type, MapType):
        return pa.map_(_file_type(data_type.keyType), _file_type(data_type.valueType))
    return arrow_schema(StructType([StructField("c", data_type)])).field(0).type


def given_part(name: str, target: DataType, arrow: pa.DataType) -> Part:
    """Return how a frame has a column that is written: structs have their fields by name."""
    return Part(name, _given_shape(target, arrow))


def _given_shape(target: DataType, arrow: pa.DataType) -> Shape:
    if isinstance(target, StructType):
        fields = zip(target.fields, arrow, strict=True)
        return Shape(arrow, tuple(given_part(field.name, field.dataType, stored.type) for field, stored in fields))
    if isinstance(target, ArrayType):
        return Shape(arrow, (given_part("element", target.elementType, arrow.value_type),))
    if isinstance(target, MapType):
        key = given_part("key", target.keyType, arrow.key_type)
        return Shape(arrow, (key, given_part("value", target.valueType, arrow.item_type)))
    return Shape(arrow)


def unsupported(what: str, instead: str = "DeltaTable.forPath(spark, path).toDF()") -> DeltaAnalysisException:
    """Return the error of what the data source does not do, and another way does."""
    return DeltaAnalysisException(
        "DELTAMERGE_UNSUPPORTED_BY_DATA_SOURCE", f"The data source delta does not support {what}. Use {instead}."
    )
