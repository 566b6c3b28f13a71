"""PySpark's calls of a session's catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import catalog as pyspark_catalog
from pyspark.sql.catalog import Column as CatalogColumn
from pyspark.sql.catalog import Table as CatalogTable
from pyspark.sql.types import StructType

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.run_sql import sql
from deltamerge.api.save_frame import Save, create_empty
from deltamerge.api.statements.tables import Tables
from deltamerge.as_jar.recorded import Original
from deltamerge.as_jar.served import is_delta, is_served, with_source
from deltamerge.log.snapshot import table_exists
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark import columns as F
from deltamerge.spark.catalog import (
    CatalogEntry,
    catalog_entries,
    catalog_entry,
    current_database,
    names_another_catalog,
)
from deltamerge.spark.own_calls import own_calls
from deltamerge.spark.session import SPARK_ERRORS, errors_not_logged
from deltamerge.spark.table import open_table, spark_schema
from deltamerge.sql.names import names_path, parse_table_name, quote, quote_name
from deltamerge.workers.partition_names import partition_folder

_Frames: TypeAlias = Callable[..., DataFrame]


def catalog_call(original: Original, self: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Ask the catalog, which needs the source for a Delta table's entry."""
    spark: SparkSession = self._sparkSession
    if not is_served(spark):
        return original(self, *args, **kwargs)
    return with_source(spark, partial(original, self, *args, **kwargs))


def get_table(original: Original, self: Any, /, tableName: str) -> CatalogTable:  # noqa: ANN401
    """Return a table's entry; the comment of a Delta table stands in its log."""
    spark: SparkSession = self._sparkSession
    with own_calls() as is_own:
        if is_own or not is_served(spark):
            own: CatalogTable = original(self, tableName)
            return own
        entry = catalog_entry(spark, parse_table_name(tableName))
        if entry is not None and entry.provider == "delta" and entry.location is not None:
            table = open_table(spark, entry.location)
            if table_exists(table.store):
                return _shown(entry)._replace(description=table.snapshot().metadata.description)
        found: CatalogTable = catalog_call(original, self, tableName)
        return found


def list_tables(
    original: Original,
    self: Any,  # noqa: ANN401
    /,
    dbName: str | None = None,
    pattern: str | None = None,
) -> list[CatalogTable]:
    """Return the entries of a database as its catalog has them.

    Spark's own call starts a worker in Python for each Delta table, and does not find its type and comment.
    """
    spark: SparkSession = self._sparkSession
    database = (current_database(spark),) if dbName is None else parse_table_name(dbName)
    if is_served(spark) and not names_another_catalog(spark, (*database, "")):
        # Spark's own call lists other catalogs, and tables that it cannot describe.
        with errors_not_logged(), suppress(*SPARK_ERRORS):
            entries = catalog_entries(spark, database, pattern or "*")
            if any(entry.provider == "delta" for entry in entries):
                return [_shown(entry) for entry in entries]
    found: list[CatalogTable] = original(self, dbName, pattern)
    return found


def _shown(entry: CatalogEntry) -> CatalogTable:
    known, is_temporary = entry.details, entry.is_temporary
    return CatalogTable(
        name=known["Table"],
        catalog=known.get("Catalog"),
        namespace=[known["Database"]] if "Database" in known else [],
        description=known.get("Comment"),
        tableType="TEMPORARY" if is_temporary else known["Type"],
        isTemporary=is_temporary,
    )


def list_columns(
    original: Original,
    self: Any,  # noqa: ANN401
    /,
    tableName: str,
    dbName: str | None = None,
) -> list[CatalogColumn]:
    """Return a table's columns; those of a Delta table, and what it is partitioned by, stand in its log."""
    with own_calls() as is_own:
        table = None if is_own else _served_table(self, _parts(tableName, dbName))
        if table is None:
            columns: list[CatalogColumn] = catalog_call(original, self, tableName, dbName)
            return columns
        snapshot = table.table.snapshot()
    clustered = {path[0] for path in snapshot.clustered_by}
    return [
        CatalogColumn(
            name=field.name,
            description=field.metadata.get("comment"),
            dataType=field.metadata.get(CHAR_VARCHAR_TYPE) or field.dataType.simpleString(),
            nullable=field.nullable,
            isPartition=field.name in snapshot.metadata.partition_columns,
            isBucket=False,
            isCluster=field.name in clustered,
        )
        for field in spark_schema(snapshot).fields
    ]


