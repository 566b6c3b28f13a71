"""DROP FEATURE: takes a feature out of a table's protocol, once no version that is read needs it.

Delta: AlterTableDropFeatureDeltaCommand. By default three checkpoints come between the versions that use the feature
and the one that drops it, and the feature ``checkpointProtection`` keeps them: readers and writers that do not know
the feature then never go back beyond them. With TRUNCATE HISTORY the versions that use it have to expire first.
"""

from __future__ import annotations

from dataclasses import replace

from deltamerge.commands.committing import commit_alteration, commit_command
from deltamerge.commands.feature_traces import DROPPABLE, Traces, removals_of_domains, unset
from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import Action, Protocol
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.cleanup import PROTECTED_BEFORE, PROTECTION, clean_up_log_before
from deltamerge.log.commits import read_commit
from deltamerge.log.features.required_features import with_required
from deltamerge.log.properties import interval_ms
from deltamerge.log.protocol import (
    LEGACY_READER_FEATURES,
    LEGACY_WRITER_FEATURES,
    SUPPORTED_WRITER_FEATURES,
    features,
    reader_features,
    writer_features,
)
from deltamerge.log.segment import list_log
from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.spark.table import Table
from deltamerge.txn.transaction import now_ms
from deltamerge.write.property_names import BY_LOWER
from deltamerge.write.table_features import with_features

_TRUNCATED_RETENTION = "delta.dropFeatureTruncateHistory.retentionDuration"
# delta-spark tries as many older checkpoints where it cannot read one.
_BARRIERS = 3
_MINUTE = 60_000


def drop_feature(table: Table, name: str, *, truncate_history: bool) -> None:
    """Drop a feature.

    Args:
        truncate_history: Whether versions older than ``delta.dropFeatureTruncateHistory.retentionDuration`` are
            deleted, so that none uses the feature.
    """
    snapshot = table.snapshot_to_write()
    _check_droppable(snapshot, name, truncate_history=truncate_history)
    if name == PROTECTION:
        _drop_protection(table)
        return
    traces = DROPPABLE[name]
    had_traces = traces.remove(table)
    if truncate_history:
        _check_history(table, name, traces, had_traces=had_traces)
    elif traces.protects_history:
        for _ in range(_BARRIERS):
            _commit_and_checkpoint(table)
    snapshot = table.snapshot()
    if not traces.is_clean(snapshot):
        raise _not_dropped(
            "CONFLICT_REVALIDATION_FAIL", name, "another writer's commit uses it again: drop it once more"
        )
    protects = traces.protects_history and not truncate_history
    _downgrade(table, snapshot, name, traces, truncate_history=truncate_history, protects=protects)
    if protects:
        write_checkpoint(table.snapshot(), now_ms())


def _check_droppable(snapshot: Snapshot, name: str, *, truncate_history: bool) -> None:
    present = features(snapshot.protocol)
    known = SUPPORTED_WRITER_FEATURES | present
    if name not in present and name.lower() in BY_LOWER:
        raise _not_dropped("FEATURE_IS_DELTA_PROPERTY", name, "it is a property of tables and no feature")
    if name not in present and name.lower() in {feature.lower() for feature in known}:
        why = "it is not currently present in the table's protocol"
        raise _not_dropped("FEATURE_NOT_PRESENT", name, why)
    if name not in present:
        raise _not_dropped("UNSUPPORTED_CLIENT_FEATURE", name, "it is no known feature")
    if name not in DROPPABLE and name != PROTECTION:
        raise _not_dropped("NONREMOVABLE_FEATURE", name, "dropping this feature is not supported")
    if name == PROTECTION and not truncate_history:
        raise DeltaTableException(
            "DELTA_FEATURE_CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION",
            f"The feature {PROTECTION} keeps checkpoints that earlier versions need: it is dropped only with TRUNCATE "
            "HISTORY. Nothing was changed.",
        )
    if truncate_history and name != PROTECTION and not DROPPABLE[name].protects_history:
        why = "the particular feature does not require history truncation"
        raise _not_dropped("HISTORY_TRUNCATION_NOT_ALLOWED", name, why)
    dependent = sorted(other for other in present - {name} if name in with_required({other}))
    if dependent:
        why = f"the features {', '.join(dependent)} of this table need it, drop these first"
        raise _not_dropped("DEPENDENT_FEATURE", name, why)


def _downgrade(
    table: Table, snapshot: Snapshot, name: str, traces: Traces, *, truncate_history: bool, protects: bool
) -> None:
    """Commit the protocol without a feature, with the protection of earlier checkpoints if asked for."""
    configuration = {k: v for k, v in snapshot.metadata.configuration.items() if k not in traces.properties}
    added: frozenset[str] = frozenset()
    if protects:
        configuration[PROTECTED_BEFORE] = str(snapshot.version + 1)
        added = frozenset({PROTECTION})
    metadata = replace(snapshot.metadata, configuration=configuration)
    actions: list[Action] = [_without(snapshot.protocol, name, added), metadata]
    actions += removals_of_domains(snapshot, traces.domains)
    parameters = {"featureName": name, "truncateHistory": truncate_history}
    commit_alteration(table, snapshot, "DROP FEATURE", parameters, actions)


