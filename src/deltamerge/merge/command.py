"""MergeIntoCommand: one merge from statement to commit."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.checks import check_schema_since_analysis
from deltamerge.merge.analysis.spark_analysis import holds_subqueries
from deltamerge.merge.begin import Begun
from deltamerge.merge.execute_plan import execute_plan
from deltamerge.merge.executors.job_errors import translating
from deltamerge.merge.executors.merge_changes import AppendedRows, MergeChanges
from deltamerge.merge.outcome import LostCommit, MergeOutcome, Progress
from deltamerge.merge.plan import Alternative
from deltamerge.merge.preparation import prepare
from deltamerge.merge.reruns import (
    RUN_AGAIN,
    check_same_columns,
    gave_up,
    reconciled_notes,
    rerun_notes,
    seconds_to_wait,
)
from deltamerge.merge.result.after_commit import after_commit
from deltamerge.merge.result.commit import commit_merge
from deltamerge.merge.result.report_data import already_committed, outcome_of
from deltamerge.merge.source.kept import KeptSource
from deltamerge.merge.statement import MergeStatement
from deltamerge.merge.steps import Steps
from deltamerge.scan.read_again import read_again
from deltamerge.scan.table_reads import follows_table, reads_table, versions_read
from deltamerge.spark.catalog_columns import update_columns
from deltamerge.spark.config import MergeConf
from deltamerge.spark.connectors import refresh_path
from deltamerge.spark.held_settings import for_merging, session_settings
from deltamerge.spark.session import errors_not_logged, merge_conf, newly_analyzed, reset_transaction
from deltamerge.spark.table import Table, counting_requests
from deltamerge.storage.object_store import counted
from deltamerge.storage.stored_file import uri_of
from deltamerge.txn.application import ApplicationTransaction, NoTransaction, session_transaction
from deltamerge.txn.transaction import now_ms
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.data_files import remove_leftovers, removing_leftovers
from deltamerge.write.stale_rows import StaleRows, refuse_stale_rows

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")


@dataclass(frozen=True)
class MergeIntoCommand:
    """A merge to run.

    Args:
        timestamp: The value of ``current_timestamp()`` in it, microseconds since 1970; None for its start.
        ruled_out: Operators that are not to be used, each with the reason.
        transaction: The application's transaction; None for the session's, if it has one, `NO_TRANSACTION` for none.
        user_metadata: The commit's ``userMetadata``; None for the session's.
        snapshot: The version that the source was computed from: the merge reads it too, and every later commit that
            changes rows conflicts. None for the newest version.
        returns_changes: Whether the changed rows are asked for, so that they are written as change data.
        begun: What was begun of the merge before it runs; None for nothing.
    """

    table: Table
    statement: MergeStatement
    timestamp: int | None = None
    ruled_out: tuple[Alternative, ...] = ()
    transaction: ApplicationTransaction | NoTransaction | None = None
    user_metadata: str | None = None
    snapshot: Snapshot | None = None
    returns_changes: bool = False
    appended: AppendedRows | None = None
    begun: Begun | None = None

    def run(
        self,
        progress: Progress | None = None,
        *,
        on_commit: Callable[[MergeChanges, int], None] = lambda _, __: None,
    ) -> MergeOutcome:
        """Run the merge; nothing is left behind where it fails. Delta: MergeIntoCommand.run.

        Args:
            on_commit: Is called with what was found and written, and the version that it made.

        Raises:
            DeltaRuntimeException: The data is at fault, or the merge is committed, but `on_commit` failed
                (DELTA_POST_COMMIT_HOOK_FAILED).
        """
        spark = self.table.spark
        timestamp = now_ms() * 1000 if self.timestamp is None else self.timestamp
        steps = Steps(spark, progress, self.statement.operation)
        with session_settings(spark, for_merging(spark)), errors_not_logged(), KeptSource() as kept:
            conf = self.conf_over(merge_conf(spark))
            session_transaction(conf)  # Refuses half a transaction before anything is read.
            statement = replace(self.statement, source=newly_analyzed(self.statement.source))
            started = replace(self, timestamp=timestamp, statement=statement)
            if counted(self.table.store) is None:
                started = replace(started, table=counting_requests(self.table))
            lost: list[LostCommit] = []
            with translating(self.table.name):
                snapshot = snapshot_to_change(started, conf, steps)
            while True:
                try:
                    with translating(self.table.name):
                        outcome = _run_once(started, snapshot, conf, steps, kept, on_commit)
                except StaleRows:
                    raise
                except RUN_AGAIN as error:
                    lost.append(LostCommit.of(error))
                    if len(lost) > conf.conflict_retries or not can_run_again(started, conf):
                        raise (gave_up(error, lost) if len(lost) > 1 else error) from None
                    started = replace(started, begun=None)
                    logger.warning("another writer was first, so the %s runs again: %s", started.statement.verb, error)
                else:
                    return replace(
                        outcome,
                        notes=(*outcome.notes, *rerun_notes(lost)),
                        lost_to=tuple(lost),
                        requests=counted(started.table.store),
                    )
                with steps.step("back_off", "waiting to run again after another writer's commit"):
                    time.sleep(seconds_to_wait(len(lost), random.random()))
                before = snapshot
                with translating(self.table.name):
                    snapshot = snapshot_to_change(started, conf, steps)
                check_same_columns(before, snapshot)

    def conf_over(self, session: MergeConf) -> MergeConf:
        """Return the session's settings with what was asked for at the call."""
        conf = session
        if self.user_metadata is not None:
            conf = replace(conf, user_metadata=self.user_metadata)
        if not self.table.reaches_files:
            conf = replace(conf, driver_bytes=0)
        if self.transaction is None:
            return conf
        named = None if isinstance(self.transaction, NoTransaction) else self.transaction
        app_id, version = (None, None) if named is None else (named.app_id, named.version)
        # The session's own number is not used up.
        return replace(conf, txn_app_id=app_id, txn_version=version, txn_version_auto_reset=False)


