"""Columns of files that are older than their table's type: widened, as Spark reads them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# Digits of the whole part of the narrowest DECIMAL that takes INT and smaller, and BIGINT. Protocol: Type Widening.
_DIGITS_OF_INT, _DIGITS_OF_LONG = 10, 20
_INT_BITS = 32
# Days whose microseconds since 1970 fit 64 bits.
_MOST_DAYS = (1 << 63) // 86_400_000_000


def can_widen(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether every value of one type is a value of another, by the protocol's type changes."""
    if pa.types.is_signed_integer(narrow):
        if pa.types.is_signed_integer(wide):
            return bool(narrow.bit_width < wide.bit_width)
        is_int = narrow.bit_width <= _INT_BITS
        if pa.types.is_decimal128(wide):
            return bool(wide.precision - wide.scale >= (_DIGITS_OF_INT if is_int else _DIGITS_OF_LONG))
        return bool(is_int and pa.types.is_float64(wide))
    if pa.types.is_decimal128(narrow) and pa.types.is_decimal128(wide):
        scale = wide.scale - narrow.scale
        return bool(narrow != wide and wide.precision - narrow.precision >= scale >= 0)
    if pa.types.is_float32(narrow):
        return bool(pa.types.is_float64(wide))
    return bool(pa.types.is_date32(narrow) and wide == pa.timestamp("us"))


def widened(column: Any, wide: pa.DataType) -> Any:  # noqa: ANN401
    """Return a column in a wider type, or as it is where its type has no such change.

    Raises:
        ValueError: A day has no timestamp.
    """
    if not can_widen(column.type, wide):
        return column
    if pa.types.is_date32(column.type):
        most = pc.max(pc.abs(column.cast(pa.int32()).cast(pa.int64()))).as_py()
        if most is not None and most >= _MOST_DAYS:
            raise ValueError("a day is too far away for a timestamp")
    return column.cast(wide)
