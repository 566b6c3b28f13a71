"""New tables: where they are stored, and their entries in the session's catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltamerge.api.register import registered_on_demand
from deltamerge.commands.auto_compact import compact_after
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.snapshot import table_exists
from deltamerge.spark.catalog import catalog_entry, qualified, record_table, warehouse_location
from deltamerge.spark.table import Table, open_table, spark_schema
from deltamerge.sql.names import quote_name
from deltamerge.sql.statements.ast import TableName
from deltamerge.storage.credentials import StoreOptions
from deltamerge.write.definition import TableDefinition
from deltamerge.write.table_writer import NO_NOTES, NO_OPTIONS, CommitNotes, create_table


@dataclass(frozen=True)
class Place:
    """Where a table is to be.

    Args:
        table: The table there, which need not exist.
        has_entry: Whether the catalog knows the name.
        exists: Whether there is a Delta table of that name, or at that path.
    """

    table: Table
    name: tuple[str, ...] = ()
    given: str | None = None
    has_entry: bool = False
    exists: bool = False


def find_place(
    spark: SparkSession, name: TableName, location: str | None, options: StoreOptions | None = None
) -> Place:
    """Return where a table of a name is to be."""
    if name.path is not None:
        if location is not None and location != name.path:
            raise DeltaAnalysisException(
                "DELTA_OPERATION_NOT_ALLOWED",
                f"The table's path is {name.path}, so that it cannot have the location {location}.",
            )
        table = open_table(spark, name.path, options)
        return Place(table, exists=table_exists(table.store))
    parts, shown = qualified(spark, name.parts), ".".join(name.parts)
    entry = catalog_entry(spark, parts)
    if entry is not None and (entry.provider != "delta" or entry.location is None):
        raise DeltaAnalysisException(
            "DELTA_NOT_A_DELTA_TABLE",
            f"{shown} is not a Delta table of the session's catalog. Drop the table or view of that name first, or "
            "name a table of spark_catalog.",
            parameters={"tableName": shown},
        )
    managed = warehouse_location(spark, quote_name(parts))
    known = open_table(spark, managed if entry is None else str(entry.location), options, shown)
    exists = table_exists(known.store)
    if entry is None and location is not None and not exists:
        return Place(open_table(spark, location, options, shown), parts, location)
    return Place(known, parts, location, has_entry=entry is not None, exists=exists)


def create(
    place: Place,
    definition: TableDefinition,
    mode: str,
    rows: DataFrame | None = None,
    *,
    requires_entry: bool = False,
    notes: CommitNotes = NO_NOTES,
    file_options: Mapping[str, str] = NO_OPTIONS,
) -> None:
    """Create a table, and its entry in the catalog where it has a name and the session knows Delta's data source.

    Args:
        mode: ``create``, ``create_if_not_exists``, ``replace`` or ``create_or_replace``.
        rows: What it holds, whose columns the definition has; None for a table without rows.
        requires_entry: Whether it must get an entry where its name would find nothing else.
        file_options: Options of Spark's Parquet writer; they go before the session's settings.
    """
    if place.exists and mode == "create_if_not_exists":
        return
    is_new = mode in ("create", "create_if_not_exists") and not place.exists
    if is_new and rows is None and place.given is not None and table_exists(place.table.store):
        _check_same(place.table, definition)
        record(place, spark_schema(place.table.snapshot()), definition.description, requires_entry=requires_entry)
        return
    is_recorded = record(place, definition.schema, definition.description, requires_entry=requires_entry)
    try:
        create_table(place.table, definition, mode, rows, notes, file_options, partial(compact_after, place.table))
    except BaseException:
        # Another session may have created the table meanwhile; a managed one's folder goes with its entry.
        if is_recorded and not table_exists(place.table.store):
            place.table.spark.sql(f"DROP TABLE IF EXISTS {quote_name(place.name)}")
        raise


def record(place: Place, schema: StructType, comment: str | None, *, requires_entry: bool) -> bool:
    """Add a new table to the catalog.

    Args:
        requires_entry: Whether it must get an entry where its name would find nothing else.
    """
    if not place.name or place.has_entry or place.exists:
        return False
    spark = place.table.spark
    recorded = record_table(spark, place.name, schema, place.given, comment)
    if not recorded and registered_on_demand(spark):
        recorded = record_table(spark, place.name, schema, place.given, comment)
    if not recorded and place.given is not None and requires_entry:
        raise DeltaAnalysisException(
            "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG",
            f"Without a data source named delta the catalog cannot have the table {'.'.join(place.name)} at "
            f"{place.given}. Call deltamerge.register(spark) first, or name the table by its path: "
            f"delta.`{place.given}`.",
        )
    return recorded


def _check_same(table: Table, definition: TableDefinition) -> None:
    """Refuse other columns for a table that is there."""
    existing = spark_schema(table.snapshot())
    if definition.schema.fields and definition.schema.simpleString() != existing.simpleString():
        raise DeltaAnalysisException(
            "DELTA_CREATE_TABLE_SCHEME_MISMATCH",
            f"The specified schema does not match the existing schema at {table.location}. Specified: "
            f"{definition.schema.simpleString()}. Existing: {existing.simpleString()}. Leave the columns out to keep "
            "the existing ones.",
        )
