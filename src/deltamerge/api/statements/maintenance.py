"""OPTIMIZE, REORG, VACUUM, RESTORE, CONVERT, GENERATE, REFRESH and ALTER TABLE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.optimize_builder import optimized_frame
from deltamerge.api.statements import frames
from deltamerge.api.statements.tables import Tables, only_of_delta
from deltamerge.commands.alter_columns import (
    add_columns,
    change_columns,
    drop_columns,
    rename_column,
)
from deltamerge.commands.alter_properties import (
    add_constraint,
    cluster_by,
    drop_constraint,
    set_properties,
    unset_properties,
)
from deltamerge.commands.drop_feature import drop_feature
from deltamerge.commands.optimize import optimize, purge
from deltamerge.commands.restore import METRICS as RESTORE_METRICS
from deltamerge.commands.restore import restore_to_version, version_of
from deltamerge.commands.vacuum import garbage_paths, vacuum
from deltamerge.exceptions import DeltaTableNotFoundException, DeltaUnsupportedOperationException
from deltamerge.scan.time_travel import expression_ms
from deltamerge.spark.catalog_columns import update_columns
from deltamerge.spark.connectors import refresh_path
from deltamerge.spark.table import Table
from deltamerge.sql.literals import string_value
from deltamerge.sql.names import quote_name
from deltamerge.sql.statements import ast
from deltamerge.sql.statements.ast import Convert, Generate, Optimize, Reorganize, Restore, TableName, Vacuum


def run_optimize(tables: Tables, statement: Optimize, _: str) -> DataFrame:
    table = tables.open_for(statement.table, "OPTIMIZE").table
    where = () if statement.where is None else (statement.where,)
    return optimized_frame(table, optimize(table, where, statement.order_by, is_full=statement.is_full))


def run_reorg(tables: Tables, statement: Reorganize, _: str) -> DataFrame:
    table = tables.open(statement.table).table
    return optimized_frame(table, purge(table, () if statement.where is None else (statement.where,)))


def run_vacuum(tables: Tables, statement: Vacuum, _: str) -> DataFrame:
    table = _to_vacuum(tables, statement.table)
    if statement.dry_run:
        paths = garbage_paths(table, statement.hours, statement.kind)
    else:
        vacuum(table, statement.hours, statement.kind)
        paths = [table.location]
    return frames.table(tables.spark, [(path,) for path in paths], "path STRING")


def _to_vacuum(tables: Tables, name: TableName) -> Table:
    """Open a table; where a path in quotes has none, the error has a class of its own in delta-spark."""
    try:
        return tables.open_for(name, "VACUUM").table
    except DeltaTableNotFoundException as error:
        if name.parts != (name.path,):
            raise
        raise only_of_delta(name.parts[0], "VACUUM", error) from None


def run_restore(tables: Tables, statement: Restore, _: str) -> DataFrame:
    table, version, shown = tables.open(statement.table).table, statement.to.version, statement.to.timestamp
    if shown is not None:
        version = version_of(table, expression_ms(tables.spark, shown))
        shown = string_value(shown) if shown[:1] in "'\"" else shown
    assert version is not None
    return frames.of_metrics(tables.spark, restore_to_version(table, version, shown), RESTORE_METRICS)


def run_convert(tables: Tables, statement: Convert, _: str) -> DataFrame:
    DeltaTable.convertToDelta(tables.spark, quote_name(statement.parts), statement.partition_columns)
    return frames.nothing(tables.spark)


def run_refresh(tables: Tables, found: DeltaTable, _: ast.RefreshTable) -> DataFrame:
    """Let Spark read anew what it has cached of a table, whose log is always read anew, and the catalog its columns."""
    refresh_path(tables.spark, found.table.location)
    update_columns(found.table, found.table.snapshot().metadata.schema_string)
    return frames.nothing(tables.spark)


def run_generate(tables: Tables, statement: Generate, _: str) -> DataFrame:
    tables.open(statement.table).generate(statement.mode)
    return frames.nothing(tables.spark)


def run_alter(tables: Tables, found: DeltaTable, statement: ast.AlterTable) -> DataFrame:
    _RUN[type(statement.change)](found.table, statement.change)
    return frames.nothing(tables.spark)


def _refuse_replaced_columns(table: Table, _: ast.ReplaceColumns) -> None:
    raise DeltaUnsupportedOperationException(
        "DELTA_OPERATION_NOT_ALLOWED",
        f"Operation not allowed: ALTER TABLE REPLACE COLUMNS of {table.name}. Name the changes: ALTER TABLE … DROP "
        "COLUMNS, ADD COLUMNS, RENAME COLUMN and ALTER COLUMN. Nothing was changed.",
        parameters={"operation": "ALTER TABLE REPLACE COLUMNS"},
    )


_RUN: Mapping[type, Callable[[Table, Any], None]] = {
    ast.SetProperties: lambda table, change: set_properties(table, change.properties),
    ast.UnsetProperties: lambda table, change: unset_properties(table, change.keys),
    ast.AddConstraint: lambda table, change: add_constraint(table, change.name, change.expression),
    ast.DropConstraint: lambda table, change: drop_constraint(table, change.name, if_exists=change.if_exists),
    ast.AddColumns: lambda table, change: add_columns(table, change.columns),
    ast.DropColumns: lambda table, change: drop_columns(table, change.columns, if_exists=change.if_exists),
    ast.RenameColumn: lambda table, change: rename_column(table, change.column, change.to),
    ast.ChangeColumns: lambda table, change: change_columns(table, change.changes),
    ast.ReplaceColumns: _refuse_replaced_columns,
    ast.ClusterBy: lambda table, change: cluster_by(table, change.columns),
    ast.DropFeature: lambda table, change: drop_feature(table, change.name, truncate_history=change.truncates_history),
}
