"""Creates, appends to and overwrites tables."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.actions import SetTransaction
from deltamerge.log.features.clustering import FEATURE
from deltamerge.log.protocol import writer_features
from deltamerge.log.snapshot import Snapshot, table_exists
from deltamerge.spark.config import PREFIX, CommandConf
from deltamerge.spark.session import merge_conf, session_conf, settings_below
from deltamerge.spark.table import Table
from deltamerge.txn.application import ApplicationTransaction
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.char_varchar import as_strings
from deltamerge.write.data_files import WrittenFiles, removing_leftovers
from deltamerge.write.definition import TableDefinition, check_definition
from deltamerge.write.frame_rows import new_schema, write_checked, write_fitted
from deltamerge.write.generated_columns import check_generation_expressions
from deltamerge.write.identity_columns import check_identity_columns
from deltamerge.write.layout import data_folder
from deltamerge.write.property_names import named_properties, spelled
from deltamerge.write.table_commits import (
    Destination,
    HistoryEntry,
    WrittenRows,
    commit_definition,
    commit_rows,
    create_parameters,
    identified,
    now_ms,
    protocol_of,
    rows_definition,
)
from deltamerge.write.table_features import protocol_for, upgraded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def create_table(table: Table, definition: TableDefinition, mode: str) -> None:
    """Create a table without rows.

    Args:
        mode: ``create``, ``create_if_not_exists``, ``replace`` or ``create_or_replace``.

    Raises:
        DeltaAnalysisException: There is a table where none may be, or none where one must be, or the definition is
            wrong.
    """
    exists = _may_create(table, mode)
    if exists and mode == "create_if_not_exists":
        return
    definition = _prepared_definition(table, definition)
    check_identity_columns(definition.schema, definition.partition_columns)
    check_generation_expressions(table.spark, definition.schema)
    before = table.snapshot() if exists else None
    _check_replaced(before, definition)
    definition = identified(definition, before)
    entry = _created(mode, "", definition)
    commit_definition(destination_of(table), before, definition, WrittenFiles((), (), ()), entry=entry)


def create_table_as(table: Table, frame: DataFrame, definition: TableDefinition, mode: str) -> None:
    """Create a table with a frame's rows, whose columns the definition has.

    Args:
        mode: ``create``, ``create_if_not_exists``, ``replace`` or ``create_or_replace``.

    Raises:
        DeltaAnalysisException: There is a table where none may be, or none where one must be, or the definition is
            wrong.
        InvariantViolationException: A row violates a constraint.
    """
    exists = _may_create(table, mode)
    if exists and mode == "create_if_not_exists":
        return
    before = table.snapshot() if exists else None
    if before is not None:
        before.check_writable()
        refuse_append_only(before, table.name, "the overwrite deletes rows")
    definition = _prepared_definition(table, definition)
    _check_replaced(before, definition)
    definition = identified(definition, before)
    entry = _created(mode, " AS SELECT", definition)
    _write_definition(table, frame, before, definition, entry=entry)


def _check_replaced(before: Snapshot | None, definition: TableDefinition) -> None:
    """Refuse partitions for what takes a clustered table's place: the protocol's feature stays."""
    if before is not None and definition.partition_columns and FEATURE in writer_features(before.protocol):
        raise DeltaAnalysisException(
            "DELTA_CLUSTERING_REPLACE_TABLE_WITH_PARTITIONED_TABLE",
            "Replacing a clustered Delta table with a partitioned table is not allowed. Drop the table first.",
            sqlstate="42000",
        )


def _created(mode: str, of_rows: str, definition: TableDefinition) -> HistoryEntry:
    """Return what the history calls a new table. Delta: DeltaOperations.CreateTable, ReplaceTable."""
    made = {"create": "CREATE", "create_if_not_exists": "CREATE", "replace": "REPLACE"}.get(mode, "CREATE OR REPLACE")
    return HistoryEntry(f"{made} TABLE{of_rows}", create_parameters(definition))


def _prepared_definition(table: Table, definition: TableDefinition) -> TableDefinition:
    """Return a new table's definition with the session's properties, and check it."""
    properties = {**_default_properties(table), **_named(table, definition.properties)}
    definition = replace(definition, schema=as_strings(definition.schema), properties=properties)
    check_definition(definition)
    return definition


def _may_create(table: Table, mode: str) -> bool:
    """Return whether there is a table, and refuse one where none may be, or none where one must be."""
    exists = table_exists(table.store)
    if exists and mode == "create":
        raise DeltaAnalysisException(
            "DELTA_TABLE_ALREADY_EXISTS",
            f"Table {table.name} already exists. Use createIfNotExists, replace or createOrReplace, or another "
            "location.",
            sqlstate="42P07",
            parameters={"tableName": table.name},
        )
    if not exists and mode == "replace":
        raise DeltaAnalysisException(
            "DELTA_CANNOT_REPLACE_MISSING_TABLE",
            f"Table {table.name} cannot be replaced as it did not exist. Use createOrReplace to make it.",
            sqlstate="42P01",
            parameters={"tableName": table.name},
        )
    return exists


def _default_properties(table: Table) -> dict[str, str]:
    """Return the properties that the session sets for all new tables. Delta: DeltaConfigs.mergeGlobalConfigs."""
    found = settings_below(table.spark, f"{PREFIX}properties.defaults.")
    return {spelled(f"delta.{name}"): value for name, value in found.items()}


def _named(table: Table, properties: Mapping[str, str]) -> dict[str, str]:
    return named_properties(properties, any_name=session_conf(table.spark, CommandConf).any_property)


def write_table(
    table: Table,
    frame: DataFrame,
    mode: str,
    partition_columns: tuple[str, ...] | None,
    properties: Mapping[str, str],
    transaction: ApplicationTransaction | None = None,
) -> int | None:
    """Write a frame's rows as a table.

    Args:
        mode: ``append``, ``overwrite``, ``overwrite_schema`` or ``error``.
        partition_columns: The partition columns of a new table; None leaves an existing table's.
        properties: Properties of a new or overwritten table.

    Returns:
        The version that was made, or None where the table has the transaction already.

    Raises:
        DeltaAnalysisException: The frame does not fit the table, or there is a table and the mode is ``error``.
        InvariantViolationException: A row violates a constraint.
    """
    properties = _named(table, properties)
    exists = table_exists(table.store)
    before = table.snapshot() if exists and (transaction is not None or mode != "error") else None
    if before is not None and transaction is not None and transaction.is_in(before):
        return None
    if exists and mode == "error":
        raise DeltaAnalysisException(
            "DELTA_PATH_EXISTS",
            f"Cannot write to existing table {table.name} with mode error. Use append or overwrite.",
            sqlstate="42K04",
        )
    named = () if transaction is None else (transaction.action(now_ms()),)
    if before is not None and mode in ("append", "overwrite"):
        new_properties = properties if mode == "overwrite" else None
        return _write_rows(table, before, frame, partition_columns, new_properties, named)
    given = properties if exists else {**_default_properties(table), **properties}
    definition = TableDefinition(new_schema(frame.schema), partition_columns or (), given)
    if before is not None:
        before.check_writable()
        refuse_append_only(before, table.name, "the overwrite deletes rows")
        definition = replace(
            definition,
            partition_columns=before.metadata.partition_columns if partition_columns is None else partition_columns,
            properties={**before.metadata.configuration, **properties},
            description=before.metadata.description,
            name=before.metadata.name,
        )
    check_definition(definition)
    return _write_definition(table, frame, before, identified(definition, before), named, overwrites=True)


def _write_definition(
    table: Table,
    frame: DataFrame,
    before: Snapshot | None,
    definition: TableDefinition,
    named: tuple[SetTransaction, ...] = (),
    entry: HistoryEntry | None = None,
    *,
    overwrites: bool = False,
) -> int:
    protocol_of(before, definition)
    folder = data_folder(definition.properties, str(uuid.uuid4()))
    with removing_leftovers(table.store, folder):
        written = write_checked(table, frame, definition, folder)
        destination = destination_of(table)
        return commit_definition(destination, before, definition, written, named, entry=entry, overwrites=overwrites)


def _write_rows(
    table: Table,
    snapshot: Snapshot,
    frame: DataFrame,
    partition_columns: tuple[str, ...] | None,
    properties: Mapping[str, str] | None,
    named: tuple[SetTransaction, ...],
) -> int:
    """Append rows to a table, or, where there are `properties`, replace its rows and set them."""
    snapshot.check_writable()
    protocol, removed = snapshot.protocol, None
    if properties is not None:
        refuse_append_only(snapshot, table.name, "the overwrite deletes rows")
        protocol, removed = upgraded(protocol, protocol_for(StructType([]), properties)), snapshot.files
    metadata = snapshot.metadata
    if partition_columns not in (None, metadata.partition_columns):
        raise DeltaAnalysisException(
            "DELTA_PARTITION_COLUMNS_MISMATCH",
            f"Partition columns do not match those of table {table.name}: given {list(partition_columns or ())}, the "
            f"table has {list(metadata.partition_columns)}. To replace them: mode='overwrite', overwrite_schema=True.",
            sqlstate="42K0E",
        )
    definition = rows_definition(snapshot, properties)
    folder = data_folder(definition.properties, str(uuid.uuid4()))
    with removing_leftovers(table.store, folder):
        written, schema = write_fitted(table, frame, definition, folder)
        rows = WrittenRows(replace(definition, schema=schema), protocol, written, removed)
        return commit_rows(destination_of(table), snapshot, rows, named)


def destination_of(table: Table) -> Destination:
    return Destination(table.store, merge_conf(table.spark))
