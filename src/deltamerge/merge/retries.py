"""Runs the executor that was chosen, or another that fits the source as it is; again where the source was lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from deltamerge.exceptions import DeltaError
from deltamerge.merge.analysis.column_references import condition_shape, source_keys
from deltamerge.merge.executors.execute import execute_classic, execute_insert_only, reads_source_once
from deltamerge.merge.executors.execution import Execution, MergeChanges
from deltamerge.merge.executors.job_errors import is_lost_source, source_failed_repeatedly, translated
from deltamerge.merge.executors.key_lookup import EXECUTOR, REASON, REASON_WITH_TARGET, execute_key_lookup
from deltamerge.merge.executors.low_shuffle import execute_low_shuffle
from deltamerge.merge.output.identity_columns import generated_identities
from deltamerge.merge.planning.executor_choice import why_classic
from deltamerge.merge.planning.key_lookup_fit import KeyLookup, key_lookup_of
from deltamerge.merge.planning.lookup import few_keys, lookup_of
from deltamerge.merge.planning.target_files import key_slices
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.merge.source.source import Source, materialize_source, read_source
from deltamerge.spark.config import MergeConf
from deltamerge.spark.session import note_failure
from deltamerge.write.data_files import remove_leftovers
from deltamerge.write.identity_columns import number_rows
from deltamerge.write.layout import data_folder

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")


def execute_with_retries(
    execution: Execution, executor: str, reason: str, new_id: Callable[[], str]
) -> tuple[MergeChanges, str, str]:
    """Runs the executor, and again with a source kept more safely where executors lost its rows.

    Args:
        execution: What to work on.
        executor: The executor's name.
        reason: Why it was chosen.
        new_id: Gives an id that was never given before.

    Returns:
        What it did, and the name of the executor that ran, which may be another one, with the reason. Delta:
        MergeIntoMaterializeSource.runWithMaterializedSourceLostRetries.

    Raises:
        DeltaError: The data is at fault, or the source; what was written is removed.
    """
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
