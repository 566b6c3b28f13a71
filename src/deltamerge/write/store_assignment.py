"""Store assignment: how a value of one type is converted to its column's type.

``spark.sql.storeAssignmentPolicy`` decides: ANSI raises where a value does not fit, also where the session's own casts
do not; LEGACY wraps, saturates or stores NULL, also where the session's own casts raise; STRICT takes up-casts only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from pyspark.sql import Column
from pyspark.sql import types as T

from deltamerge.spark import columns as F
from deltamerge.spark.nested_types import contains, matching_inner_types
from deltamerge.spark.row_errors import row_error

OVERFLOW = "overflow"
_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 20}
_BOTH_WAYS = ({T.TimestampType, T.TimestampNTZType}, {T.TimestampType, T.LongType})
_WIDENING = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType)


_BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_BLANK = r"[\x00-\x20\x7F]*"
_WITH_FRACTION = rf"^{_BLANK}(?<sign>[+-]?)(?<whole>[0-9]*)\.[0-9]*{_BLANK}$"
# Up to so many digits after the point, Java's decimals print without an exponent.
_PLAIN_SCALE = 6
_TWO_TO_63, _TWO_TO_64 = str(2**63), str(2**64)


@dataclass(frozen=True)
class StoreAssignment:
    """The session's rules for storing values.

    Args:
        policy: ``ANSI``, ``LEGACY`` or ``STRICT``.
        structs_by_name: Whether a struct's fields are taken by name, else by position.
        column: The column that a value is stored in, for the error of one that does not fit.
        whole: The types of the array or map that the value is in, as SQL; of a value in a struct its own.
        names_columns: Whether the error of a value that does not fit is to name its column, which Spark's is not.
    """

    policy: str
    ansi_enabled: bool
    case_sensitive: bool
    structs_by_name: bool = True
    column: str = ""
    whole: tuple[str, str] | None = None
    names_columns: bool = False

    def into(self, column: str) -> StoreAssignment:
        return replace(self, column=column)

    def within(self, source: T.DataType, target: T.DataType) -> StoreAssignment:
        """Return the same rules for elements of an array or map without structs, which is cast as a whole."""
        return self if self.whole is not None else replace(self, whole=(sql_type(source), sql_type(target)))

    @property
    def is_sessions_own(self) -> bool:
        """Whether the session's own casts store values so, also those of whole arrays and maps."""
        if self.names_columns:
            return False
        return self.policy == "STRICT" or self.ansi_enabled == (self.policy == "ANSI")

    def cast(self, value: Column, source: T.DataType, target: T.DataType) -> Column:
        """Convert a value that is no struct, array or map to its column's type."""
        if self.is_sessions_own or isinstance(source, T.NullType):
            return value.cast(target)
        if self.policy == "LEGACY":
            return legacy_cast(value, source, target)
        if isinstance(source, T.VariantType) or is_widening(source, target):
            # Of a variant that is null the value is NULL; what does not fit raises in every mode but TRY.
            return value.cast(target)
        fitting = value.try_cast(target)
        given, wanted = self.whole or (sql_type(source), sql_type(target))
        is_string = "true" if isinstance(source, T.StringType) else ""
        known = {"source": given, "target": wanted, "column": self.column, "is_string": is_string}
        overflow = row_error(OVERFLOW, known, {"value": value.cast("string")})
        return F.when(value.isNotNull() & fitting.isNull(), overflow.cast(target)).otherwise(fitting)


def sql_type(data_type: T.DataType) -> str:
    """Return a type as SQL spells it: upper case, a blank after each comma that separates types."""
    return re.sub(r",(?!\d)", ", ", data_type.simpleString().upper())


@dataclass(frozen=True)
class CastPart:
    """A cast of values that a cast consists of.

    Args:
        path: The fields that lead to them, or to the array or map without structs that they are in.
        whole: The types of that array or map, else those of the values.
    """

    path: tuple[str, ...]
    source: T.DataType
    target: T.DataType
    whole: tuple[T.DataType, T.DataType]

    @property
    def is_up_cast(self) -> bool:
        """Whether STRICT takes it, as it nearly never loses anything. Spark: Cast.canUpCast."""
        return _can_up_cast(self.source, self.target)

    @property
    def types(self) -> tuple[str, str]:
        return sql_type(self.whole[0]), sql_type(self.whole[1])


