"""CREATE and REPLACE TABLE, clones, temporary views and DROP TABLE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from deltamerge.api.new_tables import clone, create, find_place
from deltamerge.api.statements import frames
from deltamerge.api.statements.queries import needs_frames, query_frame
from deltamerge.api.statements.tables import Tables
from deltamerge.commands.clone import METRICS
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.scan.table_reads import newest_reads
from deltamerge.scan.time_travel import expression_ms
from deltamerge.spark import columns as F
from deltamerge.spark.catalog import catalog_entry, names_another_catalog
from deltamerge.spark.data_source import is_source_of_new_tables
from deltamerge.sql.names import quote, quote_name
from deltamerge.sql.statements.ast import (
    CloneTable,
    ColumnDefinition,
    CreateOfDefaultSource,
    CreateTable,
    CreateTableLike,
    CreateTempView,
    DropTable,
    TableName,
)
from deltamerge.sql.statements.creation import read_as_delta
from deltamerge.storage.store import own_files
from deltamerge.write.constraints import CHECK_PREFIX
from deltamerge.write.definition import TableDefinition, as_spelled, definition_field
from deltamerge.write.frame_rows import new_schema
from deltamerge.write.like import definition_like
from deltamerge.write.table_writer import NO_NOTES, NO_OPTIONS, CommitNotes


def run_create(tables: Tables, statement: CreateTable, _: str) -> DataFrame:
    rows = None if statement.query is None else query_frame(tables, statement.query)
    create_from_rows(tables, statement, rows)
    return frames.nothing(tables.spark)


def run_create_of_default(tables: Tables, statement: CreateOfDefaultSource, sql: str) -> DataFrame:
    """Create a table of the session's default source; Spark does where that is another, or in another catalog."""
    spark = tables.spark
    if not is_source_of_new_tables(spark) or names_another_catalog(spark, statement.table.parts):
        return query_frame(tables, sql)
    return run_create(tables, read_as_delta(sql), sql)


def run_create_like(tables: Tables, statement: CreateTableLike, sql: str) -> DataFrame:
    """Create a table without rows that is like a Delta table, or a Delta table like another provider's."""
    source, name = tables.find(statement.source), statement.table
    is_delta = statement.uses_delta or name.path is not None
    if not is_delta and (source is None or names_another_catalog(tables.spark, name.parts)):
        return query_frame(tables, sql)
    if source is None:
        definition = _definition_like_other(tables, statement.source)
    else:
        definition = definition_like(source.table.snapshot())
    definition = replace(definition, properties={**definition.properties, **statement.properties})
    _create(tables, statement, definition)
    return frames.nothing(tables.spark)


def _definition_like_other(tables: Tables, source: TableName) -> TableDefinition:
    name, spark = quote_name(source.parts), tables.spark
    partitions = tuple(column.name for column in spark.catalog.listColumns(name) if column.isPartition)
    schema, entry = new_schema(spark.table(name).schema), catalog_entry(spark, source.parts)
    if entry is None or entry.location is None:
        return as_spelled(TableDefinition(schema, partitions))
    properties = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    return as_spelled(TableDefinition(schema, partitions, properties, entry.details.get("Comment")))


def create_from_rows(
    tables: Tables,
    statement: CreateTable,
    rows: DataFrame | None,
    notes: CommitNotes = NO_NOTES,
    file_options: Mapping[str, str] = NO_OPTIONS,
) -> None:
    """Create the table of a statement.

    Args:
        rows: What it holds, whose columns it has; None for a table without rows by its definition.
        file_options: Options of Spark's Parquet writer; they go before the session's settings.
    """
    definition = _definition(statement)
    if rows is not None:
        if definition.schema.fields:
            raise DeltaAnalysisException(
                "DELTA_OPERATION_NOT_ALLOWED",
                "Schema may not be specified in a Create Table As Select (CTAS) statement.",
            )
        definition = as_spelled(replace(definition, schema=new_schema(rows.schema)))
    _create(tables, statement, definition, rows, notes, file_options)


def _create(
    tables: Tables,
    statement: CreateTable | CreateTableLike,
    definition: TableDefinition,
    rows: DataFrame | None = None,
    notes: CommitNotes = NO_NOTES,
    file_options: Mapping[str, str] = NO_OPTIONS,
) -> None:
    if statement.mode == "create_if_not_exists" and tables.has_other_table(statement.table):
        return
    place = find_place(tables.spark, statement.table, statement.location, tables.options)
    create(place, definition, statement.mode, rows, requires_entry=True, notes=notes, file_options=file_options)


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
    _check_is_delta(tables, statement.source)
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
        return frames.of_metrics(tables.spark, {}, METRICS)
    replaces = statement.mode in ("replace", "create_or_replace")
    metrics = clone(place, source.table, version, statement.properties, replaces=replaces)
    return frames.of_metrics(tables.spark, metrics, METRICS)


def _check_is_delta(tables: Tables, name: TableName) -> None:
    """Refuse to clone what delta-spark can and this cannot: the files and tables of another format."""
    is_files = len(name.parts) == 2 and name.parts[0].lower() in ("parquet", "iceberg")
    if is_files or (tables.find(name) is None and tables.has_other_table(name)):
        shown = quote_name(name.parts)
        raise DeltaAnalysisException(
            "DELTA_CLONE_UNSUPPORTED_SOURCE",
            f"Unsupported clone source '{shown}': only Delta tables are cloned. Copy its rows with CREATE TABLE … AS "
            "SELECT, or make a folder of Parquet files a Delta table with CONVERT TO DELTA.",
            parameters={"name": shown},
        )


def run_create_view(tables: Tables, statement: CreateTempView, sql: str) -> DataFrame:
    """Make a temporary view: Spark keeps its text, but with Delta tables in it, which stay at their versions of now."""
    rows = query_frame(tables, statement.query)
    if not needs_frames(tables, statement.query) and not newest_reads(rows):
        return tables.spark.sql(sql)
    rows = _with_view_columns(rows, statement)
    name = quote(statement.name)
    if statement.is_global:
        (rows.createOrReplaceGlobalTempView if statement.replaces else rows.createGlobalTempView)(name)
    else:
        (rows.createOrReplaceTempView if statement.replaces else rows.createTempView)(name)
    return frames.nothing(tables.spark)


def _with_view_columns(rows: DataFrame, statement: CreateTempView) -> DataFrame:
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
