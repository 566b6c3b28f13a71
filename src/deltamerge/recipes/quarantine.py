"""Rows that a table cannot take go to another table, with the reason, instead of failing the merge.

The rows are written before the others are merged: a row of the source is in one of both tables or the call has failed.
A row that is rejected again is found by its content and stays where it is, so that a second run adds none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import ArrayType, MapType, StructField, StructType, VariantType

from deltamerge.api.report import MergeReport
from deltamerge.merge.executors.job_errors import translating
from deltamerge.recipes.keyed_rows import same_keys
from deltamerge.recipes.targets import TargetPlace, run_without_transaction
from deltamerge.recipes.values import ColumnPair, is_cut, keeps_values
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark import columns as F
from deltamerge.spark.limited_types import length_limit
from deltamerge.spark.nested_types import exact_json
from deltamerge.spark.session import merge_conf
from deltamerge.spark.table import spark_schema
from deltamerge.sql.names import free_prefix, quote, quote_name
from deltamerge.write.align import find_field, same_shape
from deltamerge.write.constraints import Check, NotNull, columns_in, constraints_of, holds
from deltamerge.write.store_assignment import sql_type

ROW_ID, REASON, REJECTED_AT, WHOLE_ROW = "_row_id", "_reason", "_rejected_at", "_row"
_OWN = frozenset({ROW_ID, REASON, REJECTED_AT, WHOLE_ROW})
_NESTED = (StructType, ArrayType, MapType, VariantType)


@dataclass(frozen=True)
class WrittenColumns:
    """What a table would take of a row.

    Args:
        keys: The columns that say whether it has the row already.
        update: What is written of a row that it has; None for nothing.
        insert: What is written of a new one; None for nothing.
        null_safe: Whether NULL is a key like any other.
        order: The columns that say which row is later, where the target's type gives them their order.
        kept: The target's columns that say so of its rows; none where it lacks one.
        is_newer: The condition that a row is later than the target's, of the names of structs that both are in.
    """

    keys: tuple[ColumnPair, ...]
    update: tuple[ColumnPair, ...] | None
    insert: tuple[ColumnPair, ...] | None
    null_safe: bool
    order: tuple[ColumnPair, ...] = ()
    kept: tuple[str, ...] = ()
    is_newer: Callable[[str, str], str | None] = lambda _source, _target: None


@dataclass(frozen=True)
class Rejected:
    """The rows of a source that its target takes, and how many others another table has.

    Args:
        rows: How many there are; equal ones count as one.
        new: How many of these the other table did not have before.
    """

    fitting: DataFrame
    table: str
    rows: int
    new: int

    def noted_in(self, report: MergeReport) -> MergeReport:
        if not self.rows:
            return report
        rows = "1 source row" if self.rows == 1 else f"{self.rows:,} source rows"
        new = "all of them new" if self.new == self.rows else f"{self.new:,} of them new"
        note = f"{rows} that the table cannot take: in {self.table}, each with the reason, {new}."
        return MergeReport(replace(report.outcome, notes=(*report.outcome.notes, note)))


@contextmanager
def rejecting(
    judged: Judged,
    known: Callable[[DataFrame], DataFrame] | None,
    latest: Callable[[DataFrame, Sequence[str]], DataFrame],
    place: TargetPlace,
) -> Iterator[Rejected]:
    """Write the rows that were judged unfit to a table; keep the judgement until the others are merged.

    Args:
        known: Returns the rows of the target with given keys; None where the target has merged the source already.
        latest: Returns of rows with the source's columns, and others besides, the latest one of each key: where that
            one is unfit, none is merged.
    """
    kept = judged.frame.persist()
    try:
        with translating(place.name):
            frame = judged.decided(kept, known)
            unfit = judged.as_rejected(frame.where(F.size(judged.reasons) > 0))
            rows = unfit.count()
        new = _write(unfit, place) if rows else 0
        with_key = frame.where(~F.col(judged.no_key)).select(f"{quote(judged.row)}.*", judged.reasons)
        fitting = latest(with_key, judged.columns).where(F.size(judged.reasons) == 0).drop(judged.reasons)
        yield Rejected(fitting, place.name, rows, new)
    finally:
        kept.unpersist()


def _write(rows: DataFrame, place: TargetPlace) -> int:
    """Write the rows that the table does not have; return how many these were."""
    table = place.open_or_create(rows.schema)
    rows = _in_types_of(rows, spark_schema(table.table.snapshot()))
    # One transaction of several tables would lose the rows of all but the first, and a retry those that it rejects
    # besides.
    merge = table.alias("t").merge(rows.alias("s"), f"t.{ROW_ID} = s.{ROW_ID}")
    outcome = run_without_transaction(merge.whenNotMatchedInsertAll().withSchemaEvolution())
    return outcome.metrics["numTargetRowsInserted"]


def _in_types_of(rows: DataFrame, known: StructType) -> DataFrame:
    """Return rejected rows with NULL in columns whose values a table that is there would change, or not take."""
    case_sensitive = merge_conf(rows.sparkSession).case_sensitive

    def value(field: StructField) -> Column:
        place = find_field(known, field.name, case_sensitive)
        if place is None or keeps_values(field.dataType, known.fields[place].dataType):
            return F.col(quote(field.name))
        return F.lit(None).cast(known.fields[place].dataType).alias(field.name)

    return rows.select(*map(value, rows.schema.fields))


@dataclass(frozen=True)
class Judged:
    """Rows of a source, each with the reasons why a table cannot take it.

    Args:
        frame: The source's row as a struct; its keys as the table stores them, and whether it has a key or a place in
            the order that cannot be stored; the reasons against the row where the table has a row with these keys and
            where it has none, arrays.
        if_known: The column of the reasons where the table has such a row.
        if_new: The column of those where it has none; the same column where they do not differ.
    """

    frame: DataFrame
    row: str
    keys: tuple[str, ...]
    written: WrittenColumns
    no_key: str
    if_known: str
    if_new: str
    reasons: str

    def decided(self, frame: DataFrame, known: Callable[[DataFrame], DataFrame] | None) -> DataFrame:
        """Return the rows with their `reasons`; NULL for those that may not fit but are not newer than the target's.

        Args:
            known: Returns the rows of the target with given keys. They are read only for rows that it depends on. None
                where rows that were new may be known by now: what either has no reason against is not rejected.
        """
        kept = self.reasons + "_kept"
        newer = self.written.is_newer(f"s.{quote(self.row)}", f"t.{quote(kept)}")
        if self.if_known == self.if_new and newer is None:
            return frame.withColumn(self.reasons, F.col(self.if_known))
        if known is None:
            fits = F.size(self.if_known) == 0
            return frame.withColumn(self.reasons, F.when(fits, F.col(self.if_known)).otherwise(F.col(self.if_new)))
        depends = ~F.col(self.if_known).eqNullSafe(F.col(self.if_new))
        if newer is not None:
            depends |= F.size(self.if_known) > 0
        names = [quote(name) for name in self.keys]
        wanted = frame.where(depends).select(*names).distinct()
        # Of several rows with a key the earliest: the merge changes this one, too.
        earliest = F.min(F.struct(F.lit(0).alias(f"{kept}_there"), *map(quote, self.written.kept))).alias(kept)
        found = known(wanted).groupBy(*names).agg(earliest).alias("t")
        on = same_keys(self.keys, "s", "t", null_safe=self.written.null_safe)
        joined = frame.alias("s").join(found, F.expr(on), "left")
        is_known = F.col(f"t.{kept}").isNotNull()
        reasons = F.when(is_known, F.col(self.if_known)).otherwise(F.col(self.if_new))
        if newer is not None:
            is_ignored = is_known & ~F.col(self.no_key) & ~F.coalesce(F.expr(newer), F.lit(False))
            reasons = F.when(~is_ignored | (F.size(self.if_known) == 0), reasons)
        return joined.select(f"s.{quote(self.row)}", f"s.{quote(self.no_key)}", reasons.alias(self.reasons))

    @property
    def columns(self) -> list[str]:
        kind = self.frame.schema[self.row].dataType
        assert isinstance(kind, StructType)
        return kind.names

    def as_rejected(self, frame: DataFrame) -> DataFrame:
        """Return the rows as they are written, each once.

        A column of the source that has the name of one of the table's own is only in the whole row.
        """
        row = F.col(self.row)
        whole = exact_json(row, self.frame.schema[self.row].dataType)
        given = (row.getField(name).alias(name) for name in self.columns if name.lower() not in _OWN)
        return frame.select(
            F.sha2(whole, 256).alias(ROW_ID),
            F.concat_ws("; ", self.reasons).alias(REASON),
            F.current_timestamp().alias(REJECTED_AT),
            whole.alias(WHOLE_ROW),
            *given,
        ).dropDuplicates([ROW_ID])


def judge(
    source: DataFrame,
    schema: StructType,
    configuration: Mapping[str, str],
    written: WrittenColumns,
    is_deleted: Column | None,
) -> Judged:
    """Return a source's rows with the reasons why a table cannot take them; no job runs.

    Found are values that do not fit their column's type or length, NOT NULL and CHECK constraints, and generated
    columns with another value than their expression has. Values in structs, arrays and maps are not cast here.

    Args:
        source: The rows; its alias qualifies the columns in `is_deleted`.
        is_deleted: Whether a row is deleted, so that only its keys are read.
    """
    prefix = free_prefix((*source.schema.names, *schema.names))
    row, reasons, deleted, no_key, if_known, if_new = (
        prefix + name for name in ("row", "reasons", "deleted", "no_key", "if_known", "if_new")
    )
    originals = F.struct(*(F.col(quote(name)) for name in source.schema.names))
    columns = {c.target.name: c for c in (*(written.update or ()), *(written.insert or ()), *written.keys)}
    frame = source.select(
        originals.alias(row),
        (F.lit(False) if is_deleted is None else F.coalesce(is_deleted, F.lit(False))).alias(deleted),
        *(_stored(c).alias(c.target.name) for c in columns.values() if _is_known(c)),
    )

    def value(column: ColumnPair) -> Column:
        return F.col(row).getField(column.source.name)

    # No row is found by a key that cannot be cast: the merge would fail.
    of_keys = [_of_cast(column, value(column)) for column in written.keys if not _is_nested(column)]
    of_keys += [_of_order(column, value(column)) for column in written.order]

    def against(taken: Sequence[ColumnPair] | None) -> Column:
        if taken is None:
            return _given(of_keys)
        all_taken = list({c.target.name: c for c in (*written.keys, *taken)}.values())
        known = {c.target.name: _fits(c, value(c)) for c in all_taken if _is_known(c)}
        with_limits = (c for c in all_taken if CHAR_VARCHAR_TYPE in c.target.metadata)
        violations = [
            *(_of_cast(c, value(c)) for c in all_taken if not _is_nested(c)),
            *(_of_order(c, value(c)) for c in written.order),
            *(_of_length(c.target, value(c)) for c in with_limits),
            *_of_constraints(schema, configuration, known),
        ]
        return F.when(F.col(deleted), _given(of_keys)).otherwise(_given(violations))

    frame = frame.withColumn(no_key, F.size(_given(of_keys)) > 0)
    frame = frame.withColumn(if_known, against(written.update))
    if written.update == written.insert:
        if_new = if_known
    else:
        frame = frame.withColumn(if_new, against(written.insert))
    keys = tuple(column.target.name for column in written.keys)
    chosen = dict.fromkeys((row, *keys, no_key, if_known, if_new))
    return Judged(frame.select(*map(quote, chosen)), row, keys, written, no_key, if_known, if_new, reasons)


def _given(violations: Sequence[Column]) -> Column:
    given = F.array(F.lit(None).cast("string"), *violations)
    return F.array_distinct(F.filter(given, lambda reason: reason.isNotNull()))


def _is_nested(column: ColumnPair) -> bool:
    return isinstance(column.target.dataType, _NESTED) or isinstance(column.source.dataType, _NESTED)


def _is_known(column: ColumnPair) -> bool:
    """Return whether the value that the table would store is known here."""
    return not _is_nested(column) or same_shape(column.source.dataType, column.target.dataType)


def _stored(column: ColumnPair) -> Column:
    """Return a value as the table would store it; NULL where it is none of the column's type."""
    name = quote(column.source.name)
    if _is_nested(column):
        return F.col(name).cast(column.target.dataType)
    return F.expr(column.stored_sql(name))


