"""Rows by key: one of a source for each key, and those of a table that have certain keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql.types import StructType

from deltamerge.log.file_table import FileTable
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.internal_columns import InternalColumns
from deltamerge.merge.analysis.join_keys import JoinKey, JoinKeys
from deltamerge.merge.limits import LIMITS
from deltamerge.merge.planning.target_files import key_histograms, may_match
from deltamerge.merge.source.rows_at_fault import KEYS, tie_error
from deltamerge.merge.source.source import numbered_source, summarize_source
from deltamerge.recipes.values import ColumnPair, comparable
from deltamerge.scan.relation import table_frame
from deltamerge.skipping.predicates import ALWAYS, ColumnRef
from deltamerge.spark import columns as F
from deltamerge.spark.session import merge_conf
from deltamerge.spark.table import Table, spark_schema
from deltamerge.sql.conditions import EquiKey
from deltamerge.sql.names import free_prefix, quote


def rows_of_keys(table: Table, snapshot: Snapshot, keys: DataFrame, *, null_safe: bool = True) -> DataFrame:
    """Return the rows of a version of a table whose keys a frame has.

    Args:
        keys: The keys, each once, in columns with the names and types of the table's; one job reads them.
        null_safe: Whether NULL is a key like any other; otherwise it is no row's key.
    """
    rows = table_frame(table, snapshot, files_of_keys(table, snapshot, keys, null_safe=null_safe))
    on = same_keys(keys.columns, "t", "s", null_safe=null_safe)
    found = rows.alias("t").join(keys.alias("s"), F.expr(on), "left_semi")
    return found.select(*(F.col(f"t.{quote(name)}") for name in rows.columns))


def files_of_keys(table: Table, snapshot: Snapshot, keys: DataFrame, *, null_safe: bool) -> FileTable:
    """Return the files that may have rows with those keys, by partition values and statistics."""
    time_zone = merge_conf(table.spark).session_time_zone
    schema = spark_schema(snapshot)
    found = JoinKeys(
        tuple(
            JoinKey(
                EquiKey(ColumnRef((field.name,)), quote(field.name), (field.name,), null_safe),
                field.dataType,
                schema[field.name].dataType,
            )
            for field in keys.schema.fields
        ),
        say_all=True,
    )
    names = InternalColumns(free_prefix(keys.columns))
    histograms = key_histograms(snapshot, ALWAYS, found, time_zone)
    summary = summarize_source(numbered_source(keys, names), None, found, names, histograms, LIMITS)
    return may_match(snapshot, summary.predicate, time_zone)


def same_keys(keys: Sequence[str], left: str, right: str, *, null_safe: bool = True) -> str:
    sign = "<=>" if null_safe else "="
    return " AND ".join(f"{left}.{quote(name)} {sign} {right}.{quote(name)}" for name in keys)


def one_row_per_key(
    source: DataFrame,
    names: Sequence[str],
    keys: Sequence[ColumnPair],
    order_by: Mapping[str, Column],
    null_safe: bool,
) -> DataFrame:
    """Return a source's rows without repetitions, and of each key only the latest; no job runs.

    Rows of a key that differ and of which none is the latest fail the job that reads them; see `row_at_fault_in`.
    Keys are compared as the target stores them: for an INT the strings '1' and '01' are one key.

    Args:
        names: The columns by which rows are equal or differ; others go with them.
        order_by: The columns whose greatest values the latest row has, and these values; none: all rows of a key must
            be equal.
        null_safe: Whether NULL is a key like any other. Otherwise a row with a NULL key has no rivals.
    """
    prefix = free_prefix(source.schema.names)
    key, order, row, place, first = (prefix + name for name in ("key", "order", "row", "place", "first"))
    values = (k.key().alias(k.source.name) for k in keys)
    whole = F.struct(*(F.col(quote(name)) for name in names))
    compared = StructType([source.schema[name] for name in names])
    latest_first = Window.partitionBy(key).orderBy(F.col(order).desc(), F.col(row))
    ranked = (
        source.withColumn(key, F.struct(*values))
        .withColumn(order, F.struct(F.lit(0).alias("c"), *order_by.values()))
        .withColumn(row, comparable(whole, compared))
        .withColumn(place, F.row_number().over(latest_first))
        .withColumn(first, F.first(F.struct(order, row)).over(latest_first))
    )
    is_first = F.col(place) == F.lit(1)
    is_as_late = F.col(order).eqNullSafe(F.col(first).getField(order))
    is_repeated = F.col(row).eqNullSafe(F.col(first).getField(row))
    shown = F.struct(*(F.col(quote(name)) for name in order_by or names))
    tied = tie_error("order_by" if order_by else KEYS, F.col(key), shown)
    kept = F.when(is_first, F.lit(True)).when(is_as_late & ~is_repeated, tied).otherwise(F.lit(False))
    if not null_safe:
        has_null = reduce(or_, (F.col(key).getField(k.source.name).isNull() for k in keys))
        kept = F.when(has_null, F.lit(True)).otherwise(kept)
    return ranked.where(kept).drop(key, order, row, place, first)
