"""DESCRIBE and SHOW of Delta tables, from their logs."""

from __future__ import annotations

from pyspark.sql import DataFrame

from deltamerge.api.delta_table import DeltaTable, other_detail
from deltamerge.api.statements import frames
from deltamerge.api.statements.tables import Tables, only_of_delta
from deltamerge.exceptions import DeltaAnalysisException, DeltaTableNotFoundException
from deltamerge.log.protocol import reader_features, writer_features
from deltamerge.scan.column_mapping import physical_field
from deltamerge.scan.target import partition_value
from deltamerge.spark import columns as F
from deltamerge.spark.catalog import SESSION_CATALOG, catalog_entry
from deltamerge.spark.table import spark_schema
from deltamerge.sql.names import quote, quote_name, shown_name
from deltamerge.sql.statements import ast

_COLUMNS = "col_name STRING, data_type STRING, comment STRING"


def run_describe_history(tables: Tables, statement: ast.DescribeHistory, _: str) -> DataFrame:
    try:
        return tables.open_for(statement.table, "DESCRIBE HISTORY").history(statement.limit)
    except DeltaTableNotFoundException as error:
        if statement.table.path is None:
            raise
        raise only_of_delta(statement.table.path, "DESCRIBE HISTORY", error) from None


def run_describe_detail(tables: Tables, statement: ast.DescribeDetail, _: str) -> DataFrame:
    found = tables.find(statement.table)
    if found is not None:
        return found.detail()
    parts = statement.table.parts
    entry = catalog_entry(tables.spark, parts)
    if entry is None or entry.location is None:
        return tables.open(statement.table).detail()
    # As delta-spark: scripts ask so whether a table is one of Delta's.
    return other_detail(tables.spark, entry.provider, quote_name(parts), entry.location)


def run_describe(tables: Tables, found: DeltaTable, statement: ast.DescribeTable) -> DataFrame:
    snapshot = found.table.snapshot()
    columns = {
        field.name: (field.name, field.dataType.simpleString(), field.metadata.get("comment"))
        for field in spark_schema(snapshot).fields
    }
    rows: list[tuple[str, str, str | None]] = [*columns.values()]
    parts = (
        ("Partition", snapshot.metadata.partition_columns),
        ("Clustering", tuple(map(shown_name, snapshot.clustered_by))),
    )
    for kind, names in parts:
        if names:
            rows += [(f"# {kind} Information", "", ""), ("# col_name", "data_type", "comment")]
            rows += [columns.get(name, (name, "", None)) for name in names]
    if statement.extended:
        rows += [("", "", ""), ("# Detailed Table Information", "", ""), *_details(tables, found, statement)]
    return frames.table(tables.spark, rows, _COLUMNS)


def _details(tables: Tables, found: DeltaTable, statement: ast.DescribeTable) -> list[tuple[str, str, str | None]]:
    """Return what Delta tables and, of one that is named, the catalog know of it. Spark: DescribeTableExec."""
    entry = None if statement.table.path is not None else catalog_entry(tables.spark, statement.table.parts)
    known = {} if entry is None else entry.details
    properties = ",".join(f"{key}={value}" for key, value in _properties(found))
    is_managed = "true" if known.get("Type") == "MANAGED" else None
    described = (
        ("Name", found.table.name),
        *((key, known.get(key)) for key in ("Catalog", "Database", "Table", "Type")),
        ("Comment", found.table.snapshot().metadata.description),
        ("Location", found.table.location),
        ("Provider", "delta"),
        ("Owner", known.get("Owner")),
        ("Is_managed_location", is_managed),
        ("Table Properties", f"[{properties}]"),
    )
    return [(name, value, "") for name, value in described if value is not None]


def _properties(found: DeltaTable) -> list[tuple[str, str]]:
    """Return a table's properties, its protocol among them. Delta: DeltaTableV2.properties."""
    snapshot = found.table.snapshot()
    protocol = snapshot.protocol
    named = protocol.reader_features is not None or protocol.writer_features is not None
    features = reader_features(protocol) | writer_features(protocol) if named else frozenset()
    return sorted({
        **snapshot.metadata.configuration,
        "delta.minReaderVersion": str(protocol.min_reader_version),
        "delta.minWriterVersion": str(protocol.min_writer_version),
        **{f"delta.feature.{name}": "supported" for name in features},
    }.items())  # fmt: skip


def run_show_properties(tables: Tables, found: DeltaTable, statement: ast.ShowProperties) -> DataFrame:
    rows = _properties(found)
    if statement.key is not None:
        missing = f"Table {_full_name(found)} does not have property: {statement.key}"
        rows = [(statement.key, dict(rows).get(statement.key, missing))]
    return frames.table(tables.spark, rows, "key STRING, value STRING")


def _full_name(found: DeltaTable) -> str:
    return shown_name(found.table.entry or (SESSION_CATALOG, "delta", found.table.name))


def run_show_columns(tables: Tables, found: DeltaTable, _: ast.ShowColumns) -> DataFrame:
    names = [(name,) for name in spark_schema(found.table.snapshot()).names]
    return frames.table(tables.spark, names, "col_name STRING")


def run_show_partitions(tables: Tables, found: DeltaTable, statement: ast.ShowPartitions) -> DataFrame:
    """Return the partitions that have files, a column for each of their columns. Delta: ShowDeltaPartitionsCommand."""
    snapshot = found.table.snapshot()
    by_name = {field.name: field for field in spark_schema(snapshot).fields}
    fields = [by_name[name] for name in snapshot.metadata.partition_columns]
    if not fields:
        raise DeltaAnalysisException(
            "DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_TABLE",
            f"SHOW PARTITIONS is not allowed on a table that is not partitioned: {found.table.name}.",
            parameters={"tableName": found.table.name},
        )
    stored = [physical_field(field, snapshot.mapping_mode).name for field in fields]
    of_files = map(dict, snapshot.files.arrow.column("partition_values").to_pylist())
    values = {tuple(map(each.get, stored)) for each in of_files}
    schema = ", ".join(f"{quote(field.name)} STRING" for field in fields)
    rows = frames.table(tables.spark, sorted(values, key=repr), schema)
    typed = rows.select(*(partition_value(F.col(quote(f.name)), f.dataType).alias(f.name) for f in fields))
    for name, value in statement.partition:
        typed = typed.where(F.col(quote(name)).eqNullSafe(F.expr(value)))
    return typed
