"""ALTER TABLE, a function for each kind of change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.statements import frames
from deltamerge.api.statements.tables import Tables
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
from deltamerge.spark.table import Table
from deltamerge.sql.statements import ast


def run_alter(tables: Tables, found: DeltaTable, statement: ast.AlterTable) -> DataFrame:
    _RUN[type(statement.change)](found.table, statement.change)
    return frames.nothing(tables.spark)


_RUN: Mapping[type, Callable[[Table, Any], None]] = {
    ast.SetProperties: lambda table, change: set_properties(table, change.properties),
    ast.UnsetProperties: lambda table, change: unset_properties(table, change.keys),
    ast.AddConstraint: lambda table, change: add_constraint(table, change.name, change.expression),
    ast.DropConstraint: lambda table, change: drop_constraint(table, change.name, if_exists=change.if_exists),
    ast.AddColumns: lambda table, change: add_columns(table, change.columns),
    ast.DropColumns: lambda table, change: drop_columns(table, change.columns, if_exists=change.if_exists),
    ast.RenameColumn: lambda table, change: rename_column(table, change.column, change.to),
    ast.ChangeColumns: lambda table, change: change_columns(table, change.changes),
    ast.ClusterBy: lambda table, change: cluster_by(table, change.columns),
    ast.DropFeature: lambda table, change: drop_feature(table, change.name, truncate_history=change.truncates_history),
}
