"""Creates, appends to and overwrites tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaAnalysisException, DeltaIllegalArgumentException
from deltamerge.log.actions import AddFile, SetTransaction, compact_json
from deltamerge.log.cleanup import PROTECTED_BEFORE
from deltamerge.log.features.clustering import FEATURE
from deltamerge.log.features.row_tracking import COLUMN_NAMES, ENABLED, materialized_columns
from deltamerge.log.protocol import writer_features
from deltamerge.log.schema import lower_case, parse_schema
from deltamerge.log.snapshot import Snapshot, table_exists
from deltamerge.scan.read_again import read_again
from deltamerge.scan.table_reads import reads_table, surely_reads_table
from deltamerge.spark.catalog import without_location
from deltamerge.spark.catalog_columns import update_columns
from deltamerge.spark.config import CommandConf, MergeConf
from deltamerge.spark.session import merge_conf, session_conf, settings_below
from deltamerge.spark.table import Table
from deltamerge.sql.merge_ast import Expression
from deltamerge.sql.names import shown_name
from deltamerge.storage.store import Store
from deltamerge.txn.application import ApplicationTransaction
from deltamerge.txn.transaction import now_ms
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.char_varchar import as_strings
from deltamerge.write.data_files import removing_leftovers
from deltamerge.write.defaults import CURRENT_DEFAULT, check_defaults
from deltamerge.write.definition import (
    TableDefinition,
    check_definition,
    check_nested_not_null,
    check_partition_columns,
)
from deltamerge.write.frame_rows import new_schema, write_checked, write_fitted
from deltamerge.write.generated_columns import GENERATION_EXPRESSION, check_generation_expressions
from deltamerge.write.identity_columns import check_identity_columns
from deltamerge.write.layout import data_folder, is_data_folder
from deltamerge.write.partition_overwrite import replaced_files
from deltamerge.write.property_names import DEFAULTS, default_properties, named_properties
from deltamerge.write.schema_evolution import check_known, check_mergeable, evolved_definition
from deltamerge.write.stale_rows import refuse_stale_rows
from deltamerge.write.stats_columns import check_stats_columns
from deltamerge.write.stored_schema import schema_to_write
from deltamerge.write.table_commits import (
    Destination,
    HistoryEntry,
    WrittenRows,
    commit_definition,
    commit_rows,
    create_parameters,
    identified,
    new_definition,
    protocol_of,
    rows_definition,
)
from deltamerge.write.table_features import evolved_protocol, protocol_for, upgraded

_VECTORS = "delta.enableDeletionVectors"
# What gives values to columns that a frame lacks.
_COMPUTED = frozenset({GENERATION_EXPRESSION, CURRENT_DEFAULT})


@dataclass(frozen=True)
class CommitNotes:
    """What a commit records besides a table's rows.

    Args:
        user_metadata: For the history; None for the session's.
        parameters: What the history says of a table that is made, besides its definition.
    """

    transaction: ApplicationTransaction | None = None
    user_metadata: str | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)

    def named(self) -> tuple[SetTransaction, ...]:
        return () if self.transaction is None else (self.transaction.action(now_ms()),)

    def destination(self, store: Store, conf: MergeConf) -> Destination:
        metadata = self.user_metadata
        return Destination(store, conf if metadata is None else replace(conf, user_metadata=metadata))


NO_NOTES = CommitNotes()
NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


OnCommit: TypeAlias = "Callable[[Mapping[str, str], Sequence[AddFile]], None]"
"""Is called after a commit with the table's properties and the files that it got."""