def has_table(original: Original, self: Any, /, tableName: str, dbName: str | None = None) -> bool:  # noqa: ANN401
    """Return whether there is a table or view of a name, or a Delta table at a path."""
    spark: SparkSession = self._sparkSession
    with own_calls() as is_own:
        if is_own:
            return bool(original(self, tableName, dbName))
        parts = _parts(tableName, dbName)
        if names_path(parts) and is_served(spark):
            return Tables(spark).has_table_at(parts[1])
        return bool(catalog_call(original, self, tableName, dbName))


def _parts(name: str, database: str | None) -> tuple[str, ...]:
    """Return the parts of a name; one beside a database has no others."""
    return parse_table_name(name) if database is None else (database, name)


def _served_table(catalog: Any, parts: Sequence[str]) -> DeltaTable | None:  # noqa: ANN401
    spark: SparkSession = catalog._sparkSession
    return Tables(spark).called(parts) if is_served(spark) else None


def _about_table(catalog: Any, name: str, statement: str) -> DataFrame | None:  # noqa: ANN401
    """Run a statement about a named table; None where it is no Delta table, or the call the library's own."""
    spark: SparkSession = catalog._sparkSession
    with own_calls() as is_own:
        parts = parse_table_name(name)
        if is_own or _served_table(catalog, parts) is None:
            return None
        return with_source(spark, partial(sql, spark, statement.format(quote_name(parts))))


def table_properties(original: Original, self: Any, /, tableName: str) -> Any:  # noqa: ANN401
    found = _about_table(self, tableName, "SHOW TBLPROPERTIES {}")
    return catalog_call(original, self, tableName) if found is None else dict(map(tuple, found.collect()))


def list_partitions(original: Original, self: Any, /, tableName: str) -> Any:  # noqa: ANN401
    found = _about_table(self, tableName, "SHOW PARTITIONS {}")
    if found is None:
        return catalog_call(original, self, tableName)
    names = found.columns
    values = found.select(*(F.col(quote(name)).cast("string") for name in names)).collect()
    # PySpark 4.0 and 4.1 do not have the class, nor the call.
    return [pyspark_catalog.TablePartition("/".join(map(partition_folder, names, row))) for row in values]


def refresh_table(original: Original, self: Any, /, tableName: str) -> None:  # noqa: ANN401
    """Let Spark read a table anew, and the catalog's entry of a Delta table have its columns."""
    if _about_table(self, tableName, "REFRESH TABLE {}") is None:
        catalog_call(original, self, tableName)


def truncate_table(original: Original, self: Any, /, tableName: str) -> None:  # noqa: ANN401
    if _about_table(self, tableName, "TRUNCATE TABLE {}") is None:
        catalog_call(original, self, tableName)


def drop_table(original: Original, self: Any, /, tableName: str, ifExists: bool = False, purge: bool = False) -> None:  # noqa: ANN401
    """Drop a table; of one that has no entry in the catalog, its folder in the warehouse."""
    if _about_table(self, tableName, "DROP TABLE {} PURGE" if purge else "DROP TABLE {}") is None:
        catalog_call(original, self, tableName, ifExists, purge)


def create_table(
    original: _Frames,
    self: Any,  # noqa: ANN401
    /,
    tableName: str,
    path: str | None = None,
    source: str | None = None,
    schema: StructType | None = None,
    description: str | None = None,
    **options: str,
) -> DataFrame:
    """Make a Delta table, or an entry of the catalog for one that is there."""
    spark: SparkSession = self._sparkSession
    if not is_delta(spark, (source or "").lower()):
        return original(self, tableName, path, source, schema, description, **options)
    asked = Save().with_call("options", (), {**options, "path": path})
    if not create_empty(spark, tableName, schema, asked, description):
        return original(self, tableName, path, source, schema, description, **options)
    return spark.table(tableName)
