"""The executors as the command runs them: scan, join, write; nothing here commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pyroaring import BitMap64
from pyspark.sql import Observation
from pyspark.sql import functions as F

from deltamerge.log.actions import AddFile
from deltamerge.merge.analysis.column_references import condition_shape, source_keys
from deltamerge.merge.analysis.determinism import is_repeatable
from deltamerge.merge.executors.classic import keep_one_match, write_all_changes_rows
from deltamerge.merge.executors.deletion_vectors import delete_rows, fit_the_driver
from deltamerge.merge.executors.execution import NOTHING_WRITTEN, Execution, MergeChanges
from deltamerge.merge.executors.insert_only import (
    WHEN_NO_MATCHED_CLAUSES,
    WHEN_NO_MATCHES,
    filtered_source,
    generate_inserts_only_output,
    unmatched_by_number,
    unmatched_source,
)
from deltamerge.merge.executors.job_errors import assigning_values
from deltamerge.merge.executors.row_counts import (
    RowCounts,
    check_same_changes,
    count_rows,
    counted,
    inserting_clauses,
    inserts_by_clause,
    observing_clauses,
)
from deltamerge.merge.executors.target_scan import first_side, matching_side, scan_rows, scan_to_rewrite
from deltamerge.merge.executors.touched_files import (
    NOTHING_TOUCHED,
    TouchedFiles,
    find_touched_files,
    find_touched_rows,
)
from deltamerge.merge.output.change_data import generate_cdc_and_output_rows, generate_inserted_rows
from deltamerge.merge.output.frames import Rows, TargetSide, source_rows, target_rows
from deltamerge.merge.output.written_rows import guarded_changes, guarded_rows, put_together, table_columns
from deltamerge.merge.planning.target_files import ScanPlan, may_match, plan_scan, read_predicate
from deltamerge.merge.result.metrics import ScanSizes
from deltamerge.merge.source.key_summary import SourceSummary, can_broadcast
from deltamerge.merge.source.observations import observed
from deltamerge.merge.source.second_scan import check_source_unchanged, counted_again
from deltamerge.merge.source.source import Source, summarize_source
from deltamerge.scan.paths import absolute_key
from deltamerge.skipping.predicates import ALWAYS
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.data_files import WrittenFiles, write_files, write_files_with_changes
from deltamerge.write.deletion_vectors import NO_VECTORS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# What one task may read of the target, and of the source.
_ONE_TASK_FILES = 32
_ONE_TASK_BYTES = 8 << 20
_ONE_TASK_ROWS = 10_000
_SMALL_TARGET_BYTES = 8 << 20
BY_KEYS_AND_CONDITIONS = "the source's key ranges and the conditions on the target"


def reads_source_once(execution: Execution) -> bool:
    """Tells whether a merge that only inserts is best done in one pass, as long as nothing is known of the source.

    Spark sends a small target to every executor, so that the source is not shuffled.
    """
    predicate = read_predicate(execution.merge, condition_shape(execution.merge), ALWAYS)
    zone = execution.conf.session_time_zone
    return may_match(execution.snapshot, predicate, zone).size_in_bytes <= _SMALL_TARGET_BYTES


def execute_insert_only(execution: Execution, source: Source) -> MergeChanges:
    """Runs a merge that only inserts.

    Args:
        execution: What to work on.
        source: The source.

    Returns:
        The files written. Delta: InsertOnlyMergeExecutor.writeOnlyInserts with filterMatchedRows.
    """
    merge, names, steps = execution.merge, execution.names, execution.steps
    summary = source.summary
    with steps.step("plan", "choosing the files to read"):
        possible = ALWAYS if summary is None else summary.predicate
        zone = execution.conf.session_time_zone
        plan = plan_scan(execution.snapshot, merge, condition_shape(merge), possible, zone)
    counted = Observation()
    frame = (
        source.frame.observe(counted, F.count(F.lit(1)).alias("rows")) if summary is None else source.frame
    )
    rows = source_rows(frame, merge.source_schema, merge.source_alias, names)
    with steps.step("write_only_inserts", "writing new files for only inserts"), assigning_values(merge):
        unmatched = filtered_source(merge, rows)
        if plan.files and summary is None:
            unmatched = unmatched_source(merge, unmatched, scan_rows(execution, plan.files))
        elif plan.files and summary is not None:
            matching = matching_side(execution, plan.files, summary)
            unmatched = _unmatched(execution, unmatched, summary, matching)
        if summary is not None:
            together = put_together(unmatched.frame, summary.partitions, summary.row_count)
            unmatched = Rows(together, unmatched.names)
        written, counts = write_inserts(execution, unmatched, WHEN_NO_MATCHED_CLAUSES)
        source_count = _source_count(source, counted) if summary is None else summary.row_count
    by = "ON's conditions on the target" if summary is None else BY_KEYS_AND_CONDITIONS
    return MergeChanges(
        execution=execution,
        source_rows=source_count,
        second_scan_rows=-1,
        plan=plan,
        touched=NOTHING_TOUCHED,
        written=written,
        inserted=written.row_count,
        inserted_by_clause=inserts_by_clause(merge, counts, written.row_count),
        copied=0,
        notes=notes_of(plan.sizes, by, summary),
    )


def _source_count(source: Source, counted: Observation) -> int:
    rows = observed(counted).get("rows")
    return source.frame.count() if rows is None else int(rows)


def execute_classic(execution: Execution, source: Source) -> MergeChanges:
    """Runs any merge in two scans: find the touched files, then write them again with all changes.

    Args:
        execution: What to work on.
        source: The source.

    Returns:
        The files written and those they replace. Delta: ClassicMergeExecutor.
    """
    merge, names, steps = execution.merge, execution.names, execution.steps
    shape = condition_shape(merge)
    summary = source.summary
    if summary is None:
        with steps.step("summarize_source", "counting the source's rows and its keys' ranges"):
            summary = summarize_source(source, merge.source_alias, source_keys(merge, shape), names, None)
    with steps.step("plan", "choosing the files to read"):
        zone = execution.conf.session_time_zone
        plan = plan_scan(execution.snapshot, merge, shape, summary.predicate, zone)
        is_small = _is_small(source, plan.sizes, summary)
        # Rows that are not joined would be another task's; and a source that is not kept may match them the next time.
        plan = plan.joining_all() if is_small or source.summary is None else plan
    rows = first = source_rows(source.frame, merge.source_schema, merge.source_alias, names)
    gathered = _in_one_task if is_small else _as_it_is
    touched = NOTHING_TOUCHED
    deleted: dict[str, BitMap64] | None = None
    by_name = {absolute_key(execution.table, file): file for file in plan.files}
    if plan.files:
        with steps.step("find_touched_files", "scanning files for matches"):
            target = _with_joined(gathered, first_side(execution, plan, source.summary))
            rows_once = gathered(rows)
            if execution.writes_deletion_vectors and fit_the_driver(plan.files):
                touched, deleted = find_touched_rows(merge, rows_once, target, by_name, names)
            else:
                touched = find_touched_files(merge, rows_once, target, by_name, names)
    if touched.rewrite:
        refuse_append_only(execution.snapshot, execution.table.name, "the merge updates or deletes rows")
    second = counted_again(source, rows, merge, names, execution.conf)
    rows = second.rows
    written, counts, second_scan = NOTHING_WRITTEN, None, -1
    if touched.rewrite and _has_rows_to_write(execution, touched):
        second_scan = summary.row_count
        with (
            steps.step("write_all_changes", _writing(execution, touched)),
            assigning_values(merge),
        ):
            counting = source.summary is None or not is_repeatable(merge)
            written, counts = _write_all_changes(execution, rows, plan, touched, gathered, counting)
        if counts is not None:
            found = touched.rows_by_clause
            check_same_changes(merge, found, counts, written.row_count, ("update", "delete"))
    elif merge.inserts and summary.row_count:
        second_scan = summary.row_count
        with (
            steps.step("write_only_inserts", "writing new files for only inserts"),
            assigning_values(merge),
        ):
            if touched.only_matched:
                matching = matching_side(execution, touched.only_matched, source.summary)
                rows = _unmatched(execution, rows, summary, matching)
            written, counts = write_inserts(execution, rows, WHEN_NO_MATCHES)
    check_source_unchanged(second, summary.row_count)
    copied, inserted = count_rows(execution, touched, written)
    vectors = NO_VECTORS
    if touched.rewrite and execution.writes_deletion_vectors:
        with steps.step("write_deletion_vectors", "writing deletion vectors"):
            vectors = delete_rows(execution, first, plan, touched, deleted, by_name)
    return MergeChanges(
        execution=execution,
        source_rows=summary.row_count,
        second_scan_rows=second_scan,
        plan=plan,
        touched=touched,
        written=written,
        inserted=inserted,
        inserted_by_clause=inserts_by_clause(merge, counts, inserted),
        copied=copied,
        notes=notes_of(plan.sizes, BY_KEYS_AND_CONDITIONS, summary),
        vectors=vectors,
    )


def _unmatched(execution: Execution, rows: Rows, summary: SourceSummary, target: Rows) -> Rows:
    """Keeps the source rows that match no row of the target's."""
    broadcast = can_broadcast(summary, execution.conf.auto_broadcast_join_threshold)
    return unmatched_by_number(execution.merge, rows, target, execution.names, broadcast=broadcast)


