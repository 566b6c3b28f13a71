"""Values and what is asked of ranges that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

LONGS = st.integers(-(2**63), 2**63 - 1)
NEAR = st.integers(-50, 50)


def check(ranges: Sequence[tuple[Any, Any]], values: Sequence[Any]) -> None:
    assert all(low <= high for low, high in ranges)
    assert all(one[1] < other[0] for one, other in pairwise(ranges))
    for value in values:
        assert any(low <= value <= high for low, high in ranges)
