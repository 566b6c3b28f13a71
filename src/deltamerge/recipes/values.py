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
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from deltamerge.log.features.type_widening import ALWAYS
from deltamerge.merge.source.rows_at_fault import may_not_fit, unfit_key
from deltamerge.spark import columns as F
from deltamerge.spark.nested_types import contains, exact_json
from deltamerge.sql.names import quote
from deltamerge.write.align import align, find_field
from deltamerge.write.schema_evolution import evolved_schema
from deltamerge.write.store_assignment import StoreAssignment, casts_in
from deltamerge.write.stored_schema import stored_sql

# Any decimal of so many digits is the same after a cast to DOUBLE or FLOAT and back.
_DOUBLE_DIGITS, _FLOAT_DIGITS = 15, 6
_TIMES = {TimestampType, TimestampNTZType}


def loses_part(given: DataType, wanted: DataType) -> bool:
    """Return whether a cast between two types that are not strings cuts values without an error.

    It cuts the clock of a time, the fraction of a number, or its last digits.
    """
    if isinstance(given, (TimestampType, TimestampNTZType)):
        return isinstance(wanted, (DateType, IntegralType))
    if isinstance(wanted, FloatType):
        return isinstance(given, (DoubleType, DecimalType, IntegerType, LongType))
    if isinstance(wanted, DoubleType):
        return isinstance(given, LongType) or (isinstance(given, DecimalType) and given.precision > _DOUBLE_DIGITS)
    if isinstance(wanted, (IntegralType, DecimalType)):
        before, after = (kind.scale if isinstance(kind, DecimalType) else 0 for kind in (given, wanted))
        return isinstance(given, (DoubleType, FloatType)) or before > after
    return False


def widened(data_type: DataType, given: DataType) -> DataType:
    """Return the type that a column gets where it becomes as wide as one that is given."""
    known, further = (StructType([StructField("c", kind)]) for kind in (data_type, given))
    return evolved_schema(known, further, [("c",)], case_sensitive=False, widening=ALWAYS)["c"].dataType


def keeps_values(given: DataType, wanted: DataType) -> bool:
    """Return whether a cast between two types, and one back, leaves each value as it is."""
    parts = list(casts_in(given, wanted))
    if any({type(part.source), type(part.target)} == _TIMES for part in parts):
        # A clock that is set back shows two times as one.
        return False
    return all(part.is_up_cast and not loses_part(part.source, part.target) for part in parts)


def is_cut(value: Column, given: DataType, wanted: DataType) -> Column:
    """Return whether a cast of a string cuts a part of it: the clock or the zone of a time, or last digits."""
    if not isinstance(given, StringType):
        return F.lit(False)
    kept, cut = value.try_cast(wanted), F.lit(False)
    if isinstance(wanted, DateType):
        cut = value.try_cast(TimestampNTZType()) != kept.cast(TimestampNTZType())
    elif isinstance(wanted, (TimestampType, TimestampNTZType)):
        cut = value.rlike(r"\.\d{6}\d*[1-9]")
        if isinstance(wanted, TimestampNTZType):
            cut |= value.try_cast(TimestampType()) != kept.cast(TimestampType())
    elif isinstance(wanted, DecimalType):
        cut = value.rlike(rf"\.\d{{{wanted.scale}}}\d*[1-9]")
    elif isinstance(wanted, (DoubleType, FloatType)):
        digits, sure = _digits(value), _DOUBLE_DIGITS if isinstance(wanted, DoubleType) else _FLOAT_DIGITS
        cut = (F.length(digits) > sure) & (digits != _digits(kept.cast("string")))
    return F.coalesce(cut, F.lit(False))


def _digits(number: Column) -> Column:
    """Return a number's digits without zeros at both ends."""
    return F.regexp_replace(F.regexp_replace(number, r"[eE].*$|\D", ""), "^0+|0+$", "")


@dataclass(frozen=True)
class ColumnPair:
    """A column of the target, and the source's column of the same name that is written to it."""

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
        return F.when(self.is_unfit(value), unfit_key(value, self.source.name, wanted)).otherwise(stored)

    def order(self) -> Column:
        """Return what is compared with the target's column to tell which row is later; what it cuts fails the job."""
        value, wanted = F.col(quote(self.source.name)), self.target.dataType
        is_unfit = self.is_unfit(value) | is_cut(value, self.source.dataType, wanted)
        return F.when(is_unfit, unfit_key(value, self.source.name, wanted)).otherwise(self.key())

    def is_unfit(self, value: Column) -> Column:
        return value.isNotNull() & value.try_cast(self.target.dataType).isNull()


def is_comparable(data_type: DataType) -> bool:
    return not (contains(data_type, MapType) or contains(data_type, VariantType))


def comparable(value: Column, data_type: DataType) -> Column:
    """Return what is equal where two values are: the value, or its JSON where Spark does not compare its type."""
    if is_comparable(data_type):
        return value
    return exact_json(value, data_type)


def kept_sql(given: str, kept: str, data_type: DataType) -> str:
    """Return SQL for a value that takes the place of another one of its type unless it is NULL; so each field."""
    if not isinstance(data_type, StructType):
        return f"coalesce({given}, {kept})"
    fields = []
    for field in data_type.fields:
        name, literal = quote(field.name), "'" + field.name.replace("\\", "\\\\").replace("'", "\\'") + "'"
        fields.append(f"{literal}, {kept_sql(f'{given}.{name}', f'{kept}.{name}', field.dataType)}")
    return f"CASE WHEN {given} IS NULL THEN {kept} ELSE named_struct({', '.join(fields)}) END"


def kept_value(
    given: Column, kept: Column, data_type: DataType, kept_type: DataType, assignment: StoreAssignment
) -> Column:
    """Return a value that takes the place of another one unless it is NULL, in that one's type; so each field.

    Only the new value is cast, as it is stored; fields that the other one lacks are kept as they are.
    """
    if not (isinstance(data_type, StructType) and isinstance(kept_type, StructType)):
        return F.coalesce(align(given, data_type, kept_type, assignment), kept)
    fields, new = [], list(data_type.fields)
    for field in kept_type.fields:
        place, value = find_field(data_type, field.name, assignment.case_sensitive), kept.getField(field.name)
        if place is not None:
            other = data_type.fields[place]
            new.remove(other)
            value = kept_value(given.getField(other.name), value, other.dataType, field.dataType, assignment)
        fields.append(value.alias(field.name))
    fields += [given.getField(field.name).alias(field.name) for field in new]
    return F.when(given.isNotNull() | kept.isNotNull(), F.struct(*fields))


def all_of(*conditions: str | Column | None) -> str | Column | None:
    """Return what holds where all conditions do, as SQL if they all are; None for none."""
    given = [condition for condition in conditions if condition is not None]
    sql = [condition for condition in given if isinstance(condition, str)]
    if len(given) <= 1:
        return given[0] if given else None
    if len(sql) == len(given):
        return " AND ".join(f"({condition})" for condition in sql)
    return reduce(lambda left, right: left & right, map(F.as_column, given))
