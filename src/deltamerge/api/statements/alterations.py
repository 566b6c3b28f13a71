"""ALTER TABLE, a function for each kind of change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.statements import frames
from deltamerge.api.statements.creation import type_of, without_parent
from deltamerge.api.statements.tables import Tables
from deltamerge.commands.alter_columns import (
    ColumnChange,
    NewColumn,
    add_columns,
    change_column,
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
from deltamerge.spark.table import Table
from deltamerge.sql.statements import ast


def run_alter(tables: Tables, found: DeltaTable, statement: ast.AlterTable) -> DataFrame:
    _RUN[type(statement.change)](found.table, statement.change)
    return frames.nothing(tables.spark)


def _add_columns(table: Table, change: ast.AddColumns) -> None:
    columns = []
    for column in change.columns:
        after = column.position[-1] if isinstance(column.position, tuple) else None
        first = column.position == "FIRST"
        columns.append(NewColumn(column.name[:-1], without_parent(column), after, first))
    add_columns(table, columns)


def _change_column(table: Table, change: ast.ChangeColumn) -> None:
    column = ColumnChange(
        path=change.column,
        data_type=None if change.data_type is None else type_of(change.data_type),
        nullable=change.nullable,
        comment=change.comment,
        default=change.default,
        after=change.position[-1] if isinstance(change.position, tuple) else None,
        first=change.position == "FIRST",
    )
    change_column(table, column)


_RUN: Mapping[type, Callable[[Table, Any], None]] = {
    ast.SetProperties: lambda table, change: set_properties(table, change.properties),
    ast.UnsetProperties: lambda table, change: unset_properties(table, change.keys),
    ast.AddConstraint: lambda table, change: add_constraint(table, change.name, change.expression),
    ast.DropConstraint: lambda table, change: drop_constraint(table, change.name, if_exists=change.if_exists),
    ast.AddColumns: _add_columns,
    ast.DropColumns: lambda table, change: drop_columns(table, change.columns, if_exists=change.if_exists),
    ast.RenameColumn: lambda table, change: rename_column(table, change.column, change.to),
    ast.ChangeColumn: _change_column,
    ast.ClusterBy: lambda table, change: cluster_by(table, change.columns),
    ast.DropFeature: lambda table, change: drop_feature(table, change.name, truncate_history=change.truncates_history),
}
