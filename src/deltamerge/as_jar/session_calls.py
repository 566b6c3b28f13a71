"""PySpark's calls on a session: ``sql``, ``table``, its builder and its catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.catalog import Column as CatalogColumn
from pyspark.sql.catalog import Table as CatalogTable
from pyspark.sql.types import StructType

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.load_frame import Load, load_table
from deltamerge.api.run_sql import formatted_sql, sql
from deltamerge.api.save_frame import Save, create_empty
from deltamerge.api.statements.tables import Tables
from deltamerge.as_jar.recorded import Original
from deltamerge.as_jar.served import is_delta, is_served, register_once, with_source
from deltamerge.as_jar.temp_views import update_for_statement, update_views
from deltamerge.log.snapshot import table_exists
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark.catalog import CatalogEntry, catalog_entries, catalog_entry, names_another_catalog
from deltamerge.spark.config import DEFAULTS
from deltamerge.spark.data_source import drop_missing_catalog
from deltamerge.spark.own_calls import own_calls
from deltamerge.spark.table import open_table, spark_schema
from deltamerge.sql.names import names_path, parse_name

_Frames: TypeAlias = Callable[..., DataFrame]
_USES_SOURCE = re.compile(r"\busing\s+delta\b", re.IGNORECASE)


def run_sql(original: _Frames, self: SparkSession, /, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:  # noqa: ANN401
    with own_calls() as is_own:
        if is_own or not is_served(self):
            return original(self, sqlQuery, args, **kwargs)
        update_for_statement(self, sqlQuery)
        if _USES_SOURCE.search(sqlQuery):
            register_once(self)
        if not kwargs:
            return with_source(self, partial(sql, self, sqlQuery, args))
        found = formatted_sql(self, sqlQuery, args, kwargs)
        return with_source(self, partial(original, self, sqlQuery, args, **kwargs)) if found is None else found


def table(original: _Frames, self: SparkSession, /, tableName: str) -> DataFrame:
    if not isinstance(tableName, str) or not is_served(self):
        return original(self, tableName)
    update_views(self, [parse_name(tableName)])
    found = load_table(self, tableName, Load())
    return with_source(self, partial(original, self, tableName)) if found is None else found


def made_session(original: Original, self: Any) -> SparkSession:  # noqa: ANN401
    session: SparkSession = original(self)
    drop_missing_catalog(session)
    return session


def conf_value(original: Original, self: Any, /, key: str, *default: Any, **kwargs: Any) -> str | None:  # noqa: ANN401
    """Return a setting; of one of Delta's that is not set its default, which Spark knows from the JAR alone."""
    if not default and not kwargs and key in DEFAULTS:
        default = (DEFAULTS[key],)
    value: str | None = original(self, key, *default, **kwargs)
    return value


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
        entry = catalog_entry(spark, parse_name(tableName))
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
    database = (str(self.currentDatabase()),) if dbName is None else parse_name(dbName)
    if is_served(spark) and not names_another_catalog(spark, (*database, "")):
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
            return DeltaTable.isDeltaTable(spark, parts[1])
        return bool(catalog_call(original, self, tableName, dbName))


def _parts(name: str, database: str | None) -> tuple[str, ...]:
    """Return the parts of a name; one beside a database has no others."""
    return parse_name(name) if database is None else (database, name)


def _served_table(catalog: Any, parts: Sequence[str]) -> DeltaTable | None:  # noqa: ANN401
    spark: SparkSession = catalog._sparkSession
    return Tables(spark).called(parts) if is_served(spark) else None


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