def create_table(
    table: Table,
    definition: TableDefinition,
    mode: str,
    rows: DataFrame | None,
    notes: CommitNotes,
    file_options: Mapping[str, str],
    on_commit: OnCommit = lambda _, __: None,
    *,
    is_managed: bool = False,
) -> None:
    """Create a table.

    Args:
        mode: ``create``, ``create_if_not_exists``, ``replace`` or ``create_or_replace``.
        rows: What it holds, whose columns the definition has; None for a table without rows.
        file_options: Options of Spark's Parquet writer; they go before the session's settings.
        is_managed: Whether the catalog chooses the table's location, as the history says.
    """
    transaction = notes.transaction
    if transaction is not None and table_exists(table.store) and transaction.is_in(table.snapshot()):
        return
    exists = _may_create(table, mode)
    if exists and mode == "create_if_not_exists":
        return
    table.store.check_commits()
    before = table.snapshot() if exists else None
    definition = _prepared_definition(table, definition)
    if rows is None:
        check_identity_columns(definition.schema, definition.partition_columns)
        check_generation_expressions(table.spark, definition.schema)
    if before is not None:
        kept = _kept_properties(before, with_vectors=rows is not None)
        definition = replace(definition, properties={**kept, **definition.properties})
    definition = _replacing(table, before, definition)
    of_rows = "" if rows is None else " AS SELECT"
    parameters = {**create_parameters(definition, is_managed=is_managed), **notes.parameters}
    entry = HistoryEntry(f"{_made(mode)} TABLE{of_rows}", parameters)
    if rows is None:
        commit_definition(destination_of(table), before, definition, None, entry)
        update_columns(table, definition.schema.json())
    else:
        asked = FrameWrite("error", notes=notes, file_options=file_options, entry=entry)
        _write_definition(table, rows, before, definition, asked, on_commit, overwrites=False)


def _kept_properties(before: Snapshot, *, with_vectors: bool) -> dict[str, str]:
    """Return the properties that a table keeps when another definition takes its place.

    As delta-spark: a table that tracks its rows goes on doing so, under the same names of hidden columns.
    """
    keys = {PROTECTED_BEFORE, *({_VECTORS} if with_vectors else set[str]())}
    if materialized_columns(before.metadata) is not None:
        keys |= {ENABLED, *COLUMN_NAMES}
    return {key: value for key, value in before.metadata.configuration.items() if key in keys}


def _replacing(table: Table, before: Snapshot | None, definition: TableDefinition) -> TableDefinition:
    """Return a definition as it takes the place of a table, which must allow that; None is no table."""
    if before is not None:
        before.check_writable()
        refuse_append_only(before, table.name, "its replacement deletes rows")
        _check_partitions(before, definition)
    return identified(definition, before)


def _check_partitions(before: Snapshot, definition: TableDefinition) -> None:
    """Refuse partitions for what takes a clustered table's place: the protocol's feature stays."""
    if definition.partition_columns and FEATURE in writer_features(before.protocol):
        raise DeltaAnalysisException(
            "DELTA_CLUSTERING_REPLACE_TABLE_WITH_PARTITIONED_TABLE",
            "Replacing a clustered Delta table with a partitioned table is not allowed. Drop the table first.",
        )


def _made(mode: str) -> str:
    """Return what the history calls the making of a table. Delta: DeltaOperations.CreateTable, ReplaceTable."""
    return {"create": "CREATE", "create_if_not_exists": "CREATE", "replace": "REPLACE"}.get(mode, "CREATE OR REPLACE")


def _prepared_definition(table: Table, definition: TableDefinition) -> TableDefinition:
    """Return a new table's definition with the session's properties, and check it."""
    properties = {**_default_properties(table), **_named(table, definition.properties)}
    definition = replace(definition, schema=as_strings(without_location(definition.schema)), properties=properties)
    check_definition(definition)
    check_stats_columns(parse_schema(definition.schema.json()), definition.partition_columns, properties)
    check_nested_not_null(definition.schema)
    check_defaults(table.spark, definition.schema)
    return definition


def table_exists_already(table: Table, remedy: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTA_TABLE_ALREADY_EXISTS",
        f"Table {table.name} already exists. {remedy}",
        parameters={"tableName": table.name},
    )


