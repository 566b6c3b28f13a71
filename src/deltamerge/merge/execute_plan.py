"""Carries out the plan of a merge: another one where an operator declined, again where the source was lost."""

from __future__ import annotations

import logging
from dataclasses import replace

from deltamerge.merge.executors.classic import execute_classic
from deltamerge.merge.executors.execution import Execution, keep_source
from deltamerge.merge.executors.insert_only import execute_insert_only
from deltamerge.merge.executors.job_errors import is_lost_source, source_failed_repeatedly, translated_of_merge
from deltamerge.merge.executors.key_lookup import execute_key_lookup
from deltamerge.merge.executors.low_shuffle import execute_low_shuffle
from deltamerge.merge.executors.merge_changes import MergeChanges
from deltamerge.merge.executors.whole_files import execute_whole_files
from deltamerge.merge.output.identity_columns import generated_identities
from deltamerge.merge.plan import Declined, RowsCompete
from deltamerge.merge.source.key_summary import NO_ROWS
from deltamerge.merge.source.source import Source, read_source
from deltamerge.spark.config import MergeConf
from deltamerge.spark.session import SPARK_ERRORS
from deltamerge.spark.tasks import PythonWorkersUnfit
from deltamerge.write.data_files import remove_leftovers
from deltamerge.write.identity_columns import number_rows
from deltamerge.write.layout import data_folder

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")


def execute_plan(execution: Execution) -> MergeChanges:
    """Carry out a plan, or the next one where an operator declined.

    Raises:
        DeltaError: The data is at fault, or the source; what was written is removed.
        DeltaAnalysisException: The plan that the session asks for declined.
    """
    while True:
        try:
            return _attempts(execution)
        except RowsCompete as compete:
            execution, alternative = execution.by_any_plan(), compete.alternative
        except Declined as declined:
            alternative = declined.alternative
        except PythonWorkersUnfit as unfit:
            alternative = Declined("match", execution.plan.match.choice, str(unfit)).alternative
        logger.info("%s %s declined: %s", alternative.decision, alternative.choice, alternative.reason)
        execution = replace(execution.without(alternative), folder=_new_folder(execution))


def _attempts(execution: Execution) -> MergeChanges:
    """Run the plan, and again with a source kept more safely where executors lost its rows.

    Delta: MergeIntoMaterializeSource.runWithMaterializedSourceLostRetries.
    """
    attempts = max(1, execution.conf.materialize_source_max_attempts)
    for attempt in range(attempts):
        try:
            return _run_cleanly(execution, _storage_level(execution.conf, attempt))
        except SPARK_ERRORS as error:
            if not is_lost_source(error):
                worded = translated_of_merge(error, execution.table.name, execution.merge, execution.references)
                raise worded from worded.__cause__
            if attempt + 1 == attempts:
                raise source_failed_repeatedly(attempts, error) from error
            logger.warning("rows of the materialized source were lost; attempt %d of %d", attempt + 2, attempts)
            execution.kept.forget()
            execution = replace(execution, folder=_new_folder(execution))
    raise AssertionError("every attempt returns or raises")


def _run_cleanly(execution: Execution, level: str) -> MergeChanges:
    store = execution.table.store
    try:
        return _run(execution, level)
    except BaseException as error:
        # Whatever ends a run, also Ctrl-C, comes before the commit: nobody refers to its files. A source is declined
        # before anything is written, but for folders, which object stores do not have.
        if store.is_local or not isinstance(error, Declined) or error.alternative.decision != "source":
            remove_leftovers(store, execution.folder)
        raise


def _new_folder(execution: Execution) -> str:
    return data_folder(execution.snapshot.metadata.configuration)


def _run(execution: Execution, level: str) -> MergeChanges:
    if execution.plan.match.choice == "key_lookup":
        return execute_key_lookup(execution)
    if execution.plan.match.choice == "whole_files":
        return execute_whole_files(execution)
    source = _source(execution, level)
    if source.summary is not None:
        execution = execution.knowing(source.summary)
    execution = _numbering(execution, source)
    match = execution.plan.match.choice
    if match == "anti_join":
        return execute_insert_only(execution, source)
    if match == "join":
        assert source.summary is not None, "a join's source is kept"
        return execute_low_shuffle(execution, source, source.summary)
    return execute_classic(execution, source)


def _source(execution: Execution, level: str) -> Source:
    """Read the source as planned; only one that is kept has a summary."""
    if execution.plan.source.choice in ("read_once", "recomputed"):
        return read_source(execution.merge)
    if execution.plan.source.choice == "none":
        return replace(read_source(execution.merge), summary=NO_ROWS)
    key = ("checkpoint", level, execution.snapshot.metadata, execution.snapshot.protocol)
    return execution.kept.once(key, lambda: keep_source(execution, level), Source.release)


def _numbering(execution: Execution, source: Source) -> Execution:
    if not generated_identities(execution.merge):
        return execution
    with execution.steps.step("number_source", "numbering the source's rows for identity columns"):
        numbers = number_rows(source.frame, execution.merge.names.source_row_index)
    return replace(execution, row_numbers=numbers)


def _storage_level(conf: MergeConf, attempt: int) -> str:
    levels = (conf.rdd_storage_level, conf.rdd_storage_level_first_retry, conf.rdd_storage_level_retry)
    return levels[min(attempt, 2)]
