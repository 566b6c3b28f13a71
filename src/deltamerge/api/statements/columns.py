"""Columns of CREATE TABLE and ALTER TABLE as fields; Spark reads their types."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import DataType, StructField

from deltamerge.sql.statements.ast import ColumnDefinition
from deltamerge.write.defaults import CURRENT_DEFAULT
from deltamerge.write.generated_columns import GENERATION_EXPRESSION
from deltamerge.write.identity_columns import identity_metadata


def type_of(ddl: str) -> DataType:
    """Return the type that its DDL names."""
    return DataType.fromDDL(ddl)


def without_parent(column: ColumnDefinition) -> StructField:
    """Return a column, or a field under its last name, as a field of Spark's."""
    metadata: dict[str, Any] = {}
    if column.comment is not None:
        metadata["comment"] = column.comment
    if column.default is not None:
        metadata[CURRENT_DEFAULT] = column.default
    if column.generated is not None:
        metadata[GENERATION_EXPRESSION] = column.generated
    if column.identity is not None:
        start, step, by_default = column.identity
        metadata |= identity_metadata(start, step, allow_explicit_insert=by_default)
    return StructField(column.name[-1], type_of(column.data_type), column.nullable, metadata)