def _may_create(table: Table, mode: str) -> bool:
    """Return whether there is a table, and refuse one where none may be, or none where one must be."""
    exists = table_exists(table.store) or _is_made_meanwhile(table)
    if exists and mode == "create":
        raise table_exists_already(table, "Use createIfNotExists, replace or createOrReplace, or another location.")
    if not exists and mode == "replace":
        raise DeltaAnalysisException(
            "DELTA_CANNOT_REPLACE_MISSING_TABLE",
            f"Table {table.name} cannot be replaced as it did not exist. Use createOrReplace to make it.",
            parameters={"tableName": table.name},
        )
    return exists


def _is_made_meanwhile(table: Table) -> bool:
    """Refuse a folder with files that a new table would not know, which its VACUUM would delete.

    What another writer has left there that was killed, or is writing now, is no such file.
    Delta: CreateDeltaTableCommand.assertPathEmpty.

    Returns:
        Whether another writer has made the table by now.
    """
    first = next((file.path for file in table.store.list() if file.size and not _is_of_no_table(file.path)), None)
    if first is not None and table_exists(table.store):
        return True
    if first is not None:
        raise DeltaAnalysisException(
            "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
            f"Cannot create table {table.name}. The location {table.location} is not empty and also not a Delta table: "
            f"it has, for example, {first}. Use an empty folder, or convert Parquet files that are there: CONVERT TO "
            f"DELTA parquet.`{table.location}`.",
            parameters={"tableId": table.name, "tableLocation": table.location},
        )
    return False


def _is_of_no_table(path: str) -> bool:
    folder = path.partition("/")[0]
    return folder.startswith((".", "_")) or is_data_folder(folder)


def _default_properties(table: Table) -> dict[str, str]:
    return default_properties(settings_below(table.spark, DEFAULTS))


def _named(table: Table, properties: Mapping[str, str]) -> dict[str, str]:
    return named_properties(properties, any_name=session_conf(table.spark, CommandConf).any_property)


@dataclass(frozen=True)
class FrameWrite:
    """What a write of a frame is to do.

    Args:
        kind: As `write_kind` returns it, or ``error``, which only makes a new table.
        condition: For ``replace_where``: over partition columns; it must hold for the new rows, too.
        partition_columns: Of a new table, or of one whose schema is replaced; None leaves an existing table's where
            its schema stays.
        clustered_by: What an existing table must be clustered by; None for any columns.
        properties: Of a new table.
        set_properties: Those that an overwrite sets.
        file_options: Options of Spark's Parquet writer; they go before the session's settings.
        converts: Whether values are converted to the types that the table's columns have, as an assignment of SQL; else
            other types are an error, but for those that the table's are wider than.
        data_change: Whether the rows are other ones than those that they replace, not the same in a new layout.
        keeps_null_partitions: Whether ``dynamic`` leaves partitions with a NULL among their values as they are.
        entry: What the history calls the write; None for WRITE.
    """

    kind: str
    condition: Expression | None = None
    partition_columns: tuple[str, ...] | None = None
    clustered_by: tuple[tuple[str, ...], ...] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    set_properties: Mapping[str, str] = field(default_factory=dict)
    merges_schema: bool = False
    notes: CommitNotes = NO_NOTES
    file_options: Mapping[str, str] = field(default_factory=dict)
    converts: bool = True
    data_change: bool = True
    keeps_null_partitions: bool = False
    entry: HistoryEntry | None = None

    def history_entry(self, partition_columns: Sequence[str], *, is_dynamic: bool = False) -> HistoryEntry:
        """Return what the history says of the write. Delta: DeltaOperations.Write."""
        if self.entry is not None:
            return self.entry
        parameters: dict[str, object] = {
            "mode": {"error": "ErrorIfExists", "append": "Append"}.get(self.kind, "Overwrite"),
            "partitionBy": compact_json(list(partition_columns)),
        }
        if self.condition is not None:
            parameters["predicate"] = self.condition.text
        said = {
            "isDynamicPartitionOverwrite": is_dynamic,
            "canOverwriteSchema": self.kind == "overwrite_schema",
            "canMergeSchema": self.merges_schema,
        }
        return HistoryEntry("WRITE", {**parameters, **{name: True for name, is_so in said.items() if is_so}})


