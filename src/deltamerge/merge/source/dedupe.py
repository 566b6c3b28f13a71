"""Only the latest of several source rows with one key, for a merge that asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, Window
from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.merge.analysis.join_keys import names_of_keys
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.source.rows_at_fault import tie_error
from deltamerge.spark import columns as F
from deltamerge.sql.conditions import EquiKey
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


def latest_per_key(merge: ResolvedMerge, keys: Sequence[EquiKey]) -> ResolvedMerge:
    """Leave all source rows out but the latest of each key, by the statement's ``dedupe_by``.

    A row whose key has a NULL that matches nothing has no rivals. NULL is earlier than every value. Several latest rows
    of one key fail the job that reads them; see `row_at_fault_in`.
    """
    statement = merge.statement
    if not statement.dedupe_by:
        return merge
    if not keys:
        raise DeltaAnalysisException(
            "DELTA_MERGE_UNRESOLVED_EXPRESSION",
            "dedupe_by needs a key: ON equates no column of the target with an expression over the source. In: "
            f"{statement.condition.text}",
        )
    prefix = free_prefix(merge.source_schema.names)
    key, order, latest, ties = (f"{prefix}{name}" for name in ("key", "order", "latest", "ties"))
    names = names_of_keys(keys)
    values = (F.expr(key.source_sql).alias(name) for key, name in zip(keys, names, strict=True))
    frame = statement.source if merge.source_alias is None else statement.source.alias(merge.source_alias)
    by_key = Window.partitionBy(key)
    ranked = (
        frame.withColumn(key, F.struct(*values))
        .withColumn(order, F.struct(*(F.col(quote(name)) for name in statement.dedupe_by)))
        .withColumn(latest, F.max(order).over(by_key))
        .withColumn(ties, F.sum(F.col(order).eqNullSafe(F.col(latest)).cast("bigint")).over(by_key))
    )
    unmatchable = reduce(
        Column.__or__,
        (F.col(key).getField(name).isNull() for k, name in zip(keys, names, strict=True) if not k.null_safe),
        F.lit(False),
    )
    is_latest = F.col(order).eqNullSafe(F.col(latest))
    tied = tie_error("dedupe_by", F.col(key), F.col(order))
    kept = F.when(unmatchable, F.lit(True)).when(is_latest & (F.col(ties) > 1), tied).otherwise(is_latest)
    rows = ranked.where(kept).drop(key, order, latest, ties)
    return replace(merge, statement=replace(statement, source=rows))
