"""Commits of written rows and of definitions; what Spark does for a write is done before."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaConcurrentModificationException
from deltamerge.log.actions import Action, AddFile, Metadata, Protocol, SetTransaction, compact_json
from deltamerge.log.add_file_stats import known_rows
from deltamerge.log.features.clustering import DOMAIN, FEATURE, clustering_columns, clustering_domain
from deltamerge.log.features.column_mapping import NONE, mapping_mode, with_column_ids, without_mapping
from deltamerge.log.features.row_tracking import with_column_names
from deltamerge.log.file_table import FileTable
from deltamerge.log.paths import canonical_path
from deltamerge.log.schema import parse_schema, schema_to_json
from deltamerge.log.snapshot import Snapshot
from deltamerge.skipping.predicates import ALWAYS
from deltamerge.spark.config import MergeConf
from deltamerge.spark.session import commit_settings
from deltamerge.sql.names import shown_name
from deltamerge.storage.store import Store
from deltamerge.txn.conflicts import WinningCommit
from deltamerge.txn.prepared import PreparedCommit, ReadSet, isolation_level
from deltamerge.txn.transaction import Reconcile, commit, now_ms
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.data_files import WrittenFiles
from deltamerge.write.definition import TableDefinition, as_spelled, check_definition, physical_paths
from deltamerge.write.stored_schema import schema_to_commit, schema_to_write
from deltamerge.write.table_features import protocol_for, stored_properties, upgraded


@dataclass(frozen=True)
class Destination:
    """Where a table is committed: its store, and the settings of the session."""

    store: Store
    conf: MergeConf


def rows_definition(snapshot: Snapshot, properties: Mapping[str, str] | None) -> TableDefinition:
    """Return the definition of a table that gets rows: as it is, with other properties where these are given."""
    metadata = snapshot.metadata
    definition = TableDefinition(schema_to_write(snapshot), metadata.partition_columns, metadata.configuration)
    if properties is None:
        return definition
    configuration = with_column_names({**metadata.configuration, **stored_properties(properties)})
    definition = replace(definition, properties=configuration)
    is_mapped_anew = mapping_mode(configuration) != mapping_mode(metadata.configuration)
    return identified(definition, snapshot) if is_mapped_anew else definition


def new_definition(
    snapshot: Snapshot | None,
    table: str,
    schema: StructType,
    partition_columns: tuple[str, ...] | None,
    properties: Mapping[str, str],
    defaults: Mapping[str, str],
) -> TableDefinition:
    """Return the definition of a new table, or of one whose schema is overwritten.

    Without partition columns it has none, also where the overwritten table has some.
    """
    definition = TableDefinition(schema, partition_columns or (), {**defaults, **properties})
    if snapshot is not None:
        snapshot.check_writable()
        refuse_append_only(snapshot, table, "the overwrite deletes rows")
        metadata = snapshot.metadata
        definition = TableDefinition(
            schema,
            partition_columns or (),
            {**metadata.configuration, **properties},
            metadata.description,
            name=metadata.name,
        )
    definition = as_spelled(definition)
    check_definition(definition)
    return identified(definition, snapshot)


FilesAmong: TypeAlias = "Callable[[Sequence[AddFile]], Sequence[AddFile]]"


@dataclass(frozen=True)
class Replaced:
    """The files whose place written rows take.

    Args:
        among: Returns which of some files are of the partitions that are replaced; None where the whole table is.
    """

    files: FileTable
    among: FilesAmong | None = None


@dataclass(frozen=True)
class WrittenRows:
    """Rows to commit to an existing table.

    Args:
        definition: The table's after the commit.
        replaced: The files that they replace; None for an append.
        has_condition: Whether they take the place of the rows for which a condition is TRUE.
        read_table: Whether the rows were computed from the table's own, or may have been where they replace others,
            so that commits which change any of those meanwhile are in conflict with them.
        data_change: Whether they are other rows than those of the removed files, not the same in a new layout.
    """

    definition: TableDefinition
    protocol: Protocol
    files: WrittenFiles
    replaced: Replaced | None
    has_condition: bool
    read_table: bool = False
    data_change: bool = True

    @property
    def removed(self) -> FileTable | None:
        return None if self.replaced is None else self.replaced.files

    def actions(self) -> tuple[Action, ...]:
        removed = () if self.removed is None else removals_of(self.removed, self.data_change)
        added = self.files.files
        return (*removed, *(added if self.data_change else [replace(file, data_change=False) for file in added]))


STREAMING_UPDATE = "STREAMING UPDATE"


@dataclass(frozen=True)
class HistoryEntry:
    """What the history calls a write.

    Args:
        reads_table: Whether it counts as one that reads the table also where it makes the table.
    """

    operation: str
    parameters: Mapping[str, object]
    reads_table: bool = False

    @staticmethod
    def of_batch(query: str, batch: int, *, is_complete: bool) -> HistoryEntry:
        """Return the entry of a batch of a stream, which may be the whole table. Delta: DeltaSink.addBatch."""
        mode = "Complete" if is_complete else "Append"
        parameters = {"outputMode": mode, "queryId": query, "epochId": str(batch)}
        return HistoryEntry(STREAMING_UPDATE, parameters, reads_table=is_complete)

    def metrics(self, written: WrittenFiles, removed: FileTable | None) -> dict[str, str]:
        """Return what the history counts of the write. Delta: DeltaOperationMetrics."""
        found = {
            "numOutputRows": written.row_count,
            "numOutputBytes": sum(file.size for file in written.files),
        }
        count, removed_files = len(written.files), 0 if removed is None else removed.num_files
        if self.operation == STREAMING_UPDATE:
            found |= {"numAddedFiles": count, "numRemovedFiles": removed_files}
        else:
            found["numFiles"] = count
            if removed is not None:
                found |= {"numRemovedFiles": removed_files, "numRemovedBytes": removed.size_in_bytes}
        return {name: str(value) for name, value in found.items()}


def commit_rows(
    destination: Destination,
    snapshot: Snapshot,
    rows: WrittenRows,
    named: tuple[SetTransaction, ...],
    entry: HistoryEntry,
) -> int:
    """Commit rows of an existing table; return its version, the one that was read where there is nothing to commit.

    Delta: ImplicitMetadataOperation, without overwriteSchema.
    """
    definition = rows.definition
    actions: tuple[Action, ...] = (
        *(() if rows.protocol == snapshot.protocol else (rows.protocol,)),
        *changed_metadata(snapshot, definition.properties, definition.schema),
        *named,
        *rows.actions(),
    )
    if not actions:
        # Delta: OptimisticTransaction.commitIfNeeded.
        return snapshot.version
    metrics = entry.metrics(rows.files, rows.removed)
    if rows.has_condition and rows.removed is not None:
        metrics |= _metrics_of_replaced(rows.removed)
    prepared = _of_rows(_prepared(destination, snapshot, actions, metrics, entry), rows)
    return commit(prepared, reconcile=_reconcile(prepared, rows)).version


def _of_rows(prepared: PreparedCommit, rows: WrittenRows) -> PreparedCommit:
    """Return the commit of rows with what they read of the table, at its isolation level."""
    if not rows.data_change:
        paths = () if rows.removed is None else (file.path for file in rows.removed.add_files())
        return replace(prepared, read_set=ReadSet(files=frozenset(paths)), isolation_level="SnapshotIsolation")
    level = isolation_level({} if prepared.metadata is None else prepared.metadata.configuration)
    if rows.replaced is None and not rows.read_table:
        return replace(prepared, read_set=ReadSet(), isolation_level=level, is_blind_append=True)
    return replace(prepared, isolation_level=level)


def _reconcile(prepared: PreparedCommit, rows: WrittenRows) -> Reconcile | None:
    """Return what looks at the partitions of others' files, where rows take the place of those of some partitions."""
    among = None if rows.replaced is None else rows.replaced.among
    if among is None or rows.read_table or not rows.data_change:
        return None

    def reconcile(winners: Sequence[WinningCommit], _: DeltaConcurrentModificationException) -> PreparedCommit | None:
        root = prepared.store.root
        removed = {canonical_path(file.path, root) for winner in winners for file in winner.removed}
        counted = [w for w in winners if prepared.counts_blind_appends or not w.is_blind_append]
        added = [file for winner in counted for file in winner.added if file.data_change]
        return None if removed & prepared.removed_paths or among(added) else prepared

    return reconcile


