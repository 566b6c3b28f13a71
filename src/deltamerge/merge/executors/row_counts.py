"""What an operator wrote: how many rows it inserted and copied, and whether they are those that it had found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation

from deltamerge.exceptions import DeltaRuntimeException
from deltamerge.log.add_file_stats import logical_rows
from deltamerge.merge.analysis.internal_columns import InternalColumns
from deltamerge.merge.analysis.resolved_merge import ResolvedClause, ResolvedMerge
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.merge_changes import MergeChanges
from deltamerge.merge.executors.touched_files import TouchedFiles
from deltamerge.merge.planning.target_files import TargetFiles
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.spark import columns as F
from deltamerge.spark.observations import observed
from deltamerge.write.data_files import WrittenFiles
from deltamerge.write.deletion_vectors import NO_VECTORS, VectorChanges

_ROWS = "rows"


@dataclass(frozen=True)
class RowCounts:
    """What Spark counted of the rows that it wrote; tasks that ran again are counted again.

    Args:
        by_clause: Rows by the clause that takes them, by kind and number.
    """

    rows: int
    by_clause: Mapping[tuple[str, int], int]


def observing_clauses(
    frame: DataFrame, clauses: Sequence[ResolvedClause], names: InternalColumns, is_row: Column
) -> tuple[DataFrame, Observation]:
    """Count rows by clause as they are written.

    Args:
        is_row: TRUE for the rows that become rows of the table.
    """
    observation = Observation()
    counts = [F.sum((F.col(names.clause(c.kind)) == F.lit(c.number)).cast("int")).alias(c.name) for c in clauses]
    return frame.observe(observation, F.sum(is_row.cast("int")).alias(_ROWS), *counts), observation


def counted(observation: Observation, clauses: Sequence[ResolvedClause]) -> RowCounts | None:
    """Read the counts of `observing_clauses`.

    None where Spark found on the way that no row is to be written, and dropped them with the rest of the plan;
    `count_rows` then sees that every updated row is missing.
    """
    found = observed(observation)
    if not found:
        return None
    by_clause: dict[tuple[str, int], int] = {c.key: int(found[c.name] or 0) for c in clauses}
    return RowCounts(int(found[_ROWS] or 0), by_clause)


def inserts_by_clause(merge: ResolvedMerge, counts: RowCounts | None, inserted: int) -> dict[tuple[str, int], int]:
    """Return the inserted rows by clause; counts are needed only where several clauses insert."""
    inserting = merge.inserting
    if counts is None or len(inserting) < 2:
        return {("not_matched", c.number): inserted for c in inserting}
    return {("not_matched", c.number): counts.by_clause["not_matched", c.number] for c in inserting}


def check_same_changes(
    merge: ResolvedMerge,
    found: Mapping[tuple[str, int], int],
    counts: RowCounts,
    written: int,
    actions: Collection[str],
) -> None:
    """Refuse rows that are not those that the first scan found.

    What stays of a file was decided by the first scan, so a row that the second one takes otherwise would be lost or
    stand in the table twice.

    Args:
        found: The rows that the first scan found for each clause.
        written: How many rows the files hold that were written; where fewer than were counted, tasks ran again and
            the counts say nothing.
        actions: Actions whose rows were all counted: ``update``, ``delete``.
    """
    if counts.rows != written:
        return
    for clause in (*merge.matched, *merge.not_matched_by_source):
        key = clause.key
        if clause.action in actions and counts.by_clause[key] != found.get(key, 0):
            raise DeltaRuntimeException(
                "DELTA_MERGE_SOURCE_CHANGED",
                f"The {merge.statement.verb} found {_rows(found.get(key, 0))} for a clause, and "
                f"{counts.by_clause[key]} when it wrote them. A condition had another value when it was evaluated "
                "again, or the source returned other rows; the table is as it was. Conditions must not ask for the "
                "time or for anything else that changes: compute it in the source. The clause: "
                f"{clause.clause.to_sql()}",
            )


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number} rows"


def count_rows(execution: Execution, touched: TouchedFiles, written: WrittenFiles) -> tuple[int, int]:
    """Find how many rows were copied and inserted, from what the files themselves say."""
    merge = execution.merge
    before = sum(logical_rows(execution.table.store, file) for file in touched.rewrite)
    clauses = (*merge.matched, *merge.not_matched_by_source)
    updated, deleted = touched.rows(clauses, "update"), touched.rows(clauses, "delete")
    copied = 0 if execution.writes_deletion_vectors else before - updated - deleted
    inserted = written.row_count - updated - copied
    if copied < 0 or inserted < 0 or (inserted and not merge.inserts):
        raise DeltaRuntimeException(
            "DELTA_MERGE_SOURCE_CHANGED",
            f"The {merge.statement.verb} found {_rows(updated)} to update and {deleted} to delete among {before}, "
            f"but then wrote {_rows(written.row_count)}. The source returned other rows when it was read again, or a "
            "condition had another value; the table is as it was. Set "
            "spark.databricks.delta.merge.materializeSource to auto, or make the source and the conditions "
            "deterministic.",
        )
    return copied, inserted


def writing_step(execution: Execution, touched: TouchedFiles) -> tuple[str, str]:
    count = len(touched.rewrite)
    if not count:
        return "write_only_inserts", "writing new files for only inserts"
    files = f"{count} file{'' if count == 1 else 's'}"
    what = f"writing new and changed rows of {files}" if execution.writes_deletion_vectors else f"rewriting {files}"
    return "write_all_changes", what


def changes_of(
    execution: Execution,
    summary: SourceSummary,
    target: TargetFiles,
    touched: TouchedFiles,
    written: WrittenFiles,
    counts: RowCounts | None,
    *,
    second_scan: bool,
    delete_rows: Callable[[], VectorChanges],
) -> MergeChanges:
    """Put together what an operator found and wrote; see `MergeChanges`.

    Args:
        second_scan: Whether the source's rows were read a second time, to write.
        delete_rows: Writes the deletion vectors of the touched files, where changed rows are deleted so.
    """
    copied, inserted = count_rows(execution, touched, written)
    vectors = NO_VECTORS
    if touched.rewrite and execution.writes_deletion_vectors:
        with execution.steps.step("write_deletion_vectors", "writing deletion vectors"):
            vectors = delete_rows()
    return MergeChanges(
        execution=execution,
        source_rows=summary.row_count,
        target=target,
        touched=touched,
        summary=summary,
        written=written,
        inserted=inserted,
        inserted_by_clause=inserts_by_clause(execution.merge, counts, inserted),
        copied=copied,
        second_scan_rows=summary.row_count if second_scan else -1,
        vectors=vectors,
    )
