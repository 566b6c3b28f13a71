"""Changed rows written by Spark, while the other rows of touched files stay, are patched, or are copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import DataFrame, Observation

from deltamerge.exceptions import DeltaRuntimeException
from deltamerge.log.actions import AddFile
from deltamerge.log.add_file_stats import logical_rows
from deltamerge.merge.executors.changed_frames import ChangedRows
from deltamerge.merge.executors.execution import Execution, file_form
from deltamerge.merge.executors.job_errors import assigning_values
from deltamerge.merge.executors.matches import Matches
from deltamerge.merge.executors.merge_changes import NOTHING_WRITTEN, MergeChanges
from deltamerge.merge.executors.row_counts import (
    RowCounts,
    changes_of,
    check_same_changes,
    counted,
)
from deltamerge.merge.executors.target_scan import scan_rows
from deltamerge.merge.executors.touched_files import TouchedFiles, log_matched_files
from deltamerge.merge.executors.written_rows import put_together, write_changed_rows
from deltamerge.merge.output.frames import Rows
from deltamerge.merge.plan import Declined
from deltamerge.merge.planning.target_files import TargetFiles
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.scan.paths import spark_spellings
from deltamerge.spark.session import job_description
from deltamerge.spark.tasks import PythonWorkersUnfit, python_workers
from deltamerge.write.data_files import Job, WrittenFiles, collect_files
from deltamerge.write.deletion_vectors import VectorChanges, write_deletion_vectors
from deltamerge.write.patching import Patch, patch_files, patchable


@dataclass(frozen=True)
class SparkChanges:
    """What Spark is to write.

    Args:
        source: The source's side; it returns the same rows under the same numbers each time.
        joined: Returns the rows of both sides that belong together, of some files and by a type of join, both visible,
            and rows that are not joined.
    """

    execution: Execution
    summary: SourceSummary
    target: TargetFiles
    source: Rows
    joined: Callable[[str, Sequence[AddFile]], tuple[Rows, Rows | None]]
    matches: Matches

    @cached_property
    def touched(self) -> dict[str, AddFile]:
        by_path = {file.path: file for file in self.target.files}
        return {path: by_path[path] for path in self.matches.changed}

    @cached_property
    def patched(self) -> list[AddFile]:
        if self.execution.plan.unchanged_rows.choice != "patch":
            return []
        fit = patchable(self.execution.table.store, self.execution.files, list(self.touched.values()))
        return [file for path, file in self.touched.items() if path in fit]

    @cached_property
    def copied(self) -> list[AddFile]:
        if self.execution.plan.unchanged_rows.choice == "deletion_vector":
            return []
        patched = {file.path for file in self.patched}
        return [file for path, file in self.touched.items() if path not in patched]

    @cached_property
    def rows(self) -> ChangedRows:
        return ChangedRows(self.execution, self.matches)


def write_changes(changes: SparkChanges) -> MergeChanges:
    execution, matches, summary = changes.execution, changes.matches, changes.summary
    merge, steps = execution.merge, execution.steps
    files = tuple(changes.touched.values())
    touched = TouchedFiles(files, (), matches.rows_by_clause, matches.has_competing)
    log_matched_files(changes.touched)
    if files:
        execution.refuse_append_only()
    written, counts = NOTHING_WRITTEN, None
    second_scan = bool(touched.rewrite or (merge.inserts and summary.row_count))
    if second_scan:
        with steps.step(*_step(changes), touched.rewrite), assigning_values(merge):
            written, counts = _write(changes)
        if counts is not None:
            _check_same_changes(changes, counts, written)

    def delete_rows() -> VectorChanges:
        return write_deletion_vectors(execution.table.store, execution.folder, matches.changed, changes.touched)

    return changes_of(
        execution,
        summary,
        changes.target,
        touched,
        written,
        counts,
        second_scan=second_scan,
        delete_rows=delete_rows,
    )


def _step(changes: SparkChanges) -> tuple[str, str]:
    touched = len(changes.touched)
    if not touched:
        return "write_only_inserts", "writing new files for only inserts"
    files = f"{touched} touched file{'' if touched == 1 else 's'}"
    if changes.execution.writes_deletion_vectors:
        return "write_all_changes", f"writing new and changed rows of {files}"
    return "write_all_changes", f"writing new rows, patching {len(changes.patched)} of {files}"


def _write(changes: SparkChanges) -> tuple[WrittenFiles, RowCounts | None]:
    execution = changes.execution
    parts, scanned = _parts(changes)
    job: Job | None = None
    observation: Observation | None = None
    with ThreadPoolExecutor(1) as other:
        patching = other.submit(_patch, changes)
        if parts:
            with python_workers():
                job, observation = _write_parts(changes, parts, scanned)
        patched = patching.result()
    written = patched if job is None else collect_files(job).with_files_of(patched)
    return written, None if observation is None else counted(observation, execution.merge.clauses)


def _check_same_changes(changes: SparkChanges, counts: RowCounts, written: WrittenFiles) -> None:
    execution = changes.execution
    # Deleted rows are computed only for change data.
    actions = ("update", "delete") if execution.writes_change_data else ("update",)
    before, deleted = _patched_rows(changes)
    by_spark = written.row_count - (before - deleted)
    check_same_changes(execution.merge, changes.matches.rows_by_clause, counts, by_spark, actions)


def _patch(changes: SparkChanges) -> WrittenFiles:
    if not changes.patched:
        return NOTHING_WRITTEN
    execution, changed = changes.execution, changes.matches.changed
    patches = [Patch(file, changed[file.path]) for file in changes.patched]
    form = file_form(execution)
    spark, operation = execution.table.spark, execution.merge.statement.operation
    try:
        with job_description(spark, f"{operation} operation - patching {len(patches)} files"), python_workers():
            patched = patch_files(spark, execution.files, patches, execution.write_target, form)
    except PythonWorkersUnfit as unfit:
        raise Declined("unchanged_rows", "patch", str(unfit)) from unfit
    before, deleted = _patched_rows(changes)
    remained = patched.row_count
    if remained != before - deleted:
        raise DeltaRuntimeException(
            "DELTAMERGE_FILE_CHANGED",
            f"Of {before} rows in {len(patches)} files {deleted} were to be left out, but {remained} remained. "
            "The files are not those in the table's log; the table is as it was.",
        )
    return patched


def _patched_rows(changes: SparkChanges) -> tuple[int, int]:
    before = sum(logical_rows(changes.execution.table.store, file) for file in changes.patched)
    return before, sum(len(changes.matches.changed[file.path]) for file in changes.patched)


def _parts(changes: SparkChanges) -> tuple[list[DataFrame], int]:
    """Return what Spark is to write, and how many files of the target it reads for that."""
    merge, rows = changes.execution.merge, changes.rows
    parts: list[DataFrame] = []
    scanned = 0
    updates = any(c.action == "update" and changes.matches.rows_by_clause.get(c.key) for c in merge.changing)
    if (changes.touched and rows.change_data) or (updates and rows.need_target):
        scanned += len(changes.touched)
        parts.append(rows.changed(*changes.joined(rows.join_type, list(changes.touched.values()))))
    elif updates:
        parts.append(rows.updated_from_source(changes.source))
    if merge.inserts:
        parts.append(rows.inserted(changes.source))
    if changes.copied:
        scanned += len(changes.copied)
        parts.append(_unchanged(changes))
    return parts, scanned


def _unchanged(changes: SparkChanges) -> DataFrame:
    table, matches = changes.execution.table, changes.matches
    target = scan_rows(changes.execution, changes.copied, to_write=True).renamed()
    changed = {uri: matches.changed[file.path] for file in changes.copied for uri in spark_spellings(table, file)}
    return changes.rows.unchanged(target.frame, changed)


def _write_parts(changes: SparkChanges, parts: list[DataFrame], scanned: int) -> tuple[Job, Observation | None]:
    execution = changes.execution
    partitions = changes.summary.partitions
    frame = reduce(lambda left, right: left.union(right), parts)
    if not execution.snapshot.metadata.partition_columns:
        if not scanned:
            frame = frame.coalesce(max(1, partitions))
        copied = sum(logical_rows(execution.table.store, file) for file in changes.copied)
        frame = put_together(execution, frame, partitions + scanned, changes.summary.row_count + copied)
    rows, hidden = Rows(frame, changes.rows.columns), changes.rows.hidden_names
    return write_changed_rows(execution, rows, hidden, counting=not execution.references.is_deterministic)