def _has_rows_to_write(execution: Execution, touched: TouchedFiles) -> bool:
    """Tells whether the changes of touched files come to more than rows that deletion vectors delete."""
    merge = execution.merge
    if merge.inserts or execution.writes_change_data or not execution.writes_deletion_vectors:
        return True
    return touched.rows((*merge.matched, *merge.not_matched_by_source), "update") > 0


def _writing(execution: Execution, touched: TouchedFiles) -> str:
    files = f"{len(touched.rewrite)} file{'' if len(touched.rewrite) == 1 else 's'}"
    return (
        f"writing new and changed rows of {files}"
        if execution.writes_deletion_vectors
        else f"rewriting {files}"
    )


def write_inserts(
    execution: Execution, unmatched: Rows, extra_op_type: str
) -> tuple[WrittenFiles, RowCounts | None]:
    """Writes source rows that match nothing; counts them by clause where several insert."""
    merge, names = execution.merge, execution.names
    rows = generate_inserts_only_output(merge, unmatched, names, execution.defaults, extra_op_type)
    inserting, observation = inserting_clauses(merge), None
    if len(inserting) > 1:
        frame, observation = observing_clauses(rows.frame, inserting, names, F.lit(True))
        rows = Rows(frame, rows.names)
    if execution.writes_change_data:
        changed = generate_inserted_rows(rows, merge.output_schema, names)
        written = _write_with_changes(execution, changed)
    else:
        written = _write(execution, table_columns(rows, execution))
    return written, None if observation is None else counted(observation, inserting)


