"""InsertOnlyMergeExecutor: merges that only insert, and the inserts of merges in which nothing matched."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from pyspark.sql import Column, Observation

from deltamerge.log.actions import AddFile
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.job_errors import assigning_values
from deltamerge.merge.executors.merge_changes import MergeChanges
from deltamerge.merge.executors.row_counts import (
    RowCounts,
    counted,
    inserts_by_clause,
    observing_clauses,
)
from deltamerge.merge.executors.target_scan import finds_rows, matching_side, scan_rows
from deltamerge.merge.executors.touched_files import NOTHING_TOUCHED
from deltamerge.merge.executors.written_rows import (
    put_together,
    table_columns,
    write_output,
)
from deltamerge.merge.output.change_data import generate_inserted_rows
from deltamerge.merge.output.clause_expressions import (
    evaluate_clauses,
    generate_all_action_exprs,
    generate_clause_output_exprs,
)
from deltamerge.merge.output.frames import Rows, joined, source_rows
from deltamerge.merge.output.generated_columns import compute_generated_columns, generated_flags
from deltamerge.merge.source.key_summary import SourceSummary, can_broadcast
from deltamerge.merge.source.source import Source
from deltamerge.skipping.predicates import ALWAYS
from deltamerge.spark import columns as F
from deltamerge.spark.observations import observed
from deltamerge.write.data_files import WrittenFiles, collect_files

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")

# Delta's names for the two ways here.
WHEN_NO_MATCHED_CLAUSES = "writeInsertsOnlyWhenNoMatchedClauses"
WHEN_NO_MATCHES = "writeInsertsOnlyWhenNoMatches"


def execute_insert_only(execution: Execution, source: Source) -> MergeChanges:
    """Run a merge that only inserts. Delta: InsertOnlyMergeExecutor.writeOnlyInserts with filterMatchedRows."""
    merge, steps, summary = execution.merge, execution.steps, source.summary
    with steps.step("plan", "choosing the files to read"):
        possible = ALWAYS if summary is None else summary.predicate
        target = execution.target_files(possible)
    counted = Observation()
    frame = source.frame.observe(counted, F.count(F.lit(1)).alias("rows")) if summary is None else source.frame
    rows = source_rows(frame, merge)
    with steps.step("write_only_inserts", "writing new files for only inserts"), assigning_values(merge):
        unmatched = filtered_source(merge, rows)
        if target.files:
            unmatched = unmatched_rows(execution, unmatched, summary, target.files)
        if summary is not None:
            together = put_together(execution, unmatched.frame, summary.partitions, summary.row_count)
            unmatched = Rows(together, unmatched.names)
        written, counts = write_inserts(execution, unmatched, WHEN_NO_MATCHED_CLAUSES)
        source_count = _source_count(source, counted) if summary is None else summary.row_count
    return MergeChanges(
        execution=execution,
        source_rows=source_count,
        target=target,
        touched=NOTHING_TOUCHED,
        written=written,
        inserted=written.row_count,
        inserted_by_clause=inserts_by_clause(merge, counts, written.row_count),
        summary=summary,
        finds_rows=None if summary is None else partial(finds_rows, execution, rows),
    )


def _source_count(source: Source, counted: Observation) -> int:
    rows = observed(counted).get("rows")
    return source.frame.count() if rows is None else int(rows)


def write_inserts(execution: Execution, unmatched: Rows, extra_op_type: str) -> tuple[WrittenFiles, RowCounts | None]:
    """Write source rows that match nothing; counts are None where a single clause inserts."""
    merge, names = execution.merge, execution.merge.names
    rows = generate_inserts_only_output(merge, unmatched, execution.defaults, extra_op_type)
    inserting, observation = merge.inserting, None
    if len(inserting) > 1:
        frame, observation = observing_clauses(rows.frame, inserting, names, F.lit(True))
        rows = Rows(frame, rows.names)
    if execution.writes_change_data:
        output = generate_inserted_rows(rows, merge.output_schema, names)
    else:
        output = table_columns(rows, execution)
    job = write_output(execution, output)
    return collect_files(job), None if observation is None else counted(observation, inserting)


def unmatched_rows(
    execution: Execution, source: Rows, summary: SourceSummary | None, files: tuple[AddFile, ...]
) -> Rows:
    """Keep the source rows that match no row of some files. Delta: writeOnlyInserts with filterMatchedRows.

    Args:
        summary: None where the source's rows are not kept: read again, the same rows may have other numbers.

    Returns:
        The source's rows, users' names still in sight.
    """
    if summary is None:
        target = scan_rows(execution, files)
        return Rows(source.frame.join(target.frame, execution.merge.condition, "left_anti"), source.names)
    return _unmatched_by_number(execution, source, summary, matching_side(execution, files, summary))


def _unmatched_by_number(execution: Execution, source: Rows, summary: SourceSummary, target: Rows) -> Rows:
    """Keep the source rows that match no target row, where a source row has the same number at each read.

    A left anti join cannot broadcast its left side, so it would shuffle the target; an inner join can, and the
    numbers of the source rows that come back are few.
    """
    merge, names = execution.merge, execution.merge.names
    sent, threshold = source, execution.conf.auto_broadcast_join_threshold
    broadcast = can_broadcast(summary.key_bytes, threshold, execution.limits.broadcast_key_bytes)
    if broadcast:
        sent = Rows(F.broadcast(source.frame), source.names)
    pairs = joined(sent, target, merge.condition, "inner")
    number = F.col(names.source_row_index)
    numbers = pairs.frame.select(number.alias(names.matched_source_row)).distinct()
    if broadcast:
        numbers = F.broadcast(numbers)
    rest = source.frame.join(numbers, number == F.col(names.matched_source_row), "left_anti")
    return Rows(rest, source.names)


def filtered_source(merge: ResolvedMerge, source: Rows) -> Rows:
    """Apply the condition of a single INSERT before any join, so that Spark can push it into the source."""
    only = merge.not_matched[0] if len(merge.not_matched) == 1 else None
    if only is None or only.condition is None or only.action != "insert":
        return source
    return Rows(source.frame.where(only.condition), source.names)


def generate_inserts_only_output(
    merge: ResolvedMerge,
    source: Rows,
    defaults: Callable[[int], Column],
    extra_op_type: str,
) -> Rows:
    """Make the output of an insert-only merge, with the number of the clause that inserts each row.

    Delta: generateInsertsOnlyOutputDF.

    Args:
        source: The source rows that match nothing, users' names still in sight.
        extra_op_type: Delta's name for the route, for the log.
    """
    names = merge.names
    rows = evaluate_clauses(source.renamed(), merge, "not_matched", values=True)
    number = F.col(names.clause("not_matched"))
    writing = {clause.number: generate_all_action_exprs(merge, clause, defaults) for clause in merge.inserting}
    nothing = [F.lit(None).cast(field.dataType) for field in merge.output_schema.fields]
    columns = generate_clause_output_exprs(merge.not_matched, writing, number, nothing)
    if logger.isEnabledFor(logging.DEBUG):
        shown = "\n".join(f"  {column}" for column in columns)
        logger.debug("prepareInsertsOnlyOutputDF: not matched expressions\n%s", shown)
    output_names = tuple(names.output(i) for i in range(len(columns)))
    taken = number.isin(*writing)
    flags = generated_flags(merge, ("not_matched",))
    frame = rows.frame.where(taken).select(
        *(column.alias(name) for name, column in zip(output_names, columns, strict=True)),
        number,
        *(column.alias(name) for name, column in flags),
    )
    given = Rows(frame, (*output_names, names.clause("not_matched"), *(name for name, _ in flags)))
    made = compute_generated_columns(given, merge)
    logger.debug("%s: output plan:\n%s", extra_op_type, made.frame)
    return made