def write_table(
    table: Table, frame: DataFrame, asked: FrameWrite, on_commit: OnCommit = lambda _, __: None
) -> int | None:
    """Write a frame's rows as a table.

    Returns:
        The version that was made, or None where the table has the transaction already.
    """
    asked = replace(
        asked,
        properties=_named(table, asked.properties),
        set_properties=_named(table, asked.set_properties),
    )
    exists = table_exists(table.store)
    transaction = asked.notes.transaction
    before = table.snapshot() if exists and (transaction is not None or asked.kind != "error") else None
    if before is not None and transaction is not None and transaction.is_in(before):
        return None
    if exists and asked.kind == "error":
        raise DeltaAnalysisException(
            "DELTA_PATH_EXISTS",
            f"Cannot write to existing table {table.name} with mode error. Use append or overwrite.",
        )
    if before is not None:
        _check_clustering(before, asked)
    if before is not None and asked.kind != "overwrite_schema":
        return _write_rows(table, before, frame, asked, on_commit)
    refuse_new_definition(asked.data_change, exists)
    table.store.check_commits()
    schema, defaults = new_schema(frame.schema), {} if exists else _default_properties(table)
    properties = asked.set_properties if exists else asked.properties
    definition = new_definition(before, table.name, schema, asked.partition_columns, properties, defaults)
    check_stats_columns(parse_schema(schema.json()), definition.partition_columns, definition.properties)
    return _write_definition(table, frame, before, definition, asked, on_commit, overwrites=exists)


def _check_clustering(before: Snapshot, asked: FrameWrite) -> None:
    """Refuse a write that names other clustering columns than the table has. Delta: CreateDeltaTableCommand."""
    given, found = asked.clustered_by, before.clustered_by
    if given is not None and list(map(lower_case, given)) != list(map(lower_case, found)):
        raise DeltaIllegalArgumentException(
            "DELTA_CLUSTERING_COLUMNS_MISMATCH",
            f"The provided clustering columns {list(map(shown_name, given))} do not match the existing table's, "
            f"{list(map(shown_name, found))}. Leave clusterBy out, or change the table: ALTER TABLE … CLUSTER BY (…).",
        )


def refuse_new_definition(data_change: bool, exists: bool) -> None:
    """Refuse to make a table, or to replace its schema, with rows that are not to change it."""
    overwrites = "Overwrite the Delta table schema or change the partition schema"
    _refuse_change_of_table(data_change, overwrites if exists else "Create a Delta table")


def _refuse_change_of_table(data_change: bool, operation: str) -> None:
    if not data_change:
        raise DeltaAnalysisException(
            "DELTA_DATA_CHANGE_FALSE",
            "Cannot change table metadata because the 'dataChange' option is set to false. Attempted operation: "
            f"'{operation}'. Nothing was written. Leave the option out.",
            parameters={"op": operation},
        )


def _write_definition(
    table: Table,
    frame: DataFrame,
    before: Snapshot | None,
    definition: TableDefinition,
    asked: FrameWrite,
    on_commit: OnCommit,
    *,
    overwrites: bool,
) -> int:
    protocol_of(before, definition)
    if before is not None:
        frame = read_again(frame, table, before)
        refuse_stale_rows(table, before, frame)
    folder = data_folder(definition.properties)
    with removing_leftovers(table.store, folder):
        written = write_checked(table, frame, definition, folder, asked.file_options)
        destination, named = destination_of(table, asked.notes), asked.notes.named()
        entry = asked.history_entry(definition.partition_columns)
        version = commit_definition(destination, before, definition, written, entry, named, overwrites=overwrites)
    update_columns(table, definition.schema.json())
    on_commit(definition.properties, written.files)
    return version