def _is_small(source: Source, sizes: ScanSizes, summary: SourceSummary) -> bool:
    """Tells whether one task does best; a source that is not kept would also be computed in it, however large."""
    return (
        source.summary is not None
        and summary.row_count <= _ONE_TASK_ROWS
        and sizes.files_after <= _ONE_TASK_FILES
        and sizes.bytes_after <= _ONE_TASK_BYTES
    )


def _with_joined(gathered: Callable[[Rows], Rows], target: TargetSide) -> TargetSide:
    return replace(target, joined=gathered(target.joined))


def _as_it_is(rows: Rows) -> Rows:
    return rows


def _in_one_task(rows: Rows) -> Rows:
    """Brings rows into one task: what is in one place need not be shuffled, and each shuffle is a job of its own.

    Joined by sorting: a broadcast would be a job too, and a hash table of a target whose few bytes are many rows could
    not be spilled.
    """
    return Rows(rows.frame.coalesce(1).hint("merge"), rows.names)


def _write_all_changes(
    execution: Execution,
    source: Rows,
    plan: ScanPlan,
    touched: TouchedFiles,
    gathered: Callable[[Rows], Rows],
    counting: bool,
) -> tuple[WrittenFiles, RowCounts | None]:
    merge, names = execution.merge, execution.names
    target = _side_to_rewrite(execution, plan, touched)
    rows = write_all_changes_rows(
        merge,
        gathered(source),
        _with_joined(gathered, target),
        names,
        execution.conf,
        execution.defaults,
        copies_rows=_copies_rows(execution),
    )
    if touched.has_multiple_matches:
        rows = keep_one_match(rows, names)
    change = F.col(names.change)
    kept = change.isin("insert", "update") | (change.isNull() & F.col(names.file_rewritten))
    observation = None
    if counting or len(inserting_clauses(merge)) > 1:
        frame, observation = observing_clauses(rows.frame, merge.clauses, names, kept)
        rows = Rows(frame, rows.names)
    if execution.writes_change_data:
        rows, hidden = _with_hidden_columns(execution, rows)
        changed = generate_cdc_and_output_rows(rows, merge.output_schema, names, hidden)
        written = _write_with_changes(execution, changed, hidden)
    else:
        rows, hidden = _with_hidden_columns(execution, rows)
        output = table_columns(Rows(rows.frame.where(kept), rows.names), execution, hidden)
        written = _write(execution, output, hidden)
    return written, None if observation is None else counted(observation, merge.clauses)


