"""Whether an operator fits a merge, and the tables of Arrow types and codecs that several of them need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from deltamerge.scan.column_mapping import PARQUET_FIELD_ID, physical_field
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.workers.table_columns import FIELD_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructField

    from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
    from deltamerge.merge.planning.context import PlanningContext


@dataclass(frozen=True)
class Fits:
    """Whether an operator fits a merge, and why."""

    fits: bool
    reason: str


Operator: TypeAlias = "tuple[str, Callable[[PlanningContext, str], Fits]]"
"""An operator's name, and whether it fits, given the operator of the decision before it."""


def yes(reason: str) -> Fits:
    return Fits(True, reason)


def no(reason: str) -> Fits:
    return Fits(False, reason)


PARQUET_CODECS = {
    "snappy": "snappy", "zstd": "zstd", "gzip": "gzip", "none": "none", "uncompressed": "none",
    "lz4raw": "lz4", "lz4_raw": "lz4", "brotli": "brotli",
}  # fmt: skip
"""PyArrow's names of Spark's Parquet codecs."""

_PARTITION_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "string", "date"})

_ARROW_TYPES: dict[str, pa.DataType] = {
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


def arrow_type(field: StructField) -> pa.DataType | None:
    """Return a column's type in Arrow; None for nested, rarer and CHAR or VARCHAR ones."""
    if CHAR_VARCHAR_TYPE in (field.metadata or {}):
        return None
    if isinstance(field.dataType, DecimalType):
        return pa.decimal128(field.dataType.precision, field.dataType.scale)
    return _ARROW_TYPES.get(field.dataType.simpleString())


def evolved_within(merge: ResolvedMerge) -> str | None:
    """Return which column gets another type, or is new, without a type in Arrow; None where there is none."""
    before = {field.name: field.dataType for field in merge.target_schema.fields}
    fields = merge.output_schema.fields if merge.evolves_schema else []
    changed = (field for field in fields if before.get(field.name) != field.dataType)
    return next((field.name for field in changed if arrow_type(field) is None), None)


def has_plain_partitions(field: StructField) -> bool:
    """Return whether Spark and Python spell a column's value in the log alike."""
    return field.dataType.simpleString() in _PARTITION_TYPES


def passes_through_arrow(data_type: DataType) -> bool:
    """Return whether Spark reads back from Arrow the values of a type that it wrote."""
    if isinstance(data_type, StructType):
        return all(passes_through_arrow(field.dataType) for field in data_type.fields)
    if isinstance(data_type, ArrayType):
        return passes_through_arrow(data_type.elementType)
    if isinstance(data_type, MapType):
        return passes_through_arrow(data_type.keyType) and passes_through_arrow(data_type.valueType)
    return isinstance(data_type, DecimalType) or data_type.simpleString() in _ARROW_TYPES


def stored_columns(schema: StructType, mode: str) -> dict[str, pa.Field]:
    """Return the columns that have a type in Arrow, by name, as data files have them.

    Args:
        mode: The column mapping mode, which decides on names and field ids.
    """
    found = {}
    for field in schema.fields:
        kind = arrow_type(field)
        if kind is not None:
            physical = physical_field(field, mode, with_ids=True)
            found[field.name] = pa.field(physical.name, kind, metadata=_field_id(physical))
    return found


def _field_id(physical: StructField) -> dict[bytes, bytes] | None:
    number = physical.metadata.get(PARQUET_FIELD_ID)
    return None if number is None else {FIELD_ID: str(number).encode()}


def arrow_types(schema: StructType) -> dict[str, pa.DataType] | str:
    """Return the columns' types in Arrow, or the first column that has none."""
    found = {}
    for field in schema.fields:
        kind = arrow_type(field)
        if kind is None:
            return f"column {field.name} is of type {field.dataType.simpleString()}"
        found[field.name] = kind
    return found