def _run_once(
    command: MergeIntoCommand,
    snapshot: Snapshot,
    conf: MergeConf,
    steps: Steps,
    kept: KeptSource,
    on_commit: Callable[[MergeChanges, int], None],
) -> MergeOutcome:
    spark = command.table.spark
    transaction = session_transaction(conf)
    if transaction is not None and transaction.is_in(snapshot):
        reset_transaction(spark, conf)
        return already_committed(command.table, command.statement, snapshot)
    if command.snapshot is None and command.statement.has_source:
        given = command.statement.source
        command, snapshot = with_source_of_now(command, snapshot)
        if command.statement.source is not given:
            kept.forget()
    execution = replace(prepare(command, snapshot, conf, steps), kept=kept)
    changes = replace(execute_plan(execution), appended=command.appended)
    store, folder = command.table.store, changes.execution.folder
    with steps.step("commit", "committing"), removing_leftovers(store, folder):
        committed = commit_merge(changes)
        if committed.version is not None and command.appended is not None:
            command.appended.landed()
    # Before Spark lists the table's files anew.
    kept.forget()
    reset_transaction(spark, conf)
    changes = committed.changes
    if committed.version is None:
        remove_leftovers(store, folder)
    else:
        with only_warning("files in the folder %s that no commit names were not deleted", folder):
            if not changes.names_files_in_folder:
                store.delete_folder(folder)
            elif committed.superseded:
                store.delete(committed.superseded)
        with (
            steps.step("refresh", "refreshing what Spark has cached of the table"),
            only_warning("Spark's cache of %s was not refreshed", command.table.name),
        ):
            refresh_path(spark, uri_of(store.absolute("")))
            metadata = changes.execution.metadata if changes.appended is None else changes.appended.metadata
            if metadata is not None and metadata is not snapshot.metadata:
                update_columns(command.table, metadata.schema_string)
        with after_commit(committed.version, command.table.name):
            on_commit(changes, committed.version)
    outcome = outcome_of(command.statement, changes, committed.version, committed.metrics)
    others = committed.reconciled_with
    return replace(outcome, notes=(*outcome.notes, *reconciled_notes(others)), reconciled_with=others)


def snapshot_to_change(command: MergeIntoCommand, conf: MergeConf, steps: Steps) -> Snapshot:
    """Return the version that a merge changes, once it is clear that it may."""
    with steps.step("snapshot", "loading the table's log"):
        snapshot = command.snapshot or (command.begun or command.table).snapshot()
        snapshot.check_writable()
        if not command.statement.has_source:
            # As delta-spark: also where no row changes.
            refuse_append_only(snapshot, command.table.name, f"the {command.statement.verb} changes rows")
        if conf.check_latest_schema_on_read:
            check_schema_since_analysis(command.table, snapshot)
    return snapshot


def with_source_of_now(command: MergeIntoCommand, snapshot: Snapshot) -> tuple[MergeIntoCommand, Snapshot]:
    """Return the merge with what its source reads of the target as of the version that it merges into, and this."""
    statement, table = command.statement, command.table
    read = versions_read(statement.source, table, snapshot)
    if not read:
        return command, snapshot
    if max(read) > snapshot.version:
        snapshot = table.snapshot_to_write()
    source = read_again(statement.source, table, snapshot)
    refuse_stale_rows(table, snapshot, source)
    return replace(command, statement=replace(statement, source=source)), snapshot


def can_run_again(command: MergeIntoCommand, conf: MergeConf) -> bool:
    """Return whether the merge can run again on a newer version.

    Its source must not hold rows of an older one, nor what a subquery in a value reads.
    """
    source, table = command.statement.source, command.table
    if command.snapshot is not None or holds_subqueries(command.statement, conf.double_quoted_identifiers):
        return False
    return not reads_table(source, table) or follows_table(source, table, table.snapshot())


@contextmanager
def only_warning(message: str, *about: object) -> Iterator[None]:
    """Log a failure after the commit, which must not look like the merge's."""
    try:
        yield
    except Exception:
        # Whatever fails: who is told of it would merge again.
        logger.warning(message, *about, exc_info=True)
