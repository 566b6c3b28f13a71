from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamerge.log.checkpoint.reading import stats_to_json

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=5)
FLOATS = st.floats() | st.sampled_from([0.0, 1e300, 5e-324])
LEAVES = pa.struct([("i", pa.int64()), ("s", pa.string()), ("f", pa.float64()), ('"q\\', pa.bool_())])
STATS = pa.struct([("numRecords", pa.int64()), ("minValues", LEAVES), ("nullCount", pa.struct([("i", pa.int64())]))])

leaves = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | TEXT,
        "f": st.none() | FLOATS,
        '"q\\': st.none() | st.booleans(),
    }
)
rows = st.fixed_dictionaries(
    {
        "numRecords": st.none() | st.integers(0, 10),
        "minValues": st.none() | leaves,
        "nullCount": st.none() | st.fixed_dictionaries({"i": st.none() | st.integers(0, 10)}),
    }
)


def expected(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: expected(item) for key, item in value.items() if item is not None}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@settings(deadline=None)
@given(st.lists(st.none() | rows, max_size=5))
def test_same_as_row_by_row(values: list[dict[str, Any] | None]) -> None:
    found = stats_to_json(pa.array(values, STATS)).to_pylist()
    assert [None if text is None else json.loads(text) for text in found] == [
        None if value is None else expected(value) for value in values
    ]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (Decimal("-12.340"), pa.decimal128(10, 3), "-12.340"),
        (datetime.date(2020, 2, 29), pa.date32(), '"2020-02-29"'),
        (
            datetime.datetime(2020, 2, 29, 1, 2, 3, 456_789, tzinfo=datetime.timezone.utc),
            pa.timestamp("us", "UTC"),
            '"2020-02-29T01:02:03.456789Z"',
        ),
        (datetime.datetime(2020, 2, 29, 1, 2, 3), pa.timestamp("us"), '"2020-02-29T01:02:03.000000"'),
        (datetime.datetime(2020, 2, 29), pa.timestamp("ns"), '"2020-02-29T00:00:00.000000"'),
        (1.5, pa.float32(), "1.5"),
        ([1], pa.list_(pa.int64()), None),
        (b"x", pa.binary(), None),
    ],
)
def test_types(value: Any, kind: Any, text: str | None) -> None:
    (found,) = stats_to_json(pa.array([{"c": value}], pa.struct([("c", kind)]))).to_pylist()
    assert found == ("{}" if text is None else f'{{"c":{text}}}')


def test_no_statistics() -> None:
    assert stats_to_json(pa.array([{}, None], pa.struct([]))).to_pylist() == ["{}", None]
    assert stats_to_json(pa.array([], STATS)).to_pylist() == []
