"""The files whose place an overwrite of partitions takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType, DateType, IntegralType, StructType

from deltamerge.data_source.file_parts import partition_value
from deltamerge.data_source.request import Request
from deltamerge.data_source.shapes import arrow_schema, unsupported
from deltamerge.log.file_table import FileTable
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.arrow_conditions import arrow_condition
from deltamerge.scan.column_mapping import physical_field
from deltamerge.skipping.timestamps import parse_date
from deltamerge.sql.condition_reader import read_condition
from deltamerge.sql.expression import Literal, Name, Node, Operation
from deltamerge.workers.conditions import Condition, evaluate
from deltamerge.write.definition import TableDefinition

_DIGITS = re.compile("-?[0-9]{1,9}")
_INSTEAD = "DeltaTable.forPath(spark, path).delete(condition), then append"


def rows_condition(sql: str, given: StructType, definition: TableDefinition, request: Request) -> tuple[Condition, str]:
    """Return the condition of ``replaceWhere`` over a frame's columns.

    Raises:
        DeltaAnalysisException: It is not one over partition columns that Arrow evaluates as Spark does.
    """
    condition_of(sql, _partition_schema(definition), request)
    return condition_of(sql, given, request), sql


def where_files(sql: str, definition: TableDefinition, request: Request, snapshot: Snapshot) -> FileTable:
    """Return the files for whose partition values a condition is TRUE."""
    schema = _partition_schema(definition)
    condition = condition_of(sql, schema, request)
    zone = request.conf.session_time_zone
    names = [physical_field(field, snapshot.mapping_mode).name for field in schema.fields]
    values = [file.partition_values for file in snapshot.files.add_files()]
    columns = []
    for name, arrow in zip(names, arrow_schema(schema), strict=True):
        of_files = [partition_value(each.get(name), arrow.type, zone) for each in values]
        columns.append(pa.concat_arrays(of_files) if of_files else pa.nulls(0, arrow.type))
    found = evaluate(condition, pa.table(columns, names=[str(index) for index in range(len(columns))]))
    if isinstance(found, pa.Scalar):
        mask = np.full(len(values), found.as_py() is True)
    else:
        mask = found.fill_null(False).to_numpy(zero_copy_only=False)
    return snapshot.files.filter(mask)


def condition_of(sql: str, schema: StructType, request: Request) -> Condition:
    """Return a condition over columns by their positions.

    Raises:
        DeltaAnalysisException: Arrow does not evaluate it as Spark does, or it names other columns.
    """
    by_name = {field.name.lower(): index for index, field in enumerate(schema.fields)}

    def column(name: Name) -> int | None:
        return by_name.get(name.parts[0].lower()) if len(name.parts) == 1 else None

    def kind(node: Node) -> DataType | None:
        index = column(node) if isinstance(node, Name) else None
        return None if index is None else schema.fields[index].dataType

    node = _with_cast_strings(read_condition(sql, request.conf.double_quoted_identifiers), kind)
    found = arrow_condition(node, column, schema.fields)
    if found is None:
        raise unsupported(
            f"replaceWhere with {sql}: only comparisons of partition columns with values of their types", _INSTEAD
        )
    return found


def _with_cast_strings(node: Node, kind: Callable[[Node], DataType | None]) -> Node:
    """Return a condition with strings as what Spark casts them to, where a column is compared with them."""
    if not isinstance(node, Operation):
        return node
    if node.op in ("and", "or", "not"):
        return replace(node, operands=tuple(_with_cast_strings(operand, kind) for operand in node.operands))
    kinds = {found for operand in node.operands if (found := kind(operand)) is not None}
    if len(kinds) != 1:
        return node
    (of_column,) = kinds
    return replace(node, operands=tuple(_cast(operand, of_column) for operand in node.operands))


def _cast(node: Node, wanted: DataType) -> Node:
    if not (isinstance(node, Literal) and isinstance(node.value, str)):
        return node
    if isinstance(wanted, DateType) and parse_date(node.value) is not None:
        return replace(node, value=date.fromisoformat(node.value), type_name="date")
    if isinstance(wanted, IntegralType) and _DIGITS.fullmatch(node.value):
        return replace(node, value=int(node.value), type_name="bigint")
    return node


def _partition_schema(definition: TableDefinition) -> StructType:
    by_name = {field.name: field for field in definition.schema.fields}
    return StructType([by_name[name] for name in definition.partition_columns])