def casts_in(
    source: T.DataType, target: T.DataType, *, structs_by_name: bool = True, path: tuple[str, ...] = ()
) -> Iterator[CastPart]:
    """Yield the casts of values that a cast consists of, none where nothing changes."""
    if source == target or isinstance(source, T.NullType):
        return
    if isinstance(source, T.StructType) and isinstance(target, T.StructType):
        inner = _fields(source, target, structs_by_name)
    else:
        inner = matching_inner_types(source, target)
        if not inner:
            yield CastPart(path, source, target, (source, target))
        elif not contains(target, T.StructType):
            for name, given, wanted in inner:
                for part in casts_in(given, wanted, path=(*path, name)):
                    yield replace(part, path=path, whole=(source, target))
            return
    for name, given, wanted in inner:
        yield from casts_in(given, wanted, structs_by_name=structs_by_name, path=(*path, name))


def is_widening(source: T.DataType, target: T.DataType) -> bool:
    """Return whether a cast is from numbers to numbers that take all of them, also in arrays and maps."""
    if inner := matching_inner_types(source, target):
        return all(one == other or is_widening(one, other) for _, one, other in inner)
    if isinstance(source, T.DecimalType) and isinstance(target, T.IntegralType):
        # Some of 19 digits do not fit a BIGINT.
        return False
    numbers = isinstance(source, T.NumericType) and isinstance(target, T.NumericType)
    return numbers and _can_up_cast(source, target)


def first_lossy(source: T.DataType, target: T.DataType, *, structs_by_name: bool = True) -> CastPart | None:
    """Return the first cast that STRICT does not take."""
    parts = casts_in(source, target, structs_by_name=structs_by_name)
    return next((part for part in parts if not part.is_up_cast), None)


def _fields(source: T.StructType, target: T.StructType, by_name: bool) -> list[tuple[str, T.DataType, T.DataType]]:
    given = {f.name.lower(): f for f in source.fields}
    positions = [*source.fields, *[None] * len(target.fields)]
    pairs = [
        (given.get(wanted.name.lower()) if by_name else positions[index], wanted)
        for index, wanted in enumerate(target.fields)
    ]
    return [(wanted.name, found.dataType, wanted.dataType) for found, wanted in pairs if found is not None]


def _can_up_cast(source: T.DataType, target: T.DataType) -> bool:
    if isinstance(target, T.StringType):
        return not isinstance(source, (T.StructType, T.ArrayType, T.MapType, T.VariantType))
    if isinstance(source, T.DecimalType) and isinstance(target, T.DecimalType):
        whole = target.precision - target.scale >= source.precision - source.scale
        return whole and target.scale >= source.scale
    if isinstance(source, T.DecimalType):
        return source.scale == 0 and source.precision < _DIGITS.get(type(target), 0)
    if type(source) in _DIGITS and isinstance(target, T.DecimalType):
        return target.precision - target.scale >= _DIGITS[type(source)]
    if isinstance(source, T.DateType):
        return isinstance(target, (T.TimestampType, T.TimestampNTZType))
    if type(source) in _WIDENING and type(target) in _WIDENING:
        return _WIDENING.index(type(source)) <= _WIDENING.index(type(target))
    return {type(source), type(target)} in _BOTH_WAYS