def _write_rows(table: Table, snapshot: Snapshot, frame: DataFrame, asked: FrameWrite, on_commit: OnCommit) -> int:
    """Append rows to a table, or put them into the place of all or some of its rows."""
    is_overwrite = asked.kind == "overwrite"
    definition = written_definition(
        snapshot, table.name, asked, frame.schema, merge_conf(table.spark), sets_properties=is_overwrite
    )
    protocol = evolved_protocol(snapshot, definition.schema)
    if is_overwrite:
        protocol = upgraded(protocol, protocol_for(StructType([]), asked.set_properties))
    condition = None if asked.condition is None else asked.condition.text
    # An impossible condition is refused before anything is written.
    replaced = replaced_files(table, snapshot, asked.kind, condition, keeps_null=asked.keeps_null_partitions)
    look = surely_reads_table if asked.kind == "append" else reads_table
    # What takes the place of all rows is in conflict with every change of them, wherever it comes from.
    read_table = is_overwrite or look(frame, table)
    if read_table:
        frame = read_again(frame, table, snapshot)
    if is_overwrite or (read_table and asked.kind == "append"):
        refuse_stale_rows(table, snapshot, frame)
    folder = data_folder(definition.properties)
    with removing_leftovers(table.store, folder):
        written, schema = write_fitted(table, frame, definition, folder, asked.file_options)
        gone = replaced(written)
        if gone is not None and not is_overwrite:
            refuse_stale_rows(table, snapshot, frame, gone.among)
        definition = replace(definition, schema=schema)
        is_dynamic = asked.kind == "dynamic" and bool(snapshot.metadata.partition_columns)
        entry = asked.history_entry(asked.partition_columns or (), is_dynamic=is_dynamic)
        has_condition = condition is not None
        rows = WrittenRows(
            definition, protocol, written, gone, has_condition, read_table, data_change=asked.data_change
        )
        version = commit_rows(destination_of(table, asked.notes), snapshot, rows, asked.notes.named(), entry)
    if definition.schema != schema_to_write(snapshot):
        update_columns(table, definition.schema.json())
    on_commit(definition.properties, written.files)
    return version


def written_definition(
    snapshot: Snapshot,
    table: str,
    asked: FrameWrite,
    given: StructType,
    conf: MergeConf,
    *,
    sets_properties: bool = False,
) -> TableDefinition:
    """Return an existing table's definition after a write that replaces no schema; refuse one that it does not take.

    Args:
        sets_properties: Whether the table gets the properties of the write.
    """
    snapshot.check_writable()
    if asked.kind != "append":
        refuse_append_only(snapshot, table, "the overwrite deletes rows")
    check_partition_columns(asked.partition_columns, snapshot.metadata.partition_columns, table)
    definition = rows_definition(snapshot, asked.set_properties if sets_properties else None)
    evolved = definition
    if asked.merges_schema:
        evolved = evolved_definition(snapshot, definition, given, conf, converts=asked.converts)
    if evolved.schema != definition.schema:
        _refuse_change_of_table(asked.data_change, "Change the Delta table schema")
    if not asked.converts:
        check_mergeable(given, evolved.schema, table)
        check_known(given, evolved.schema, table)
        _check_gives_partitions(given, evolved)
    return evolved


def _check_gives_partitions(given: StructType, definition: TableDefinition) -> None:
    """Refuse rows without a partition column, which would all be in one partition. Delta: getPartitioningColumns."""
    names = {name.lower() for name in given.names}
    for name in definition.partition_columns:
        if name.lower() not in names and _COMPUTED.isdisjoint(definition.schema[name].metadata):
            raise DeltaAnalysisException(
                "DELTA_PARTITION_COLUMN_NOT_FOUND",
                f"Partition column `{name}` is not among the columns to write: {', '.join(given.names)}. Add it, as "
                "NULL where that is meant. Nothing was written.",
                parameters={"columnName": name, "schemaMap": ", ".join(given.names)},
            )


def destination_of(table: Table, notes: CommitNotes = NO_NOTES) -> Destination:
    return notes.destination(table.store, merge_conf(table.spark))
