"""The files whose place an overwrite of partitions takes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from deltamerge.data_source.conditions import condition_of
from deltamerge.data_source.file_parts import partition_value
from deltamerge.data_source.request import Request
from deltamerge.data_source.shapes import char_lengths, unsupported
from deltamerge.log.file_table import FileTable
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.column_mapping import physical_field
from deltamerge.scan.file_types import arrow_schema
from deltamerge.workers.conditions import Condition, evaluate
from deltamerge.workers.table_columns import padded
from deltamerge.write.definition import TableDefinition

_INSTEAD = "DeltaTable.forPath(spark, path).delete(condition), then append"


def rows_condition(sql: str, given: StructType, definition: TableDefinition, request: Request) -> tuple[Condition, str]:
    """Return the condition of ``replaceWhere`` over a frame's columns, and the error of rows that do not match it."""
    columns = _partition_schema(definition)
    _condition(sql, columns, columns, request)
    return _condition(sql, given, columns, request), (
        f"[DELTA_REPLACE_WHERE_MISMATCH] Written data does not conform to the replaceWhere condition {sql} of table "
        f"{request.path}; nothing was written. SQLSTATE: 44000"
    )


def where_files(sql: str, definition: TableDefinition, request: Request, snapshot: Snapshot) -> FileTable:
    """Return the files for whose partition values a condition is TRUE."""
    schema = _partition_schema(definition)
    condition = _condition(sql, schema, schema, request)
    lengths = char_lengths(schema)
    zone = request.conf.session_time_zone
    names = [physical_field(field, snapshot.mapping_mode).name for field in schema.fields]
    values = [file.partition_values for file in snapshot.files.add_files()]
    columns = []
    for name, arrow in zip(names, arrow_schema(schema), strict=True):
        of_files = [partition_value(each.get(name), arrow.type, zone) for each in values]
        column = pa.concat_arrays(of_files) if of_files else pa.nulls(0, arrow.type)
        columns.append(padded(column, lengths.get(arrow.name)))
    found = evaluate(condition, pa.table(columns, names=[str(index) for index in range(len(columns))]))
    if isinstance(found, pa.Scalar):
        mask = np.full(len(values), found.as_py() is True)
    else:
        mask = found.fill_null(False).to_numpy(zero_copy_only=False)
    return snapshot.files.filter(mask)


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
