"""Files that a DELETE removes whole, by their partition values; none of them is read."""

from __future__ import annotations

from collections.abc import Sequence

from deltamerge.log.actions import AddFile
from deltamerge.log.add_file_stats import known_rows
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.merge_changes import MergeChanges
from deltamerge.merge.executors.touched_files import NOTHING_TOUCHED, TouchedFiles
from deltamerge.merge.source.key_summary import NO_ROWS
from deltamerge.scan.partition_rows import files_where
from deltamerge.write.deletion_vectors import VectorChanges


def execute_whole_files(execution: Execution) -> MergeChanges:
    """Run a DELETE that takes all rows of a file or none. Delta: DeleteCommand, cases 1 and 2."""
    steps, (clause,) = execution.steps, execution.merge.clauses
    with steps.step("plan", "choosing the files to read"):
        target = execution.target_files(NO_ROWS.predicate)
    touched = NOTHING_TOUCHED
    with steps.step("find_touched_files", "evaluating the condition on partition values"):
        files = _taken(execution, target.files)
    if files:
        touched = TouchedFiles(files, (), {clause.key: known_rows(files) or 0}, has_multiple_matches=False)
    return MergeChanges(
        execution=execution,
        source_rows=0,
        target=target,
        touched=touched,
        summary=NO_ROWS,
        vectors=VectorChanges(vectors_removed=sum(file.deletion_vector is not None for file in files)),
    )


def _taken(execution: Execution, files: Sequence[AddFile]) -> tuple[AddFile, ...]:
    """Return the files for whose partition values Spark finds the condition TRUE."""
    merge, (clause,) = execution.merge, execution.merge.clauses
    if clause.condition is None:
        return tuple(files)
    condition, schema = clause.condition, merge.target_schema
    return files_where(execution.table, execution.snapshot, files, schema, condition, merge.target_alias)
