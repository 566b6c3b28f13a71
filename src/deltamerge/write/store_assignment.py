"""Store assignment: how a value of one type becomes a value of its column's type.

``spark.sql.storeAssignmentPolicy`` decides: ANSI raises where a value does not fit, also where the session's own casts
do not; LEGACY wraps, saturates or gives NULL, also where the session's own casts raise; STRICT takes up-casts alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

from deltamerge.write.legacy_casts import legacy_cast

if TYPE_CHECKING:
    from pyspark.sql import Column

OVERFLOW_MARKER = "deltamerge-overflow:"
_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 20}
_WIDENING = (ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType)


@dataclass(frozen=True)
class StoreAssignment:
    """The session's way to store values.

    Args:
        policy: ``ANSI``, ``LEGACY`` or ``STRICT``.
        ansi_enabled: Whether the session's own casts raise.
        case_sensitive: The session's rule for names.
    """

    policy: str
    ansi_enabled: bool
    case_sensitive: bool

    @property
    def is_sessions_own(self) -> bool:
        """Whether the session's own casts store values so, also those of whole arrays and maps."""
        return self.policy == "STRICT" or self.ansi_enabled == (self.policy == "ANSI")

    def cast(self, value: Column, source: DataType, target: DataType) -> Column:
        """Gives a value that is no struct, array or map its column's type.

        Args:
            value: The value.
            source: Its type.
            target: The column's type.

        Returns:
            The value to store.
        """
        if self.is_sessions_own or isinstance(source, NullType):
            return value.cast(target)
        if self.policy == "LEGACY":
            return legacy_cast(value, source, target)
        fitting = value.try_cast(target)
        message = F.lit(f"{OVERFLOW_MARKER}{source.simpleString()}:{target.simpleString()}")
        return F.when(value.isNotNull() & fitting.isNull(), F.raise_error(message).cast(target)).otherwise(
            fitting
        )


def overflow_in(message: str) -> str | None:
    """Reads out of a failed job's message which type's value does not fit its column's, in words; None where none."""
    found = re.search(re.escape(OVERFLOW_MARKER) + r"([^:]+):([^:\s]+)", message)
    if found is None:
        return None
    return f"a value of type {found.group(1).upper()} does not fit {found.group(2).upper()}"


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
