"""InsertOnlyMergeExecutor: merges that only insert, and the inserts of merges in which nothing matched."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.output.clause_expressions import (
    evaluate_not_matched,
    generate_all_action_exprs,
    generate_clause_output_exprs,
)
from deltamerge.merge.output.frames import Rows, joined
from deltamerge.merge.output.generated_columns import compute_generated_columns, generated_flags
from deltamerge.merge.output.internal_columns import MergeNames

if TYPE_CHECKING:
    from pyspark.sql import Column

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")

# Delta's names for the two ways here.
WHEN_NO_MATCHED_CLAUSES = "writeInsertsOnlyWhenNoMatchedClauses"
WHEN_NO_MATCHES = "writeInsertsOnlyWhenNoMatches"


def unmatched_source(merge: ResolvedMerge, source: Rows, target: Rows) -> Rows:
    """Keeps the source rows that match no target row.

    Args:
        merge: The merge.
        source: The source's side.
        target: The target's side, of the files that ON's conditions on the target cannot exclude.

    Returns:
        The source's rows, users' names still in sight. Delta: writeOnlyInserts with filterMatchedRows.
    """
    return Rows(source.frame.join(target.frame, merge.condition, "left_anti"), source.names)


def unmatched_by_number(
    merge: ResolvedMerge, source: Rows, target: Rows, names: MergeNames, *, broadcast: bool
) -> Rows:
    """Keeps the source rows that match no target row, where the source gives the same rows at each read.

    A left anti join cannot broadcast its left side, so it would shuffle the target; an inner join can, and the
    numbers of the source rows that come back are few.

    Args:
        merge: The merge.
        source: The source's side.
        target: The target's side, of the files that may match.
        names: The merge's own names.
        broadcast: Whether the source may be sent to every executor.

    Returns:
        The source's rows, users' names still in sight.
    """
    sent = Rows(F.broadcast(source.frame), source.names) if broadcast else source
    pairs = joined(sent, target, merge.condition, "inner")
    number = F.col(names.source_row_index)
    numbers = pairs.frame.select(number.alias(names.matched_source_row)).distinct()
    if broadcast:
        numbers = F.broadcast(numbers)
    rest = source.frame.join(numbers, number == F.col(names.matched_source_row), "left_anti")
    return Rows(rest, source.names)


def filtered_source(merge: ResolvedMerge, source: Rows) -> Rows:
    """Applies the condition of a single INSERT before any join, so that Spark can push it into the source."""
    only = merge.not_matched[0] if len(merge.not_matched) == 1 else None
    if only is None or only.condition is None or only.action != "insert":
        return source
    return Rows(source.frame.where(only.condition), source.names)


def generate_inserts_only_output(
    merge: ResolvedMerge,
    source: Rows,
    names: MergeNames,
    defaults: Callable[[int], Column],
    extra_op_type: str,
) -> Rows:
    """Makes the output of an insert-only merge.

    Args:
        merge: The merge.
        source: The source rows that match nothing, users' names still in sight.
        names: The merge's own names.
        defaults: Gives an output column's default.
        extra_op_type: Delta's name for the route, for the log.

    Returns:
        The output columns under the merge's own names, and the number of the clause that inserts each row.
        Delta: generateInsertsOnlyOutputDF.
    """
    rows = evaluate_not_matched(source.renamed(), merge, names)
    number = F.col(names.clause("not_matched"))
    writing = {
        clause.number: generate_all_action_exprs(merge, clause, names, defaults)
        for clause in merge.not_matched
        if clause.action == "insert"
    }
    nothing = [F.lit(None).cast(field.dataType) for field in merge.output_schema.fields]
    columns = generate_clause_output_exprs(merge.not_matched, writing, number, nothing)
    if logger.isEnabledFor(logging.DEBUG):
        shown = "\n".join(f"  {column}" for column in columns)
        logger.debug("prepareInsertsOnlyOutputDF: not matched expressions\n%s", shown)
    output_names = tuple(names.output(i) for i in range(len(columns)))
    taken = F.lit(False)
    for clause in merge.not_matched:
        if clause.action == "insert":
            taken = taken | (number == F.lit(clause.number))
    flags = generated_flags(merge, names, ("not_matched",))
    frame = rows.frame.where(taken).select(
        *(column.alias(name) for name, column in zip(output_names, columns, strict=True)),
        number,
        *(column.alias(name) for name, column in flags),
    )
    given = Rows(frame, (*output_names, names.clause("not_matched"), *(name for name, _ in flags)))
    made = compute_generated_columns(given, merge, names)
    logger.debug("%s: output plan:\n%s", extra_op_type, made.frame)
    return made
