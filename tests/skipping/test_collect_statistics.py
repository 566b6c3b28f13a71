"""Statistics from footers: delta-spark's JSON, and what delta-rs makes of it."""

from __future__ import annotations

import io
import json
import math
import re
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.log.schema import ArrayType, MapType, PrimitiveType, StructField, StructType
from deltamerge.skipping.collect_statistics import parquet_statistics, truncate_max_string
from deltamerge.skipping.indexed import IndexedColumns
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.nan_columns import nan_columns
from deltamerge.workers.table_writer import TableWriter

NAN = float("nan")


def fields(**types: Any) -> StructType:
    return StructType(tuple(StructField(name, data_type(kind)) for name, kind in types.items()))


def data_type(kind: Any) -> Any:
    return PrimitiveType(kind) if isinstance(kind, str) else kind


def footer_of(table: pa.Table, **options: bool | int) -> pq.FileMetaData:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return pq.read_metadata(buffer)


def collect(
    table: pa.Table,
    schema: StructType,
    configuration: dict[str, str] | None = None,
    partition_columns: tuple[Any, ...] = (),
    **options: bool | int,
) -> dict[str, Any]:
    indexed = IndexedColumns.of(schema, partition_columns, configuration or {})
    text = parquet_statistics(footer_of(table, **options), schema, indexed)
    return json.loads(text, parse_float=Decimal)


EVERY_TYPE = fields(
    byte="byte",
    short="short",
    int="integer",
    long="long",
    float="float",
    double="double",
    small="decimal(9,2)",
    large="decimal(30,4)",
    text="string",
    day="date",
    at="timestamp",
    local="timestamp_ntz",
    flag="boolean",
    bytes="binary",
)
ROWS = pa.table(
    {
        "byte": pa.array([1, -1, None], pa.int8()),
        "short": pa.array([1, -1, None], pa.int16()),
        "int": pa.array([1, -1, None], pa.int32()),
        "long": pa.array([2**63 - 1, -(2**63), None], pa.int64()),
        "float": pa.array([0.1, 1.5, None], pa.float32()),
        "double": pa.array([-0.1, 1e300, None], pa.float64()),
        "small": pa.array([Decimal("1.50"), Decimal("-2.25"), None], pa.decimal128(9, 2)),
        "large": pa.array([Decimal(f"{'9' * 26}.9999"), Decimal(-1), None], pa.decimal128(30, 4)),
        "text": ["b", "ä", None],
        "day": [date(1, 1, 1), date(9999, 12, 31), None],
        "at": pa.array(
            [datetime(1969, 12, 31, 23, 59, 59, 999999, timezone.utc)] * 2 + [None],
            pa.timestamp("us", "UTC"),
        ),
        "local": pa.array([datetime(2020, 1, 1, 1, 2, 3, 456789)] * 2 + [None], pa.timestamp("us")),
        "flag": [True, False, None],
        "bytes": [b"a", b"b", None],
    }
)


@pytest.mark.parametrize("options", [{}, {"store_decimal_as_integer": True}, {"row_group_size": 1}])
def test_every_type(options: dict[str, Any]) -> None:
    found = collect(ROWS, EVERY_TYPE, **options)
    assert list(found) == ["numRecords", "minValues", "maxValues", "nullCount"]
    assert found["numRecords"] == 3
    assert found["minValues"] == {
        "byte": -1,
        "short": -1,
        "int": -1,
        "long": -(2**63),
        "float": Decimal("0.1"),
        "double": Decimal("-0.1"),
        "small": Decimal("-2.25"),
        "large": Decimal("-1.0000"),
        "text": "b",
        "day": "0001-01-01",
        "at": "1969-12-31T23:59:59.999Z",
        "local": "2020-01-01T01:02:03.456",
    }
    assert found["maxValues"] == {
        "byte": 1,
        "short": 1,
        "int": 1,
        "long": 2**63 - 1,
        "small": Decimal("1.50"),
        "large": Decimal(f"{'9' * 26}.9999"),
        "text": "ä",
        "day": "9999-12-31",
        "at": "1969-12-31T23:59:59.999Z",
        "local": "2020-01-01T01:02:03.456",
    }
    assert found["nullCount"] == dict.fromkeys(ROWS.column_names, 1)


