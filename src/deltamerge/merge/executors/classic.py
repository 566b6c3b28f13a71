"""ClassicMergeExecutor: the touched files joined with the source, and written again with all changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyroaring import BitMap64
from pyspark.sql import Column, Window

from deltamerge.exceptions import DeltaRuntimeException
from deltamerge.log.actions import AddFile
from deltamerge.log.add_file_stats import physical_rows, rows_about
from deltamerge.log.packing import packed
from deltamerge.merge.analysis.internal_columns import InternalColumns
from deltamerge.merge.analysis.join_keys import join_keys
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.insert_only import WHEN_NO_MATCHES, unmatched_rows, write_inserts
from deltamerge.merge.executors.job_errors import assigning_values
from deltamerge.merge.executors.merge_changes import NOTHING_WRITTEN, MergeChanges
from deltamerge.merge.executors.row_counts import (
    RowCounts,
    changes_of,
    check_same_changes,
    counted,
    writing_step,
)
from deltamerge.merge.executors.target_scan import finds_rows, first_side, scan_rows, target_side
from deltamerge.merge.executors.touched_files import (
    NOTHING_TOUCHED,
    TouchedFiles,
    find_touched_files,
    find_touched_rows,
)
from deltamerge.merge.executors.written_rows import write_changed_rows
from deltamerge.merge.output.clause_expressions import (
    evaluate_clauses,
    generate_write_all_changes_output_cols,
    row_change,
    target_copy,
)
from deltamerge.merge.output.frames import (
    Rows,
    TargetSide,
    joined,
    source_rows,
    with_unmatchable,
)
from deltamerge.merge.output.generated_columns import compute_generated_columns, generated_flags
from deltamerge.merge.planning.target_files import ScanSizes, TargetFiles
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.merge.source.source import Source, check_source_unchanged, counted_again, summarize_source
from deltamerge.scan.paths import absolute_key
from deltamerge.spark import columns as F
from deltamerge.spark.config import MergeConf
from deltamerge.write.data_files import WrittenFiles, collect_files
from deltamerge.write.deletion_vectors import VectorChanges, all_of, write_deletion_vectors

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")


def execute_classic(execution: Execution, source: Source) -> MergeChanges:
    """Run any merge in two scans: find the touched files, then write them again. Delta: ClassicMergeExecutor."""
    merge, steps, references = execution.merge, execution.steps, execution.references
    summary = source.summary
    if summary is None:
        with steps.step("summarize_source", "counting the source's rows and its keys' ranges"):
            keys = join_keys(merge, references.on)
            summary = summarize_source(source, merge.source_alias, keys, merge.names, None, execution.limits)
    with steps.step("plan", "choosing the files to read"):
        target = execution.target_files(summary.predicate)
        one_task = _fits_one_task(execution, source, target.sizes, summary)
        # Rows that are not joined would be another task's; a source that is not kept may match them the next time.
        target = target.joining_all() if one_task or source.summary is None else target
    rows = first = source_rows(source.frame, merge)
    touched = NOTHING_TOUCHED
    deleted: dict[str, BitMap64] | None = None
    by_name = {absolute_key(execution.table, file): file for file in target.files}
    if target.files:
        with steps.step("find_touched_files", "scanning files for matches", target.files):
            side, rows_once = first_side(execution, target, source.summary), rows
            if one_task:
                side, rows_once = replace(side, joined=_in_one_task(side.joined)), _in_one_task(rows)
            if execution.writes_deletion_vectors and fit_the_driver(execution, target.files):
                touched, deleted = find_touched_rows(merge, rows_once, side, by_name)
            else:
                touched = find_touched_files(merge, rows_once, side, by_name)
    if touched.rewrite:
        execution.refuse_append_only()
    second = counted_again(source, rows, merge, execution.conf)
    rows = second.rows
    written, counts, second_scan = NOTHING_WRITTEN, None, True
    if touched.rewrite and _has_rows_to_write(execution, touched):
        with (
            steps.step(*writing_step(execution, touched), touched.rewrite),
            assigning_values(merge),
        ):
            counting = source.summary is None or not references.is_deterministic
            written, counts = _write_all_changes(execution, rows, target, touched, one_task=one_task, counting=counting)
        if counts is not None:
            found = touched.rows_by_clause
            check_same_changes(merge, found, counts, written.row_count, ("update", "delete"))
    elif merge.inserts and summary.row_count:
        with (
            steps.step("write_only_inserts", "writing new files for only inserts"),
            assigning_values(merge),
        ):
            if touched.only_matched:
                rows = unmatched_rows(execution, rows, source.summary, touched.only_matched)
            written, counts = write_inserts(execution, rows, WHEN_NO_MATCHES)
    else:
        second_scan = False
    if second_scan:
        check_source_unchanged(second, summary.row_count)
    deleting = partial(delete_rows, execution, first, target, touched, deleted, by_name)
    changes = changes_of(
        execution, summary, target, touched, written, counts, second_scan=second_scan, delete_rows=deleting
    )
    return changes if source.summary is None else replace(changes, finds_rows=partial(finds_rows, execution, first))


def _has_rows_to_write(execution: Execution, touched: TouchedFiles) -> bool:
    """Return whether there is more to write than deletion vectors."""
    merge = execution.merge
    if merge.inserts or execution.writes_change_data or not execution.writes_deletion_vectors:
        return True
    return touched.rows((*merge.matched, *merge.not_matched_by_source), "update") > 0


def _fits_one_task(execution: Execution, source: Source, sizes: ScanSizes, summary: SourceSummary) -> bool:
    """Return whether one task is best; a source that is not kept would also be computed in it, however large."""
    limits = execution.limits
    return (
        source.summary is not None
        and summary.row_count <= limits.one_task_rows
        and sizes.files_after <= limits.one_task_files
        and sizes.bytes_after <= limits.one_task_bytes
    )


def _in_one_task(rows: Rows) -> Rows:
    """Bring rows into one task: what is in one place need not be shuffled, and each shuffle is a job of its own.

    Joined by sorting: a broadcast would be a job too, and a hash table of a target whose few bytes are many rows could
    not be spilled.
    """
    return Rows(rows.frame.coalesce(1).hint("merge"), rows.names)


def _write_all_changes(
    execution: Execution,
    source: Rows,
    target: TargetFiles,
    touched: TouchedFiles,
    *,
    one_task: bool,
    counting: bool,
) -> tuple[WrittenFiles, RowCounts | None]:
    merge, names = execution.merge, execution.merge.names
    side = _side_to_rewrite(execution, target, touched)
    if one_task:
        side, source = replace(side, joined=_in_one_task(side.joined)), _in_one_task(source)
    rows = write_all_changes_rows(
        merge,
        source,
        side,
        execution.conf,
        execution.defaults,
        copies_rows=not execution.writes_deletion_vectors,
    )
    if touched.has_multiple_matches:
        rows = keep_one_match(rows, names)
    rows, hidden = _with_hidden_columns(execution, rows)
    job, observation = write_changed_rows(execution, rows, hidden, counting=counting)
    return collect_files(job), None if observation is None else counted(observation, merge.clauses)


def _side_to_rewrite(execution: Execution, target: TargetFiles, touched: TouchedFiles) -> TargetSide:
    merge, copies_rows = execution.merge, F.lit(not execution.writes_deletion_vectors)

    def scan(files: tuple[AddFile, ...], rewritten: Column) -> Rows:
        return scan_rows(execution, files, to_write=True).adding([(merge.names.file_rewritten, rewritten)])

    joined = target.joined_among(touched.rewrite)
    rows = scan(joined, copies_rows)
    if merge.inserts and touched.only_matched:
        # Nothing changes in these files: they are joined only so that an INSERT knows of their matches.
        matched = scan(touched.only_matched, F.lit(False))
        both = rows.frame.union(matched.frame).alias(merge.target_alias)
        rows = Rows(both, rows.names) if joined else matched
    unmatchable = target.unmatchable_among(touched.rewrite)
    return TargetSide(rows, scan(unmatchable, copies_rows) if unmatchable else None)


def _with_hidden_columns(execution: Execution, rows: Rows) -> tuple[Rows, tuple[str, ...]]:
    """Add what row tracking keeps of rewritten rows: an update gets a new version, an insert also a new id."""
    stored, names = execution.row_tracking, execution.merge.names
    if stored is None:
        return rows, ()
    kept_version = F.when(F.col(names.change).isNull(), F.col(names.row_commit_version))
    columns = [(stored.row_id, F.col(names.row_id)), (stored.row_commit_version, kept_version)]
    return rows.adding(columns), stored.names


def join_type(merge: ResolvedMerge, conf: MergeConf, *, copies_rows: bool) -> str:
    """Return the join, source left and target right, of `write_all_changes`."""
    if not copies_rows and not merge.not_matched_by_source:
        return "left_outer" if merge.inserts else "inner"
    if merge.statement.is_matched_only and not conf.optimize_matched_only_merge:
        return "full_outer"
    return "full_outer" if merge.inserts else "right_outer"


def write_all_changes_rows(
    merge: ResolvedMerge,
    source: Rows,
    target: TargetSide,
    conf: MergeConf,
    defaults: Callable[[int], Column],
    *,
    copies_rows: bool,
) -> Rows:
    """Join source and touched files, and compute what every row becomes. Delta: ClassicMergeExecutor.writeAllChanges.

    Returns:
        Per row, joined or not, its output columns (what it becomes; for a deleted one what it was), the target's own
        values, what change it is (`row_change`), the clause of each kind that takes it, its file, position and source
        row number.
    """
    how = join_type(merge, conf, copies_rows=copies_rows)
    logger.debug(
        "writeAllChanges using %s join:\n  source.output: %s\n  target.output: %s\n  condition: %s\n"
        "  newTarget.output: %s",
        how,
        merge.source_schema.names,
        merge.target_schema.names,
        merge.statement.condition.text,
        merge.output_schema.names,
    )
    rows = joined(source, target.joined, merge.condition, how)
    rows = evaluate_clauses(rows, merge, "matched", values=True)
    if merge.not_matched:
        rows = evaluate_clauses(rows, merge, "not_matched", values=True)
    if merge.not_matched_by_source:
        rows = with_unmatchable(rows, target.unmatchable)
        rows = evaluate_clauses(rows, merge, "not_matched_by_source", values=True)
    return changes_output(merge, rows, defaults)


def changes_output(merge: ResolvedMerge, rows: Rows, defaults: Callable[[int], Column]) -> Rows:
    """Compute what rows become, on which all clauses are evaluated; see `write_all_changes_rows`."""
    names = merge.names
    outputs = generate_write_all_changes_output_cols(merge, defaults)
    copies = [(names.copy(index), target_copy(merge, index)) for index in range(len(merge.output_schema.fields))]
    kept = [names.file_name, names.row_index, names.source_row_index, names.file_rewritten]
    kept += [name for name in (*names.clauses, names.row_id, names.row_commit_version) if name in rows.names]
    flags = generated_flags(merge, ("matched", "not_matched", "not_matched_by_source"))
    columns = [*outputs, (names.change, row_change(merge)), *copies, *flags]
    frame = rows.frame.select(*(column.alias(name) for name, column in columns), *kept)
    return compute_generated_columns(Rows(frame, (*(name for name, _ in columns), *kept)), merge)


def keep_one_match(rows: Rows, names: InternalColumns) -> Rows:
    """Keep one joined row of each target row that several source rows match: the one that changes it.

    Rows without a target row all stay. Delta: deduplicateCDFDeletes, which does so for change data only.

    Args:
        rows: Rows of `write_all_changes_rows`, at most one change among those of a target row, or the
            same DELETE in all of them.
    """
    source_row = F.when(F.col(names.file_name).isNull(), F.col(names.source_row_index))
    same_row = Window.partitionBy(names.file_name, names.row_index, source_row)
    order = same_row.orderBy(F.col(names.change).isNull(), names.source_row_index)
    numbered = rows.frame.select("*", F.row_number().over(order).alias(names.match_number))
    return Rows(numbered.where(F.col(names.match_number) == F.lit(1)), (*rows.names, names.match_number))


def fit_the_driver(execution: Execution, files: Sequence[AddFile]) -> bool:
    return rows_about((file.stats, file.size) for file in files) <= execution.limits.positions


def delete_rows(
    execution: Execution,
    source: Rows,
    target: TargetFiles,
    touched: TouchedFiles,
    found: Mapping[str, BitMap64] | None,
    files: Mapping[str, AddFile],
) -> VectorChanges:
    """Write the deletion vectors of touched files.

    Args:
        found: The positions of the rows that clauses change, by `file_key`, where the first scan found them; else
            they are looked for once more, in a few of the touched files at a time.
        files: The files that may match, by `file_key`.
    """
    store, folder = execution.table.store, execution.folder
    if found is not None:
        return write_deletion_vectors(store, folder, found, files)
    written, rows, all_there = [], 0, True
    for group in _groups(execution, touched.rewrite):
        side = target_side(execution, target, group)
        _, positions = find_touched_rows(execution.merge, source, side, files)
        all_there &= set(positions) == {absolute_key(execution.table, file) for file in group}
        rows += sum(map(len, positions.values()))
        written.append(write_deletion_vectors(store, folder, positions, files))
    counted = sum(touched.rows_by_clause.get(clause.key, 0) for clause in execution.merge.changing)
    # A touched file without a position would be removed with all its rows.
    if rows != counted or not all_there:
        raise DeltaRuntimeException(
            "DELTA_MERGE_SOURCE_CHANGED",
            f"The {execution.merge.statement.verb} found {counted} rows to update or delete, and others ({rows}) when "
            "it looked for their positions. A condition had another value when it was evaluated again, or the source "
            "returned other rows. "
            "The table is as it was. Conditions must not ask for anything that changes: compute it in the source.",
        )
    return all_of(written)


def _groups(execution: Execution, files: Sequence[AddFile]) -> Iterator[tuple[AddFile, ...]]:
    """Return as many files at a time as the driver takes positions of, at least one."""
    sized = ((file, physical_rows(execution.table.store, file)) for file in files)
    return map(tuple, packed(sized, execution.limits.positions))
