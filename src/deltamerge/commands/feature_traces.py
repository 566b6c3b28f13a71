"""What each droppable feature leaves in a table, and how a table gets rid of it.

Delta: TableFeature (RemovableFeature), PreDowngradeTableFeatureCommand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from deltamerge.commands.alter_columns import described_column
from deltamerge.commands.alter_properties import set_properties
from deltamerge.commands.committing import commit_alteration
from deltamerge.commands.optimize import purge
from deltamerge.commands.rewriting import RewriteRecord, rewrite_packed
from deltamerge.commands.stored_columns import with_narrower_types
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.actions import (
    Action,
    AddFile,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    RemoveFile,
    compact_json,
)
from deltamerge.log.commit_times import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from deltamerge.log.features.clustering import clustering_domain
from deltamerge.log.features.column_mapping import (
    MAX_COLUMN_ID,
    MODE,
    NONE,
    invalid_names,
    mapping_mode,
    without_mapping,
)
from deltamerge.log.features.deletion_vectors import vector_path
from deltamerge.log.features.row_tracking import COLUMN_NAMES, ENABLED, SUSPENDED
from deltamerge.log.features.row_tracking import DOMAIN as ROW_TRACKING
from deltamerge.log.features.type_widening import ENABLED as WIDENING
from deltamerge.log.features.type_widening import TYPE_CHANGES, without_type_changes
from deltamerge.log.paths import encode_path
from deltamerge.log.properties import IN_COMMIT_TIMESTAMPS, has_in_commit_timestamps, interval_ms, is_enabled
from deltamerge.log.schema import parse_schema, schema_to_json
from deltamerge.log.segment import find_segment, is_v2
from deltamerge.log.snapshot import Snapshot
from deltamerge.spark.file_stores import file_stores
from deltamerge.spark.held_settings import for_reading, session_settings
from deltamerge.spark.session import errors_not_logged
from deltamerge.spark.table import Table
from deltamerge.txn.transaction import now_ms
from deltamerge.write.constraints import CHECK_PREFIX

_VECTORS = "delta.enableDeletionVectors"
_POLICY = "delta.checkpointPolicy"
_ICT_SINCE = (ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION)


@dataclass(frozen=True)
class Traces:
    """What a feature leaves in a table.

    Args:
        remove: Takes all of it out of the newest version, by commits of its own; returns whether there was any.
        is_clean: Returns whether a version has none of it.
        properties: What the commit that drops the feature unsets.
        domains: The domains of the log that this commit removes.
        protects_history: Whether readers who do not know the feature would read earlier versions wrongly.
        is_in: Returns whether an action of an earlier version uses the feature, where its history is protected.
    """

    remove: Callable[[Table], bool]
    is_clean: Callable[[Snapshot], bool]
    properties: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    protects_history: bool = False
    is_in: Callable[[Action], bool] = lambda _: False


def _in_metadata(uses: Callable[[Metadata], bool]) -> Callable[[Action], bool]:
    return lambda action: isinstance(action, Metadata) and uses(action)


def unset(table: Table, properties: Sequence[str], *, disabled: Sequence[str] = ()) -> None:
    """Unset properties, and set others to false, by one commit."""
    snapshot = table.snapshot()
    configuration = {k: v for k, v in snapshot.metadata.configuration.items() if k not in properties}
    configuration |= dict.fromkeys(disabled, "false")
    keys = compact_json([*properties, *disabled])
    metadata = replace(snapshot.metadata, configuration=configuration)
    commit_alteration(table, snapshot, "UNSET TBLPROPERTIES", {"properties": keys, "ifExists": True}, [metadata])


def _refuse_constraints(table: Table) -> bool:
    constraints = _constraints(table.snapshot())
    if not constraints:
        return False
    listed = ", ".join(f"`{constraint}`" for constraint in constraints)
    raise DeltaAnalysisException(
        "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE",
        f"Cannot drop the CHECK constraints table feature. The following constraints must be dropped first: {listed}.",
        parameters={"constraints": listed},
    )


def _constraints(snapshot: Snapshot) -> list[str]:
    configuration = snapshot.metadata.configuration
    return sorted(key.removeprefix(CHECK_PREFIX) for key in configuration if key.startswith(CHECK_PREFIX))


def _remove_commit_timestamps(table: Table) -> bool:
    metadata = table.snapshot().metadata
    since = [key for key in _ICT_SINCE if key in metadata.configuration]
    enabled = [IN_COMMIT_TIMESTAMPS] if has_in_commit_timestamps(metadata) else []
    if since or enabled:
        unset(table, since, disabled=enabled)
    return bool(since or enabled)


def _has_no_commit_timestamps(snapshot: Snapshot) -> bool:
    has_since = any(key in snapshot.metadata.configuration for key in _ICT_SINCE)
    return not has_since and not has_in_commit_timestamps(snapshot.metadata)


def _has_no_vectors(snapshot: Snapshot) -> bool:
    writes = is_enabled(snapshot.metadata.configuration, _VECTORS)
    return not writes and all(file.deletion_vector is None for file in snapshot.files.add_files())


def _remove_vectors(table: Table) -> bool:
    found = not _has_no_vectors(table.snapshot())
    if found:
        unset(table, [_VECTORS])
        purge(table, ())
    _add_tombstones_of_vectors(table)
    return found


def _add_tombstones_of_vectors(table: Table) -> None:
    """Add a tombstone for each file of deletion vectors that a tombstone within the retention refers to.

    Writers that do not know deletion vectors would delete these files by VACUUM.
    """
    snapshot, now = table.snapshot(), now_ms()
    since = now - interval_ms(snapshot.metadata, "delta.deletedFileRetentionDuration", "interval 1 week")
    tombstones = [row for row in snapshot.tombstones().to_pylist() if (row["deletion_timestamp"] or 0) >= since]
    vectors = [DeletionVectorDescriptor(**row["deletion_vector"]) for row in tombstones if row["deletion_vector"]]
    paths = {encode_path(path) for vector in vectors if (path := vector_path(vector)) is not None}
    missing = sorted(paths - {row["path"] for row in tombstones if not row["deletion_vector"]})
    actions = [RemoveFile(path, deletion_timestamp=now, data_change=False) for path in missing]
    commit_alteration(table, snapshot, "Deletion Vector Tombstones", {}, actions, "SnapshotIsolation")


def _uses_vectors(action: Action) -> bool:
    if isinstance(action, Metadata):
        return is_enabled(action.configuration, _VECTORS)
    return isinstance(action, (AddFile, RemoveFile)) and action.deletion_vector is not None


def _is_unmapped(snapshot: Snapshot) -> bool:
    schema = parse_schema(snapshot.metadata.schema_string)
    return not _is_mapped(snapshot.metadata) and schema == without_mapping(schema)


def _remove_mapping(table: Table) -> bool:
    snapshot = table.snapshot()
    if _is_unmapped(snapshot):
        return False
    before = snapshot.metadata
    schema = without_mapping(parse_schema(before.schema_string))
    wrong = invalid_names(schema)
    if wrong:
        raise DeltaAnalysisException(
            "DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING",
            f"Found invalid character(s) among ' ,;{{}}()\\n\\t=' in the column names of your schema. Invalid column "
            f"names: {', '.join(wrong)}. Column mapping cannot be removed when there are such names: rename these "
            "columns first.",
            parameters={"invalidColumnNames": ", ".join(wrong)},
        )
    configuration = {k: v for k, v in before.configuration.items() if k not in (MODE, MAX_COLUMN_ID)}
    metadata = replace(before, schema_string=schema_to_json(schema), configuration=configuration)
    clustered = snapshot.clustered_by
    domains = (clustering_domain(clustered),) if clustered else ()
    record = RewriteRecord("REMOVE COLUMN MAPPING", {}, metadata=metadata, domains=domains)
    _rewrite_all(table, snapshot, snapshot.files.add_files(), record)
    return True


def _is_mapped(metadata: Metadata) -> bool:
    return mapping_mode(metadata.configuration) != NONE


def _rewrite_all(table: Table, snapshot: Snapshot, files: Iterable[AddFile], record: RewriteRecord) -> None:
    with session_settings(table.spark, for_reading(table.spark)), errors_not_logged():
        rewrite_packed(table, snapshot, files, record)


def _has_type_changes(metadata: Metadata) -> bool:
    schema = parse_schema(metadata.schema_string)
    return any(TYPE_CHANGES in field.metadata for _, field in schema.walk())


def _is_not_widened(snapshot: Snapshot) -> bool:
    return not is_enabled(snapshot.metadata.configuration, WIDENING) and not _has_type_changes(snapshot.metadata)


def _remove_widening(table: Table) -> bool:
    if _is_not_widened(table.snapshot()):
        return False
    unset(table, [WIDENING])
    snapshot = table.snapshot()
    if not _has_type_changes(snapshot.metadata):
        return False
    files = with_narrower_types(file_stores(table), snapshot.files.add_files(), snapshot.schema)
    if files:
        _rewrite_all(table, snapshot, files, RewriteRecord("REORG", {"predicate": "[]", "applyPurge": True}))
    _forget_type_changes(table)
    return True


def _forget_type_changes(table: Table) -> None:
    snapshot = table.snapshot()
    schema = parse_schema(snapshot.metadata.schema_string)
    cleaned = without_type_changes(schema)
    changed = [described_column(path[:-1], field) for path, field in schema.walk() if TYPE_CHANGES in field.metadata]
    parameters = {"columns": compact_json(changed)}
    metadata = replace(snapshot.metadata, schema_string=schema_to_json(cleaned))
    commit_alteration(table, snapshot, "DROP FEATURE", parameters, [metadata])


def _has_v2_policy(metadata: Metadata) -> bool:
    return metadata.configuration.get(_POLICY, "classic").lower() == "v2"


def _has_classic_checkpoints(snapshot: Snapshot) -> bool:
    # The snapshot may be newer than the checkpoint that it was read from.
    checkpoint = find_segment(snapshot.store, snapshot.version).checkpoint
    return not _has_v2_policy(snapshot.metadata) and (checkpoint is None or not is_v2(checkpoint))


def _remove_v2_policy(table: Table) -> bool:
    if _has_classic_checkpoints(table.snapshot()):
        return False
    set_properties(table, {_POLICY: "classic"})
    return True


def _has_no_row_ids(snapshot: Snapshot) -> bool:
    metadata = snapshot.metadata
    if is_enabled(metadata.configuration, ENABLED) or not is_enabled(metadata.configuration, SUSPENDED):
        return False
    return not any(map(_has_row_ids, snapshot.files.add_files()))


def _has_row_ids(file: AddFile) -> bool:
    return file.base_row_id is not None or file.default_row_commit_version is not None


def _remove_row_ids(table: Table) -> bool:
    if _has_no_row_ids(table.snapshot()):
        return False
    set_properties(table, {ENABLED: "false", SUSPENDED: "true"})
    snapshot = table.snapshot()
    without = [
        replace(file, base_row_id=None, default_row_commit_version=None, data_change=False)
        for file in snapshot.files.add_files()
        if _has_row_ids(file)
    ]
    if without:
        commit_alteration(table, snapshot, "ROW TRACKING UNBACKFILL", {"batchId": "0"}, without, "SnapshotIsolation")
    return True


def _remove_domains(table: Table) -> bool:
    snapshot = table.snapshot()
    if not snapshot.domain_metadata:
        return False
    removed = removals_of_domains(snapshot, tuple(snapshot.domain_metadata))
    commit_alteration(table, snapshot, "DOMAIN METADATA CLEANUP", {"domainMetadataRemovedCount": len(removed)}, removed)
    return True


def removals_of_domains(snapshot: Snapshot, names: Sequence[str]) -> list[DomainMetadata]:
    found = snapshot.domain_metadata
    return [DomainMetadata(name, found[name].configuration, removed=True) for name in names if name in found]


_V2_POLICY = _in_metadata(_has_v2_policy)
_WIDENING = Traces(_remove_widening, _is_not_widened, protects_history=True, is_in=_in_metadata(_has_type_changes))

DROPPABLE: Mapping[str, Traces] = {
    "checkConstraints": Traces(_refuse_constraints, lambda snapshot: not _constraints(snapshot)),
    "columnMapping": Traces(_remove_mapping, _is_unmapped, protects_history=True, is_in=_in_metadata(_is_mapped)),
    "deletionVectors": Traces(_remove_vectors, _has_no_vectors, protects_history=True, is_in=_uses_vectors),
    "domainMetadata": Traces(_remove_domains, lambda snapshot: not snapshot.domain_metadata),
    "inCommitTimestamp": Traces(_remove_commit_timestamps, _has_no_commit_timestamps),
    "rowTracking": Traces(
        _remove_row_ids, _has_no_row_ids, properties=(ENABLED, SUSPENDED, *COLUMN_NAMES), domains=(ROW_TRACKING,)
    ),
    "typeWidening": _WIDENING,
    "typeWidening-preview": _WIDENING,
    "v2Checkpoint": Traces(_remove_v2_policy, _has_classic_checkpoints, protects_history=True, is_in=_V2_POLICY),
    "vacuumProtocolCheck": Traces(lambda _: False, lambda _: True, protects_history=True),
}
"""All but ``checkpointProtection``, which protects what the others leave in earlier versions."""
