"""What a merge would do: its plan and, where it is asked for, what reading the source and matching its rows shows."""

from __future__ import annotations

import time
from dataclasses import replace

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.actions import AddFile
from deltamerge.merge.command import MergeIntoCommand, can_run_again, snapshot_to_change, with_source_of_now
from deltamerge.merge.executors.classic import write_all_changes_rows
from deltamerge.merge.executors.execution import Execution, keep_source
from deltamerge.merge.executors.job_errors import assigning_values, is_stopped, translated_of_merge
from deltamerge.merge.executors.row_counts import counted, observing_clauses
from deltamerge.merge.executors.source_in_place import look_in_place
from deltamerge.merge.executors.target_scan import first_side, target_side
from deltamerge.merge.executors.touched_files import NOTHING_TOUCHED, TouchedFiles, find_touched_files
from deltamerge.merge.executors.written_rows import guarded_rows, table_columns
from deltamerge.merge.outcome import ClauseForecast, MergeExplanation, MergeForecast, Progress
from deltamerge.merge.output.frames import Rows, TargetSide, source_rows
from deltamerge.merge.output.identity_columns import generated_identities
from deltamerge.merge.plan import Declined
from deltamerge.merge.planning.advice import about_transaction, conflicts, feature_costs, rows_to_read, warnings
from deltamerge.merge.planning.target_files import TargetFiles
from deltamerge.merge.preparation import prepare
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.merge.source.source import Source
from deltamerge.merge.steps import Steps
from deltamerge.scan.paths import absolute_key
from deltamerge.spark import columns as F
from deltamerge.spark.held_settings import for_merging, session_settings
from deltamerge.spark.session import SPARK_ERRORS, errors_not_logged, merge_conf, newly_analyzed
from deltamerge.txn.application import session_transaction
from deltamerge.write.identity_columns import number_rows


def explain_merge(
    command: MergeIntoCommand, *, analyze: bool = False, progress: Progress | None = None
) -> MergeExplanation:
    """Explain a merge; nothing is written, and read access to the table is enough."""
    table = command.table
    steps = Steps(table.spark, progress)
    with session_settings(table.spark, for_merging(table.spark)), errors_not_logged():
        conf = command.conf_over(merge_conf(table.spark))
        timestamp = time.time_ns() // 1000 if command.timestamp is None else command.timestamp
        snapshot = snapshot_to_change(command, conf, steps)
        statement = replace(command.statement, source=newly_analyzed(command.statement.source))
        started = replace(command, timestamp=timestamp, statement=statement)
        if command.snapshot is None and command.statement.has_source:
            started, snapshot = with_source_of_now(started, snapshot)
        execution = _looked_at(prepare(started, snapshot, conf, steps))
        forecast = None
        if analyze:
            forecast, execution = _forecast(execution)
    context, plan = execution.context, execution.plan
    return MergeExplanation(
        table=table.name,
        statement=command.statement.to_sql(f"delta.`{table.name}`"),
        version=snapshot.version,
        plan=plan,
        files=snapshot.files.num_files,
        bytes=snapshot.files.size_in_bytes,
        files_to_read=context.files.num_files,
        bytes_to_read=context.files.size_in_bytes,
        read_predicate=rows_to_read(context, plan.source.choice),
        features=feature_costs(context),
        conflicts=conflicts(context, plan.source.choice, conf.conflict_retries if can_run_again(started, conf) else 0),
        warnings=(*about_transaction(session_transaction(conf), snapshot), *warnings(context)),
        forecast=forecast,
    )


def _looked_at(execution: Execution) -> Execution:
    """Look whether the source's rows are read in place, which only its own plan and files show."""
    while execution.plan.source.choice == "in_place":
        try:
            look_in_place(execution)
        except Declined as declined:
            execution = execution.without(declined.alternative)
        else:
            break
    return execution


def _forecast(execution: Execution) -> tuple[MergeForecast, Execution]:
    """Return the forecast, and the execution as planned with what is known of the source then."""
    try:
        source = keep_source(execution, execution.conf.rdd_storage_level)
    except Declined as refused:
        raise DeltaAnalysisException(
            "DELTAMERGE_FORECAST_NOT_AVAILABLE",
            f"plan(analyze=True) keeps the source's rows, and {refused.alternative.reason}. plan() alone reads none.",
        ) from None
    except SPARK_ERRORS as error:
        if is_stopped(error):
            raise
        return _failed(execution, error), execution
    try:
        assert source.summary is not None
        if execution.plan.match.choice != "key_lookup":
            execution = execution.knowing(source.summary)
        return _matched(execution, source, source.summary), execution
    finally:
        source.release()


