"""Only the latest of several source rows with one key, for a merge that asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, Window
from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.merge.analysis.join_keys import guard_of, names_of_keys
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.source.rows_at_fault import tie_error
from deltamerge.spark import columns as F
from deltamerge.sql.conditions import ConditionShape
from deltamerge.sql.names import did_you_mean, free_prefix, quote


def check_dedupe_by(dedupe_by: Sequence[str], source: StructType, case_sensitive: bool) -> None:
    """Refuse columns to go by that the source does not have (DELTA_MERGE_UNRESOLVED_EXPRESSION)."""
    known = source.names if case_sensitive else [name.lower() for name in source.names]
    for name in dedupe_by:
        if (name if case_sensitive else name.lower()) not in known:
            raise DeltaAnalysisException(
                "DELTA_MERGE_UNRESOLVED_EXPRESSION",
                f"Cannot resolve {quote(name)} in dedupe_by: the source has the columns {', '.join(source.names)}."
                f"{did_you_mean(name, source.names)}",
                parameters={"sqlExpr": name, "clause": "dedupe_by", "cols": ", ".join(source.names)},
            )


def latest_per_key(merge: ResolvedMerge, on: ConditionShape) -> ResolvedMerge:
    """Leave all source rows out but the latest of each key, by the statement's ``dedupe_by``.

    A row that ON rules out by itself, or whose key has a NULL that matches nothing, has no rivals. NULL is earlier than
    every value. Several latest rows of one key fail the job that reads them; see `row_at_fault_in`.
    """
    statement = merge.statement
    if not statement.dedupe_by:
        return merge
    keys = on.equi_keys
    _check_keys_tell(merge, on)
    prefix = free_prefix(merge.source_schema.names)
    key, alone, order, latest, ties = (f"{prefix}{name}" for name in ("key", "alone", "order", "latest", "ties"))
    names = names_of_keys(keys)
    values = (F.expr(key.source_sql).alias(name) for key, name in zip(keys, names, strict=True))
    guard = guard_of(merge, on)
    may_match = F.lit(True) if guard is None else F.expr(guard)
    frame = statement.under_source_alias(statement.source)
    unmatchable = reduce(
        Column.__or__,
        (F.col(key).getField(name).isNull() for k, name in zip(keys, names, strict=True) if not k.null_safe),
        F.col(key).isNull(),
    )
    by_key = Window.partitionBy(key, alone)
    ranked = (
        # Keys that Spark computes may fail for other rows.
        frame.withColumn(key, F.when(may_match, F.struct(*values)))
        # Rows without rivals are not all work of one task.
        .withColumn(alone, F.when(unmatchable, F.monotonically_increasing_id()))
        .withColumn(order, F.struct(*(F.col(quote(name)) for name in statement.dedupe_by)))
        .withColumn(latest, F.max(order).over(by_key))
        .withColumn(ties, F.sum(F.col(order).eqNullSafe(F.col(latest)).cast("bigint")).over(by_key))
    )
    is_latest = F.col(order).eqNullSafe(F.col(latest))
    tied = tie_error("dedupe_by", F.col(key), F.col(order))
    kept = F.when(F.col(alone).isNotNull(), F.lit(True)).when(is_latest & (F.col(ties) > 1), tied).otherwise(is_latest)
    rows = ranked.where(kept).drop(key, alone, order, latest, ties)
    return replace(merge, statement=replace(statement, source=rows))


def _check_keys_tell(merge: ResolvedMerge, on: ConditionShape) -> None:
    """Refuse an ON by which rows with the same keys may match different rows of the target.

    What wants the first column of ``dedupe_by`` to be greater than the target's, as in ``s.changed_at > t.changed_at``,
    may stay: the latest row fulfils it where any does.
    """
    statement, problem = merge.statement, None
    is_column = statement.condition.column is not None
    for conjunct in on.conjuncts:
        is_of_both = bool(conjunct.target_columns and conjunct.source_columns)
        # What a Column prints may be no SQL, such as strings without quotes.
        is_unclear = conjunct.side == "unreadable" and (is_of_both or not is_column)
        is_later = conjunct.least is not None and conjunct.least.lower() == statement.dedupe_by[0].lower()
        if (conjunct.side == "both" or is_unclear) and not (conjunct.is_key or is_later):
            problem = f"rows with the same keys may match different rows by {conjunct.text}. Put it into clauses"
        elif is_column and conjunct.source_columns and not conjunct.target_columns:
            problem = f"{conjunct.text} rules rows out by themselves. Filter the source by it, or give ON as SQL"
    if problem is None and not on.equi_keys:
        problem = "ON equates no column of the target with an expression over the source. Name a key"
    if problem is not None:
        raise DeltaAnalysisException(
            "DELTA_MERGE_UNRESOLVED_EXPRESSION",
            f"dedupe_by cannot tell which source rows are rivals: {problem}, or leave dedupe_by out. ON is: "
            f"{statement.condition.text}",
        )
