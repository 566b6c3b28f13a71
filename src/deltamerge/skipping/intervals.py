"""Intervals of keys, and which files' bounds meet them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deltamerge.skipping.columns import ColumnType
from deltamerge.skipping.keys import (
    INT64_MAX,
    INT64_MIN,
    NAN_KEY,
    Bounds,
    Key,
    KeyArray,
    Mask,
    as_mask,
    fits_int64,
)
from deltamerge.skipping.literals import Span


@dataclass(frozen=True)
class Interval:
    """The keys from `low` to `high`, None being without end; an open end leaves out the key itself."""

    low: Any
    high: Any
    low_open: bool = False
    high_open: bool = False


def interval_of(op: str, span: Span, kind: ColumnType) -> Interval | None:
    """Return the keys for which ``column op literal`` may be TRUE; None for an unknown operator.

    The interval is empty (low above high) where no key fits.
    """
    # Keys that are not strings are whole numbers: `< 5` is `<= 4`, and `< 5.5` is `<= 5`.
    is_string = kind.kind == "string"
    strict = op in ("<", ">") and span.exact and span.low == span.high
    if op in ("=", "<=>"):
        return Interval(span.low, span.high)
    if op in ("<", "<="):
        high = span.high - 1 if strict and not isinstance(span.high, str) else span.high
        return Interval(None, high, high_open=strict and is_string)
    if op in (">", ">="):
        low = span.low + 1 if strict and not isinstance(span.low, str) else span.low
        return Interval(low, None, low_open=strict and is_string)
    return None


def may_meet(interval: Interval, bounds: Bounds, kind: ColumnType) -> Mask:
    low, high = interval.low, interval.high
    if low is not None and high is not None and low > high:
        return np.zeros(len(bounds.may_be_null), dtype=bool)
    low, high = _operand(low), _operand(high)
    mask = np.ones(len(bounds.may_be_null), dtype=bool)
    if bounds.hides_nan and (high is None or high >= NAN_KEY):
        return mask
    if fits_int64(kind):
        # A literal may be beyond everything that the column can hold.
        if (low is not None and low > INT64_MAX) or (high is not None and high < INT64_MIN):
            return ~(bounds.lower_known & bounds.upper_known)
        low = None if low is None or low < INT64_MIN else low
        high = None if high is None or high > INT64_MAX else high
    if high is not None:
        mask &= ~bounds.lower_known | as_mask(bounds.lower < high if interval.high_open else bounds.lower <= high)
    if low is not None:
        mask &= ~bounds.upper_known | as_mask(bounds.upper > low if interval.low_open else bounds.upper >= low)
    return mask


def may_meet_any(lows: Sequence[Key], highs: Sequence[Key], bounds: Bounds, kind: ColumnType) -> Mask:
    """Return which files may hold a key of any of many closed intervals."""
    begins, ends = _sorted(lows, highs, kind)
    if len(begins) == 0:
        return ~(bounds.lower_known & bounds.upper_known) if lows else np.zeros(len(bounds.lower), bool)
    if bounds.hides_nan and ends[-1] >= NAN_KEY:
        return np.ones(len(bounds.lower), dtype=bool)
    # The first interval that does not end before the file begins is the only one that need be looked at.
    place = np.where(bounds.lower_known, np.searchsorted(ends, bounds.lower, side="left"), 0)
    begin = begins[np.minimum(place, len(begins) - 1)]
    return as_mask((place < len(begins)) & (as_mask(begin <= bounds.upper) | ~bounds.upper_known))


def _sorted(lows: Sequence[Key], highs: Sequence[Key], kind: ColumnType) -> tuple[KeyArray, KeyArray]:
    begins, ends = np.empty(len(lows), dtype=object), np.empty(len(lows), dtype=object)
    begins[:], ends[:] = lows, highs
    if fits_int64(kind) and len(lows):
        inside = as_mask(begins <= INT64_MAX) & as_mask(ends >= INT64_MIN)
        begins = np.maximum(begins[inside], INT64_MIN).astype(np.int64)
        ends = np.minimum(ends[inside], INT64_MAX).astype(np.int64)
    order = np.argsort(begins, kind="stable")
    ends = ends[order]
    # Widened literals may overlap; an interval that ends early must not hide one that began before it.
    return begins[order], np.maximum.accumulate(ends) if len(ends) else ends


def may_differ(span: Span, bounds: Bounds) -> Mask:
    """Return which files may hold a key other than a literal's."""
    if bounds.hides_nan or not span.exact or span.low != span.high:
        return np.ones(len(bounds.may_be_null), dtype=bool)
    key = _operand(span.low)
    only = as_mask(bounds.lower == key) & as_mask(bounds.upper == key)
    return ~(bounds.lower_known & bounds.upper_known & only)


def may_start_with(prefix: str, bounds: Bounds) -> Mask:
    starts = np.array([lower[: len(prefix)] for lower in bounds.lower], dtype=object)
    key = _operand(prefix)
    below = ~bounds.lower_known | as_mask(starts <= key)
    return below & (~bounds.upper_known | as_mask(bounds.upper >= key))


def _operand(key: Any) -> Any:  # noqa: ANN401
    """Return a key as NumPy compares it with an array: of a plain string it takes NULs off the end."""
    return np.array(key, dtype=object) if isinstance(key, str) else key
