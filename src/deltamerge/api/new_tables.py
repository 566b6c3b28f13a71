"""New tables: where they are stored, and their entries in the session's catalog."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from deltamerge.api.register import registered_on_demand
from deltamerge.commands.auto_compact import auto_compaction
from deltamerge.commands.clone import shallow_clone
from deltamerge.exceptions import CommitStateUnknownException, DeltaAnalysisException
from deltamerge.log.features.column_mapping import MAX_COLUMN_ID
from deltamerge.log.features.row_tracking import COLUMN_NAMES
from deltamerge.log.snapshot import table_exists
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark.catalog import catalog_entry, named, qualified, record_table, warehouse_location
from deltamerge.spark.table import Table, open_table, spark_schema
from deltamerge.sql.names import quote_name, shown_name
from deltamerge.sql.statements.ast import TableName
from deltamerge.storage.credentials import StoreOptions
from deltamerge.write.definition import TableDefinition
from deltamerge.write.property_names import named_properties
from deltamerge.write.table_writer import NO_NOTES, NO_OPTIONS, CommitNotes, create_table, table_exists_already

logger = logging.getLogger("deltamerge.api.new_tables")

# What a table gives itself, which no statement names.
_OWN_PROPERTIES = frozenset({MAX_COLUMN_ID, *COLUMN_NAMES})


@dataclass(frozen=True)
class Place:
    """Where a table is to be.

    Args:
        table: The table there, which need not exist.
        given: The location that was asked for.
        has_entry: Whether the catalog knows the name.
        exists: Whether there is a Delta table of that name, or at that path.
        is_managed: Whether the catalog chooses the location.
    """

    table: Table
    name: tuple[str, ...] = ()
    given: str | None = None
    has_entry: bool = False
    exists: bool = False
    is_managed: bool = False


def find_place(
    spark: SparkSession, name: TableName, location: str | None, options: StoreOptions | None = None
) -> Place:
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
        return new_place(open_table(spark, location, options, shown), parts)
    is_managed = location is None if entry is None else entry.details.get("Type") == "MANAGED"
    return Place(named(known, parts), parts, location, entry is not None, exists, is_managed)


def new_place(table: Table, name: tuple[str, ...]) -> Place:
    """Return the place of a table at a location that gets a name.

    The catalog would take a relative location for one below the database's folder.
    """
    return Place(table, name, table.location)


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
    if mode in ("replace", "create_or_replace"):
        check_place(place)
    is_new = mode in ("create", "create_if_not_exists") and not place.exists
    takes_table = is_new and place.given is not None and table_exists(place.table.store)
    if takes_table and rows is not None and mode == "create_if_not_exists":
        # The name is new, so that a table has to be made; delta-spark refuses it, too.
        raise _no_rows_for(place)
    if takes_table and rows is None:
        _check_same(place.table, definition)
        _record(place, spark_schema(place.table.snapshot()), definition.description, requires_entry=requires_entry)
        return
    compact_after = auto_compaction(place.table)
    with recorded(place, definition.schema, definition.description, requires_entry=requires_entry):
        create_table(
            place.table, definition, mode, rows, notes, file_options, compact_after, is_managed=place.is_managed
        )


def clone(
    place: Place, source: Table, version: int | None, properties: Mapping[str, str], *, replaces: bool
) -> dict[str, int]:
    """Make a shallow clone of a table's version at a place, with an entry in the catalog where it has a name.

    Args:
        version: None for the latest.
        replaces: Whether there may be a table at the place, which must be empty.

    Returns:
        Delta's metrics of it.
    """
    if replaces:
        check_place(place)
    elif place.exists and place.name:
        raise table_exists_already(place.table, "Use CREATE OR REPLACE TABLE for an empty one, or another name.")
    with recorded(place, spark_schema(source.snapshot(version)), None, requires_entry=True):
        return shallow_clone(source, version, place.table, properties, replaces=replaces)


@contextmanager
def recorded(place: Place, schema: StructType, comment: str | None, *, requires_entry: bool) -> Iterator[None]:
    """Add a new table to the catalog, and take it out again where it is not made.

    Args:
        requires_entry: Whether it must get an entry where its name would find nothing else.
    """
    is_new = _record(place, schema, comment, requires_entry=requires_entry)
    try:
        yield
    except CommitStateUnknownException:
        # The table may be there: its entry stays, and with it a managed table's folder.
        raise
    except BaseException:
        # Whatever ends it, also Ctrl-C: nothing is committed, and the entry would name no table.
        if is_new:
            _take_out(place)
        raise


def _take_out(place: Place) -> None:
    """Take a table that was not made out of the catalog; what fails here hides no error of its making."""
    try:
        # Another session may have created the table meanwhile; a managed one's folder goes with its entry.
        if place.given is not None or not table_exists(place.table.store):
            place.table.spark.sql(f"DROP TABLE IF EXISTS {quote_name(place.name)}")
    except Exception:
        # The store or the catalog may fail in any way; the error of the table's making is the one to report.
        logger.warning("the entry of %s stays in the catalog", quote_name(place.name), exc_info=True)


def check_place(place: Place) -> None:
    """Refuse another location for a table that is to be replaced."""
    if place.name and place.given is not None and (place.has_entry or place.exists):
        check_location(place.table, place.name, place.given)


def check_location(table: Table, name: Sequence[str], location: str) -> None:
    """Refuse another location than an existing table's. Delta: CreateDeltaTableLike.getCatalogTableWithLocation."""
    given = open_table(table.spark, location, table.options)
    found, wanted = (each.store.absolute("").rstrip("/") for each in (table, given))
    if found != wanted:
        shown = quote_name(tuple(name))
        raise DeltaAnalysisException(
            "DELTA_TABLE_LOCATION_MISMATCH",
            f"The location of the existing table {shown} is {found}. It doesn't match the specified location {wanted}. "
            "Leave the location out to replace the table where it is, or drop it first. Nothing was written.",
            parameters={"tableName": shown, "existingTableLocation": found, "tableLocation": wanted},
        )


