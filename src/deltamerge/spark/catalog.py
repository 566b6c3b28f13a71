"""Where a table of the session's catalog is stored."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructField, StructType

from deltamerge.exceptions import DeltaAnalysisException, DeltaTableNotFoundException
from deltamerge.log.snapshot import table_exists
from deltamerge.spark.own_calls import own_calls
from deltamerge.spark.session import SPARK_ERRORS, create_catalog_table, errors_not_logged
from deltamerge.spark.table import Table, open_table
from deltamerge.sql.names import names_path, parse_table_name, quote_name, shown_name
from deltamerge.sql.names import unquote as unquote_name
from deltamerge.sql.relations import GLOBAL_DATABASE
from deltamerge.storage.credentials import StoreOptions

SESSION_CATALOG = "spark_catalog"
# Of a name in this catalog: it, a database and a table.
_MOST_PARTS = 3
# In what Spark shows of a table, with what may follow it.
_COMMENT = re.compile(
    r"^Comment: (.*?)\n(?=(?:Collation|View Text|Table Properties|Statistics|Location|Schema): )",
    re.MULTILINE | re.DOTALL,
)
# The names that Spark's catalog takes for tables.
_MANAGED_NAME = re.compile(r"[A-Za-z0-9_]+")

LOCATION = "deltamerge.location"
"""In the metadata of a column of a catalog's table: the table's location, which Spark does not hand on."""


def without_location(schema: StructType) -> StructType:
    """Return a frame's schema without the location that a table of the catalog has in its columns' metadata."""
    fields = []
    for each in schema.fields:
        metadata = {key: value for key, value in each.metadata.items() if key != LOCATION}
        fields.append(StructField(each.name, each.dataType, each.nullable, metadata))
    return StructType(fields)


def with_location(schema: StructType, location: str) -> StructType:
    fields = [StructField(f.name, f.dataType, f.nullable, {**f.metadata, LOCATION: location}) for f in schema.fields]
    return StructType(fields)


def location_in(schema: StructType) -> str | None:
    """Return the location of the table whose columns these all are; None where there is no such table.

    Columns take their metadata along into views, files and the schemas of frames, where they stand beside others.
    """
    locations = [field.metadata.get(LOCATION) for field in schema.fields]
    found: str | None = next(iter(locations), None)
    # Entries of release 0.2.0 have it in the first column alone.
    return found if locations in ([found] * len(locations), [found] + [None] * (len(locations) - 1)) else None


@dataclass(frozen=True)
class CatalogEntry:
    """What the session's catalog has under a name.

    Args:
        provider: The data source, in lower case; empty for views.
        location: The folder of a table; None for views.
        details: What Spark shows of it, such as its name, type and owner.
    """

    provider: str
    location: str | None
    is_temporary: bool = False
    details: Mapping[str, str] = field(default_factory=dict)


def delta_location(spark: SparkSession, parts: Sequence[str], options: StoreOptions | None = None) -> str | None:
    """Return where a named Delta table is stored, None where the name is not one of a Delta table.

    The catalog's entry counts; where there is none, the folder that a managed table has in the session's warehouse.
    """
    if names_path(parts):
        return parts[1]
    entry = catalog_entry(spark, parts)
    if entry is not None and (entry.location is None or entry.provider != "delta"):
        return None
    if entry is None and not _MANAGED_NAME.fullmatch(parts[-1]):
        # Such as parquet.`/path`, which Spark looks for in the catalog first.
        return None
    location = warehouse_location(spark, quote_name(parts)) if entry is None else entry.location
    assert location is not None
    return location if table_exists(open_table(spark, location, options).store) else None


def refuse_temporary_view(spark: SparkSession, parts: Sequence[str]) -> None:
    """Refuse a temporary view in the place of a table.

    A view does not tell whether it has all rows and columns of one table, so that it cannot stand for that.
    """
    entry = catalog_entry(spark, parts)
    if entry is not None and entry.is_temporary:
        raise DeltaAnalysisException(
            "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE",
            f"{shown_name(parts)} is a temporary view, and a Delta table is expected. Name the table that it reads, "
            "or its path: delta.`/path`.",
            parameters={"viewName": quote_name(parts)},
        )


def table_location(spark: SparkSession, name: str, options: StoreOptions | None = None) -> str:
    """Return a named table's path or URL: the catalog's, else that of a managed table in the session's warehouse."""
    location = delta_location(spark, parse_table_name(name), options)
    if location is None:
        own = not _is_of_another_catalog(parse_table_name(name))
        there = f", and there is none at {warehouse_location(spark, name)}" if own else ""
        raise DeltaTableNotFoundException(
            "DELTA_TABLE_NOT_FOUND",
            f"Delta table {name} doesn't exist: the catalog does not know it as a Delta table{there}. "
            "Open it with forPath, or check the name and the current database.",
            parameters={"tableName": name},
        )
    return location


def warehouse_location(spark: SparkSession, name: str) -> str:
    """Return the folder of a managed table: below its database's, which may be outside of the session's warehouse."""
    parts = parse_table_name(name)
    folder = _database_location(spark, qualified(spark, parts)[-2])
    table = parts[-1].lower()
    return f"{folder.rstrip('/')}/{table}"