def legacy_cast(value: Column, source: T.DataType, target: T.DataType) -> Column:
    """Cast a value that is no struct, array or map, unless to a string. Spark: Cast with EvalMode.LEGACY."""
    if isinstance(source, T.VariantType):
        # Raises in every mode but TRY.
        return value.cast(target)
    if type(target) in _BITS and isinstance(source, (T.NumericType, T.StringType)):
        return _as_integer(value, source, target)
    if isinstance(source, T.DateType) and isinstance(target, (T.NumericType, T.BooleanType)):
        return F.lit(None).cast(target)
    if type(source) in _BITS and isinstance(target, T.BinaryType):
        return _bytes(value, _BITS[type(source)])
    if isinstance(source, T.BooleanType) and isinstance(target, T.TimestampType):
        return F.timestamp_micros(value.cast("bigint"))
    if isinstance(source, T.TimestampType) and isinstance(target, T.BooleanType):
        return F.unix_micros(value) != 0
    if isinstance(source, (T.FloatType, T.DoubleType)) and isinstance(target, T.TimestampType):
        return _as_timestamp(value.cast("double"))
    if isinstance(source, T.DecimalType) and isinstance(target, T.StringType) and source.scale > _PLAIN_SCALE:
        return _as_scientific_string(value, source.scale).cast(target)
    return value.try_cast(target)


def _as_scientific_string(value: Column, scale: int) -> Column:
    """Return a decimal as a string, with an exponent below -6. Java: BigDecimal.toString."""
    digits = F.regexp_replace(F.abs(value).cast("string"), "^0[.]0*", "")
    fraction = F.when(F.length(digits) > 1, F.concat(F.lit("."), F.substr(digits, F.lit(2)))).otherwise("")
    sign, exponent = F.when(value < 0, "-").otherwise(""), (F.length(digits) - 1 - scale).cast("string")
    small = F.concat(sign, F.substr(digits, F.lit(1), F.lit(1)), fraction, F.lit("E"), exponent)
    is_small = F.abs(value) < F.lit(Decimal(10) ** -_PLAIN_SCALE)
    return F.when(value == 0, f"0E-{scale}").when(is_small, small).otherwise(value.try_cast("string"))


def _as_integer(value: Column, source: T.DataType, target: T.DataType) -> Column:
    bits = _BITS[type(target)]
    if isinstance(source, T.StringType):
        return F.regexp_replace(value, _WITH_FRACTION, "${sign}0${whole}").try_cast(target)
    if isinstance(source, T.DecimalType):
        return _wrapped(_low_bits(value, source), bits).cast(target)
    if isinstance(source, (T.FloatType, T.DoubleType)):
        # As the JVM narrows: to INT or BIGINT by saturation, to the smaller ones by wrapping an INT.
        limit = 63 if bits == 64 else 31
        return _wrapped(_saturated(value.cast("double"), limit), bits).cast(target)
    return _wrapped(value.cast("bigint"), bits).cast(target)


def _wrapped(value: Column, bits: int) -> Column:
    return value if bits == 64 else F.shiftright(F.shiftleft(value, 64 - bits), 64 - bits)


def _low_bits(value: Column, source: T.DecimalType) -> Column:
    """Return the lowest 64 bits of a decimal's whole part, as a BIGINT."""
    if source.precision - source.scale <= 18:
        return value.cast("bigint")
    modulus, half = F.lit(_TWO_TO_64).cast("decimal(20,0)"), F.lit(_TWO_TO_63).cast("decimal(20,0)")
    whole = F.when(value >= 0, F.floor(value)).otherwise(F.ceil(value))
    rest = F.pmod(whole, modulus)
    return F.when(rest >= half, rest - modulus).otherwise(rest).cast("bigint")


def _saturated(value: Column, limit: int) -> Column:
    low, high = -(2**limit), 2**limit - 1
    return (
        F.when(F.isnan(value), F.lit(0).cast("bigint"))
        .when(value <= F.lit(float(low)), F.lit(low).cast("bigint"))
        .when(value >= F.lit(float(2**limit)), F.lit(high).cast("bigint"))
        .otherwise(value.cast("bigint"))
    )


def _as_timestamp(value: Column) -> Column:
    finite = F.abs(value) < F.lit(float("inf"))
    return F.when(finite, F.timestamp_micros(_saturated(value * F.lit(1e6), 63)))


def _bytes(value: Column, bits: int) -> Column:
    digits = bits // 4
    return F.unhex(F.substring(F.lpad(F.hex(value.cast("bigint")), 16, "0"), 17 - digits, digits))
