"""Ranges with gaps: they hold every value, stand in order, and leave out what can be left out."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamerge.skipping import key_ranges as key_ranges_module
from deltamerge.skipping.key_ranges import key_ranges

from .ranges import LONGS, NEAR, check


def chunked(values: list[object], kind: pa.DataType) -> pa.ChunkedArray:
    half = len(values) // 2
    return pa.chunked_array([pa.array(values[:half], kind), pa.array(values[half:], kind)])


@settings(deadline=None)
@given(st.lists(st.one_of(LONGS, NEAR, st.none()), max_size=40), st.integers(1, 10), st.sampled_from([1, 3, 1 << 22]))
def test_integers(values: list[int | None], most: int, at_once: int) -> None:
    with patch.object(key_ranges_module, "_VALUES_AT_ONCE", at_once):
        ranges = key_ranges(chunked(list(values), pa.int64()), most)
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
    ranges = key_ranges(chunked(list(values), pa.string()), most)
    assert ranges is not None
    there = sorted({value for value in values if value is not None})
    check(list(ranges), list(there))
    assert len(ranges) <= most
    assert len(there) > most or ranges == tuple((value, value) for value in there)


def test_other_types_are_left_alone() -> None:
    assert key_ranges(chunked([1.5], pa.float64())) is None
    assert key_ranges(chunked([None], pa.null())) is None
