"""The merges that make a target what its events add up to: newest rows, or a history of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import BooleanType, StructField, VariantType

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.merge_builder import DeltaMergeBuilder
from deltamerge.recipes.changes import AFTER_DELETE, DELETED, END, ROW, SEQUENCE, FoldRules
from deltamerge.recipes.folding import first_ranked, newest_rows, ranked, versions_of_rows
from deltamerge.recipes.keyed_rows import same_keys
from deltamerge.recipes.sequences import KeptSequence
from deltamerge.recipes.values import all_of, comparable, is_comparable, kept_sql
from deltamerge.spark import columns as F
from deltamerge.spark.nested_types import contains
from deltamerge.sql.names import free_prefix, quote


@dataclass(frozen=True)
class HistoryColumns:
    """The names of a history table's own columns.

    Args:
        valid_from: From when on a version holds.
        valid_to: Until when, not included; NULL of the current one.
        is_current: Whether it is the current one; None where the table has no such column.
    """

    valid_from: str
    valid_to: str
    is_current: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.valid_from, self.valid_to, *(() if self.is_current is None else (self.is_current,)))

    def fields(self, sequence: StructField) -> list[StructField]:
        times = [StructField(name, sequence.dataType) for name in (self.valid_from, self.valid_to)]
        return times if self.is_current is None else [*times, StructField(self.is_current, BooleanType())]


def merge_of_newest(
    table: DeltaTable, events: DataFrame, rules: FoldRules, kept: KeptSequence | None
) -> DeltaMergeBuilder:
    """Return the merge that gives the target the newest row of each key.

    Args:
        kept: The target's columns that show whether a row is newer than all events; None where it has none.
    """
    prefix = free_prefix(field.name for field in rules.columns)
    key, sequence, deleted, after = (prefix + name for name in ("key", "sequence", "is_deleted", "is_after_delete"))
    newer = None if kept is None else kept.is_not_older(f"s.{sequence}", events.schema[SEQUENCE].dataType)
    newest = newest_rows(events, rules)
    row = F.col(ROW)
    source = newest.select(
        *(F.col(quote(name)).alias(f"{key}{i}") for i, name in enumerate(rules.keys)),
        F.col(SEQUENCE).alias(sequence),
        F.col(DELETED).alias(deleted),
        F.col(AFTER_DELETE).alias(after),
        *(row.getField(field.name).alias(field.name) for field in rules.columns),
    )
    on = " AND ".join(f"t.{quote(name)} <=> s.{key}{i}" for i, name in enumerate(rules.keys))
    given = {field.name: f"s.{quote(field.name)}" for field in rules.columns}
    values = given
    if rules.ignore_nulls:
        values = {
            f.name: f"CASE WHEN s.{after} THEN {given[f.name]} "
            f"ELSE {kept_sql(given[f.name], f't.{quote(f.name)}', f.dataType)} END"
            for f in rules.columns
        }
    differs = _differ(values, rules.columns)
    return (
        table.alias("t")
        .merge(source.alias("s"), on)
        .whenMatchedDelete(all_of(f"s.{deleted}", newer))
        .whenMatchedUpdate(all_of(newer, differs), _quoted(values))
        .whenNotMatchedDoNothing(f"s.{deleted}")
        .whenNotMatchedInsert(None, _quoted(given))
    )


def _differ(values: Mapping[str, str], columns: Sequence[StructField]) -> str | Column | None:
    """Return the condition that a row of the target has other values; None where that cannot be told."""
    if any(contains(field.dataType, VariantType) for field in columns):
        # As JSON a date in a VARIANT is the same as its string.
        return None
    compared = [f.name for f in columns if is_comparable(f.dataType)]
    differs = f"NOT ({' AND '.join(f'({values[name]}) <=> t.{quote(name)}' for name in compared)})"
    if len(compared) == len(columns):
        return differs
    given = ((field, F.expr(values[field.name])) for field in columns if field.name not in compared)
    same = (
        comparable(value, f.dataType).eqNullSafe(comparable(F.col(f"t.{quote(f.name)}"), f.dataType))
        for f, value in given
    )
    return F.expr(differs) | ~reduce(and_, same)


def merge_of_history(
    table: DeltaTable, rows: DataFrame, events: DataFrame, rules: FoldRules, columns: HistoryColumns
) -> DeltaMergeBuilder:
    """Return the merge that gives the target the versions of each key.

    Args:
        rows: The target's rows of the keys in question, all their versions.
        events: All logged events of these keys.
    """
    wanted = versions_of_rows(with_events_shown(events, rows, rules, columns), rules)
    new = _as_rows(wanted, rules, columns)
    prefix = free_prefix((*new.columns, *rows.columns))
    is_gone, begin = prefix + "is_gone", quote(columns.valid_from)
    source = _differences(new, rows, (*rules.keys, columns.valid_from), prefix + "is_there", is_gone)
    values = {quote(name): f"s.{quote(name)}" for name in (*(f.name for f in rules.columns), *columns.names)}
    return (
        table.alias("t")
        .merge(source.alias("s"), f"{same_keys(rules.keys, 't', 's')} AND t.{begin} <=> s.{begin}")
        .whenMatchedDelete(f"s.{is_gone}")
        .whenMatchedUpdate(None, values)
        .whenNotMatchedInsert(None, values)
    )


def with_events_shown(events: DataFrame, rows: DataFrame, rules: FoldRules, columns: HistoryColumns) -> DataFrame:
    """Return events and those that a history shows by itself, one of each sequence: the given one if there is one.

    A version that begins at NULL, as in a history that was there before, has been there since ever.
    """
    begin, end = (F.col(quote(name)) for name in (columns.valid_from, columns.valid_to))
    begins = _events_at(rows, begin, rules, is_delete=False)
    ends = _events_at(rows.where(end.isNotNull()), end, rules, is_delete=True)
    # Where one version ends and another begins nothing was deleted.
    return _first_of(rules, events, begins, ends)


def with_rows_shown(events: DataFrame, rows: DataFrame, rules: FoldRules, sequence: Column) -> DataFrame:
    """Return events and rows of a target that has their sequence, one of each sequence: the given one if there is one.

    The sequence gets the wider type of both.
    """
    return _first_of(rules, events, _events_at(rows, sequence, rules, is_delete=False))


def _events_at(rows: DataFrame, sequence: Column, rules: FoldRules, *, is_delete: bool) -> DataFrame:
    row = F.struct(*(F.col(quote(field.name)) for field in rules.columns))
    keys = map(quote, rules.keys)
    return rows.select(*keys, sequence.alias(SEQUENCE), F.lit(is_delete).alias(DELETED), row.alias(ROW))


def _first_of(rules: FoldRules, *frames: DataFrame) -> DataFrame:
    """Return events, of one sequence that of the first frame which has one."""
    columns = (*map(quote, rules.keys), SEQUENCE, DELETED, ROW)
    each = (ranked(frame.select(*columns), rank) for rank, frame in enumerate(frames))
    return first_ranked(reduce(DataFrame.union, each), rules)


def _as_rows(versions: DataFrame, rules: FoldRules, columns: HistoryColumns) -> DataFrame:
    current = () if columns.is_current is None else (F.col(END).isNull().alias(columns.is_current),)
    return versions.select(
        *(F.col(ROW).getField(field.name).alias(field.name) for field in rules.columns),
        F.col(SEQUENCE).alias(columns.valid_from),
        F.col(END).alias(columns.valid_to),
        *current,
    )


def _differences(wanted: DataFrame, rows: DataFrame, found_by: Sequence[str], is_there: str, is_gone: str) -> DataFrame:
    """Return the versions that the target lacks or has otherwise, and those that it has and should not.

    Args:
        is_there: A name that no column has.
        is_gone: The name of the column that tells the latter ones from the others.
    """
    sides = [side.withColumn(is_there, F.lit(True)).alias(name) for side, name in ((wanted, "n"), (rows, "o"))]
    joined = sides[0].join(sides[1], F.expr(same_keys(found_by, "n", "o")), "full_outer")
    only_new, only_old = F.col(f"o.{is_there}").isNull(), F.col(f"n.{is_there}").isNull()
    same = [
        comparable(F.col(f"n.{quote(field.name)}"), field.dataType).eqNullSafe(
            comparable(F.col(f"o.{quote(field.name)}"), field.dataType)
        )
        for field in wanted.schema.fields
    ]
    changed = joined.where(only_new | only_old | ~reduce(lambda left, right: left & right, same))

    def value(name: str) -> Column:
        new, old = F.col(f"n.{quote(name)}"), F.col(f"o.{quote(name)}")
        return (F.coalesce(new, old) if name in found_by else new).alias(name)

    return changed.select(*map(value, wanted.columns), only_old.alias(is_gone))


def _quoted(values: Mapping[str, str]) -> dict[str, str | Column]:
    return {quote(name): value for name, value in values.items()}