def test_decimals_keep_their_scale_in_the_text() -> None:
    schema = fields(small="decimal(9,2)")
    text = parquet_statistics(footer_of(ROWS), schema, IndexedColumns.of(schema, (), {}))
    assert '"small":1.50' in text


def test_timestamps_without_footer_statistics_have_none() -> None:
    found = collect(ROWS, EVERY_TYPE, use_deprecated_int96_timestamps=True)
    assert "at" not in found["minValues"]
    assert "at" not in found["nullCount"]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_timestamps_of_every_unit(unit: str) -> None:
    value = datetime(1950, 1, 1, 0, 0, 0, 1000, timezone.utc)
    table = pa.table({"at": pa.array([value], pa.timestamp(unit, "UTC"))})
    assert collect(table, fields(at="timestamp"))["minValues"] == {"at": "1950-01-01T00:00:00.001Z"}
    # A column of another kind than the table says: better nothing than something wrong.
    assert collect(table, fields(at="timestamp_ntz"))["minValues"] == {}


@pytest.mark.parametrize("values", [[NAN, 1.0], [NAN, NAN], [float("inf"), 1.0], [1.0, 2.0]])
def test_maxima_that_nan_may_exceed_are_left_out(values: list[float]) -> None:
    found = collect(pa.table({"x": values}), fields(x="double"))
    assert found["maxValues"] == {}
    assert found["minValues"] in ({"x": 1}, {})
    assert found["nullCount"] == {"x": 0}


@pytest.mark.parametrize(
    ("groups", "low", "high"),
    [
        ([[NAN, 1.0], [2.0]], 1, "NaN"),
        ([[1.0, None], [NAN]], 1, "NaN"),
        ([[NAN, None], [NAN, NAN]], "NaN", "NaN"),
        ([[None], [float("inf"), 1.0]], 1, "Infinity"),
        ([[None], [None, None]], None, None),
    ],
)
@pytest.mark.parametrize("kind", ["float", "double"])
def test_files_that_tell_of_nan_have_maxima(
    tmp_path: Path, groups: list[list[float | None]], low: int | str | None, high: str | None, kind: str
) -> None:
    arrow = pa.float32() if kind == "float" else pa.float64()
    schema = pa.schema([("x", arrow), ("s", pa.struct([("y", pa.struct([("z", arrow)]))]))])
    path = tmp_path / "x.parquet"
    with TableWriter(LOCAL_FILES, str(path), schema, {}, {}) as writer:
        for group in groups:
            nested = [None if x is None else {"y": {"z": x}} for x in group]
            writer.write(pa.table({"x": group, "s": nested}, schema=schema))
    delta = fields(x=kind, s=fields(y=fields(z=kind)))
    indexed = IndexedColumns.of(delta, (), {})
    footer = pq.read_metadata(path)
    found = json.loads(parquet_statistics(footer, delta, indexed, has_nan=nan_columns(footer.metadata)))
    for name, expected in (("minValues", low), ("maxValues", high)):
        assert found[name] == ({} if expected is None else {"x": expected, "s": {"y": {"z": expected}}})


def test_columns_of_nulls_and_without_rows() -> None:
    found = collect(pa.table({"x": pa.array([None, None], pa.int64())}), fields(x="long"))
    assert found == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"x": 2}}
    found = collect(pa.table({"x": pa.array([], pa.int64())}), fields(x="long"))
    assert found == {"numRecords": 0, "minValues": {}, "maxValues": {}, "nullCount": {"x": 0}}


def test_row_groups_of_nulls_among_others() -> None:
    table = pa.table({"x": pa.array([None, 5, None, 7], pa.int64())})
    found = collect(table, fields(x="long"), row_group_size=1)
    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({"x": 5}, {"x": 7}, {"x": 2})