def _fits(column: ColumnPair, value: Column) -> Column:
    if _is_nested(column) or column.source.dataType == column.target.dataType:
        return F.lit(True)
    return value.isNull() | value.try_cast(column.target.dataType).isNotNull()


def _of_cast(column: ColumnPair, value: Column) -> Column:
    name, target = column.target.name, column.target.dataType
    reason = F.concat(F.lit(f"{name}: "), value.cast("string"), F.lit(f" is not a valid {sql_type(target)}"))
    return F.when(~_fits(column, value), reason)


def _of_order(column: ColumnPair, value: Column) -> Column:
    name, target = column.target.name, column.target.dataType
    reason = F.concat(F.lit(f"{name}: {sql_type(target)} cuts "), value, F.lit(", by which rows are ordered"))
    return F.coalesce(_of_cast(column, value), F.when(is_cut(value, column.source.dataType, target), reason))


def _of_length(field: StructField, value: Column) -> Column:
    limit = length_limit(field)
    if limit is None:
        return F.lit(None).cast("string")
    return F.when(F.length(value.cast("string")) > limit, F.lit(f"{field.name}: longer than {limit} characters"))


def _of_constraints(
    schema: StructType, configuration: Mapping[str, str], known: Mapping[str, Column]
) -> Iterator[Column]:
    """Yield the reasons for constraints over known columns; a row with a value of another type has that reason.

    Args:
        known: For each column that is known whether its value fits.
    """
    for constraint in constraints_of(schema, configuration):
        if isinstance(constraint, NotNull):
            names = {constraint.path[0]}
            violated = F.col(quote_name(constraint.path)).isNull()
            reason = f"{'.'.join(constraint.path)}: NULL in a NOT NULL column"
        else:
            names = _names_in(constraint, schema)
            violated = ~holds([constraint], ())
            reason = f"CHECK {constraint.name}: {constraint.expression}"
        if names <= known.keys():
            fit = reduce(and_, (known[name] for name in sorted(names)))
            yield F.when(fit & violated, F.lit(reason))


def _names_in(check: Check, schema: StructType) -> set[str]:
    """Return the columns that a check refers to; all where that is not known."""
    found = {path[0] for path in columns_in(check.expression, schema).values()}
    return found or set(schema.names)
