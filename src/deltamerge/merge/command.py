"""MergeIntoCommand: one merge from statement to commit."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from deltamerge.config import MergeConf
from deltamerge.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    DeltaError,
)
from deltamerge.lean_columns import lean_columns
from deltamerge.log.protocol import writer_features
from deltamerge.log.snapshot import Snapshot
from deltamerge.log.type_widening import widening_mode
from deltamerge.merge.checks import check_schema_since_analysis
from deltamerge.merge.commit import commit_merge
from deltamerge.merge.current_time import at_one_time
from deltamerge.merge.dedupe import check_dedupe_by, latest_per_key
from deltamerge.merge.execute import execute_classic, execute_insert_only, reads_source_once
from deltamerge.merge.execution import Execution, MergeChanges
from deltamerge.merge.executor_choice import choose_executor, why_classic
from deltamerge.merge.identity import generated_identities
from deltamerge.merge.job_errors import is_lost_source, source_failed_repeatedly, translated
from deltamerge.merge.key_lookup import EXECUTOR, REASON, REASON_WITH_TARGET, execute_key_lookup
from deltamerge.merge.key_lookup_fit import KeyLookup, key_lookup_of
from deltamerge.merge.lookup import few_keys, lookup_of
from deltamerge.merge.low_shuffle import execute_low_shuffle
from deltamerge.merge.metrics import Timings, merge_metrics, operation_parameters
from deltamerge.merge.outcome import ClauseOutcome, MergeOutcome, Progress
from deltamerge.merge.references import condition_shape, source_keys
from deltamerge.merge.resolve import resolve
from deltamerge.merge.resolved import ResolvedMerge
from deltamerge.merge.scan_plan import key_slices
from deltamerge.merge.source import Source, materialize_source, narrowed, read_source, reads_table
from deltamerge.merge.source_keys import SourceSummary
from deltamerge.merge.steps import Steps
from deltamerge.merge.table_after import table_after
from deltamerge.names import MergeNames, free_prefix
from deltamerge.session import (
    PLANNING,
    READING_MANY_FILES,
    errors_said_once,
    merge_conf,
    note_failure,
    session_settings,
)
from deltamerge.statement import MergeStatement
from deltamerge.table import Table
from deltamerge.txn.application import session_transaction
from deltamerge.write.data_files import leaving_nothing_behind, remove_leftovers
from deltamerge.write.identity import number_rows
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
        return _already_committed(command, snapshot)
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
    changes, executor, reason = _execute_with_retries(execution, executor, reason, new_id)
    store, folder = command.table.store, changes.execution.folder
    with steps.step("commit", "committing"), leaving_nothing_behind(store, folder):
        metrics = _metrics(merge, changes, steps, snapshot)
        version = commit_merge(changes, metrics, new_id())
    if version is None:
        remove_leftovers(store, folder)
    else:
        with steps.step("refresh", "refreshing what Spark has cached of the table"):
            _refresh(command.table)
    return _outcome(command, changes, executor, reason, version, metrics)


def _widening(snapshot: Snapshot, conf: MergeConf) -> str:
    """How far the table's types may be widened."""
    features = writer_features(snapshot.protocol)
    return widening_mode(snapshot.metadata.configuration, features, conf.allow_automatic_widening)


def _refresh(table: Table) -> None:
    """Lets Spark read the table anew; the merge is committed, so a failure here must not look like its own."""
    try:
        table.spark.catalog.refreshByPath(table.store.absolute(""))
    except Exception:
        logger.warning("Spark's cache of %s was not refreshed", table.name, exc_info=True)


def _execute_with_retries(
    execution: Execution, executor: str, reason: str, new_id: Callable[[], str]
) -> tuple[MergeChanges, str, str]:
    """Runs the executor, and again with a source kept more safely where executors lost its rows."""
    conf = execution.conf
    how = key_lookup_of(execution) if conf.executor in ("auto", EXECUTOR) else None
    if how is not None:
        by_keys = _by_key_lookup(execution, how)
        if by_keys is not None:
            return by_keys, EXECUTOR, REASON_WITH_TARGET if how.asks_target else REASON
        execution = replace(execution, folder=_new_folder(execution, new_id))
    attempts = max(1, conf.materialize_source_max_attempts)
    for attempt in range(attempts):
        try:
            with _source(execution, executor, _storage_level(conf, attempt)) as source:
                return _execute(_numbering(execution, source), executor, reason, source)
        except BaseException as error:
            remove_leftovers(execution.table.store, execution.folder)
            if not isinstance(error, Exception):
                raise
            if not is_lost_source(error):
                raise translated(error, execution.table.name) from error
            if attempt + 1 == attempts:
                raise source_failed_repeatedly(attempts, error) from error
            logger.warning(
                "rows of the materialized source were lost; attempt %d of %d", attempt + 2, attempts
            )
            execution = replace(execution, folder=_new_folder(execution, new_id))
    raise AssertionError("every attempt returns or raises")


def _new_folder(execution: Execution, new_id: Callable[[], str]) -> str:
    return data_folder(execution.snapshot.metadata.configuration, new_id())


def _by_key_lookup(execution: Execution, how: KeyLookup) -> MergeChanges | None:
    """Runs the merge by key lookup; what fails there the other executors do, or say better."""
    changes = None
    try:
        changes = execute_key_lookup(execution, how)
    except DeltaError:
        raise
    except Exception as error:
        note_failure(execution.table.spark, error)
        logger.info("the merge does not run by key lookup", exc_info=True)
    finally:
        if changes is None:
            remove_leftovers(execution.table.store, execution.folder)
    return changes


