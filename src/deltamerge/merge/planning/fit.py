"""Whether an operator fits a merge, and what several of them need: types in Arrow, codecs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from deltamerge.scan.file_types import file_field, file_type, is_exact
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import DataType, StructField, StructType

    from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
    from deltamerge.merge.planning.context import PlanningContext


@dataclass(frozen=True)
class Fits:
    fits: bool
    reason: str


Operator: TypeAlias = "tuple[str, Callable[[PlanningContext, str], Fits]]"
"""An operator's name, and whether it fits, given the operator of the decision before it."""


def yes(reason: str) -> Fits:
    return Fits(True, reason)


def no(reason: str) -> Fits:
    return Fits(False, reason)


def always(reason: str) -> Callable[[PlanningContext, str], Fits]:
    return lambda _, __: yes(reason)


PARQUET_CODECS = {
    "snappy": "snappy", "zstd": "zstd", "gzip": "gzip", "none": "none", "uncompressed": "none",
    "lz4raw": "lz4", "lz4_raw": "lz4", "brotli": "brotli",
}  # fmt: skip
"""PyArrow's names of Spark's Parquet codecs."""

_PARTITION_TYPES = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "string", "date"})


def parquet_options(codec: str) -> dict[str, Any]:
    """Return the arguments of ``ParquetWriter`` for a new file, given PyArrow's name of a codec."""
    return {
        "compression": codec,
        "store_decimal_as_integer": True,
        "store_schema": False,
        "write_page_index": True,
    }


def arrow_type(data_type: DataType) -> pa.DataType | None:
    return file_type(data_type) if is_exact(data_type) else None


def type_name(field: StructField) -> str:
    """Return a column's type as SQL declares it, CHAR and VARCHAR included."""
    name: str = (field.metadata or {}).get(CHAR_VARCHAR_TYPE) or field.dataType.simpleString()
    return name


def evolved_within(merge: ResolvedMerge) -> str | None:
    """Return which column gets another type, or is new, without a type in Arrow; None where there is none."""
    before = {field.name: field.dataType for field in merge.target_schema.fields}
    fields = merge.output_schema.fields if merge.evolves_schema else []
    changed = (field for field in fields if before.get(field.name) != field.dataType)
    return next((field.name for field in changed if not is_exact(field.dataType)), None)


def has_plain_partitions(field: StructField) -> bool:
    """Return whether Spark and Python spell a column's value in the log alike."""
    return type_name(field) in _PARTITION_TYPES


def stored_columns(schema: StructType, mode: str) -> dict[str, pa.Field]:
    """Return the columns that have a type in Arrow, by name, as data files have them.

    Args:
        mode: The column mapping mode, which decides on names and field ids.
    """
    return {field.name: file_field(field, mode) for field in schema.fields if is_exact(field.dataType)}


def without_arrow(schema: StructType) -> str | None:
    found = next((field for field in schema.fields if not is_exact(field.dataType)), None)
    return None if found is None else f"column {found.name} is of type {type_name(found)}"