def test_files_without_statistics() -> None:
    found = collect(pa.table({"x": [1]}), fields(x="long"), write_statistics=False)
    assert found == {"numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {}}


def test_columns_that_the_file_lacks_are_null() -> None:
    found = collect(pa.table({"x": [1, 2]}), fields(x="long", new="long"))
    assert found["nullCount"] == {"x": 0, "new": 2}


def test_columns_that_only_field_ids_lead_to() -> None:
    """They are there under other names: nothing is known of them rather than that they are NULL."""

    def stored(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})

    def mapped(name: str, kind: Any, number: int) -> StructField:
        return StructField(name, data_type(kind), True, {"delta.columnMapping.id": number})

    inner = pa.struct([stored("was", pa.int64(), 3)])
    columns = pa.schema([stored("old", pa.int64(), 1), stored("s", inner, 2)])
    table = pa.table({"old": [7, 8], "s": [{"was": 1}, {"was": 2}]}, schema=columns)
    in_struct = StructType((mapped("a", "long", 3), mapped("b", "long", 4)))
    schema = StructType((mapped("x", "long", 1), mapped("s", in_struct, 2), mapped("y", "long", 5)))
    found = collect(table, schema)
    assert (found["minValues"], found["nullCount"]) == ({}, {"s": {"b": 2}, "y": 2})
    # In a file without ids names count.
    assert collect(pa.table({"old": [7]}), schema)["nullCount"] == {"x": 1, "s": {"a": 1, "b": 1}, "y": 1}


def test_structs_arrays_and_maps() -> None:
    schema = fields(
        s=fields(a="long", t=fields(b="string")),
        full=ArrayType(PrimitiveType("long")),
        gaps=ArrayType(PrimitiveType("long")),
        m=MapType(PrimitiveType("string"), PrimitiveType("long")),
        after="long",
    )
    table = pa.table(
        {
            "s": pa.array([{"a": 1, "t": {"b": "x"}}, None, {"a": 3, "t": None}]),
            "full": pa.array([[1], [2, 3], [4]]),
            "gaps": pa.array([[1, None], None, []]),
            "m": pa.array([[("k", 1)], [("k", 1), ("l", 2)], [("k", 1)]], pa.map_(pa.string(), pa.int64())),
            "after": [7, 8, 9],
        }
    )
    found = collect(table, schema)
    assert found["minValues"] == {"s": {"a": 1, "t": {"b": "x"}}, "after": 7}
    assert found["nullCount"] == {"s": {"a": 1, "t": {"b": 2}}, "full": 0, "m": 0, "after": 0}


def test_dotted_names_are_not_nested_ones() -> None:
    schema = StructType((StructField("a.b", PrimitiveType("long")), StructField("a", fields(b="long"))))
    table = pa.table({"a": pa.array([{"b": 7}]), "a.b": [1]})
    assert collect(table, schema)["minValues"] == {"a.b": 1, "a": {"b": 7}}


def test_physical_names_under_column_mapping() -> None:
    field = StructField("x", PrimitiveType("long"), True, {"delta.columnMapping.physicalName": "col-1"})
    assert collect(pa.table({"col-1": [1]}), StructType((field,)))["minValues"] == {"col-1": 1}


@pytest.mark.parametrize(
    ("configuration", "partition_columns", "expected"),
    [
        ({}, (), ["a", "s.b", "s.c", "d"]),
        ({}, ("a",), ["s.b", "s.c", "d"]),
        ({"delta.dataSkippingNumIndexedCols": "2"}, (), ["a", "s.b"]),
        ({"delta.dataSkippingNumIndexedCols": "0"}, (), []),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, (), ["a", "s.b", "s.c", "d"]),
        ({"delta.dataSkippingNumIndexedCols": "many"}, (), ["a", "s.b", "s.c", "d"]),
        ({"delta.dataSkippingStatsColumns": "D, s.`C`"}, (), ["s.c", "d"]),
        ({"delta.dataSkippingStatsColumns": "s"}, (), ["s.b", "s.c"]),
        ({"delta.dataSkippingStatsColumns": "`s.b`,a"}, (), ["a"]),
    ],
)
def test_the_columns_that_a_table_indexes(
    configuration: dict[str, str], partition_columns: tuple[str, ...], expected: list[str]
) -> None:
    schema = fields(a="long", s=fields(b="long", c="long"), d="long")
    found = IndexedColumns.of(schema, partition_columns, configuration).paths
    assert found == {tuple(path.split(".")) for path in expected}


