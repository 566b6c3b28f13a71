"""Ranges with gaps: they hold every value, stand in order, and leave out what can be left out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamerge.skipping.clusters import MOST_RANGES, clusters, slices_of

LONGS = st.integers(-(2**63), 2**63 - 1)
NEAR = st.integers(-50, 50)


def chunked(values: list[object], kind: pa.DataType) -> pa.ChunkedArray:
    half = len(values) // 2
    return pa.chunked_array([pa.array(values[:half], kind), pa.array(values[half:], kind)])


def check(ranges: list[tuple[object, object]], values: list[object]) -> None:
    assert all(low <= high for low, high in ranges)  # type: ignore[operator]
    assert all(one[1] < other[0] for one, other in pairwise(ranges))  # type: ignore[operator]
    for value in values:
        assert any(low <= value <= high for low, high in ranges)  # type: ignore[operator]


@settings(deadline=None)
@given(st.lists(st.one_of(LONGS, NEAR, st.none()), max_size=40), st.integers(1, 10))
def test_integers(values: list[int | None], most: int) -> None:
    ranges = clusters(chunked(list(values), pa.int64()), most)
    assert ranges is not None
    there = sorted({value for value in values if value is not None})
    check(list(ranges), list(there))
    assert len(ranges) <= most
    if there:
        assert (ranges[0][0], ranges[-1][1]) == (there[0], there[-1])
        # The widest gaps are left out: none that stays inside of a range is wider than one between two.
        between = [ranges[i + 1][0] - ranges[i][1] for i in range(len(ranges) - 1)]  # type: ignore[operator]
        ends = {high for _, high in ranges}
        inside = [b - a for a, b in pairwise(there) if a not in ends]
        assert not between or not inside or max(inside) <= max(min(between), 1) or len(ranges) < most
        assert all(gap <= 1 for gap in inside) or len(ranges) == most


@settings(deadline=None)
@given(st.lists(st.one_of(st.text(max_size=4), st.none()), max_size=40), st.integers(1, 10))
def test_texts(values: list[str | None], most: int) -> None:
    ranges = clusters(chunked(list(values), pa.string()), most)
    assert ranges is not None
    there = sorted({value for value in values if value is not None})
    check(list(ranges), list(there))
    assert len(ranges) <= most
    assert len(there) > most or ranges == tuple((value, value) for value in there)


def test_other_types_are_left_alone() -> None:
    assert clusters(chunked([1.5], pa.float64())) is None
    assert clusters(chunked([None], pa.null())) is None


@settings(deadline=None)
@given(st.lists(st.one_of(LONGS, NEAR), min_size=1, max_size=40), LONGS, st.integers(0, 2**40))
def test_slices(values: list[int], begin: int, span: int) -> None:
    end = min(begin + span, 2**63 - 1)
    slices = slices_of(begin, end)
    assert slices is not None
    assert slices.begin == begin
    assert slices.end > end
    check(list(slices.ranges(bits_of(values, slices), min(values), max(values))), list(values))


def test_slices_leave_gaps_out() -> None:
    slices = slices_of(0, 32_767_000)
    assert slices is not None
    values = [-5, 3, 500_000, 501_500, 40_000_000]
    assert slices.ranges(bits_of(values, slices), -5, 40_000_000) == (
        (-5, -1), (0, 999), (500_000, 501_999), (32_768_000, 40_000_000),
    )  # fmt: skip


def test_very_many_slices_are_put_together() -> None:
    slices = slices_of(0, 32_767)
    assert slices is not None
    values = [i for i in range(32_768) if i % 2 == 0 and not 100 < i < 2_000]
    ranges = slices.ranges(bits_of(values, slices), 0, 32_766)
    check(list(ranges), values)
    assert len(ranges) == MOST_RANGES
    assert (100, 2_000) in [(one[1], other[0]) for one, other in pairwise(ranges)]


@pytest.mark.parametrize("ends", [(-(2**63), 2**63 - 1), (0, 2**62)])
def test_spans_that_are_too_wide(ends: tuple[int, int]) -> None:
    assert slices_of(*ends) is None


def bits_of(values: list[int], slices: object) -> bytes:
    bits = np.zeros(32_768, np.uint8)
    for value in values:
        place = (value - slices.begin) // slices.width  # type: ignore[attr-defined]
        if 0 <= place < len(bits):
            bits[place] = 1
    return np.packbits(bits, bitorder="little").tobytes()