def _copies_rows(execution: Execution) -> bool:
    """Tells whether rows that stay are written again: of files whose changed rows a vector deletes they are not."""
    return not execution.writes_deletion_vectors


def _side_to_rewrite(execution: Execution, plan: ScanPlan, touched: TouchedFiles) -> TargetSide:
    """Makes the target's side of the second join."""
    joined = plan.joined_among(touched.rewrite)
    copies_rows = F.lit(_copies_rows(execution))
    frame = _scan_to_rewrite(execution, joined, copies_rows)
    if execution.merge.inserts and touched.only_matched:
        # Nothing changes in these files: they are joined only so that an INSERT knows of their matches.
        matched = _scan_to_rewrite(execution, touched.only_matched, F.lit(False))
        frame = frame.union(matched) if joined else matched
    alone = plan.alone_among(touched.rewrite)
    of_alone = _rows_to_rewrite(execution, _scan_to_rewrite(execution, alone, copies_rows)) if alone else None
    return TargetSide(_rows_to_rewrite(execution, frame), of_alone)


def _scan_to_rewrite(execution: Execution, files: tuple[AddFile, ...], rewritten: Column) -> DataFrame:
    return scan_to_rewrite(execution, files).withColumn(execution.names.file_rewritten, rewritten)


def _rows_to_rewrite(execution: Execution, frame: DataFrame) -> Rows:
    """Brings a scan under the names of the target's side; what row tracking and a rewrite add stands before its end."""
    merge, names = execution.merge, execution.names
    rows = target_rows(frame, merge.target_schema, merge.target_alias, names)
    tracked = (names.row_id, names.row_commit_version) if execution.row_tracking is not None else ()
    return Rows(rows.frame, (*rows.names[:-1], *tracked, names.file_rewritten, names.target_row_present))


def _with_hidden_columns(execution: Execution, rows: Rows) -> tuple[Rows, tuple[str, ...]]:
    """Adds what row tracking keeps of rewritten rows: an update gets a new version, an insert also a new id."""
    stored, names = execution.row_tracking, execution.names
    if stored is None:
        return rows, ()
    kept_version = F.when(F.col(names.change).isNull(), F.col(names.row_commit_version))
    columns = [(stored.row_id, F.col(names.row_id)), (stored.row_commit_version, kept_version)]
    return rows.adding(columns), stored.names


def _write(execution: Execution, frame: DataFrame, hidden: tuple[str, ...] = ()) -> WrittenFiles:
    target = replace(execution.write_target, hidden_columns=hidden)
    return write_files(guarded_rows(execution, frame), target)


def _write_with_changes(execution: Execution, frame: DataFrame, hidden: tuple[str, ...] = ()) -> WrittenFiles:
    target = replace(execution.write_target, hidden_columns=hidden)
    guarded = guarded_changes(execution, frame)
    return write_files_with_changes(guarded, execution.names.change_type, target)


def notes_of(sizes: ScanSizes, by: str, summary: SourceSummary | None) -> tuple[str, ...]:
    """Says how many files were not read, and which source rows have odd keys, where that is known."""
    before, skipped = sizes.files_before, sizes.files_before - sizes.files_after
    about_keys = () if summary is None else summary.key_notes
    if not skipped:
        return about_keys
    files = "The table's only file was" if before == 1 else f"{skipped:,} of {before:,} files were"
    return (f"{files} never read, thanks to {by}.", *about_keys)
