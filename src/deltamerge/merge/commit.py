"""The commit of a merge: which actions, what was read, and the application transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from deltamerge.config import KEYS, MergeConf
from deltamerge.errors import DeltaIllegalArgumentException
from deltamerge.log.actions import Action, Metadata, SetTransaction
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.execution import MergeChanges
from deltamerge.merge.identity import generated_identities
from deltamerge.merge.metrics import operation_parameters
from deltamerge.txn.prepared import IsolationLevel, PreparedCommit, ReadSet
from deltamerge.txn.transaction import commit
from deltamerge.version import ENGINE_INFO
from deltamerge.write.identity import with_high_water_marks
from deltamerge.write.inert import schema_to_commit


def check_application_transaction(conf: MergeConf) -> None:
    """Refuses half an application transaction: a merge that seems idempotent would not be.

    Args:
        conf: The session's settings.

    Raises:
        DeltaIllegalArgumentException: One of ``write.txnAppId`` and ``write.txnVersion`` is set alone.
    """
    if (conf.txn_app_id is None) != (conf.txn_version is None):
        raise DeltaIllegalArgumentException(
            "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
            f"Invalid options for idempotent writes: both {KEYS['txn_app_id']} and {KEYS['txn_version']} must be set, "
            f"or neither; here {KEYS['txn_app_id']} is {_shown(conf.txn_app_id)} and {KEYS['txn_version']} is "
            f"{_shown(conf.txn_version)}.",
            sqlstate="42616",
        )


def _shown(value: object) -> str:
    return "not set" if value is None else repr(value)


def is_already_committed(snapshot: Snapshot, conf: MergeConf) -> bool:
    """Tells whether the session's application transaction is in the table already.

    Args:
        snapshot: The table.
        conf: The session's settings; ``write.txnAppId`` and ``write.txnVersion`` name the transaction.
    """
    if conf.txn_app_id is None or conf.txn_version is None:
        return False
    seen = snapshot.set_transactions.get(conf.txn_app_id)
    return seen is not None and seen.version >= conf.txn_version


def commit_merge(changes: MergeChanges, metrics: Mapping[str, int], txn_id: str) -> int | None:
    """Commits a merge.

    Args:
        changes: What the executor wrote, and what it read.
        metrics: The operation's metrics.
        txn_id: The commit's id.

    Returns:
        The new version, or None where there is nothing to commit.

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
            predicates=(changes.predicate,),
            files=frozenset(file.path for file in changes.read_files),
            whole_table=False,
        ),
        operation="MERGE",
        operation_parameters=operation_parameters(execution.merge),
        operation_metrics={k: str(v) for k, v in metrics.items()} if conf.history_metrics else None,
        isolation_level=_isolation_level(snapshot.metadata.configuration),
        is_blind_append=False,
        user_metadata=conf.user_metadata,
        engine_info=ENGINE_INFO,
        txn_id=txn_id,
        session_time_zone=conf.session_time_zone,
    )
    return commit(prepared, execution.clock).version


def _isolation_level(configuration: Mapping[str, str]) -> IsolationLevel:
    """Reads the table's level, which other writers may have spelled in any case; the stricter one where in doubt."""
    level = configuration.get("delta.isolationLevel", "Serializable")
    return "WriteSerializable" if level.lower() == "writeserializable" else "Serializable"


def _actions(changes: MergeChanges) -> list[Action]:
    execution = changes.execution
    now = execution.clock()
    actions: list[Action] = []
    metadata = _metadata(changes)
    if metadata is not None:
        actions.append(metadata)
    if execution.conf.txn_app_id is not None and execution.conf.txn_version is not None:
        actions.append(SetTransaction(execution.conf.txn_app_id, execution.conf.txn_version, now))
    actions += [file.remove(now) for file in changes.touched.rewrite]
    actions += changes.vectors.kept
    actions += changes.written.files
    actions += changes.written.change_files
    return actions


def _metadata(changes: MergeChanges) -> Metadata | None:
    """Gives the table's metadata where the merge changes it, by new columns or the marks of identity columns."""
    execution = changes.execution
    merge = execution.merge
    given = generated_identities(merge) if changes.inserted else frozenset()
    schema = with_high_water_marks(merge.output_schema, given, execution.table.store, changes.written.files)
    if schema == merge.target_schema:
        return None
    committed = schema_to_commit(schema, execution.snapshot)
    return replace(execution.metadata, schema_string=json.dumps(committed.jsonValue()))
