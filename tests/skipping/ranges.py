"""Values and what is asked of ranges that hold them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

LONGS = st.integers(-(2**63), 2**63 - 1)
NEAR = st.integers(-50, 50)


def check(ranges: list[tuple[object, object]], values: list[object]) -> None:
    assert all(low <= high for low, high in ranges)  # type: ignore[operator]
    assert all(one[1] < other[0] for one, other in pairwise(ranges))  # type: ignore[operator]
    for value in values:
        assert any(low <= value <= high for low, high in ranges)  # type: ignore[operator]
