"""Histograms of keys: a span in buckets, with a bit for each that has a value, as ranges for pruning."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise, takewhile
from typing import TypeAlias

import numpy as np

from deltamerge.skipping.key_ranges import MOST_RANGES
from deltamerge.skipping.keys import Key, scaled

# The bits of one of Spark's bitmaps (bitmap_construct_agg).
_BUCKETS = 1 << 15
_MOST_SPAN = 1 << 62
# So many digits the unscaled values of a span have at most.
UNIT_DIGITS = 19
# With more digits after the point such a decimal times ten to their number has more than Spark's 38.
_MOST_SCALE = 17
# So many bytes after the common prefix decide the bucket of a string; as an integer they fit 64 bits.
STRING_BYTES = 6
_GREATEST_NUMBER = (1 << 8 * STRING_BYTES) - 1
_LAST_BEFORE_SURROGATES, _AFTER_SURROGATES, _LAST_CHARACTER = 0xD7FF, 0xE000, 0x10FFFF


@dataclass(frozen=True)
class IntegerHistogram:
    """A span of integers cut into 32,768 buckets of the same width."""

    begin: int
    width: int

    @property
    def end(self) -> int:
        return self.begin + self.width * _BUCKETS

    def ranges(self, bits: bytes, low: int, high: int) -> tuple[tuple[int, int], ...]:
        """Return ranges that hold all values, in order and without overlap, `MOST_RANGES` at most.

        `bits` has one bit for each bucket, the lowest first: whether it has a value. `low` and `high` are the least
        and the greatest value, which may be outside of the buckets.
        """
        filled = np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little"))
        found: list[tuple[int, int]] = []
        if low < self.begin:
            found.append((low, min(high, self.begin - 1)))
        breaks = np.flatnonzero(np.diff(filled) > 1)
        firsts = filled[np.concatenate(([0], breaks + 1))].tolist() if len(filled) else []
        lasts = filled[np.concatenate((breaks, [len(filled) - 1]))].tolist() if len(filled) else []
        for first, last in zip(firsts, lasts, strict=True):
            begin, end = self.begin + first * self.width, self.begin + (last + 1) * self.width
            found.append((max(low, begin), min(high, end - 1)))
        if high >= self.end:
            found.append((max(low, self.end), high))
        return _without_narrow_gaps(found)


@dataclass(frozen=True)
class DecimalHistogram:
    """A span of decimals cut into buckets of units of the last digit that the target's values have."""

    scale: int
    units: IntegerHistogram

    @property
    def low(self) -> Decimal:
        return scaled(self.units.begin, self.scale)

    @property
    def high(self) -> Decimal:
        return scaled(self.units.end - 1, self.scale)

    def ranges(self, bits: bytes, low: Decimal | int, high: Decimal | int) -> tuple[tuple[Decimal, Decimal], ...]:
        """Return ranges of all values that have no more digits after the point than the target's.

        Arguments are as for `IntegerHistogram.ranges`.
        """
        one = 10**self.scale
        first, last = _rounded_down(low, one), -_rounded_down(-high, one)
        return tuple(
            (scaled(begin, self.scale), scaled(end, self.scale)) for begin, end in self.units.ranges(bits, first, last)
        )


@dataclass(frozen=True)
class StringHistogram:
    """A span of strings cut into buckets by the bytes after their common prefix.

    `numbers` are the buckets of the next `STRING_BYTES` bytes, those that a string does not have being zeros.
    """

    low: str
    high: str
    prefix: bytes
    numbers: IntegerHistogram

    def ranges(self, bits: bytes, low: str, high: str) -> tuple[tuple[str, str], ...]:
        """Return ranges that hold all values; see `IntegerHistogram.ranges`."""
        found = [(low, min(high, self.low))] if low < self.low else []
        last = min(self.numbers.end - 1, _GREATEST_NUMBER)
        for begin, end in self.numbers.ranges(bits, self.numbers.begin, last):
            found.append((max(low, self._at_most(begin)), min(high, self._above(end))))
        if high > self.high:
            found.append((max(low, self.high), high))
        return _joined(found)

    def _at_most(self, number: int) -> str:
        """Return a string that no string with such a number, or a greater one, is less than."""
        return _string_of(self.prefix + number.to_bytes(STRING_BYTES, "big").rstrip(b"\0"))

    def _above(self, number: int) -> str:
        """Return a string that is greater than all strings with such a number."""
        string = _string_of(self.prefix + number.to_bytes(STRING_BYTES, "big"))
        while string:
            character = ord(string[-1])
            if character < _LAST_CHARACTER:
                after = _AFTER_SURROGATES if character == _LAST_BEFORE_SURROGATES else character + 1
                return string[:-1] + chr(after)
            string = string[:-1]
        return self.high


KeyHistogram: TypeAlias = IntegerHistogram | DecimalHistogram | StringHistogram


def histogram_of(low: Key, high: Key, scale: int | None = None) -> KeyHistogram | None:
    """Return the histogram of a span.

    None where integers or units do not fit 64 bits, and where decimals have very many digits after the point.
    `scale` is the number of digits after the point, where keys are unscaled decimals.
    """
    if isinstance(low, str) or isinstance(high, str):
        return _string_histogram(str(low), str(high))
    histogram = None if high - low >= _MOST_SPAN else IntegerHistogram(low, (high - low) // _BUCKETS + 1)
    if scale is None or histogram is None:
        return histogram
    if scale > _MOST_SCALE or max(-low, high) >= _MOST_SPAN:
        return None
    return DecimalHistogram(scale, histogram)


def _string_histogram(low: str, high: str) -> StringHistogram:
    first, last = low.encode(), high.encode()
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    prefix = bytes(byte for byte, _ in same)
    begin, end = (_number_of(string[len(prefix) :]) for string in (first, last))
    return StringHistogram(low, high, prefix, IntegerHistogram(begin, (end - begin) // _BUCKETS + 1))


def _number_of(string: bytes) -> int:
    return int.from_bytes(string[:STRING_BYTES].ljust(STRING_BYTES, b"\0"), "big")


def _string_of(utf8: bytes) -> str:
    """Return the string of the first bytes, as many as are one."""
    try:
        return utf8.decode()
    except UnicodeDecodeError as error:
        return utf8[: error.start].decode()


def _rounded_down(value: Decimal | int, one: int) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * one // denominator


def _without_narrow_gaps(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    if len(ranges) <= MOST_RANGES:
        return tuple(ranges)
    gaps = [later[0] - sooner[1] for sooner, later in pairwise(ranges)]
    widest = sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)[: MOST_RANGES - 1]
    ends = [*sorted(widest), len(gaps)]
    begins = [0, *(end + 1 for end in ends[:-1])]
    return tuple((ranges[begin][0], ranges[end][1]) for begin, end in zip(begins, ends, strict=True))


def _joined(ranges: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for low, high in ranges:
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)