def _matched(execution: Execution, source: Source, summary: SourceSummary) -> MergeForecast:
    merge, steps = execution.merge, execution.steps
    with steps.step("plan", "choosing the files to read"):
        target = execution.target_files(summary.predicate)
    if generated_identities(merge):
        execution = replace(execution, row_numbers=number_rows(source.frame, merge.names.source_row_index))
    rows = source_rows(source.frame, merge)
    touched, inserted = NOTHING_TOUCHED, dict[tuple[str, int], int]()
    try:
        if target.files:
            with steps.step("find_touched_files", "scanning files for matches", target.files):
                by_name = {absolute_key(execution.table, file): file for file in target.files}
                side = first_side(execution, target, summary)
                touched = find_touched_files(merge, rows, side, by_name)
        if touched.rewrite:
            execution.refuse_append_only()
        with (
            steps.step("write_all_changes", "computing changed rows without writing them", touched.rewrite),
            assigning_values(merge),
        ):
            inserted = _computed(execution, rows, target, touched)
    except SPARK_ERRORS as error:
        if is_stopped(error):
            raise
        return _failed(execution, error, summary)
    counts = {**touched.rows_by_clause, **inserted}
    files = touched.rewrite
    return MergeForecast(
        source_rows=summary.row_count,
        clauses=tuple(ClauseForecast(clause.clause.to_sql(), counts.get(clause.key, 0)) for clause in merge.given),
        files_touched=len(files),
        bytes_touched=sum(file.size for file in files),
        bytes_to_write=_bytes_to_write(execution, files, counts),
        null_keys=summary.null_keys,
        repeated_keys=summary.repeated_keys,
    )


def _computed(
    execution: Execution, source: Rows, target: TargetFiles, touched: TouchedFiles
) -> dict[tuple[str, int], int]:
    """Compute new and updated rows, which raises what would fail them; return how many each INSERT clause inserts."""
    merge, names = execution.merge, execution.merge.names
    files = (*touched.rewrite, *touched.only_matched)
    side = target_side(execution, target, files)
    mark = [(names.file_rewritten, F.lit(True))]
    unmatchable = None if side.unmatchable is None else side.unmatchable.adding(mark)
    tracked = TargetSide(side.joined.adding(mark), unmatchable)
    rows = write_all_changes_rows(merge, source, tracked, execution.conf, execution.defaults, copies_rows=False)
    kept = F.col(names.change).isin("insert", "update")
    frame, observation = observing_clauses(rows.frame, merge.clauses, names, kept)
    output = table_columns(Rows(frame.where(kept), rows.names), execution)
    guarded_rows(execution, output).write.format("noop").mode("append").save()
    found = counted(observation, merge.clauses)
    by_clause = {} if found is None else found.by_clause
    return {key: rows for key, rows in by_clause.items() if key[0] == "not_matched"}


def _bytes_to_write(execution: Execution, files: tuple[AddFile, ...], counts: dict[tuple[str, int], int]) -> int:
    table = execution.snapshot.files
    row_bytes = table.size_in_bytes / max(1, table.rows_about())

    def rows(action: str) -> int:
        return sum(counts.get(c.key, 0) for c in execution.merge.clauses if c.action == action)

    if execution.plan.unchanged_rows.choice == "deletion_vector":
        return int(row_bytes * (rows("update") + rows("insert")))
    return max(0, int(sum(file.size for file in files) + row_bytes * (rows("insert") - rows("delete"))))


def _failed(execution: Execution, error: Exception, summary: SourceSummary | None = None) -> MergeForecast:
    return MergeForecast(
        source_rows=0 if summary is None else summary.row_count,
        clauses=tuple(ClauseForecast(clause.clause.to_sql(), 0) for clause in execution.merge.given),
        files_touched=0,
        bytes_touched=0,
        bytes_to_write=0,
        null_keys=None if summary is None else summary.null_keys,
        repeated_keys=None if summary is None else summary.repeated_keys,
        failure=str(translated_of_merge(error, execution.table.name, execution.merge, execution.references)),
    )