def _database_location(spark: SparkSession, database: str) -> str:
    """Return the folder of a database: its own, or, where there is none of the name, as Spark would choose it."""
    with errors_not_logged():
        try:
            # A URI, percent-encoded.
            location = unquote(spark.catalog.getDatabase(quote_name((SESSION_CATALOG, database))).locationUri)
        except SPARK_ERRORS as error:
            if "SCHEMA_NOT_FOUND" not in str(error):
                raise
            warehouse = str(spark.conf.get("spark.sql.warehouse.dir")).rstrip("/")
            location = warehouse if database.lower() == "default" else f"{warehouse}/{database.lower()}.db"
    return location


def qualified(spark: SparkSession, parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(parts) if len(parts) > 1 else (current_database(spark), *parts)


def current_database(spark: SparkSession) -> str:
    # Spark quotes a name that begins with a digit.
    return unquote_name(str(spark.catalog.currentDatabase()))


def whole_name(spark: SparkSession, parts: Sequence[str]) -> tuple[str, ...]:
    named = qualified(spark, parts)
    return named if len(named) > 2 else (SESSION_CATALOG, *named)


def named(table: Table, parts: Sequence[str]) -> Table:
    """Return a table that was opened by its name; ``delta.`path` `` is none."""
    return table if names_path(parts) else replace(table, entry=whole_name(table.spark, parts))


def record_table(
    spark: SparkSession, parts: Sequence[str], schema: StructType, location: str | None, comment: str | None
) -> bool:
    """Add a Delta table to the session's catalog; return whether the session has a data source of Delta's name.

    Args:
        location: Where the table is stored; None for the place of a managed one.
    """
    place = location or warehouse_location(spark, quote_name(parts))
    columns = StructType([StructField(f.name, f.dataType, True, f.metadata) for f in schema.fields])
    try:
        create_catalog_table(spark, quote_name(parts), location, with_location(columns, place), comment)
    except SPARK_ERRORS as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        return False
    return True


def catalog_entry(spark: SparkSession, parts: Sequence[str]) -> CatalogEntry | None:
    """Return what the session's catalog has under a name, None where it has nothing.

    What another catalog has, or might have, is a table without a location here.
    """
    # No catalog has a database of this name of its own.
    is_global = [part.lower() for part in parts[:-1]] == [GLOBAL_DATABASE]
    is_elsewhere = not is_global and names_another_catalog(spark, parts)
    if (is_elsewhere and len(parts) > 1) or len(parts) > _MOST_PARTS:
        return CatalogEntry("", None)
    # Temporary views are in no database, but for the global ones.
    database = parts[:-1] if is_global else ("default",) if is_elsewhere else qualified(spark, parts)[:-1]
    is_view_in_reach = len(parts) == 1 or database[-1].lower() == GLOBAL_DATABASE
    with errors_not_logged():
        try:
            # It is taken for a regular expression.
            entries = catalog_entries(spark, database, re.sub(r"\W", ".", parts[-1], flags=re.ASCII))
        except SPARK_ERRORS as error:
            if "SCHEMA_NOT_FOUND" not in str(error):
                raise
            return None
    found = [entry for entry in entries if entry.details["Table"].lower() == parts[-1].lower()]
    if is_view_in_reach and any(entry.is_temporary for entry in found):
        return CatalogEntry("", None, is_temporary=True)
    if is_elsewhere:
        return CatalogEntry("", None)
    return next((entry for entry in found if not entry.is_temporary), None)


def catalog_entries(spark: SparkSession, database: Sequence[str], pattern: str) -> list[CatalogEntry]:
    """Return the tables and views of a database of the session's catalog, and the temporary views."""
    pattern = pattern.replace("\\", "\\\\").replace("'", "\\'")
    # Another catalog may be the current one.
    named = quote_name((SESSION_CATALOG, *database[-1:]))
    with own_calls():
        rows = spark.sql(f"SHOW TABLE EXTENDED IN {named} LIKE '{pattern}'").collect()
    return [_entry(row) for row in rows]


def _entry(row: Row) -> CatalogEntry:
    information, details = str(row["information"]), {"Table": str(row["tableName"])}
    # Comments, properties and the queries of views may have lines that look like these. They come after what says what
    # it is, and before the location, which views have not.
    lines = [line.partition(": ") for line in information.splitlines()]
    for key, _, value in lines:
        details.setdefault(key, value)
    locations = [value for key, _, value in lines if key == "Location" and details.get("Type") != "VIEW"]
    if comment := _COMMENT.search(information):
        details["Comment"] = comment[1]
    location = locations[-1] if locations else None
    return CatalogEntry(details.get("Provider", "").lower(), location, row["isTemporary"], details)


def names_another_catalog(spark: SparkSession, parts: Sequence[str]) -> bool:
    """Return whether a name is one of another catalog than the session's own, perhaps the current one."""
    if len(parts) > 2:
        return _is_of_another_catalog(parts)
    return str(spark.catalog.currentCatalog()) != SESSION_CATALOG


def _is_of_another_catalog(parts: Sequence[str]) -> bool:
    return len(parts) > 2 and parts[0].lower() != SESSION_CATALOG
