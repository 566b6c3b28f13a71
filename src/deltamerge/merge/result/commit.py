"""The commit of a merge: which actions, what was read, and the application transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from deltamerge.log.actions import Action, Metadata
from deltamerge.merge.executors.execution import MergeChanges
from deltamerge.merge.output.identity_columns import generated_identities
from deltamerge.merge.result.metrics import operation_metrics, operation_parameters
from deltamerge.txn.application import session_transaction
from deltamerge.txn.prepared import IsolationLevel, PreparedCommit, ReadSet
from deltamerge.txn.transaction import commit
from deltamerge.version import ENGINE_INFO
from deltamerge.write.identity_columns import with_high_water_marks
from deltamerge.write.inert import schema_to_commit


def commit_merge(changes: MergeChanges, metrics: Mapping[str, int], txn_id: str) -> int | None:
    """Commit a merge; return the new version, or None where there is nothing to commit.

    Raises:
        DeltaConcurrentModificationException: Another writer's commit conflicts.
        CommitStateUnknownException: The store did not say whether the commit landed.
    """
    actions = _actions(changes)
    if not actions:
        return None
    execution = changes.execution
    snapshot, conf = execution.snapshot, execution.conf
    prepared = PreparedCommit(
        snapshot=snapshot,
        actions=tuple(actions),
        read_set=ReadSet(
            predicates=(changes.target.predicate,),
            files=frozenset(file.path for file in changes.target.files),
            whole_table=False,
        ),
        operation=execution.merge.statement.operation,
        operation_parameters=operation_parameters(execution.merge),
        operation_metrics=operation_metrics(changes, metrics) if conf.history_metrics else None,
        isolation_level=_isolation_level(snapshot.metadata.configuration),
        is_blind_append=False,
        user_metadata=conf.user_metadata,
        engine_info=ENGINE_INFO,
        txn_id=txn_id,
        session_time_zone=conf.session_time_zone,
    )
    return commit(prepared, execution.clock).version


def _isolation_level(configuration: Mapping[str, str]) -> IsolationLevel:
    """Read the table's level, which other writers may have spelled in any case; the stricter one where in doubt."""
    level = configuration.get("delta.isolationLevel", "Serializable")
    return "WriteSerializable" if level.lower() == "writeserializable" else "Serializable"


def _actions(changes: MergeChanges) -> list[Action]:
    execution = changes.execution
    now = execution.clock()
    actions: list[Action] = []
    metadata = _metadata(changes)
    if metadata is not None:
        actions.append(metadata)
    transaction = session_transaction(execution.conf)
    if transaction is not None:
        actions.append(transaction.action(now))
    actions += [file.remove(now) for file in changes.touched.rewrite]
    actions += changes.vectors.kept
    actions += changes.written.files
    actions += changes.written.change_files
    return actions


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
