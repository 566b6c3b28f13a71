"""The commit of a merge: which actions, what was read, and the application transaction."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaConcurrentModificationException
from deltamerge.log.actions import Action, AddCDCFile, Metadata
from deltamerge.log.change_feed import ChangedFile, changed_files
from deltamerge.log.commits import Commit
from deltamerge.log.features.deletion_vectors import vector_path
from deltamerge.merge.executors.merge_changes import MergeChanges
from deltamerge.merge.outcome import LostCommit
from deltamerge.merge.output.identity_columns import generated_identities
from deltamerge.merge.result.metrics import metrics_of, operation_metrics, operation_parameters
from deltamerge.merge.result.reconcile import reads_target, reconciled
from deltamerge.spark.session import commit_settings
from deltamerge.txn.application import session_transaction
from deltamerge.txn.conflicts import WinningCommit
from deltamerge.txn.prepared import PreparedCommit, ReadSet, isolation_level
from deltamerge.txn.transaction import commit, now_ms
from deltamerge.write.identity_columns import with_high_water_marks
from deltamerge.write.stored_schema import schema_to_commit
from deltamerge.write.table_features import evolved_protocol

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")


@dataclass(frozen=True)
class MergeCommit:
    """A merge that was committed.

    Args:
        reconciled_with: The commits that came first and changed other rows of files that the merge read.
        superseded: The files of vectors that were written for it, which the commit does not name.
    """

    version: int | None
    changes: MergeChanges
    metrics: Mapping[str, int]
    reconciled_with: tuple[LostCommit, ...] = ()
    superseded: frozenset[str] = frozenset()


def commit_merge(changes: MergeChanges) -> MergeCommit:
    """Commit a merge, after others where these changed other rows."""
    attempt = _Attempt(changes)
    if not attempt.prepared.actions:
        return attempt.committed(None)
    reads_all = partial(reads_target, changes.execution)
    return attempt.committed(commit(attempt.prepared, reconcile=attempt.reconcile, reads_all=reads_all).version)


class _Attempt:
    """What is to be committed: at first what the merge found, then the same beside the rows of others."""

    def __init__(self, changes: MergeChanges) -> None:
        self._first = changes
        self._txn_id = str(uuid.uuid4())
        self._others: list[LostCommit] = []
        self._vector_files: set[str] = set()
        self.prepare(changes)

    def prepare(self, changes: MergeChanges) -> None:
        self._changes, self._metrics = changes, metrics_of(changes)
        self._vector_files |= _vector_files(changes)
        self.prepared = _prepared(changes, self._metrics, self._txn_id)

    def reconcile(
        self, winners: Sequence[WinningCommit], conflict: DeltaConcurrentModificationException
    ) -> PreparedCommit | None:
        changes = reconciled(self._first, self.prepared, winners)
        if changes is None:
            return None
        logger.info("only files are shared, no rows, so both are committed: %s", conflict)
        self._others.append(LostCommit.of(conflict))
        self.prepare(changes)
        return self.prepared

    def committed(self, version: int | None) -> MergeCommit:
        superseded = frozenset(self._vector_files - _vector_files(self._changes))
        return MergeCommit(version, self._changes, self._metrics, tuple(self._others), superseded)


def _vector_files(changes: MergeChanges) -> set[str]:
    vectors = (file.deletion_vector for file in changes.vectors.kept)
    return {path for vector in vectors if vector is not None and (path := vector_path(vector)) is not None}


def _prepared(changes: MergeChanges, metrics: Mapping[str, int], txn_id: str) -> PreparedCommit:
    """Return what a merge commits; without actions where nothing changed."""
    execution = changes.execution
    snapshot, appended = execution.snapshot, changes.appended
    return PreparedCommit(
        snapshot=snapshot,
        actions=tuple(_actions(changes)),
        read_set=ReadSet(
            predicates=(changes.target.predicate,),
            files=frozenset(file.path for file in changes.target.files),
            whole_table=execution.source_read_table,
        ),
        operation=execution.merge.statement.operation if appended is None else "WRITE",
        operation_parameters=operation_parameters(execution.merge) if appended is None else appended.parameters,
        operation_metrics=operation_metrics(changes, metrics),
        isolation_level=isolation_level(snapshot.metadata.configuration),
        is_blind_append=False,
        settings=commit_settings(execution.conf),
        txn_id=txn_id,
    )


def _actions(changes: MergeChanges) -> list[Action]:
    execution = changes.execution
    now = now_ms()
    actions: list[Action] = []
    appended = changes.appended
    metadata = _metadata(changes) if appended is None else appended.metadata
    if metadata is not None:
        actions.append(metadata)
        schema = StructType.fromJson(json.loads(metadata.schema_string or ""))
        protocol = evolved_protocol(execution.snapshot, schema)
        if protocol != execution.snapshot.protocol:
            actions.append(protocol)
    transaction = session_transaction(execution.conf)
    if transaction is not None:
        actions.append(transaction.action(now))
    actions += [file.remove(now) for file in changes.touched.rewrite]
    actions += changes.vectors.kept
    actions += changes.written.files
    if execution.context.has_change_feed:
        actions += changes.written.change_files
    if appended is not None:
        actions += appended.written.files
        # Where a commit has change files, they are all that readers of the feed see of it.
        actions += appended.written.change_files if changes.written.change_files else ()
    return actions


def rows_changed(changes: MergeChanges, version: int) -> tuple[ChangedFile, ...]:
    """Return the files with the rows that a merge changed, also where the table keeps no change data."""
    of_table = [action for action in _actions(changes) if not isinstance(action, AddCDCFile)]
    commit = Commit(version, (*of_table, *changes.written.change_files))
    return tuple(changed_files(commit, now_ms(), changes.execution.table.store))


def _metadata(changes: MergeChanges) -> Metadata | None:
    """Return the table's metadata where the merge changes it, by new columns or the marks of identity columns."""
    execution = changes.execution
    merge = execution.merge
    given = generated_identities(merge) if changes.inserted else frozenset()
    schema = with_high_water_marks(merge.output_schema, given, execution.table.store, changes.written.files)
    if schema == merge.target_schema:
        return None
    committed = schema_to_commit(schema, execution.snapshot)
    return replace(execution.metadata, schema_string=json.dumps(committed.jsonValue()))