def _drop_protection(table: Table) -> None:
    """Drop the protection of checkpoints, once all versions before the protected one are deleted."""
    if not _is_truncated(table.snapshot()):
        _commit_and_checkpoint(table)
        _truncate(table)
    snapshot = table.snapshot()
    if not _is_truncated(snapshot):
        raise DeltaTableException(
            "DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD",
            f"{PROTECTION} was not dropped: earlier versions use features that were dropped, and have not expired. "
            f"Repeat the command when they have; they are kept for {_kept(snapshot)} ({_TRUNCATED_RETENTION}).",
            parameters={"truncateHistoryLogRetentionPeriod": _kept(snapshot)},
        )
    unset(table, [PROTECTED_BEFORE])
    _downgrade(
        table,
        table.snapshot(),
        PROTECTION,
        Traces(lambda _: False, lambda _: True),
        truncate_history=True,
        protects=False,
    )


def _is_truncated(snapshot: Snapshot) -> bool:
    """Return whether no commit is left of before the version up to which checkpoints are protected."""
    before = int(snapshot.metadata.configuration.get(PROTECTED_BEFORE, "0"))
    listing = list_log(snapshot.store)
    is_covered = any(checkpoint.version >= before for checkpoint in listing.checkpoints[:1])
    return before <= 0 or (is_covered and all(commit.start >= before for commit in listing.commits))


def _check_history(table: Table, name: str, traces: Traces, *, had_traces: bool) -> None:
    """Delete the expired versions, and refuse to go on where others use the feature."""
    _commit_and_checkpoint(table)
    if had_traces:
        why = f"Dropping {name} was partially successful: only earlier versions of the table use it now."
        raise _too_early("WAIT_FOR_RETENTION_PERIOD", name, why, table.snapshot())
    _truncate(table)
    if _history_uses(table.snapshot(), traces):
        why = f"Cannot drop {name}: earlier versions of the table use it."
        raise _too_early("HISTORICAL_VERSIONS_EXIST", name, why, table.snapshot())


def _too_early(error_class: str, name: str, why: str, snapshot: Snapshot) -> DeltaTableException:
    return DeltaTableException(
        f"DELTA_FEATURE_DROP_{error_class}",
        f"{why} Repeat the command when these have expired: with TRUNCATE HISTORY they are kept for {_kept(snapshot)} "
        f"({_TRUNCATED_RETENTION}). Without it earlier versions may use the feature.",
        parameters={
            "feature": name,
            "logRetentionPeriodKey": "delta.logRetentionDuration",
            "logRetentionPeriod": snapshot.metadata.configuration.get("delta.logRetentionDuration", "30 days"),
            "truncateHistoryLogRetentionPeriod": _kept(snapshot),
        },
    )


def _history_uses(snapshot: Snapshot, traces: Traces) -> bool:
    """Return whether a version that can be read uses a feature; tombstones of the oldest one do not count."""
    listing = list_log(snapshot.store)
    for commit in listing.commits:
        if commit.start <= snapshot.version and any(
            map(traces.is_in, read_commit(snapshot.store, commit.start).actions)
        ):
            return True
    oldest = next(iter(listing.checkpoints), None)
    if oldest is None:
        return False
    first = load_snapshot(snapshot.store, oldest.version)
    return traces.is_in(first.metadata) or any(map(traces.is_in, first.files.add_files()))


def _truncate(table: Table) -> None:
    snapshot, now = table.snapshot(), now_ms()
    retention = interval_ms(snapshot.metadata, _TRUNCATED_RETENTION, "interval 24 hours")
    clean_up_log_before(snapshot, (now - retention) // _MINUTE * _MINUTE, now)


def _kept(snapshot: Snapshot) -> str:
    return snapshot.metadata.configuration.get(_TRUNCATED_RETENTION, "24 hours")


def _commit_and_checkpoint(table: Table) -> None:
    commit_command(table, table.snapshot(), "Empty Commit", {}, isolation="SnapshotIsolation")
    write_checkpoint(table.snapshot(), now_ms())


def _without(protocol: Protocol, name: str, added: frozenset[str]) -> Protocol:
    """Return a protocol without a feature, without lists of features where versions imply just these."""
    readers, writers = reader_features(protocol) - {name}, (writer_features(protocol) | added) - {name}
    for writer, implied in LEGACY_WRITER_FEATURES.items():
        for reader, of_reader in LEGACY_READER_FEATURES.items():
            if implied == writers and of_reader == readers:
                return Protocol(reader, writer)
    return with_features(readers, writers)


def _not_dropped(error_class: str, feature: str, why: str) -> DeltaTableException:
    return DeltaTableException(
        f"DELTA_FEATURE_DROP_{error_class}",
        f"Cannot drop {feature} from this table: {why}. Nothing was changed.",
        parameters={"feature": feature},
    )
