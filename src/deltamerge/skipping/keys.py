"""Keys: values of every type as integers (or strings) whose plain order is Spark's order of the values.

Integers, dates (days), timestamps (microseconds) and decimals (unscaled) are their own integers.
Floating-point numbers become the integers of IEEE 754's total order, with one zero and one NaN above
everything, as Spark has them. Strings stay strings: Python and NumPy order them by code point, which is the order
of UTF-8's bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.skipping.columns import ColumnType

Key: TypeAlias = "int | str"
KeyArray: TypeAlias = "npt.NDArray[Any]"
Mask: TypeAlias = "npt.NDArray[np.bool_]"

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
SIGN_FOLD = 0x7FFF_FFFF_FFFF_FFFF


def as_mask(array: object) -> Mask:
    """Return the result of a NumPy comparison as bools, of objects too."""
    return np.asarray(array, dtype=bool)


def float_key(value: float) -> int:
    """Return a floating-point number's place in Spark's order: -Infinity < … < 0 < … < Infinity < NaN."""
    if value != value:
        return NAN_KEY
    bits: int = struct.unpack(">q", struct.pack(">d", value))[0]
    # 0 for either zero.
    return bits if bits >= 0 else -(bits & SIGN_FOLD)


NAN_KEY: int = struct.unpack(">q", struct.pack(">d", float("inf")))[0] + 1


@dataclass(frozen=True)
class Bounds:
    """What is known of one column's values in every file; all arrays have one element per file.

    Args:
        lower: No value of the file is below this key, where `lower_known`.
        upper: No value of the file is above this key, where `upper_known`; a NaN may be, where `hides_nan`.
        may_be_null: Whether some row may be NULL.
        may_be_value: Whether some row may be other than NULL.
    """

    lower: KeyArray
    upper: KeyArray
    lower_known: Mask
    upper_known: Mask
    may_be_null: Mask
    may_be_value: Mask
    hides_nan: bool

    def among(self, wanted: Mask) -> Bounds:
        """Return those of some files, one bool per file."""
        return self if wanted.all() else replace(self, **{name: getattr(self, name)[wanted] for name in ARRAYS})


ARRAYS = tuple(field.name for field in fields(Bounds) if field.name != "hides_nan")
"""The names of what has one element per file."""


def keys_of(values: pa.Array, kind: ColumnType) -> tuple[KeyArray, Mask]:
    """Return a column's values as keys, int64 or objects, and which of them are known.

    `values` are int64, float64, decimal128(38, scale), date32 or string, as statistics have them.
    """
    known = np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
    if kind.kind == "string":
        return pc.fill_null(values, "").to_numpy(zero_copy_only=False).astype(object), known
    if kind.kind == "decimal":
        return _decimal_keys(values, kind, known)
    if kind.kind in ("float", "double"):
        return _float_keys(values, kind, known)
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    integers = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return integers, known


def _float_keys(values: pa.Array, kind: ColumnType, known: Mask) -> tuple[KeyArray, Mask]:
    floats = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
    if kind.kind == "float":
        # A FLOAT's digits are the fewest that read back as that FLOAT, so as a DOUBLE they are another number.
        with np.errstate(over="ignore"):
            floats = floats.astype(np.float32).astype(np.float64)
    bits = floats.view(np.int64)
    keys = np.where(bits >= 0, bits, -(bits & SIGN_FOLD))
    nan = np.isnan(floats)
    return np.where(nan, NAN_KEY, keys), known


def _decimal_keys(values: pa.Array, kind: ColumnType, known: Mask) -> tuple[KeyArray, Mask]:
    if len(values) == 0:
        return np.zeros(0, np.int64 if fits_int64(kind) else object), known
    words = np.frombuffer(values.buffers()[1], dtype=np.int64).reshape(-1, 2)
    words = words[values.offset : values.offset + len(values)]
    low, high = words[:, 0], words[:, 1]
    if fits_int64(kind):
        fits = high == (low >> 63)
        return np.where(known & fits, low, 0), known & fits
    wide = (high.astype(object) << 64) + low.view(np.uint64).astype(object)
    return np.where(known, wide, 0), known


def fits_int64(kind: ColumnType) -> bool:
    """Return whether a type's keys are 64-bit integers (and not Python's own numbers or strings)."""
    return kind.kind != "string" and not (kind.kind == "decimal" and kind.precision > 18)


def has_surrogates(value: str) -> bool:
    """Return whether a string has halves of characters, which UTF-8 has not."""
    return any("\ud800" <= char <= "\udfff" for char in value)


def scaled(number: int, scale: int) -> Decimal:
    # Decimal's own arithmetic rounds to 28 digits.
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def unscaled(value: Decimal, scale: int) -> int | None:
    """Return a decimal's unscaled integer at a scale, or None where that would lose digits."""
    if not value.is_finite():
        return None
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number: int = int("".join(map(str, digits)))
    shift = exponent + scale
    if shift > 1000:
        return None
    if shift >= 0:
        number *= int(10**shift)
    else:
        number, rest = divmod(number, int(10**-shift))
        if rest:
            return None
    return -number if sign else number
