"""sql: run one statement of delta-spark's SQL, or of Spark's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.sql_formatter import SQLStringFormatter

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.statements import maintenance
from deltamerge.api.statements.changes import run_delete, run_insert, run_merge_rows, run_truncate, run_update
from deltamerge.api.statements.creation import (
    run_clone,
    run_create,
    run_create_like,
    run_create_of_default,
    run_create_view,
    run_drop,
)
from deltamerge.api.statements.descriptions import (
    run_describe,
    run_describe_detail,
    run_describe_history,
    run_show_columns,
    run_show_partitions,
    run_show_properties,
)
from deltamerge.api.statements.maintenance import run_alter
from deltamerge.api.statements.queries import query_frame, reads_tables
from deltamerge.api.statements.tables import Tables
from deltamerge.exceptions import DeltaParseException
from deltamerge.spark.catalog import refuse_temporary_view
from deltamerge.spark.parameters import parameter_sql
from deltamerge.spark.variables import substituted
from deltamerge.sql.parameters import bind_parameters
from deltamerge.sql.statements import ast
from deltamerge.sql.statements.parser import parse_statement
from deltamerge.storage.credentials import StoreOptions


def sql(
    spark: SparkSession,
    text: str,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    options: StoreOptions | None = None,
) -> DataFrame:
    """Run a statement: delta-spark's additions to SQL here, everything else with ``spark.sql``.

    Queries, and statements that contain one, may refer to Delta tables by ``delta.`path` `` or by name, with VERSION AS
    OF or TIMESTAMP AS OF if needed.

    Args:
        spark: The session.
        text: One statement.
        args: The values of ``:name`` by name, or of ``?`` in their order, as `SparkSession.sql` takes them.
        options: The options of the object store of its tables; see `DeltaTable.forPath`.

    Returns:
        What delta-spark's SQL returns: the rows of a query, counts of rows, metrics; for most commands nothing.

    Raises:
        DeltaParseException: The statement cannot be parsed; the message shows where.
        DeltaAnalysisException: A name, a type or a clause is wrong; nothing was read or written.
        DeltaTableNotFoundException: There is no Delta table of that name or at that path.
        DeltaRuntimeException: The data is at fault; the table is unchanged.
        DeltaConcurrentModificationException: Another writer's commit conflicts; the table is as that left it.
    """
    tables, text = Tables(spark, options or {}), substituted(spark, text)
    parsed = _parsed(spark, text, args)
    if parsed is not None:
        return _run(tables, parsed)
    if reads_tables(text):
        return query_frame(tables, text, args)
    return spark.sql(text) if args is None else spark.sql(text, args)  # type: ignore[arg-type]


def formatted_sql(spark: SparkSession, text: str, args: Any, values: Mapping[str, Any]) -> DataFrame | None:  # noqa: ANN401
    """Run a statement as `sql`, with values and frames in the place of names between braces, as PySpark puts them.

    Returns:
        None where it is Spark's own and was not run.
    """
    formatter = _formatter(spark)
    try:
        text = substituted(spark, formatter.format(text, **values))
        frames = {name: frame for frame, name in formatter._temp_views}
        parsed = _parsed(spark, text, args)
        if parsed is not None:
            with _as_views(spark, frames):
                return _run(Tables(spark, passing=frozenset(map(str.lower, frames))), parsed)
        # Over Connect a query is analyzed when its rows are asked for, so that no view may be gone then.
        return query_frame(Tables(spark), text, args, frames) if reads_tables(text) else None
    finally:
        formatter.clear()


def _formatter(spark: SparkSession) -> Any:  # noqa: ANN401
    """Return PySpark's formatter of a session; the one of Connect makes no views."""
    if isinstance(spark, SparkSession):
        return SQLStringFormatter(spark)
    return import_module("pyspark.sql.connect.sql_formatter").SQLStringFormatter(spark)


@contextmanager
def _as_views(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Iterator[None]:
    try:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        yield
    finally:
        for name in frames:
            spark.catalog.dropTempView(name)


@dataclass(frozen=True)
class _Parsed:
    """A statement that is not Spark's alone.

    Args:
        bound: Its SQL with the parameters' values in it.
        text: Its SQL as it was given, for Spark with `args` where the statement's table is no Delta table.
    """

    statement: Any
    bound: str
    text: str
    args: Any


def _run(tables: Tables, parsed: _Parsed) -> DataFrame:
    statement = parsed.statement
    run = _ON_TABLE.get(type(statement))
    if run is None:
        return _RUN[type(statement)](tables, statement, parsed.bound)
    found = tables.find(statement.table)
    if found is None and isinstance(statement, (ast.DeleteRows, ast.UpdateRows, ast.InsertRows)):
        found = tables.shown_by(statement.table.parts)
    if found is not None:
        return run(tables, found, statement)
    if isinstance(statement, (ast.DeleteRows, ast.UpdateRows)):
        refuse_temporary_view(tables.spark, statement.table.parts)
    return query_frame(tables, parsed.text, parsed.args)


def _parsed(spark: SparkSession, text: str, args: Mapping[str, Any] | Sequence[Any] | None) -> _Parsed | None:
    """Return a statement with its parameters bound, None where it is Spark's alone."""
    bound = text
    if args is not None:
        # A parameter may be where the skeleton has a value: RETAIN :hours HOURS.
        with suppress(DeltaParseException):
            if parse_statement(text) is None:
                return None
        bound = bind_parameters(text, args, partial(parameter_sql, spark))
    statement = parse_statement(bound)
    return None if statement is None else _Parsed(statement, bound, text, args)


_RUN: Mapping[type, Callable[[Tables, Any, str], DataFrame]] = {
    ast.ParsedMerge: run_merge_rows,
    ast.Optimize: maintenance.run_optimize,
    ast.Reorganize: maintenance.run_reorg,
    ast.Vacuum: maintenance.run_vacuum,
    ast.Restore: maintenance.run_restore,
    ast.DescribeHistory: run_describe_history,
    ast.DescribeDetail: run_describe_detail,
    ast.Convert: maintenance.run_convert,
    ast.Generate: maintenance.run_generate,
    ast.CreateTable: run_create,
    ast.CreateOfDefaultSource: run_create_of_default,
    ast.CreateTableLike: run_create_like,
    ast.CloneTable: run_clone,
    ast.CreateTempView: run_create_view,
    ast.DropTable: run_drop,
}

_ON_TABLE: Mapping[type, Callable[[Tables, DeltaTable, Any], DataFrame]] = {
    ast.DeleteRows: run_delete,
    ast.UpdateRows: run_update,
    ast.InsertRows: run_insert,
    ast.TruncateTable: run_truncate,
    ast.DescribeTable: run_describe,
    ast.ShowProperties: run_show_properties,
    ast.ShowColumns: run_show_columns,
    ast.ShowPartitions: run_show_partitions,
    ast.RefreshTable: maintenance.run_refresh,
    ast.AlterTable: run_alter,
}
"""Statements about one table: where it is no Delta table, Spark runs them."""
