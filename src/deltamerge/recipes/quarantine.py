"""Rows that a table cannot take go to another table, with the reason, instead of failing the merge.

The rows are written before the others are merged: a row of the source is in one of both tables or the call has failed.
A row that is rejected again is found by its content and stays where it is, so that a second run adds none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, MapType, StructField, StructType, VariantType

from deltamerge.api.report import MergeReport
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark import columns as F
from deltamerge.spark.exact_json import exact_json
from deltamerge.sql.names import free_prefix, quote, quote_name
from deltamerge.write.align import same_shape
from deltamerge.write.char_varchar import length_limit
from deltamerge.write.constraints import Check, NotNull, columns_in, constraints_of, holds
from deltamerge.write.store_assignment import sql_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from deltamerge.recipes.targets import Place

ROW_ID, REASON, REJECTED_AT = "_row_id", "_reason", "_rejected_at"
_NESTED = (StructType, ArrayType, MapType, VariantType)


@dataclass(frozen=True)
class WrittenColumn:
    """A column of the target that a source column is written to."""

    target: StructField
    source: StructField


@dataclass(frozen=True)
class Rejected:
    """The rows of a source that its target takes, and how many others were written elsewhere."""

    fitting: DataFrame
    table: str
    rows: int

    def noted_in(self, report: MergeReport) -> MergeReport:
        """Return the report of the merge with a note on the rows that were left out."""
        if not self.rows:
            return report
        rows = "1 source row" if self.rows == 1 else f"{self.rows:,} source rows"
        note = f"{rows} that the table cannot take: written to {self.table}, with the reason."
        return MergeReport(replace(report.outcome, notes=(*report.outcome.notes, note)))


@contextmanager
def rejecting(judged: Judged, place: Place) -> Iterator[Rejected]:
    """Write the rows that were judged unfit to a table; keep the judgement until the others are merged."""
    frame = judged.frame.persist()
    try:
        unfit = frame.where(F.size(judged.reasons) > 0)
        rows = unfit.count()
        if rows:
            _write(judged.as_rejected(unfit), place)
        yield Rejected(judged.rows(frame.where(F.size(judged.reasons) == 0)), place.name, rows)
    finally:
        frame.unpersist()


def _write(rows: DataFrame, place: Place) -> None:
    # Without a transaction: one transaction of several tables would lose the rows of all but the first, and a retry
    # those that it rejects besides.
    target = place.open_or_create(rows.schema)
    (
        target.alias("t")
        .merge(rows.alias("s"), f"t.{ROW_ID} = s.{ROW_ID}")
        .whenNotMatchedInsertAll()
        .withSchemaEvolution()
        .run()
    )


@dataclass(frozen=True)
class Judged:
    """Rows of a source, each with the reasons why a table cannot take it.

    Args:
        frame: The source's row as a struct, and its reasons, an array.
        row: The struct's column.
        reasons: The array's column.
    """

    frame: DataFrame
    row: str
    reasons: str

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the source's rows of a part of the frame."""
        return frame.select(f"{quote(self.row)}.*")

    def as_rejected(self, frame: DataFrame) -> DataFrame:
        """Return the rows as they are written, each once."""
        row_id = F.sha2(exact_json(F.col(self.row)), 256)
        return frame.select(
            row_id.alias(ROW_ID),
            F.concat_ws("; ", self.reasons).alias(REASON),
            F.current_timestamp().alias(REJECTED_AT),
            f"{quote(self.row)}.*",
        ).dropDuplicates([ROW_ID])


def judge(
    source: DataFrame,
    schema: StructType,
    configuration: Mapping[str, str],
    written: Sequence[WrittenColumn],
    is_deleted: Column | None,
) -> Judged:
    """Return a source's rows with the reasons why a table cannot take them; no job runs.

    Found are values that do not fit their column's type or length, NOT NULL and CHECK constraints, and generated
    columns with another value than their expression has. Values in structs, arrays and maps are not cast here.

    Args:
        source: The rows; its alias qualifies the columns in `is_deleted`.
        written: The columns whose values the table would take.
        is_deleted: The rows that no value is taken of.
    """
    prefix = free_prefix((*source.schema.names, *schema.names))
    row, reasons, deleted = (prefix + name for name in ("row", "reasons", "deleted"))
    originals = F.struct(*(F.col(quote(name)) for name in source.schema.names))
    frame = source.select(
        originals.alias(row),
        (F.lit(False) if is_deleted is None else F.coalesce(is_deleted, F.lit(False))).alias(deleted),
        *(_fitting(column).alias(column.target.name) for column in written if _is_known(column)),
    )
    of_row = [(column, F.col(row).getField(column.source.name)) for column in written]
    violations = [
        *(_of_cast(column, value) for column, value in of_row if not _is_nested(column)),
        *(_of_length(column.target, value) for column, value in of_row if CHAR_VARCHAR_TYPE in column.target.metadata),
        *_of_constraints(schema, configuration, {c.target.name for c in written if _is_known(c)}),
    ]
    found = F.filter(F.array(F.lit(None).cast("string"), *violations), lambda reason: reason.isNotNull())
    frame = frame.withColumn(reasons, F.when(F.col(deleted), F.array().cast("array<string>")).otherwise(found))
    return Judged(frame.select(row, reasons), row, reasons)


def _is_nested(column: WrittenColumn) -> bool:
    return isinstance(column.target.dataType, _NESTED) or isinstance(column.source.dataType, _NESTED)


def _is_known(column: WrittenColumn) -> bool:
    """Return whether the value that the table would store is known here."""
    return not _is_nested(column) or same_shape(column.source.dataType, column.target.dataType)


def _fitting(column: WrittenColumn) -> Column:
    value = F.col(quote(column.source.name))
    return value if column.source.dataType == column.target.dataType else value.try_cast(column.target.dataType)


def _of_cast(column: WrittenColumn, value: Column) -> Column:
    name, target = column.target.name, column.target.dataType
    if column.source.dataType == target:
        return F.lit(None).cast("string")
    fails = value.isNotNull() & value.try_cast(target).isNull()
    return F.when(fails, F.concat(F.lit(f"{name}: "), value.cast("string"), F.lit(f" is no {sql_type(target)}")))


def _of_length(field: StructField, value: Column) -> Column:
    limit = length_limit(field)
    if limit is None:
        return F.lit(None).cast("string")
    return F.when(F.length(value.cast("string")) > limit, F.lit(f"{field.name}: longer than {limit} characters"))


def _of_constraints(schema: StructType, configuration: Mapping[str, str], known: set[str]) -> Iterator[Column]:
    for constraint in constraints_of(schema, configuration):
        if isinstance(constraint, NotNull):
            if constraint.path[0] in known:
                is_null = F.col(quote_name(constraint.path)).isNull()
                yield F.when(is_null, F.lit(f"{'.'.join(constraint.path)}: NULL in a NOT NULL column"))
        elif _names_in(constraint, schema) <= known:
            reason = f"CHECK {constraint.name}: {constraint.expression}"
            yield F.when(~holds([constraint], ()), F.lit(reason))


def _names_in(check: Check, schema: StructType) -> set[str]:
    """Return the columns that a check refers to; all where that is not known."""
    found = {path[0] for path in columns_in(check.expression, schema).values()}
    return found or set(schema.names)