def _execute(
    execution: Execution, executor: str, reason: str, source: Source
) -> tuple[MergeChanges, str, str]:
    """Runs the executor, or another where what is known of table and source speaks against it."""
    summary = source.summary
    if executor == "insert_only":
        if summary is not None and _keys_say_what_is_new(execution, summary):
            changes = execute_low_shuffle(execution, source, summary)
            return (
                changes,
                "low_shuffle",
                "there are only NOT MATCHED clauses, and the keys alone say what is new",
            )
        return execute_insert_only(execution, source), executor, reason
    if executor == "low_shuffle":
        if summary is None:
            against: str | None = "the source is not kept, and may give other rows each time that it is read"
        else:
            against = why_classic(execution.snapshot, execution.merge, execution.conf, summary)
            if against is None:
                return execute_low_shuffle(execution, source, summary), executor, reason
        return execute_classic(execution, source), "classic", str(against)
    return execute_classic(execution, source), executor, reason


def _keys_say_what_is_new(execution: Execution, summary: SourceSummary) -> bool:
    """Tells whether an insert-only merge need not join its source with the target's rows."""
    merge, conf, snapshot = execution.merge, execution.conf, execution.snapshot
    if conf.executor != "auto" or why_classic(snapshot, merge, conf, summary) is not None:
        return False
    return few_keys(summary) and lookup_of(merge, execution.table.store) is not None


@contextmanager
def _source(execution: Execution, executor: str, level: str) -> Iterator[Source]:
    """Materializes the source unless it is read only once or the session forbids it.

    Identity columns take their values from the source's rows, which must then be the same at each read.
    Only a source that is materialized has a summary: one that may give other rows at the next read tells nothing.
    """
    merge, conf = execution.merge, execution.conf
    insert_only = executor == "insert_only" and conf.materialize_source == "auto"
    once = conf.materialize_source == "none" or (insert_only and reads_source_once(execution))
    if once and not generated_identities(merge):
        yield read_source(merge, execution.names)
        return
    with execution.steps.step("materialize_source", "materializing the source"):
        shape = condition_shape(merge)
        keys = source_keys(merge, shape)
        slices = key_slices(execution.snapshot, shape, keys, conf.session_time_zone)
        source = materialize_source(merge, execution.names, level, keys, slices)
    try:
        yield source
    finally:
        source.release()


def _numbering(execution: Execution, source: Source) -> Execution:
    """Numbers the source's rows where identity columns take their values from that."""
    if not generated_identities(execution.merge):
        return execution
    with execution.steps.step("number_source", "numbering the source's rows for identity columns"):
        numbers = number_rows(source.frame, execution.names.source_row_index)
    return replace(execution, row_numbers=numbers)


def _storage_level(conf: MergeConf, attempt: int) -> str:
    levels = (conf.rdd_storage_level, conf.rdd_storage_level_first_retry, conf.rdd_storage_level_retry)
    return levels[min(attempt, 2)]


def _metrics(merge: ResolvedMerge, changes: MergeChanges, steps: Steps, snapshot: Snapshot) -> dict[str, int]:
    timings = Timings(
        execution=steps.elapsed,
        materialize_source=steps.milliseconds("materialize_source"),
        scan=steps.milliseconds("plan_source", "summarize_source", "plan", "find_touched_files"),
        rewrite=steps.milliseconds("write_all_changes", "write_only_inserts", "write_deletion_vectors"),
    )
    return merge_metrics(
        merge,
        source_rows=changes.source_rows,
        second_scan_rows=changes.second_scan_rows,
        scan=changes.plan.sizes,
        touched=changes.touched,
        inserted=changes.inserted,
        copied=changes.copied,
        removed=changes.removed_files,
        written=changes.written,
        vectors=changes.vectors,
        is_partitioned=bool(snapshot.metadata.partition_columns),
        timings=timings,
    )


def _outcome(
    command: MergeIntoCommand,
    changes: MergeChanges,
    executor: str,
    reason: str,
    version: int | None,
    metrics: Mapping[str, int],
) -> MergeOutcome:
    execution = changes.execution
    merge = execution.merge
    return MergeOutcome(
        table=command.table.name,
        statement=command.statement.to_sql(f"delta.`{command.table.name}`"),
        executor=executor,
        executor_reason=reason,
        read_version=execution.snapshot.version,
        version=version,
        metrics={**metrics, "executionTimeMs": execution.steps.elapsed},
        clauses=_clause_outcomes(merge, changes),
        steps=execution.steps.timings,
        notes=changes.notes,
        operation_parameters=operation_parameters(merge),
    )


def _clause_outcomes(merge: ResolvedMerge, changes: MergeChanges) -> tuple[ClauseOutcome, ...]:
    rows = {**changes.touched.rows_by_clause, **changes.inserted_by_clause}
    return tuple(
        ClauseOutcome(
            kind=clause.clause.kind,
            action=clause.action,
            condition=None if clause.clause.condition is None else clause.clause.condition.text,
            rows=rows.get((clause.clause.kind, clause.number), 0),
            text=clause.clause.to_sql(),
        )
        for clause in merge.clauses
    )


def _already_committed(command: MergeIntoCommand, snapshot: Snapshot) -> MergeOutcome:
    return MergeOutcome(
        table=command.table.name,
        statement=command.statement.to_sql(f"delta.`{command.table.name}`"),
        executor="none",
        executor_reason="the application transaction was committed before",
        read_version=snapshot.version,
        version=None,
        metrics={},
        clauses=(),
        steps=(),
        notes=(
            "The table already holds this application transaction (txnAppId, txnVersion); nothing was done.",
        ),
    )
