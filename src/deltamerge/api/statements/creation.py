"""CREATE and REPLACE TABLE, clones, temporary views and DROP TABLE."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from deltamerge.api.new_tables import create, find_place, record
from deltamerge.api.statements import frames
from deltamerge.api.statements.queries import query_frame
from deltamerge.api.statements.tables import Tables
from deltamerge.commands.clone import shallow_clone
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.scan.time_travel import expression_ms
from deltamerge.spark import columns as F
from deltamerge.spark.catalog import catalog_entry
from deltamerge.spark.table import spark_schema
from deltamerge.sql.names import quote
from deltamerge.sql.statements.ast import CloneTable, ColumnDefinition, CreateTable, CreateTempView, DropTable
from deltamerge.storage.store import own_files
from deltamerge.write.constraints import CHECK_PREFIX
from deltamerge.write.definition import TableDefinition, as_spelled, definition_field
from deltamerge.write.frame_rows import new_schema
from deltamerge.write.table_writer import NO_NOTES, CommitNotes


def run_create(tables: Tables, statement: CreateTable, _: str) -> DataFrame:
    rows = None if statement.query is None else query_frame(tables, statement.query)
    create_from_rows(tables, statement, rows)
    return frames.nothing(tables.spark)


def create_from_rows(
    tables: Tables, statement: CreateTable, rows: DataFrame | None, notes: CommitNotes = NO_NOTES
) -> None:
    """Create the table of a statement.

    Args:
        rows: What it holds, whose columns it has; None for a table without rows by its definition.
    """
    definition = _definition(statement)
    if rows is not None:
        if definition.schema.fields:
            raise DeltaAnalysisException(
                "DELTA_OPERATION_NOT_ALLOWED",
                "Schema may not be specified in a Create Table As Select (CTAS) statement.",
            )
        definition = as_spelled(replace(definition, schema=new_schema(rows.schema)))
    place = find_place(tables.spark, statement.table, statement.location, tables.options)
    create(place, definition, statement.mode, rows, requires_entry=True, notes=notes)


def _definition(statement: CreateTable) -> TableDefinition:
    fields = [definition_field(column) for column in statement.columns]
    partitions = statement.partitioned_by
    fields += [definition_field(column) for column in partitions if isinstance(column, ColumnDefinition)]
    named = [column if isinstance(column, str) else column.name[-1] for column in partitions]
    checks = {CHECK_PREFIX + name.lower(): sql for name, sql in statement.checks.items()}
    return as_spelled(
        TableDefinition(
            StructType(fields),
            tuple(named),
            {**statement.properties, **checks},
            statement.comment,
            statement.clustered_by,
        )
    )


def run_clone(tables: Tables, statement: CloneTable, _: str) -> DataFrame:
    source = tables.open(statement.source)
    version = None
    if statement.at is not None:
        version = statement.at.version
        if version is None:
            assert statement.at.timestamp is not None
            version = source.table.version_at(expression_ms(tables.spark, statement.at.timestamp))
    place = find_place(tables.spark, statement.table, statement.location, tables.options)
    if place.exists and place.name and statement.mode == "create_if_not_exists":
        # At a path delta-spark asks the catalog, which does not know the table, and fails.
        return frames.nothing(tables.spark)
    record(place, spark_schema(source.table.snapshot(version)), None, requires_entry=True)
    replaces = statement.mode in ("replace", "create_or_replace")
    metrics = shallow_clone(source.table, version, place.table, statement.properties, replaces=replaces)
    return frames.of_metrics(tables.spark, metrics)


def run_create_view(tables: Tables, statement: CreateTempView, _: str) -> DataFrame:
    """Make a temporary view, in which Delta tables stay at the version that they have now."""
    rows = _with_view_columns(query_frame(tables, statement.query), statement)
    name = quote(statement.name)
    if statement.is_global:
        (rows.createOrReplaceGlobalTempView if statement.replaces else rows.createGlobalTempView)(name)
    else:
        (rows.createOrReplaceTempView if statement.replaces else rows.createTempView)(name)
    return frames.nothing(tables.spark)


def _with_view_columns(rows: DataFrame, statement: CreateTempView) -> DataFrame:
    """Return a view's rows under the names of its columns."""
    names = [name for name, _ in statement.columns]
    if not names:
        return rows
    found = len(rows.columns)
    if len(names) != found:
        kind = "NOT_ENOUGH_DATA_COLUMNS" if found < len(names) else "TOO_MANY_DATA_COLUMNS"
        raise DeltaAnalysisException(
            f"CREATE_VIEW_COLUMN_ARITY_MISMATCH.{kind}",
            f"Cannot create view {quote(statement.name)}: it names {len(names)} column(s), and its query has {found}.",
            parameters={"viewName": quote(statement.name)},
        )
    twice = [name for place, name in enumerate(names) if name.lower() in (n.lower() for n in names[:place])]
    if twice:
        raise DeltaAnalysisException(
            "COLUMN_ALREADY_EXISTS",
            f"The view {quote(statement.name)} names the column {quote(twice[0])} twice. Choose another name.",
            parameters={"columnName": quote(twice[0])},
        )
    commented = {
        name: {**field.metadata, "comment": comment}
        for field, (name, comment) in zip(rows.schema.fields, statement.columns, strict=True)
        if comment is not None
    }
    columns = (F.col(quote(name)).alias(name, metadata=commented.get(name)) for name in names)
    return rows.toDF(*names).select(*columns)


def run_drop(tables: Tables, statement: DropTable, sql: str) -> DataFrame:
    """Drop a table as Spark does; one that only the warehouse's folder has is deleted with its files."""
    name = statement.table
    if name.path is not None or catalog_entry(tables.spark, name.parts) is not None:
        return tables.spark.sql(sql)
    found = tables.called(name.parts)
    if found is None:
        return tables.spark.sql(sql)
    store = found.table.store
    store.delete([file.path for file in own_files(store)])
    return frames.nothing(tables.spark)