def removals_of(files: FileTable, data_change: bool = True) -> list[Action]:
    now = now_ms()
    return [file.remove(now, data_change) for file in files.add_files()]


def changed_metadata(snapshot: Snapshot, configuration: Mapping[str, str], schema: StructType) -> tuple[Metadata, ...]:
    """Return the metadata to commit, none where nothing of it changes."""
    metadata = replace(snapshot.metadata, configuration=dict(configuration))
    if schema != schema_to_write(snapshot):
        committed = json.dumps(schema_to_commit(schema, snapshot).jsonValue())
        metadata = replace(metadata, schema_string=committed)
    return () if metadata == snapshot.metadata else (metadata,)


def commit_definition(
    destination: Destination,
    snapshot: Snapshot | None,
    definition: TableDefinition,
    files: WrittenFiles | None,
    entry: HistoryEntry,
    named: tuple[SetTransaction, ...] = (),
    *,
    overwrites: bool = False,
) -> int:
    """Commit a table's definition, and the rows that it has from then on; they take the place of all before.

    Args:
        files: None where there is no query, whose rows the history would count.
        overwrites: Whether the table there stays the same one, with its id and clustering; otherwise a new one takes
            its place.
    """
    before = snapshot.metadata if snapshot is not None and overwrites else None
    metadata = Metadata(
        id=str(uuid.uuid4()) if before is None else before.id,
        name=definition.name,
        description=definition.description,
        schema_string=json.dumps(definition.schema.jsonValue()),
        partition_columns=definition.partition_columns,
        configuration=with_column_names(stored_properties(definition.properties)),
        created_time=now_ms() if before is None else before.created_time,
    )
    protocol = protocol_of(snapshot, definition)
    actions: list[Action] = [metadata, *named]
    if snapshot is None or snapshot.protocol != protocol:
        actions.insert(0, protocol)
    if snapshot is not None:
        snapshot.check_writable()
        actions += removals_of(snapshot.files)
    actions += () if files is None else files.files
    if snapshot is None or not overwrites:
        actions += _clustering(snapshot, definition)
    else:
        actions += _kept_clustering(snapshot, definition)
    metrics = {} if files is None else entry.metrics(files, None if snapshot is None else snapshot.files)
    prepared = _prepared(destination, snapshot, tuple(actions), metrics, entry)
    return commit(prepared).version


