"""The commit of a command that is no merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltamerge.log.actions import Action, AddFile, RemoveFile
from deltamerge.log.snapshot import Snapshot
from deltamerge.spark.catalog_columns import update_columns
from deltamerge.spark.session import commit_settings, merge_conf
from deltamerge.spark.table import Table
from deltamerge.txn.prepared import IsolationLevel, PreparedCommit, ReadSet
from deltamerge.txn.transaction import commit

NOTHING_READ = ReadSet()
_NO_METRICS: Mapping[str, int] = {}
_WHOLE_TABLE = ReadSet(whole_table=True)
_OF_FILES = (AddFile, RemoveFile)


def commit_command(
    table: Table,
    snapshot: Snapshot | None,
    operation: str,
    parameters: Mapping[str, object],
    actions: Sequence[Action] = (),
    *,
    metrics: Mapping[str, int] = _NO_METRICS,
    read: ReadSet = NOTHING_READ,
    isolation: IsolationLevel = "Serializable",
) -> None:
    """Commit a command.

    Args:
        snapshot: The version that was read; None where the commit makes the table.
        metrics: The commit's ``operationMetrics``.
    """
    reads_or_changes = read.predicates or read.files or any(isinstance(action, _OF_FILES) for action in actions)
    prepared = PreparedCommit(
        snapshot=table.store if snapshot is None else snapshot,
        actions=tuple(actions),
        read_set=read,
        operation=operation,
        operation_parameters=parameters,
        operation_metrics={k: str(v) for k, v in metrics.items()},
        isolation_level=isolation,
        # Delta counts what neither reads nor changes files as one, also where it conflicts with every other commit.
        is_blind_append=not reads_or_changes,
        settings=commit_settings(merge_conf(table.spark)),
        # Delta: OptimisticTransaction.commitLarge, of CLONE and CONVERT.
        shows_no_version=True,
    )
    commit(prepared)
    metadata = prepared.new_metadata
    update_columns(table, None if metadata is None else metadata.schema_string)


def commit_alteration(
    table: Table,
    snapshot: Snapshot,
    operation: str,
    parameters: Mapping[str, object],
    actions: Sequence[Action],
    isolation: IsolationLevel = "Serializable",
) -> None:
    """Commit a change of what a table is, which conflicts with every other commit."""
    commit_command(table, snapshot, operation, parameters, actions, read=_WHOLE_TABLE, isolation=isolation)
