"""LowShuffleMergeExecutor: only the rows that change are computed; the rows that stay are never shuffled.

One join of keys and conditions gives row numbers. New rows are made from the source where they need nothing of the
target, else from the matched rows alone. Touched files are written again without the rows that left.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from deltamerge.exceptions import DeltaRuntimeException
from deltamerge.log.actions import AddFile
from deltamerge.log.add_file_stats import logical_rows
from deltamerge.merge.analysis.column_references import condition_shape
from deltamerge.merge.analysis.determinism import is_repeatable
from deltamerge.merge.analysis.resolved_merge import ResolvedClause
from deltamerge.merge.executors.changed_rows import ChangedRows
from deltamerge.merge.executors.execute import BY_KEYS_AND_CONDITIONS, notes_of
from deltamerge.merge.executors.execution import NOTHING_WRITTEN, Execution, MergeChanges
from deltamerge.merge.executors.job_errors import assigning_values
from deltamerge.merge.executors.matches import NO_MATCHES, Matches, changing_clauses, find_matches
from deltamerge.merge.executors.row_counts import (
    RowCounts,
    check_same_changes,
    count_rows,
    counted,
    inserting_clauses,
    inserts_by_clause,
    observing_clauses,
)
from deltamerge.merge.executors.target_scan import first_side, scan_rows, target_side
from deltamerge.merge.executors.touched_files import (
    NOTHING_TOUCHED,
    TRACE,
    TouchedFiles,
    find_touched_files,
)
from deltamerge.merge.output.change_data import generate_cdc_and_output_rows
from deltamerge.merge.output.frames import Rows, source_rows
from deltamerge.merge.output.written_rows import guarded_changes, guarded_rows, put_together, table_columns
from deltamerge.merge.planning.lookup import few_keys, look_up_matches, lookup_of
from deltamerge.merge.planning.target_files import ScanPlan, plan_scan
from deltamerge.merge.source.key_summary import SourceSummary, can_broadcast
from deltamerge.merge.source.source import Source
from deltamerge.scan.paths import absolute_key, file_key, spark_spellings
from deltamerge.spark.session import job_description
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.data_files import (
    WrittenFiles,
    collect_files,
    collect_files_with_changes,
    write_rows,
    write_rows_with_changes,
)
from deltamerge.write.patching import Patch, patch_files, patchable, remove_patched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")


@dataclass(frozen=True)
class _Work:
    """What is to be written.

    Args:
        execution: What the executor works on.
        summary: What is known of the source.
        plan: Which files are read.
        source: The source's side.
        sent: The same, to be sent to every executor where it is small.
        matches: What the first scan found.
        touched: The touched files by their path in the log.
        patched: The paths of those that are patched; of the others Spark writes the rows that stay.
    """

    execution: Execution
    summary: SourceSummary
    plan: ScanPlan
    source: Rows
    sent: Rows
    matches: Matches
    touched: Mapping[str, AddFile]
    patched: frozenset[str]

    @property
    def patches(self) -> list[Patch]:
        """The files to be patched and the rows that leave them."""
        return [
            Patch(file, self.matches.changed[path].bitmap())
            for path, file in self.touched.items()
            if path in self.patched
        ]


def execute_low_shuffle(execution: Execution, source: Source, summary: SourceSummary) -> MergeChanges:
    """Runs any merge whose source is materialized.

    Args:
        execution: What to work on.
        source: The source.
        summary: What is known of it.

    Returns:
        The files written and those they replace.
    """
    merge, names, steps = execution.merge, execution.names, execution.steps
    with steps.step("plan", "choosing the files to read"):
        zone = execution.conf.session_time_zone
        plan = plan_scan(execution.snapshot, merge, condition_shape(merge), summary.predicate, zone)
    rows = source_rows(source.frame, merge.source_schema, merge.source_alias, names)
    broadcast = can_broadcast(summary, execution.conf.auto_broadcast_join_threshold)
    sent = Rows(F.broadcast(rows.frame), rows.names) if broadcast else rows
    by_path = {file.path: file for file in plan.files}
    matches = NO_MATCHES
    if plan.files and (changing_clauses(merge) or merge.inserts):
        with steps.step("find_touched_files", "scanning files for matches"):
            matches = _find(execution, summary, rows, sent, plan)
    changed = {path: by_path[path] for path in matches.changed}
    touched = NOTHING_TOUCHED
    logger.log(TRACE, "findTouchedFiles: matched files:\n%s", "\n".join(f"  {path}" for path in changed))
    if changed:
        refuse_append_only(execution.snapshot, execution.table.name, "the merge updates or deletes rows")
        touched = TouchedFiles(tuple(changed.values()), (), matches.rows_by_clause, matches.has_competing)
    written, counts, second_scan = NOTHING_WRITTEN, None, -1
    if touched.rewrite or (merge.inserts and summary.row_count):
        second_scan = summary.row_count
        patched = patchable(execution.table.store, touched.rewrite)
        work = _Work(execution, summary, plan, rows, sent, matches, changed, patched)
        name = "write_all_changes" if touched.rewrite else "write_only_inserts"
        what = f"writing new rows, patching {len(patched)} of {len(touched.rewrite)} touched files"
        with (
            steps.step(name, what if touched.rewrite else "writing new files for only inserts"),
            assigning_values(merge),
        ):
            written, counts = _write(work)
        if counts is not None:
            _check_same_changes(work, counts, written)
    copied, inserted = count_rows(execution, touched, written)
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
    )


def _find(execution: Execution, summary: SourceSummary, source: Rows, sent: Rows, plan: ScanPlan) -> Matches:
    """Finds what changes, by the key columns alone where these say it all; names files by their path in the log."""
    merge, names = execution.merge, execution.names
    updates = any(clause.action == "update" for clause in merge.matched)
    of_source = merge.inserts or updates
    lookup = None
    by_keys = not merge.not_matched_by_source and all(clause.condition is None for clause in merge.matched)
    if by_keys and few_keys(summary):
        lookup = lookup_of(merge, execution.table.store)
    matches = None
    if lookup is not None:
        matches = look_up_matches(
            execution.table, merge, lookup, source, names, plan.files, of_source=of_source
        )
    by_name = {absolute_key(execution.table, file): file for file in plan.files}
    if matches is None:
        target = first_side(execution, plan, summary)
        found = find_matches(merge, sent, target, names, of_source=of_source)
        by_path = {by_name[file_key(uri)].path: rows for uri, rows in found.changed.items()}
        matches = replace(found, changed=by_path)
    if matches.has_competing and not merge.is_only_one_unconditional_delete:
        # The scan that knows the rows themselves says which they are.
        find_touched_files(merge, source, target_side(execution, plan, plan.files), by_name, names)
        raise AssertionError("several source rows change one target row")
    return matches


def _write(work: _Work) -> tuple[WrittenFiles, RowCounts | None]:
    """Writes new rows by Spark and patches files, both at a time."""
    execution = work.execution
    parts, scanned = _parts(work)
    observation: Observation | None = None
    with ThreadPoolExecutor(1) as other:
        patching = other.submit(_patch, work)
        if parts:
            observation = _write_parts(work, parts, scanned)
        is_patched = patching.result()
    if not is_patched:
        files = [file for path, file in work.touched.items() if path in work.patched]
        _write_parts(work, [_kept(work, files)], len(files))
    collect = collect_files_with_changes if execution.writes_change_data else collect_files
    written = collect(execution.write_target)
    return written, None if observation is None else counted(observation, execution.merge.clauses)


def _check_same_changes(work: _Work, counts: RowCounts, written: WrittenFiles) -> None:
    """Compares the rows that Spark wrote with those that the first scan found."""
    execution = work.execution
    # Deleted rows are computed for change data alone.
    actions = ("update", "delete") if execution.writes_change_data else ("update",)
    before, gone = _patched_rows(work)
    by_spark = written.row_count - (before - gone)
    check_same_changes(execution.merge, work.matches.rows_by_clause, counts, by_spark, actions)


def _patch(work: _Work) -> bool:
    """Patches files; says whether that was possible: executors may have another Python, or no PyArrow."""
    patches, execution = work.patches, work.execution
    if not patches:
        return True
    spark = execution.table.spark
    try:
        with job_description(spark, f"MERGE operation - patching {len(patches)} files"):
            kept = patch_files(spark, patches, execution.write_target)
    except Exception:
        logger.warning("files could not be patched; Spark writes the rows that stay", exc_info=True)
        remove_patched(execution.write_target)
        return False
    _check_kept(work, kept)
    return True


def _check_kept(work: _Work, kept: int) -> None:
    before, gone = _patched_rows(work)
    if kept != before - gone:
        raise DeltaRuntimeException(
            "DELTAMERGE_FILE_CHANGED",
            f"Of {before} rows in {len(work.patched)} files {gone} were to leave, but {kept} stayed. The files are not "
            "those that the table's log tells of; the table is as it was.",
            sqlstate="XXKDS",
        )


def _patched_rows(work: _Work) -> tuple[int, int]:
    """Counts the rows of the files that are patched, and those of them that leave."""
    files = [file for path, file in work.touched.items() if path in work.patched]
    before = sum(logical_rows(work.execution.table.store, file) for file in files)
    return before, sum(len(work.matches.changed[file.path]) for file in files)


def _parts(work: _Work) -> tuple[list[DataFrame], int]:
    """Makes what Spark is to write: changed rows, inserted rows, and rows that stay of files that are not patched.

    Returns:
        The parts, and how many files of the target they read.
    """
    execution, merge, made = work.execution, work.execution.merge, _changed_rows(work)
    parts: list[DataFrame] = []
    scanned = 0
    updates = any(c.action == "update" and _rows(work, c) for c in changing_clauses(merge))
    if (work.touched and made.change_data) or (updates and made.need_target):
        scanned += len(work.touched)
        touched = target_side(execution, work.plan, tuple(work.touched.values()))
        parts.append(made.changed_in_target(work.sent, touched))
    elif updates:
        parts.append(made.updated_from_source(work.source))
    if merge.inserts:
        parts.append(made.inserted(work.source))
    through_spark = [file for path, file in work.touched.items() if path not in work.patched]
    if through_spark:
        scanned += len(through_spark)
        parts.append(_kept(work, through_spark))
    return parts, scanned


def _kept(work: _Work, files: Sequence[AddFile]) -> DataFrame:
    """Makes the rows that stay of some touched files."""
    rows = scan_rows(work.execution, tuple(files)).renamed()
    changed = {
        uri: work.matches.changed[file.path]
        for file in files
        for uri in spark_spellings(work.execution.table, file)
    }
    return _changed_rows(work).kept(rows.frame, changed)


def _changed_rows(work: _Work) -> ChangedRows:
    execution = work.execution
    return ChangedRows(
        spark=execution.table.spark,
        merge=execution.merge,
        names=execution.names,
        matches=work.matches,
        defaults=execution.defaults,
        change_data=execution.writes_change_data,
    )


def _rows(work: _Work, clause: ResolvedClause) -> int:
    return work.matches.rows_by_clause.get((clause.clause.kind, clause.number), 0)


def _write_parts(work: _Work, parts: list[DataFrame], scanned: int) -> Observation | None:
    execution, merge, names = work.execution, work.execution.merge, work.execution.names
    frame = reduce(lambda left, right: left.union(right), parts)
    if not execution.snapshot.metadata.partition_columns:
        if not scanned:
            frame = frame.coalesce(max(1, work.summary.partitions))
        through_spark = [file for path, file in work.touched.items() if path not in work.patched]
        rows_in_all = work.summary.row_count + sum(
            logical_rows(execution.table.store, file) for file in through_spark
        )
        frame = put_together(frame, work.summary.partitions + scanned, rows_in_all)
    observation: Observation | None = None
    if len(inserting_clauses(merge)) > 1 or not is_repeatable(merge):
        change = F.col(names.change)
        kept = change.isin("insert", "update") | (change.isNull() & F.col(names.file_rewritten))
        frame, observation = observing_clauses(frame, merge.clauses, names, kept)
    rows = Rows(frame, _changed_rows(work).columns)
    if execution.writes_change_data:
        changes = generate_cdc_and_output_rows(rows, merge.output_schema, names)
        write_rows_with_changes(
            guarded_changes(execution, changes), names.change_type, execution.write_target
        )
    else:
        write_rows(guarded_rows(execution, table_columns(rows, execution)), execution.write_target)
    return observation
