"""Store assignment: how a value of one type becomes a value of its column's type.

``spark.sql.storeAssignmentPolicy`` decides: ANSI raises where a value does not fit, also where the session's own casts
do not; LEGACY wraps, saturates or gives NULL, also where the session's own casts raise; STRICT takes up-casts alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

OVERFLOW_MARKER = "deltamerge-overflow:"
_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 20}
_WIDENING = (ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType)


@dataclass(frozen=True)
class StoreAssignment:
    """The session's way to store values.

    Args:
        policy: ``ANSI``, ``LEGACY`` or ``STRICT``.
        ansi_enabled: Whether the session's own casts raise.
        case_sensitive: The session's rule for names.
        column: The column that a value is stored in, for the error of one that does not fit.
    """

    policy: str
    ansi_enabled: bool
    case_sensitive: bool
    column: str = ""

    def into(self, column: str) -> StoreAssignment:
        """Says which column a value is stored in."""
        return replace(self, column=column)

    def cast(self, value: Column, source: DataType, target: DataType) -> Column:
        """Gives a value that is no struct, array or map its column's type.

        Args:
            value: The value.
            source: Its type.
            target: The column's type.

        Returns:
            The value to store.
        """
        if self.policy == "LEGACY":
            return _legacy(value, source, target) if self.ansi_enabled else value.cast(target)
        if self.ansi_enabled or isinstance(source, NullType):
            return value.cast(target)
        fitting = value.try_cast(target)
        types = f"{source.simpleString()}:{target.simpleString()}"
        message = F.lit(f"{OVERFLOW_MARKER}{types}:{quote(self.column, safe='')};")
        return F.when(value.isNotNull() & fitting.isNull(), F.raise_error(message).cast(target)).otherwise(
            fitting
        )


@dataclass(frozen=True)
class Overflow:
    """A value that does not fit its column, as far as it is known.

    Args:
        source: The value's type.
        target: The column's type, or that of a field in it.
        column: The column's name.
    """

    source: str | None = None
    target: str | None = None
    column: str | None = None

    @property
    def words(self) -> str:
        """What happened, for a message."""
        said = f"a value of type {(self.source or '').upper()} does not fit {(self.target or '').upper()}"
        return said if self.column is None else f"{said} in column `{self.column}`"

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of DELTA_CAST_OVERFLOW_IN_TABLE_WRITE, without those that are not known."""
        known = {
            "sourceType": None if self.source is None else f'"{self.source.upper()}"',
            "targetType": None if self.target is None else f'"{self.target.upper()}"',
            "columnName": None if self.column is None else f"`{self.column}`",
            "storeAssignmentPolicyFlag": "spark.sql.storeAssignmentPolicy",
            "ansiEnabledFlag": "spark.sql.ansi.enabled",
        }
        return {name: value for name, value in known.items() if value is not None}


def overflow_in(message: str) -> Overflow | None:
    """Reads out of a failed job's message which value does not fit its column; None where that is not its cause."""
    found = re.search(re.escape(OVERFLOW_MARKER) + r"([^:]+):([^:\s]+):([^;\s]*);", message)
    if found is None:
        return None
    return Overflow(found.group(1), found.group(2), unquote(found.group(3)) or None)


def _legacy(value: Column, source: DataType, target: DataType) -> Column:
    bits = _BITS.get(type(target))
    if bits is None or isinstance(source, (StringType, NullType)):
        return value.try_cast(target)
    if type(source) in _BITS:
        return _wrapped(value.cast("bigint"), bits).cast(target)
    if isinstance(source, (FloatType, DoubleType)):
        # As the JVM narrows: to INT or BIGINT by saturation, to the smaller ones by wrapping an INT.
        limit = 63 if bits == 64 else 31
        return _wrapped(_saturated(value.cast("double"), limit), bits).cast(target)
    return value.try_cast(target)


def _wrapped(value: Column, bits: int) -> Column:
    return value if bits == 64 else F.shiftright(F.shiftleft(value, 64 - bits), 64 - bits)


def _saturated(value: Column, limit: int) -> Column:
    low, high = -(2**limit), 2**limit - 1
    return (
        F.when(F.isnan(value), F.lit(0).cast("bigint"))
        .when(value <= F.lit(float(low)), F.lit(low).cast("bigint"))
        .when(value >= F.lit(float(2**limit)), F.lit(high).cast("bigint"))
        .otherwise(value.cast("bigint"))
    )


def can_up_cast(source: DataType, target: DataType) -> bool:
    """Tells whether a cast never loses anything, so that STRICT takes it.

    Args:
        source: The value's type.
        target: The column's type.

    Returns:
        Spark: Cast.canUpCast.
    """
    if source == target or isinstance(source, NullType):
        return True
    if isinstance(source, StructType) and isinstance(target, StructType):
        by_name = {f.name.lower(): f.dataType for f in source.fields}
        return all(can_up_cast(by_name.get(f.name.lower(), f.dataType), f.dataType) for f in target.fields)
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        return can_up_cast(source.elementType, target.elementType)
    if isinstance(source, MapType) and isinstance(target, MapType):
        return can_up_cast(source.keyType, target.keyType) and can_up_cast(source.valueType, target.valueType)
    if isinstance(target, StringType):
        return not isinstance(source, (StructType, ArrayType, MapType))
    if isinstance(source, DecimalType) and isinstance(target, DecimalType):
        whole = target.precision - target.scale >= source.precision - source.scale
        return whole and target.scale >= source.scale
    if type(source) in _DIGITS and isinstance(target, DecimalType):
        return target.precision - target.scale >= _DIGITS[type(source)]
    if isinstance(source, DateType):
        return isinstance(target, (TimestampType, TimestampNTZType))
    if type(source) in _WIDENING and type(target) in _WIDENING:
        return _WIDENING.index(type(source)) <= _WIDENING.index(type(target))
    return {type(source), type(target)} == {TimestampType, TimestampNTZType}