def test_the_first_32_columns_and_tight_bounds() -> None:
    table = pa.table({f"c{at}": [at] for at in range(40)})
    schema = fields(**{f"c{at}": "long" for at in range(40)})
    found = collect(table, schema, {"delta.enableDeletionVectors": "true"})
    assert list(found["minValues"]) == [f"c{at}" for at in range(32)]
    assert found["tightBounds"] is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a" * 32, "a" * 32),
        ("a" * 33, "a" * 32 + "\x7f"),
        ("a" * 32 + "\x7f", "a" * 32 + "\U0010ffff"),
        ("a" * 32 + "é", "a" * 32 + "\U0010ffff"),
        # Java counts a character beyond U+FFFF as two.
        ("\U0001f600" * 40, "\U0001f600" * 16 + "\U0010ffff"),
        ("a" + "\U0001f600" * 40, "a" + "\U0001f600" * 16 + "\U0010ffff"),
        ("\U0001f600" * 16 + "b", "\U0001f600" * 16 + "\x7f"),
        ("\U0001f600" * 16, "\U0001f600" * 16),
        ("a" * 32 + "\U0010ffff" * 3 + "b", "a" * 32 + "\U0010ffff" * 3 + "\x7f"),
        ("a" * 32 + "\U0010ffff" * 3, "a" * 32 + "\U0010ffff" * 3),
        ("a" * 32 + "\U0010ffff" * 99, None),
    ],
)
def test_long_maxima_are_cut_to_something_that_is_not_less(text: str, expected: str | None) -> None:
    assert truncate_max_string(text, 32) == expected
    assert expected is None or expected.encode() >= text.encode()


def test_long_strings_in_a_file() -> None:
    found = collect(pa.table({"x": ["a" * 99, "b" * 99]}), fields(x="string"))
    assert found["minValues"] == {"x": "a" * 32}
    assert found["maxValues"] == {"x": "b" * 32 + "\x7f"}
    shorter = collect(
        pa.table({"x": ["abc", "bcd"]}), fields(x="string"), {"delta.dataSkippingStringPrefixLength": "1"}
    )
    assert (shorter["minValues"], shorter["maxValues"]) == ({"x": "a"}, {"x": "b\x7f"})


def signed_footer(table: pa.Table, signature: bytes, **options: int) -> pq.FileMetaData:
    """Gives the footer as another writer signs it: as many bytes, another name."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    (name,) = set(re.findall(rb"parquet-cpp-arrow version [\d.]+", buffer.getvalue()))
    return pq.read_metadata(io.BytesIO(buffer.getvalue().replace(name, signature.ljust(len(name)))))


def test_maxima_of_writers_that_count_nan_are_kept() -> None:
    table = pa.table({"x": [1.5, 2.5]})
    schema = fields(x="double")
    footer = signed_footer(table, b"parquet-mr version 1.17.0")
    found = json.loads(parquet_statistics(footer, schema, IndexedColumns.of(schema, (), {})))
    assert found["maxValues"] == {"x": 2.5}
    footer = signed_footer(table, b"parquet-mr version 1.18.0")
    found = json.loads(parquet_statistics(footer, schema, IndexedColumns.of(schema, (), {})))
    assert found["maxValues"] == {}


def test_infinities_are_texts() -> None:
    table = pa.table({"x": [math.inf, 1.5, -math.inf]})
    schema = fields(x="double")
    footer = signed_footer(table, b"parquet-mr version 1.17.0", row_group_size=1)
    found = json.loads(parquet_statistics(footer, schema, IndexedColumns.of(schema, (), {})))
    assert (found["minValues"], found["maxValues"]) == ({"x": "-Infinity"}, {"x": "Infinity"})


@pytest.mark.parametrize(
    "written_by",
    [
        {"org.apache.spark.legacyDateTime": ""},
        {"org.apache.spark.version": "2.4.8"},
        {"org.apache.spark.version": "4.0"},
    ],
)
def test_days_of_another_calendar_have_no_bounds(written_by: dict[str, str]) -> None:
    """Spark reads the footer's days as others."""
    days = pa.array([date(1200, 1, 8)], pa.date32())
    times = pa.array([datetime(1200, 1, 8, tzinfo=timezone.utc)], pa.timestamp("us", "UTC"))
    table = pa.table({"d": days, "t": times, "n": pa.array([1], pa.int32())}).replace_schema_metadata(written_by)
    schema = fields(d="date", t="timestamp", n="integer")
    found = json.loads(parquet_statistics(footer_of(table), schema, IndexedColumns.of(schema, (), {})))
    of_today = "4.0" in written_by.values()
    assert found["minValues"].keys() == ({"d", "t", "n"} if of_today else {"n"})
    assert found["numRecords"] == 1
