"""Ranges of values by bits of a span's slices: they hold every value, stand in order, and leave gaps out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamerge.skipping.histogram import (
    STRING_BYTES,
    DecimalHistogram,
    IntegerHistogram,
    StringHistogram,
    histogram_of,
)
from deltamerge.skipping.key_ranges import MOST_RANGES
from deltamerge.skipping.keys import scaled

from .ranges import LONGS, NEAR, check


@settings(deadline=None)
@given(st.lists(st.one_of(LONGS, NEAR), min_size=1, max_size=40), LONGS, st.integers(0, 2**40))
def test_slices(values: list[int], begin: int, span: int) -> None:
    end = min(begin + span, 2**63 - 1)
    slices = histogram_of(begin, end)
    assert isinstance(slices, IntegerHistogram)
    assert slices.begin == begin
    assert slices.end > end
    check(list(slices.ranges(bits_of(values, slices), min(values), max(values))), list(values))


def test_slices_leave_gaps_out() -> None:
    slices = histogram_of(0, 32_767_000)
    assert isinstance(slices, IntegerHistogram)
    values = [-5, 3, 500_000, 501_500, 40_000_000]
    assert slices.ranges(bits_of(values, slices), -5, 40_000_000) == (
        (-5, -1), (0, 999), (500_000, 501_999), (32_768_000, 40_000_000),
    )  # fmt: skip


def test_very_many_slices_are_put_together() -> None:
    slices = histogram_of(0, 32_767)
    assert isinstance(slices, IntegerHistogram)
    values = [i for i in range(32_768) if i % 2 == 0 and not 100 < i < 2_000]
    ranges = slices.ranges(bits_of(values, slices), 0, 32_766)
    check(list(ranges), values)
    assert len(ranges) == MOST_RANGES
    assert (100, 2_000) in [(one[1], other[0]) for one, other in pairwise(ranges)]


@pytest.mark.parametrize("ends", [(-(2**63), 2**63 - 1), (0, 2**62)])
def test_spans_that_are_too_wide(ends: tuple[int, int]) -> None:
    assert histogram_of(*ends) is None


# Texts that often begin alike, some with characters of two to four bytes, the last before the surrogates and the last.
TEXTS = st.text(st.sampled_from("ab09\0\x7f\u00e9\ud7ff\ue000\uffff\U0001f600\U0010ffff"), max_size=9)


@settings(deadline=None, max_examples=300)
@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=30), TEXTS, TEXTS)
def test_slices_of_texts(prefix: str, values: list[str], one: str, other: str) -> None:
    values = [prefix + value for value in values]
    low, high = sorted([prefix + one, prefix + other])
    slices = histogram_of(low, high)
    assert isinstance(slices, StringHistogram)
    within = [value.encode() for value in values if low <= value <= high]
    assert all(value.startswith(slices.prefix) for value in within)
    after = (value[len(slices.prefix) :][:STRING_BYTES] for value in within)
    numbers = (int.from_bytes(value.ljust(STRING_BYTES, b"\0"), "big") for value in after)
    check(list(slices.ranges(bits_of(numbers, slices.numbers), min(values), max(values))), list(values))


@settings(deadline=None)
@given(
    st.lists(st.one_of(LONGS, NEAR), min_size=1, max_size=30),
    st.integers(-(2**61), 2**61),
    st.integers(0, 2**61 - 1),
    st.integers(0, 17),
)
def test_slices_of_decimals(values: list[int], begin: int, span: int, scale: int) -> None:
    slices = histogram_of(begin, begin + span, scale)
    assert isinstance(slices, DecimalHistogram)
    decimals = [scaled(value, scale) for value in values]
    bits = bits_of(values, slices.units)
    check(list(slices.ranges(bits, min(decimals), max(decimals))), list(decimals))


def test_spans_of_decimals_that_are_too_wide() -> None:
    assert histogram_of(0, 10, 18) is None
    assert histogram_of(2**62, 2**62 + 5, 2) is None


def bits_of(values: Iterable[int], slices: IntegerHistogram) -> bytes:
    bits = np.zeros(32_768, np.uint8)
    for value in values:
        place = (value - slices.begin) // slices.width
        if 0 <= place < len(bits):
            bits[place] = 1
    return np.packbits(bits, bitorder="little").tobytes()