def protocol_of(snapshot: Snapshot | None, definition: TableDefinition) -> Protocol:
    """Return a new table's protocol, or an existing table's with what the definition needs besides."""
    clustering = {f"delta.feature.{FEATURE}": "supported"} if definition.clustered_by else {}
    needed = protocol_for(definition.schema, {**definition.properties, **clustering})
    return needed if snapshot is None else upgraded(snapshot.protocol, needed)


def identified(definition: TableDefinition, before: Snapshot | None) -> TableDefinition:
    """Assign ids to the columns of a definition that maps them; an overwritten table's columns keep theirs."""
    unmapped = schema_to_json(without_mapping(parse_schema(json.dumps(definition.schema.jsonValue()))))
    found = with_column_ids(
        Metadata("", schema_string=unmapped, configuration=definition.properties),
        None if before is None or mapping_mode(before.metadata.configuration) == NONE else before.schema,
    )
    schema = StructType.fromJson(json.loads(found.schema_string or unmapped))
    return replace(definition, schema=schema, properties=found.configuration)


def _clustering(snapshot: Snapshot | None, definition: TableDefinition) -> list[Action]:
    """Return the clustering of a new table, which may take the place of a clustered one."""
    physical = physical_paths(definition.schema)
    if definition.clustered_by or (snapshot is not None and DOMAIN in snapshot.domain_metadata):
        return [clustering_domain([physical[path] for path in definition.clustered_by])]
    return []


def _kept_clustering(snapshot: Snapshot, definition: TableDefinition) -> list[Action]:
    """Return the clustering to commit where an overwritten table can no longer have the one that it has."""
    before = clustering_columns(snapshot.domain_metadata)
    physical = physical_paths(definition.schema).values()
    is_possible = not definition.partition_columns and all(path in physical for path in before)
    return [clustering_domain([])] if before and not is_possible else []


def _prepared(
    destination: Destination,
    snapshot: Snapshot | None,
    actions: tuple[Action, ...],
    metrics: Mapping[str, str],
    entry: HistoryEntry,
) -> PreparedCommit:
    return PreparedCommit(
        snapshot=destination.store if snapshot is None else snapshot,
        actions=actions,
        read_set=ReadSet() if snapshot is None else ReadSet((ALWAYS,), frozenset(), whole_table=True),
        operation=entry.operation,
        operation_parameters=entry.parameters,
        operation_metrics=metrics,
        isolation_level="Serializable",
        is_blind_append=snapshot is None and not entry.reads_table,
        settings=commit_settings(destination.conf),
    )


def _metrics_of_replaced(removed: FileTable) -> dict[str, str]:
    """Return what the history counts besides where a condition chose the rows: whole files leave."""
    rows = known_rows(removed.add_files())
    deleted = {} if rows is None else {"numDeletedRows": str(rows)}
    return {**deleted, "numCopiedRows": "0", "numAddedChangeFiles": "0"}


def create_parameters(definition: TableDefinition, *, is_managed: bool) -> dict[str, object]:
    """Return the parameters of CREATE TABLE and its like in the history."""
    return {
        "isManaged": str(is_managed).lower(),
        "description": definition.description,
        "partitionBy": compact_json(list(definition.partition_columns)),
        "clusterBy": compact_json(list(map(shown_name, definition.clustered_by))),
        "properties": compact_json(dict(definition.properties)),
    }
