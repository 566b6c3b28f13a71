from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamerge.render.printable import count, duration, size


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1_234_567, "1,234,567 rows")]
)
def test_count(number: int, text: str) -> None:
    assert count(number, "row") == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (9_949, "9.9 kB"),
        (9_950, "10 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (5_512_000, "5.5 MB"),
        (3 * 10**12, "3.0 TB"),
        (5 * 10**18, "5000 PB"),
    ],
)
def test_size(number: int, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0.00 s"),
        (9, "0.01 s"),
        (99, "0.10 s"),
        (100, "0.1 s"),
        (59_949, "59.9 s"),
        (59_950, "1 min 00 s"),
        (125_000, "2 min 05 s"),
        (3_599_400, "59 min 59 s"),
        (3_600_000, "1 h 00 min"),
        (7_261_000, "2 h 01 min"),
    ],
)
def test_duration(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


@given(st.integers(0, 10**17))
def test_a_size_has_three_digits_at_most(number: int) -> None:
    digits = size(number).split()[0].replace(".", "")
    assert len(digits) <= 3
