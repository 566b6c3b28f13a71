"""The casts of Spark's LEGACY store assignment in a session whose own casts are those of ANSI.

Integers wrap, floating-point numbers saturate, strings lose their fraction; what has no value becomes NULL. No function
of Spark casts so while ``spark.sql.ansi.enabled`` is true, and the setting would change the user's expressions too.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import types as T

from deltamerge.spark import columns as F

_BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_BLANK = r"[\x00-\x20\x7F]*"
_WITH_FRACTION = rf"^{_BLANK}(?<sign>[+-]?)(?<whole>[0-9]*)\.[0-9]*{_BLANK}$"
_TWO_TO_63, _TWO_TO_64 = str(2**63), str(2**64)


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
    return value.try_cast(target)


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
