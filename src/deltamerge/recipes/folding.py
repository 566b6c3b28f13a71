"""What the events of a key add up to: its newest row, or the history of its rows."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql.types import DataType, StructType

from deltamerge.recipes.changes import AFTER_DELETE, DELETED, END, ERA, RANK, ROW, RUN, SEQUENCE, STATE, FoldRules
from deltamerge.recipes.values import comparable
from deltamerge.spark import columns as F
from deltamerge.sql.names import quote


def newest_rows(events: DataFrame, rules: FoldRules) -> DataFrame:
    """Return one row for each key: the newest event's; no job runs.

    Returns:
        The keys, the sequence, whether the key is deleted, whether its row began after a delete, and the row.
    """
    if rules.ignore_nulls:
        events = _with_values_kept(events, rules)
    newest = F.max_by(F.struct(DELETED, ROW), SEQUENCE).alias(STATE)
    found = events.groupBy(*_quoted(rules.keys)).agg(
        F.max(SEQUENCE).alias(SEQUENCE), F.max(DELETED).alias(AFTER_DELETE), newest
    )
    return found.select(
        *_quoted(rules.keys),
        SEQUENCE,
        F.col(STATE).getField(DELETED).alias(DELETED),
        AFTER_DELETE,
        F.col(STATE).getField(ROW).alias(ROW),
    )


def versions_of_rows(events: DataFrame, rules: FoldRules) -> DataFrame:
    """Return the versions of each key's row, from event to event; no job runs.

    Events whose tracked values are those before them only change the version's other values.

    Args:
        events: The change log's columns, one event of each sequence. NULL is the least sequence.

    Returns:
        The keys, the sequence that a version begins at, the one that it ends at (NULL of the newest), and the row.
    """
    names = _quoted(rules.keys)
    if rules.ignore_nulls:
        events = _with_values_kept(events, rules)
    ordered = Window.partitionBy(*names).orderBy(SEQUENCE)
    tracked = [comparable(F.col(ROW).getField(f.name), f.dataType).alias(f"c{i}") for i, f in enumerate(rules.tracked)]
    row = F.when(~F.col(DELETED), F.struct(F.lit(0).alias("c"), *tracked))
    state = F.struct(F.col(DELETED).alias("deleted"), row.alias("row"))
    begins = ~F.lag(state).over(ordered).eqNullSafe(state)
    runs = events.withColumn(STATE, begins.cast("int")).withColumn(RUN, F.sum(STATE).over(ordered))
    # A run that begins at NULL has one event there, and goes on with those of a sequence.
    begin = F.when(F.count(SEQUENCE) == F.count(F.lit(1)), F.min(SEQUENCE))
    row_at_end = F.coalesce(F.max_by(ROW, SEQUENCE), F.first(ROW))
    versions = runs.groupBy(*names, RUN).agg(
        begin.alias(SEQUENCE), F.first(DELETED).alias(DELETED), row_at_end.alias(ROW)
    )
    return (
        versions.withColumn(END, F.lead(SEQUENCE).over(ordered))
        .where(~F.col(DELETED))
        .select(*names, SEQUENCE, END, ROW)
    )


def ranked(events: DataFrame, rank: int) -> DataFrame:
    """Return events with the rank that decides between two of one sequence."""
    return events.withColumn(RANK, F.lit(rank))


def first_ranked(events: DataFrame, rules: FoldRules) -> DataFrame:
    """Return of events with one sequence that of the least rank."""
    same = Window.partitionBy(*_quoted(rules.keys), SEQUENCE).orderBy(RANK)
    return events.withColumn(RUN, F.row_number().over(same)).where(F.col(RUN) == 1).drop(RUN, RANK)


def _with_values_kept(events: DataFrame, rules: FoldRules) -> DataFrame:
    """Give each event the values that its key had before where its own are NULL, since the key's last delete."""
    ordered = Window.partitionBy(*_quoted(rules.keys)).orderBy(SEQUENCE)
    era = events.withColumn(ERA, F.sum(F.col(DELETED).cast("int")).over(ordered))
    so_far = Window.partitionBy(*_quoted(rules.keys), ERA).orderBy(SEQUENCE)
    row = F.struct(
        *(_last(F.col(ROW).getField(f.name), f.dataType, so_far, ~F.col(DELETED)).alias(f.name) for f in rules.columns)
    )
    return era.withColumn(ROW, row).drop(ERA)


def _last(value: Column, data_type: DataType, window: WindowSpec, is_given: Column) -> Column:
    newest = F.last(F.when(is_given, value), ignorenulls=True).over(window)
    if not isinstance(data_type, StructType):
        return newest
    fields = (_last(value.getField(f.name), f.dataType, window, is_given).alias(f.name) for f in data_type.fields)
    return F.when(newest.isNotNull(), F.struct(*fields))


def _quoted(names: Sequence[str]) -> list[str]:
    return [quote(name) for name in names]