def _record(place: Place, schema: StructType, comment: str | None, *, requires_entry: bool) -> bool:
    if not place.name or place.has_entry or place.exists:
        return False
    if not schema.fields:
        # Of an entry without columns Spark would read them from the table, which is not there yet.
        if place.given is None:
            return False
        raise DeltaAnalysisException(
            "DELTA_OPERATION_NOT_ALLOWED",
            f"The catalog cannot have the table {'.'.join(place.name)} at {place.given} before it has columns. Give it "
            "some, or make it by writing rows: df.write.format('delta').option('path', …).saveAsTable(…).",
        )
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


def _no_rows_for(place: Place) -> DeltaAnalysisException:
    shown = quote_name(place.name)
    return DeltaAnalysisException(
        "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
        f"Cannot create table {shown} with a query's rows. The location {place.table.location} has a table already. "
        "Leave the query out to give this table the name, and insert the rows then. Nothing was written.",
        parameters={"tableId": shown, "tableLocation": place.table.location},
    )


def _check_same(table: Table, definition: TableDefinition) -> None:
    """Refuse another definition for a table that is there. Delta: CreateDeltaTableCommand.verifyTableMetadata."""
    snapshot = table.snapshot()
    existing, metadata = spark_schema(snapshot), snapshot.metadata
    asked = named_properties(definition.properties, any_name=True)
    if definition.schema.fields:
        _check_part(table, "SCHEME_MISMATCH", "schema", _columns(definition.schema), _columns(existing))
        partitions, clustering = definition.partition_columns, tuple(map(shown_name, definition.clustered_by))
        _check_part(table, "WITH_DIFFERENT_PARTITIONING", "partitioning", partitions, metadata.partition_columns)
        clustered_by = tuple(map(shown_name, snapshot.clustered_by))
        _check_part(table, "WITH_DIFFERENT_CLUSTERING", "clustering", clustering, clustered_by)
    elif definition.partition_columns or definition.clustered_by:
        raise DeltaAnalysisException(
            "DELTA_CREATE_TABLE_WITH_DIFFERENT_PARTITIONING",
            "It is not allowed to specify partitioning or clustering when the table schema is not defined: the table "
            f"at {table.location} keeps its own. Leave them out.",
        )
    if asked:
        kept = {key: value for key, value in metadata.configuration.items() if key not in _OWN_PROPERTIES}
        _check_part(table, "WITH_DIFFERENT_PROPERTY", "properties", asked, kept)


def _check_part(table: Table, kind: str, what: str, asked: object, found: object) -> None:
    if asked != found:
        raise DeltaAnalysisException(
            f"DELTA_CREATE_TABLE_{kind}",
            f"The specified {what} and the existing {what} at {table.location} do not match. Specified: {asked}. "
            f"Existing: {found}. Leave columns and properties out to keep the existing ones.",
        )


def _columns(schema: StructType) -> list[str]:
    """Return columns as DDL has them: types, NOT NULL and comments; their order does not matter."""
    return sorted(_column(field) for field in schema.fields)


def _column(field: StructField) -> str:
    comment = field.metadata.get("comment")
    kind = field.metadata.get(CHAR_VARCHAR_TYPE, field.dataType.simpleString())
    return (
        f"{field.name} {kind}" + ("" if field.nullable else " NOT NULL") + (f" COMMENT {comment!r}" if comment else "")
    )
