"""ClassicMergeExecutor: the touched files joined with the source, and written again with all changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.output.clause_expressions import (
    evaluate_matched,
    evaluate_not_matched,
    evaluate_not_matched_by_source,
    generate_write_all_changes_output_cols,
    row_change,
    target_copy,
)
from deltamerge.merge.output.frames import Rows, TargetSide, joined, with_rows_alone
from deltamerge.merge.output.generated_columns import compute_generated_columns, generated_flags
from deltamerge.merge.output.internal_columns import MergeNames
from deltamerge.spark.config import MergeConf

if TYPE_CHECKING:
    from pyspark.sql import Column

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")


def join_type(merge: ResolvedMerge, conf: MergeConf, *, copies_rows: bool) -> str:
    """Chooses the join of `write_all_changes`.

    Args:
        merge: The merge.
        conf: The session's settings.
        copies_rows: Whether rows that no clause changes are written again.

    Returns:
        ``right_outer`` (source left, target right) where no source row is inserted, else ``full_outer``; where no row
        is copied, target rows without a match are kept for BY SOURCE clauses alone.
    """
    if not copies_rows and not merge.not_matched_by_source:
        return "left_outer" if merge.inserts else "inner"
    if merge.statement.is_matched_only and not conf.optimize_matched_only_merge:
        return "full_outer"
    return "full_outer" if merge.inserts else "right_outer"


def write_all_changes_rows(
    merge: ResolvedMerge,
    source: Rows,
    target: TargetSide,
    names: MergeNames,
    conf: MergeConf,
    defaults: Callable[[int], Column],
    *,
    copies_rows: bool,
) -> Rows:
    """Joins source and touched files and computes what every row becomes.

    Args:
        merge: The merge.
        source: The source's side.
        target: The target's side, of the touched files and of those that only matched.
        names: The merge's own names.
        conf: The session's settings.
        defaults: Gives an output column's default.
        copies_rows: Whether rows that no clause changes are written again.

    Returns:
        Per row, joined or alone, its output columns (what it becomes; for a deleted one what it was), the target's own
        values, what change it is (`row_change`), the clause of each kind that takes it, its file, position and source
        row number.
        Delta: ClassicMergeExecutor.writeAllChanges.
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
    rows = evaluate_matched(rows, merge, names, values=True)
    if merge.not_matched:
        rows = evaluate_not_matched(rows, merge, names)
    if merge.not_matched_by_source:
        rows = with_rows_alone(rows, target.alone)
        rows = evaluate_not_matched_by_source(rows, merge, names, values=True)
    return changes_output(merge, rows, names, defaults)


def changes_output(
    merge: ResolvedMerge, rows: Rows, names: MergeNames, defaults: Callable[[int], Column]
) -> Rows:
    """Computes what rows become, on which all clauses are evaluated; see `write_all_changes_rows`."""
    outputs = generate_write_all_changes_output_cols(merge, names, defaults)
    copies = [
        (names.copy(index), target_copy(merge, index, names))
        for index in range(len(merge.output_schema.fields))
    ]
    kept = [names.file_name, names.row_index, names.source_row_index, names.file_rewritten]
    kept += [name for name in (*names.clauses, names.row_id, names.row_commit_version) if name in rows.names]
    flags = generated_flags(merge, names, ("matched", "not_matched", "not_matched_by_source"))
    columns = [*outputs, (names.change, row_change(merge, names)), *copies, *flags]
    frame = rows.frame.select(*(column.alias(name) for name, column in columns), *kept)
    return compute_generated_columns(Rows(frame, (*(name for name, _ in columns), *kept)), merge, names)


def keep_one_match(rows: Rows, names: MergeNames) -> Rows:
    """Keeps one joined row of each target row that several source rows match.

    Args:
        rows: Rows as `write_all_changes_rows` gives them, at most one change among those of a target row, or the
            same DELETE in all of them.
        names: The merge's own names.

    Returns:
        The rows, of each target row the one that changes it where there is one; rows without a target row all stay.
        Delta: deduplicateCDFDeletes, which does so for change data alone.
    """
    source_row = F.when(F.col(names.file_name).isNull(), F.col(names.source_row_index))
    same_row = Window.partitionBy(names.file_name, names.row_index, source_row)
    order = same_row.orderBy(F.col(names.change).isNull(), names.source_row_index)
    numbered = rows.frame.select("*", F.row_number().over(order).alias(names.match_number))
    return Rows(numbered.where(F.col(names.match_number) == F.lit(1)), (*rows.names, names.match_number))
