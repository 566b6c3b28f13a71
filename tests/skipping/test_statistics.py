"""Reading statistics: the fast way and the exact way say the same, and nonsense says nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deltamerge.log.schema import PrimitiveType, StructField, StructType
from deltamerge.skipping.columns import ColumnType, find_column
from deltamerge.skipping.literals import Span, span_function
from deltamerge.skipping.statistics import CHUNK, FileStatistics, read_statistics
from deltamerge.skipping.timestamps import instant_micros, parse_date, parse_timestamp

SCHEMA = StructType(
    tuple(
        StructField(name, PrimitiveType(kind))
        for name, kind in [
            ("i", "integer"),
            ("l", "long"),
            ("f", "double"),
            ("d", "decimal(20,3)"),
            ("s", "string"),
            ("day", "date"),
            ("t", "timestamp"),
            ("n", "timestamp_ntz"),
            ("b", "boolean"),
        ]
    )
)
COLUMNS = [column for field in SCHEMA.fields if (column := find_column(SCHEMA, (field.name,), frozenset()))]

GOOD: dict[str, Any] = {
    "numRecords": 3,
    "minValues": {
        "i": -1,
        "l": -(2**63),
        "f": -0.5,
        "d": 1.125,
        "s": 'a\nb"\\ü',
        "day": "0001-01-01",
        "t": "2020-01-01T00:00:00.000+05:30",
        "n": "2020-01-01T00:00:00.123",
        "b": False,
        "unknown": {"x": [1]},
    },
    "maxValues": {
        "i": 5,
        "l": 2**63 - 1,
        "f": 1e300,
        "d": 99999999999999999.999,
        "s": "z",
        "day": "9999-12-31",
        "t": "2020-01-02T00:00:00.000Z",
        "n": "2020-01-02T00:00:00.000",
    },
    "nullCount": {"i": 0, "s": 1, "b": 2},
    "tightBounds": True,
}
GOOD_TEXT = json.dumps(GOOD).replace("1e+17", "99999999999999999.999")
# More digits than a double has: see `test_decimals_that_delta_rs_rounds`.
LARGEST_DECIMAL = Decimal("100000000000000088.818")


def read(*texts: str | None) -> list[dict[str, Any]]:
    found = read_statistics(pa.chunked_array([pa.array(texts, pa.string())]), COLUMNS)
    rows = []
    for at in range(len(texts)):
        row = {"numRecords": found.num_records[at].as_py()}
        for path, column in found.columns.items():
            for name, array in (("min", column.lower), ("max", column.upper), ("nulls", column.null_count)):
                if array is not None and array[at].is_valid:
                    row[f"{path[0]}.{name}"] = array[at].as_py()
        rows.append(row)
    return rows


NOTHING = {"numRecords": None}


def test_every_type() -> None:
    (row,) = read(GOOD_TEXT)
    assert row == {
        "numRecords": 3,
        "i.min": -1,
        "i.max": 5,
        "i.nulls": 0,
        "l.min": -(2**63),
        "l.max": 2**63 - 1,
        "f.min": -0.5,
        "f.max": 1e300,
        "d.min": Decimal("1.125"),
        "d.max": LARGEST_DECIMAL,
        "s.min": 'a\nb"\\ü',
        "s.max": "z",
        "s.nulls": 1,
        "day.min": date(1, 1, 1),
        "day.max": date(9999, 12, 31),
        "t.min": 1_577_817_000_000_000,
        "t.max": 1_577_923_200_000_999,
        "n.min": 1_577_836_800_123_000,
        "n.max": 1_577_923_200_000_999,
        "b.nulls": 2,
    }


@pytest.mark.parametrize(
    ("precision", "scale", "values"),
    [
        (38, 0, ("1234567890123450000", "1234567890123456850")),
        (38, 0, ("-9" + "9" * 37, "9" * 38)),
        (18, 2, ("9007199254740993.11",)),
        (20, 2, ("1.00", "999999999999999999.99")),
        (20, 2, ("-12345678901234568.89", "12345678901234568.89")),
        (38, 18, ("0.299999999999999999", "1.000000000000000005")),
        (38, 30, ("-1.234567890123456789012345678901", "0.000000000000001234567890123457")),
        (15, 2, ("-9999999999999.99", "9999999999999.99")),
    ],
)
@pytest.mark.parametrize("spelled", [str, lambda stats: stats.replace("{", "{\n", 1)])
def test_decimals_that_delta_rs_rounds(
    tmp_path: Path, precision: int, scale: int, values: tuple[str, ...], spelled: Callable[[str], str]
) -> None:
    """It computes bounds as doubles, and whole ones as BIGINT: they must not leave out a value of the file."""
    stored = [Decimal(value) for value in values]
    write_deltalake(tmp_path, pa.table({"d": pa.array(stored, pa.decimal128(precision, scale))}))
    actions = map(json.loads, next((tmp_path / "_delta_log").glob("*.json")).read_text().splitlines())
    (stats,) = (action["add"]["stats"] for action in actions if "add" in action)
    kind = PrimitiveType(f"decimal({precision},{scale})")
    column = find_column(StructType((StructField("d", kind),)), ("d",), frozenset())
    assert column is not None
    found = read_statistics(pa.array([spelled(stats)]), [column]).columns["d",]
    assert found.lower is not None
    assert found.upper is not None
    low, high = found.lower[0].as_py(), found.upper[0].as_py()
    assert low is None or low <= min(stored)
    assert high is None or high >= max(stored)
    if precision <= 15:
        assert [low, high] == stored


@pytest.mark.parametrize("nonsense", ["garbage", '{"a":1} {}', "[]", '{"numRecords":', ""])
def test_one_files_nonsense_is_its_own(nonsense: str) -> None:
    alone = read(GOOD_TEXT)
    rows = read(GOOD_TEXT, nonsense, None, GOOD_TEXT)
    assert rows == [*alone, NOTHING, NOTHING, *alone]


def test_pretty_printed_statistics_are_the_same() -> None:
    assert read(json.dumps(GOOD, indent=2), GOOD_TEXT.replace("99999999999999999.999", "1e17"))[0]["s.max"] == "z"


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ({"maxValues": {**GOOD["maxValues"], "i": 1.5}}, {"i.max"}),
        ({"maxValues": {**GOOD["maxValues"], "l": 2**63}}, {"l.max"}),
        ({"maxValues": {**GOOD["maxValues"], "s": 5}}, {"s.max"}),
        ({"maxValues": {**GOOD["maxValues"], "s": "a\ud800"}}, {"s.max"}),
        ({"maxValues": {**GOOD["maxValues"], "f": float("nan")}}, {"f.max"}),
        ({"maxValues": {**GOOD["maxValues"], "t": "+10000-01-01T00:00:00.000Z"}}, {"t.max"}),
        ({"maxValues": {**GOOD["maxValues"], "t": "2020-01-01T00:00:00.000"}}, {"t.max"}),
        ({"maxValues": {**GOOD["maxValues"], "n": "2020-01-01T00:00:00.000Z"}}, {"n.max"}),
        ({"maxValues": {**GOOD["maxValues"], "day": "2020-13-01"}}, {"day.max"}),
        ({"minValues": None}, {f"{name}.min" for name in "ilfdstn"} | {"day.min"}),
        ({"nullCount": {"i": -1, "s": "one", "b": True}}, {"i.nulls", "s.nulls", "b.nulls"}),
    ],
)
def test_one_odd_value_is_unknown_and_no_other(change: dict[str, dict[str, Any] | None], lost: set[str]) -> None:
    (good,) = read(GOOD_TEXT)
    (row,) = read(json.dumps({**GOOD, **change}))
    del good["d.max"], row["d.max"]
    assert {name: value for name, value in good.items() if name not in lost} == row


def test_decimals_with_more_digits_are_rounded_outwards() -> None:
    text = '{"minValues":{"d":1.0009},"maxValues":{"d":1.0001}}'
    (row,) = read(text)
    assert (row["d.min"], row["d.max"]) == (Decimal("1.000"), Decimal("1.001"))


def test_the_other_spelling_of_null_counts() -> None:
    assert read('{"nullCounts":{"i":4}}')[0]["i.nulls"] == 4
    assert read('{"nullCounts":{"i":4}, "minValues":{"f":"Infinity"}}')[0]["i.nulls"] == 4


def lower(found: FileStatistics) -> list[object]:
    bound = found.columns["i",].lower
    assert bound is not None
    return bound.to_pylist()


def test_many_files_in_several_chunks() -> None:
    texts = [f'{{"numRecords":{at},"minValues":{{"i":{at}}}}}' for at in range(2 * CHUNK + 5)]
    texts[7] = "garbage"
    found = read_statistics(pa.chunked_array([pa.array(texts[:9]), pa.array(texts[9:])]), COLUMNS[:1])
    expected = [None if at == 7 else at for at in range(len(texts))]
    assert found.num_records.to_pylist() == expected
    assert lower(found) == expected


def test_no_files() -> None:
    found = read_statistics(pa.chunked_array([], pa.string()), COLUMNS)
    assert found.num_records.to_pylist() == []
    assert lower(found) == []


@pytest.mark.parametrize("number", ["1E999999999", "-1E999999999", "1E-999999999", "9" * 4000, "1E19", "0E999999999"])
def test_numbers_beyond_all_bounds(number: str) -> None:
    """They bound nothing, and nobody writes their digits out."""
    text = '{"numRecords": 1, "minValues": {"l": N, "d": N, "f": N}, "maxValues": {"l": N, "d": N, "f": N}}'
    (found,) = read(text.replace("N", number))
    assert not {"l.min", "l.max"} & found.keys()


def test_only_ascii_digits_are_dates() -> None:
    """As Spark, which takes no other digits."""
    assert parse_date("2024-01-01") is not None
    assert parse_date("２０２４-０１-０１") is None
    assert parse_timestamp("２０２４-０１-０１") is None


@pytest.mark.parametrize(
    ("zone", "instant"),
    [
        # A day without a midnight begins at another time than Java's local time 00:00 does.
        ("America/Toronto", datetime(1919, 3, 31, 4, 30, tzinfo=timezone.utc)),
        # Java has the old rules of Amsterdam; Python has them, or those of Brussels.
        ("Europe/Amsterdam", datetime(1919, 3, 30, 23, 40, 28, tzinfo=timezone.utc)),
        ("Europe/Amsterdam", datetime(1919, 3, 31, tzinfo=timezone.utc)),
    ],
)
@pytest.mark.parametrize(("kind", "literal"), [("date", date(1919, 3, 31)), ("string", "1919-03-31 00:00:00")])
def test_times_of_a_zone_with_rules_are_about_there(zone: str, instant: datetime, kind: str, literal: object) -> None:
    span_of = span_function(ColumnType("timestamp"), kind, zone)
    assert span_of is not None
    span = span_of(literal)
    assert span is not None
    assert not span.exact
    assert isinstance(span.low, int)
    assert isinstance(span.high, int)
    assert span.low < instant_micros(instant) < span.high


def test_times_of_an_offset_are_exact() -> None:
    span_of = span_function(ColumnType("timestamp"), "string", "+01:00")
    assert span_of is not None
    micros = instant_micros(datetime(1919, 3, 30, 23, tzinfo=timezone.utc))
    assert span_of("1919-03-31 00:00:00") == Span(micros, micros, True)
