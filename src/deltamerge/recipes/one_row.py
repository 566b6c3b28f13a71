"""One source row for each key: what is delivered twice is one row, and of several the latest is taken."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, Window

from deltamerge.merge.source.dedupe import KEYS, tie_error
from deltamerge.recipes.values import ColumnPair, comparable
from deltamerge.spark import columns as F
from deltamerge.sql.names import free_prefix, quote


def one_row_per_key(
    source: DataFrame, keys: Sequence[ColumnPair], order_by: Sequence[str], null_safe: bool
) -> DataFrame:
    """Return a source's rows without repetitions, and of each key only the latest; no job runs.

    Rows of a key that differ and of which none is the latest fail the job that reads them; see `tie_in`. Keys are
    compared as the target stores them: for an INT the strings '1' and '01' are one key.

    Args:
        order_by: The columns whose greatest values the latest row has; none: all rows of a key must be equal.
        null_safe: Whether NULL is a key like any other. Otherwise a row with a NULL key has no rivals.
    """
    prefix = free_prefix(source.schema.names)
    key, order, row, place, first = (prefix + name for name in ("key", "order", "row", "place", "first"))
    values = (F.col(quote(k.source.name)).cast(k.target.dataType).alias(k.source.name) for k in keys)
    whole = F.struct(*(F.col(quote(name)) for name in source.schema.names))
    latest_first = Window.partitionBy(key).orderBy(F.col(order).desc(), F.col(row))
    ranked = (
        source.withColumn(key, F.struct(*values))
        .withColumn(order, F.struct(F.lit(0).alias("c"), *(F.col(quote(name)) for name in order_by)))
        .withColumn(row, comparable(whole, source.schema))
        .withColumn(place, F.row_number().over(latest_first))
        .withColumn(first, F.first(F.struct(order, row)).over(latest_first))
    )
    is_first = F.col(place) == F.lit(1)
    is_as_late = F.col(order).eqNullSafe(F.col(first).getField(order))
    is_repeated = F.col(row).eqNullSafe(F.col(first).getField(row))
    shown = F.struct(*(F.col(quote(name)) for name in order_by or source.schema.names))
    tied = tie_error("order_by" if order_by else KEYS, F.col(key), shown)
    kept = F.when(is_first, F.lit(True)).when(is_as_late & ~is_repeated, tied).otherwise(F.lit(False))
    if not null_safe:
        has_null = reduce(or_, (F.col(key).getField(k.source.name).isNull() for k in keys))
        kept = F.when(has_null, F.lit(True)).otherwise(kept)
    return ranked.where(kept).drop(key, order, row, place, first)
