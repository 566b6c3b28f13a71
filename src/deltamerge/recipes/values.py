"""Values of two rows: whether they are the same, and which of both stays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from deltamerge.merge.source.rows_at_fault import may_not_fit, unfit_key
from deltamerge.spark import columns as F
from deltamerge.spark.nested_types import contains, exact_json
from deltamerge.sql.names import quote
from deltamerge.write.stored_values import stored_sql


def loses_part(given: DataType, wanted: DataType) -> bool:
    """Return whether a cast between two types cuts values without an error: a time's clock, a number's fraction."""
    if isinstance(given, (TimestampType, TimestampNTZType)):
        return isinstance(wanted, DateType)
    if isinstance(wanted, FloatType):
        return isinstance(given, (DoubleType, DecimalType))
    if isinstance(wanted, (IntegralType, DecimalType)):
        before, after = (kind.scale if isinstance(kind, DecimalType) else 0 for kind in (given, wanted))
        return isinstance(given, (DoubleType, FloatType)) or before > after
    return False


@dataclass(frozen=True)
class ColumnPair:
    """A column of the target, and the source's column of the same name that is written to it.

    Args:
        is_partition: Whether the target is partitioned by it.
    """

    target: StructField
    source: StructField
    is_partition: bool = False

    def stored_sql(self, value: str) -> str:
        """Return SQL for a plain value as a scan of the target returns it; NULL where its type has no such value.

        ON needs it as SQL, in which keys are recognized.
        """
        cast = "TRY_CAST" if may_not_fit(self.source.dataType, self.target.dataType) else "CAST"
        if self.source.dataType != self.target.dataType:
            value = f"{cast}({value} AS {self.target.dataType.simpleString()})"
        return stored_sql(value, self.target, is_partition=self.is_partition)

    def key(self, side: str = "") -> Column:
        """Return a key of the source as a scan of the target returns it; one that it cannot store fails the job.

        Args:
            side: The alias of the source with a dot, if its columns need one.
        """
        name = side + quote(self.source.name)
        stored, value, wanted = F.expr(self.stored_sql(name)), F.col(name), self.target.dataType
        if not may_not_fit(self.source.dataType, wanted):
            return stored
        unfit = unfit_key(value, self.source.name, wanted)
        return F.when(value.isNotNull() & value.try_cast(wanted).isNull(), unfit).otherwise(stored)


def is_comparable(data_type: DataType) -> bool:
    """Return whether Spark compares values of a type."""
    return not (contains(data_type, MapType) or contains(data_type, VariantType))


def comparable(value: Column, data_type: DataType) -> Column:
    """Return what is equal where two values are: the value, or its JSON where Spark does not compare its type."""
    if is_comparable(data_type):
        return value
    return exact_json(F.struct(value.alias("v")))


def kept_sql(given: str, kept: str, data_type: DataType, kept_type: DataType) -> str:
    """Return SQL for a value that takes the place of another one unless it is NULL; so each field of a struct."""
    if not (isinstance(data_type, StructType) and isinstance(kept_type, StructType)):
        return f"coalesce({given}, {kept})"
    fields = []
    for field in kept_type.fields:
        name = quote(field.name)
        other = next((f for f in data_type.fields if f.name.lower() == field.name.lower()), None)
        text = "'" + field.name.replace("\\", "\\\\").replace("'", "\\'") + "'"
        inner = f"{kept}.{name}"
        if other is not None:
            inner = kept_sql(f"{given}.{quote(other.name)}", inner, other.dataType, field.dataType)
        fields.append(f"{text}, {inner}")
    return f"CASE WHEN {given} IS NULL THEN {kept} ELSE named_struct({', '.join(fields)}) END"


def all_of(*conditions: str | Column | None) -> str | Column | None:
    """Return what holds where all conditions do, as SQL if they all are; None for none."""
    given = [condition for condition in conditions if condition is not None]
    sql = [condition for condition in given if isinstance(condition, str)]
    if len(given) <= 1:
        return given[0] if given else None
    if len(sql) == len(given):
        return " AND ".join(f"({condition})" for condition in sql)
    columns = [F.expr(c) if isinstance(c, str) else c for c in given]
    return reduce(lambda left, right: left & right, columns)
