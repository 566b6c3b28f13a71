"""What the data source refuses to write: there is no Spark beside it that would evaluate expressions."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import CharType, StructType, VarcharType, VariantType

from deltamerge.data_source.conditions import condition_of
from deltamerge.data_source.file_parts import partition_value
from deltamerge.data_source.request import Request
from deltamerge.data_source.shapes import char_lengths
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.actions import AddFile
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.column_mapping import physical_field
from deltamerge.scan.file_types import arrow_schema
from deltamerge.spark.limited_types import limited_type
from deltamerge.spark.nested_types import contains
from deltamerge.workers.conditions import Condition, evaluate
from deltamerge.workers.table_columns import padded
from deltamerge.write.constraints import Check, constraints_of
from deltamerge.write.defaults import CURRENT_DEFAULT
from deltamerge.write.definition import TableDefinition, check_duplicates
from deltamerge.write.generated_columns import generation_expression
from deltamerge.write.identity_columns import IDENTITY
from deltamerge.write.schema_evolution import check_known, check_mergeable

INSTEAD = "deltamerge.write_delta(df, path, mode)"


_INSTEAD = "DeltaTable.forPath(spark, path).delete(condition), then append"


def unsupported(what: str, instead: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTAMERGE_UNSUPPORTED_BY_DATA_SOURCE", f"The data source delta does not support {what}. Use {instead}."
    )


def check_expressions(definition: TableDefinition, given: StructType) -> None:
    """Refuse tables for whose rows Spark must evaluate expressions."""
    names = {field.name.lower() for field in given.fields}
    for field in definition.schema.fields:
        metadata = field.metadata
        if generation_expression(field) is not None:
            raise unsupported(f"writing tables with generated columns, such as {field.name}", INSTEAD)
        if any(key.startswith(IDENTITY) for key in metadata):
            raise unsupported(f"writing tables with identity columns, such as {field.name}", INSTEAD)
        if CURRENT_DEFAULT in metadata and field.name.lower() not in names:
            raise unsupported(f"writing rows without column {field.name}, which has a default", INSTEAD)
        if contains(field.dataType, VariantType):
            raise unsupported(f"writing VARIANT, the type of column {field.name}", INSTEAD)
        limited = limited_type(field)
        if limited is not None and not isinstance(limited, (CharType, VarcharType)):
            raise unsupported(f"writing CHAR or VARCHAR within other types, as in column {field.name}", INSTEAD)


def check_conditions(
    definition: TableDefinition, given: StructType, request: Request
) -> tuple[tuple[Condition, str], ...]:
    """Return a table's CHECK constraints over a frame's columns, and the errors of rows that violate them."""
    found = []
    for constraint in constraints_of(definition.schema, definition.properties):
        if not isinstance(constraint, Check):
            continue
        condition = condition_of(constraint.expression, given, definition.schema, request)
        shown = f"{constraint.name} ({constraint.expression})"
        if condition is None:
            raise unsupported(f"writing tables with CHECK constraints that need Spark, such as {shown}", INSTEAD)
        error = (
            f"[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint {shown} violated by a row; nothing was written "
            f"to table {request.path}. SQLSTATE: 23001"
        )
        found.append((condition, error))
    return tuple(found)


def check_columns(definition: TableDefinition, given: StructType, table: str) -> None:
    """Refuse a frame whose columns the table lacks, has with types that do not take their values, or has once."""
    check_duplicates(given)
    check_known(given, definition.schema, table)
    check_mergeable(given, definition.schema, table)


def rows_condition(sql: str, given: StructType, definition: TableDefinition, request: Request) -> tuple[Condition, str]:
    """Return the condition of ``replaceWhere`` over a frame's columns, and the error of rows that do not match it."""
    columns = _partition_schema(definition)
    _condition(sql, columns, columns, request)
    return _condition(sql, given, columns, request), (
        f"[DELTA_REPLACE_WHERE_MISMATCH] Written data does not conform to the replaceWhere condition {sql} of table "
        f"{request.path}; nothing was written. SQLSTATE: 44000"
    )


def files_where(
    sql: str, definition: TableDefinition, request: Request, snapshot: Snapshot, files: Sequence[AddFile]
) -> list[AddFile]:
    """Return the files for whose partition values a condition is TRUE."""
    schema = _partition_schema(definition)
    condition = _condition(sql, schema, schema, request)
    lengths = char_lengths(schema)
    zone = request.conf.session_time_zone
    names = [physical_field(field, snapshot.mapping_mode).name for field in schema.fields]
    values = [file.partition_values for file in files]
    columns = []
    for name, arrow in zip(names, arrow_schema(schema), strict=True):
        of_files = [partition_value(each.get(name), arrow.type, zone) for each in values]
        column = pa.concat_arrays(of_files) if of_files else pa.nulls(0, arrow.type)
        columns.append(padded(column, lengths.get(arrow.name)))
    found = evaluate(condition, pa.table(columns, names=[str(index) for index in range(len(columns))]))
    if isinstance(found, pa.Scalar):
        return list(files) if found.as_py() is True else []
    return [file for file, fits in zip(files, found.to_pylist(), strict=True) if fits is True]


def _condition(sql: str, schema: StructType, table: StructType, request: Request) -> Condition:
    found = condition_of(sql, schema, table, request)
    if found is None:
        raise unsupported(
            f"replaceWhere with {sql}: only comparisons of partition columns with values of their types", _INSTEAD
        )
    return found


def _partition_schema(definition: TableDefinition) -> StructType:
    by_name = {field.name: field for field in definition.schema.fields}
    return StructType([by_name[name] for name in definition.partition_columns])
