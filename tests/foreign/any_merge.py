"""A merge that changes a table of any columns, and what the table holds then."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    AtomicType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from corpus.canonical import canonical_lines, column, line_of, quoted
from deltamerge import DeltaTable

from .tables import next_numbers

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True)
class MergeOfAnyTable:
    """A merge that deletes one row, updates another and inserts one, and what the table holds then.

    Args:
        source: The source's rows, with what to do with each in its last but one column.
        given: The columns whose values the insert gives.
        condition: ON.
        changed: The column that the update sets; its new value is the source's last column.
        stay: The rows that are there afterwards beside the inserted one, canonical.
        counts: Rows updated, deleted and inserted.
    """

    source: DataFrame
    given: tuple[str, ...]
    condition: Column
    changed: str | None
    stay: list[str]
    counts: tuple[int, int, int]

    def lines(self, schema: StructType, numbers: Mapping[str, int]) -> list[str]:
        """Gives the table's rows afterwards, canonical and sorted.

        Args:
            schema: The table's schema.
            numbers: The values that the table itself gave the inserted row.
        """
        values = [F.lit(numbers[f.name]) if f.name in numbers else column(f.name) for f in schema]
        row = self.source.where(F.col("__op") == F.lit("insert")).select(line_of(schema, values))
        return sorted([*self.stay, row.collect()[0][0]])


def merge_of_any_table(spark: SparkSession, frame: DataFrame, numbered: Collection[str]) -> MergeOfAnyTable:
    """Makes a merge for a table of any columns; the values of ``numbered`` are the table's own."""
    schema = frame.schema
    lines = canonical_lines(frame)
    comparable = [f for f in schema if not _holds_map(f.dataType)]
    free = [field for field in comparable if field.name not in numbered]
    changed = next(((f, v) for f in free if (v := _new_value(f.dataType)) is not None), None)
    distinct = list(dict.fromkeys(lines))
    wanted = [(line, op) for line, op in zip(distinct, ("delete", "update"), strict=False) if changed or op == "delete"]
    line = line_of(schema)
    rows = [frame.where(line == F.lit(text)).limit(1).withColumn("__op", F.lit(op)) for text, op in wanted]
    rows.append(_row_to_insert(spark, frame, distinct).withColumn("__op", F.lit("insert")))
    source = rows[0]
    for part in rows[1:]:
        source = source.unionAll(part)
    value = F.lit(None) if changed is None else changed[1].cast(changed[0].dataType)
    source = source.withColumn("__new", value)
    on = F.col("s.__op") != F.lit("insert")
    for field in comparable:
        name = quoted(field.name)
        on = on & F.col(f"t.{name}").eqNullSafe(F.col(f"s.{name}"))
    gone = {text for text, _ in wanted}
    after = [text for text in lines if text not in gone]
    updated = 0
    for text, op in wanted:
        if op == "update" and changed is not None:
            values = [F.col("__new") if f.name == changed[0].name else column(f.name) for f in schema]
            new = source.where(F.col("__op") == F.lit("update")).select(line_of(schema, values)).collect()
            updated = lines.count(text)
            after += [new[0][0]] * updated
    deleted = lines.count(wanted[0][0]) if wanted else 0
    setting = None if changed is None or len(wanted) < 2 else changed[0].name
    given = tuple(field.name for field in schema if field.name not in numbered)
    return MergeOfAnyTable(source, given, on, setting, after, (updated, deleted, 1))


def _row_to_insert(spark: SparkSession, frame: DataFrame, distinct: list[str]) -> DataFrame:
    if distinct:
        # The last row once more: whatever its types, it fits the table.
        return frame.where(line_of(frame.schema) == F.lit(distinct[-1])).limit(1)
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema]
    return spark.range(1).select(*nulls)


def _holds_map(data_type: DataType) -> bool:
    return "map<" in data_type.simpleString() or "variant" in data_type.simpleString()


def _new_value(data_type: DataType) -> Column | None:
    if not isinstance(data_type, AtomicType):
        return None
    if isinstance(data_type, (DoubleType, FloatType)):
        return F.lit(0.5)
    if isinstance(data_type, NumericType):
        return F.lit(0)
    if isinstance(data_type, StringType):
        return F.lit("a new value")
    if isinstance(data_type, BooleanType):
        return F.lit(True)
    if isinstance(data_type, BinaryType):
        return F.lit("a new value").cast("binary")
    if isinstance(data_type, DateType):
        return F.lit("2024-02-29")
    if isinstance(data_type, (TimestampType, TimestampNTZType)):
        return F.lit("2024-02-29 12:34:56.789012")
    return None


def merged(spark: SparkSession, name: str, path: str) -> list[str]:
    """Merge into a copy of a table, check counts and rows, and return the rows."""
    table = DeltaTable.forPath(spark, path)
    frame, numbers = table.toDF(), next_numbers(name)
    merge = merge_of_any_table(spark, frame, numbers)
    values = {quoted(column): f"s.{quoted(column)}" for column in merge.given}
    builder = table.alias("t").merge(merge.source.alias("s"), merge.condition)
    builder = builder.whenMatchedDelete("s.__op = 'delete'")
    if merge.changed is not None:
        builder = builder.whenMatchedUpdate("s.__op = 'update'", {quoted(merge.changed): "s.__new"})
    metrics = builder.whenNotMatchedInsert("s.__op = 'insert'", values).run().metrics
    assert merge.counts == tuple(metrics[f"numTargetRows{what}"] for what in ("Updated", "Deleted", "Inserted"))
    after = DeltaTable.forPath(spark, path).toDF()
    given = {column: after.agg(F.max(quoted(column))).collect()[0][0] for column in numbers}
    # Which of the numbers that come next a row gets is the engine's own matter.
    assert all(given[column] >= number for column, number in numbers.items())
    lines = canonical_lines(after)
    assert lines == merge.lines(frame.schema, given)
    return lines
