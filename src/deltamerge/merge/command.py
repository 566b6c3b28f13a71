"""MergeIntoCommand: one merge from statement to commit."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from deltamerge.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
)
from deltamerge.log.features.type_widening import widening_mode
from deltamerge.log.protocol import writer_features
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.checks import check_schema_since_analysis
from deltamerge.merge.analysis.current_time import at_one_time
from deltamerge.merge.analysis.resolve import resolve
from deltamerge.merge.analysis.table_after import table_after
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.outcome import MergeOutcome, Progress
from deltamerge.merge.output.internal_columns import MergeNames
from deltamerge.merge.planning.executor_choice import choose_executor
from deltamerge.merge.result.commit import commit_merge
from deltamerge.merge.result.report_data import already_committed, metrics_of, outcome_of
from deltamerge.merge.retries import execute_with_retries
from deltamerge.merge.source.dedupe import check_dedupe_by, latest_per_key
from deltamerge.merge.source.source import narrowed, reads_table
from deltamerge.merge.statement import MergeStatement
from deltamerge.merge.steps import Steps
from deltamerge.spark.config import MergeConf
from deltamerge.spark.lean_columns import lean_columns
from deltamerge.spark.session import (
    PLANNING,
    READING_MANY_FILES,
    errors_said_once,
    merge_conf,
    reset_transaction,
    session_settings,
)
from deltamerge.spark.table import Table
from deltamerge.sql.names import free_prefix
from deltamerge.storage.store import Store
from deltamerge.txn.application import session_transaction
from deltamerge.write.data_files import leaving_nothing_behind, remove_leftovers
from deltamerge.write.inert import schema_to_write
from deltamerge.write.layout import data_folder
from deltamerge.write.table_features import check_evolution

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")
# Conflicts about rows, after which the same merge is right for the rows as they are now.
_RUN_AGAIN = (ConcurrentAppendException, ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)


@dataclass(frozen=True)
class MergeIntoCommand:
    """A merge to run.

    Args:
        table: The target.
        statement: What the user said.
        moment: The time that ``current_timestamp()`` tells in it, microseconds since 1970; None for its start.
    """

    table: Table
    statement: MergeStatement
    moment: int | None = None


def now_in_milliseconds() -> int:
    """Gives the time in milliseconds since 1970."""
    return int(time.time() * 1000)


def run_merge(
    command: MergeIntoCommand,
    progress: Progress | None = None,
    *,
    clock: Callable[[], int] = now_in_milliseconds,
    new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
) -> MergeOutcome:
    """Runs a merge.

    Args:
        command: The merge.
        progress: Is told of each step as it begins.
        clock: Gives the time in milliseconds since 1970.
        new_id: Gives an id that was never given before.

    Returns:
        What it did. Delta: MergeIntoCommand.run.

    Raises:
        DeltaAnalysisException: The statement is wrong; nothing was read or written.
        DeltaIllegalArgumentException: A setting is wrong; nothing was read or written.
        DeltaTableException: The table cannot be read or written.
        DeltaRuntimeException: The data is at fault; the table is as it was.
        DeltaConcurrentModificationException: Another writer's commit conflicts; the table is as that left it.
        CommitStateUnknownException: The store did not say whether the commit landed.
    """
    spark = command.table.spark
    moment = clock() * 1000 if command.moment is None else command.moment
    steps = Steps(spark, progress)
    settings = {**READING_MANY_FILES, **PLANNING}
    with session_settings(spark, settings), errors_said_once(), lean_columns(spark):
        conf = merge_conf(spark)
        session_transaction(conf)  # Refuses half a transaction before anything is read.
        at_one_moment = replace(command, moment=moment)
        for attempt in range(max(0, conf.conflict_retries) + 1):
            try:
                outcome = _run_once(at_one_moment, conf, steps, clock, new_id)
            except _RUN_AGAIN as error:
                if attempt >= conf.conflict_retries or reads_table(command.statement.source, command.table):
                    raise
                logger.warning("another writer was first, so the merge runs again: %s", error)
            else:
                return replace(outcome, notes=(*outcome.notes, *_ran_again(attempt)))
    raise AssertionError("every attempt returns or raises")


def _ran_again(attempts: int) -> tuple[str, ...]:
    if not attempts:
        return ()
    times = "once" if attempts == 1 else f"{attempts} times"
    return (f"ran again {times}, because other writers changed what the merge had read",)


def _run_once(
    command: MergeIntoCommand,
    conf: MergeConf,
    steps: Steps,
    clock: Callable[[], int],
    new_id: Callable[[], str],
) -> MergeOutcome:
    """Runs a merge on the table's latest version."""
    spark, moment = command.table.spark, command.moment
    assert moment is not None
    with steps.step("snapshot", "loading the table's log"):
        snapshot = command.table.snapshot()
        snapshot.check_writable()
        if conf.check_latest_schema_on_read:
            check_schema_since_analysis(command.table, snapshot)
    transaction = session_transaction(conf)
    if transaction is not None and transaction.is_in(snapshot):
        reset_transaction(spark, conf)
        return already_committed(command.table, command.statement, snapshot)
    with steps.step("resolve", "resolving the statement"):
        schema = schema_to_write(snapshot)
        columns = (*schema.names, *command.statement.source.schema.names)
        statement = at_one_time(command.statement, moment, columns)
        check_dedupe_by(statement.dedupe_by, statement.source.schema, conf.case_sensitive)
        merge = narrowed(resolve(spark, statement, schema, conf, _widening(snapshot, conf)))
        merge = latest_per_key(merge)
        if merge.evolves_schema:
            check_evolution(snapshot, merge.output_schema)
        merge, metadata = table_after(snapshot, merge, new_id)
        executor, reason = choose_executor(merge, conf)
    execution = Execution(
        table=command.table,
        snapshot=snapshot,
        metadata=metadata,
        merge=merge,
        conf=conf,
        names=MergeNames(free_prefix((*merge.output_schema.names, *merge.source_schema.names))),
        steps=steps,
        folder=data_folder(snapshot.metadata.configuration, new_id()),
        clock=clock,
        moment=moment,
    )
    changes, executor, reason = execute_with_retries(execution, executor, reason, new_id)
    store, folder = command.table.store, changes.execution.folder
    with steps.step("commit", "committing"), leaving_nothing_behind(store, folder):
        metrics = metrics_of(changes)
        version = commit_merge(changes, metrics, new_id())
    reset_transaction(spark, conf)
    if version is None:
        remove_leftovers(store, folder)
    else:
        if not changes.names_files_in_folder:
            _remove_empty_folder(store, folder)
        with steps.step("refresh", "refreshing what Spark has cached of the table"):
            _refresh(command.table)
    return outcome_of(command.statement, changes, executor, reason, version, metrics)


def _widening(snapshot: Snapshot, conf: MergeConf) -> str:
    """How far the table's types may be widened."""
    features = writer_features(snapshot.protocol)
    return widening_mode(snapshot.metadata.configuration, features, conf.allow_automatic_widening)


def _remove_empty_folder(store: Store, folder: str) -> None:
    """Deletes the folder of a committed merge that wrote no row; a failure here must not look like the merge's."""
    try:
        store.delete_folder(folder)
    except Exception:
        logger.warning("the folder %s was not deleted", folder, exc_info=True)


def _refresh(table: Table) -> None:
    """Lets Spark read the table anew; the merge is committed, so a failure here must not look like its own."""
    try:
        table.spark.catalog.refreshByPath(table.store.absolute(""))
    except Exception:
        logger.warning("Spark's cache of %s was not refreshed", table.name, exc_info=True)
