"""Pruning does prune: which files are kept, case by case."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from deltamerge.log.actions import AddFile
from deltamerge.log.file_table import FileTable
from deltamerge.log.schema import ArrayType, PrimitiveType, StructField, StructType
from deltamerge.skipping.predicates import (
    ALWAYS,
    NEVER,
    And,
    ColumnRef,
    Comparison,
    In,
    InRanges,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from deltamerge.skipping.pruning import files_that_may_match

NAN = float("nan")
INF = float("inf")
UTC = timezone.utc
X = ColumnRef(("x",))


def schema(type_name: str, **metadata: Any) -> StructType:
    return StructType((StructField("x", PrimitiveType(type_name), True, metadata),))


def kept(
    predicate: Predicate,
    table_schema: StructType,
    *stats: tuple[Any, ...] | str | None,
    partitions: Sequence[Any] | None = None,
    zone: str = "UTC",
) -> list[int]:
    """Gives the numbers of the files that are kept; a file's statistics are low, high, nulls of 10."""
    adds = []
    for at, one in enumerate(stats):
        if isinstance(one, tuple):
            low, high, *nulls = one
            document = {"numRecords": 10, "minValues": {"x": low}, "maxValues": {"x": high}}
            document["nullCount"] = {"x": nulls[0] if nulls else 0}
            text: str | None = json.dumps(document)
        else:
            text = one
        values = {} if partitions is None else {} if partitions[at] is ... else {"x": partitions[at]}
        adds.append(AddFile(f"f{at}", values, 1, 1, stats=text))
    columns = [] if partitions is None else ["x"]
    mask = files_that_may_match(predicate, FileTable.from_add_files(adds), table_schema, columns, zone)
    assert mask.dtype == np.bool_
    return [at for at, keep in enumerate(mask) if keep]


def kept_by_value(
    predicate: Predicate,
    type_name: str,
    values: Sequence[Any],
    zone: str = "UTC",
    **metadata: str | dict[str, str],
) -> list[int]:
    return kept(predicate, schema(type_name, **metadata), *[None] * len(values), partitions=values, zone=zone)


FILES = [(0, 9), (10, 19), (20, 29), (None, None, 10), (5, 25, 3), None]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Comparison("=", X, 10, "int"), [1, 4, 5]),
        (Comparison("<=>", X, 10, "int"), [1, 4, 5]),
        (Comparison("<=>", X, None, "int"), [3, 4, 5]),
        (Comparison("=", X, None, "int"), []),
        (Comparison("<", X, 10, "int"), [0, 4, 5]),
        (Comparison("<=", X, 10, "int"), [0, 1, 4, 5]),
        (Comparison(">", X, 19, "int"), [2, 4, 5]),
        (Comparison(">=", X, 19, "int"), [1, 2, 4, 5]),
        (Comparison("<>", X, 10, "int"), [0, 1, 2, 4, 5]),
        (Comparison("=", X, 10.5, "double"), []),
        (Comparison("<", X, 10.5, "double"), [0, 1, 4, 5]),
        (Comparison(">", X, Decimal("19.5"), "decimal(3,1)"), [2, 4, 5]),
        (Comparison("=", X, "10", "string"), [1, 4, 5]),
        (Comparison("=", X, " 10", "string"), [0, 1, 2, 4, 5]),
        (Comparison(">", X, 10**30, "decimal(31,0)"), [5]),
        (Comparison("<", X, 2**63, "decimal(20,0)"), [0, 1, 2, 4, 5]),
        (In(X, (3, 22, None), "int"), [0, 2, 4, 5]),
        (In(X, (), "int"), []),
        (Not(In(X, (3, None), "int")), []),
        (Not(Comparison("<", X, 10, "int")), [1, 2, 4, 5]),
        (Not(Comparison("<=>", X, 10, "int")), [0, 1, 2, 3, 4, 5]),
        (IsNull(X), [3, 4, 5]),
        (Not(IsNull(X)), [0, 1, 2, 4, 5]),
        (IsNotNull(X), [0, 1, 2, 4, 5]),
        (InRanges(X, ((9, 9), (30, 99)), False, "int"), [0, 4, 5]),
        (InRanges(X, ((26, 28),), True, "int"), [2, 3, 4, 5]),
        (InRanges(X, ((-9, -1), (30, 99)), False, "int"), [5]),
        (InRanges(X, (), True, "int"), [3, 4, 5]),
        (Or((Comparison("=", X, 3, "int"), Comparison("=", X, 21, "int"))), [0, 2, 4, 5]),
        (And((Comparison(">", X, 8, "int"), Comparison("<", X, 12, "int"))), [0, 1, 4, 5]),
        (And((Comparison("=", X, 3, "int"), Unknown())), [0, 5]),
        (Or((Comparison("=", X, 3, "int"), Unknown())), [0, 1, 2, 3, 4, 5]),
        (Not(Unknown()), [0, 1, 2, 3, 4, 5]),
        (Comparison("=", ColumnRef(("other",)), 3, "int"), [0, 1, 2, 3, 4, 5]),
        (ALWAYS, [0, 1, 2, 3, 4, 5]),
        (NEVER, []),
    ],
)
def test_integers(predicate: Predicate, expected: list[int]) -> None:
    assert kept(predicate, schema("long"), *FILES) == expected


def test_a_constant_file_differs_from_nothing_but_others() -> None:
    predicate = Comparison("<>", X, 5, "int")
    assert kept(predicate, schema("integer"), (5, 5), (5, 6), (4, 5), (None, None, 10)) == [1, 2]


def test_many_ranges_against_many_files() -> None:
    files = [(at * 10, at * 10 + 9) for at in range(200)]
    ranges = tuple((at * 10 + 3, at * 10 + 5) for at in range(0, 200, 7))
    assert kept(InRanges(X, ranges, False, "int"), schema("integer"), *files) == list(range(0, 200, 7))


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Comparison("<", X, 1.0, "double"), [0, 3]),
        # NaN is greater than everything, and no statistics say that there is none.
        (Comparison(">", X, 5.0, "double"), [0, 1, 2, 3]),
        (Comparison(">=", X, NAN, "double"), [0, 1, 2, 3]),
        (Comparison("=", X, NAN, "double"), [0, 1, 2, 3]),
        (Comparison("=", X, 7.5, "double"), [3]),
        (Comparison("=", X, 0.0, "double"), [0, 3]),
        (Comparison("=", X, -0.0, "double"), [0, 3]),
        (Comparison("<>", X, 2.0, "double"), [0, 1, 2, 3]),
        (InRanges(X, ((-5.0, -4.0), (1.5, 1.7)), False, "double"), [1, 3]),
        (InRanges(X, ((-5.0, -4.0), (9.0, NAN)), False, "double"), [0, 1, 2, 3]),
        (Comparison("=", X, 2, "int"), [1, 2, 3]),
        (Comparison("=", X, Decimal("2.0"), "decimal(2,1)"), [1, 2, 3]),
    ],
)
def test_floating_point(predicate: Predicate, expected: list[int]) -> None:
    assert kept(predicate, schema("double"), (-0.0, 0.5), (1.5, 2.0), (2.0, 2.0), (None, None)) == expected


def test_infinities_as_text_and_nan_as_bounds() -> None:
    files: list[tuple[Any, ...]] = [("-Infinity", 1.0), (3.0, "Infinity"), ("NaN", "NaN"), (2.0, NAN)]
    assert kept(Comparison("<", X, 0.0, "double"), schema("double"), *files) == [0, 2]
    assert kept(Comparison("=", X, 4.0, "double"), schema("double"), *files) == [1, 2, 3]


def test_a_float_is_not_its_shortest_text() -> None:
    # 0.1 as FLOAT is a little more than 0.1 as DOUBLE.
    stored = float(np.float32(0.1))
    assert kept(Comparison("=", X, stored, "double"), schema("float"), (0.1, 0.1)) == [0]
    assert kept(Comparison("=", X, 0.1, "double"), schema("float"), (0.1, 0.1)) == []
    assert kept(Comparison("=", X, 0.1, "float"), schema("float"), (0.1, 0.1)) == [0]


def test_doubles_beyond_whole_numbers_match_their_neighbours() -> None:
    predicate = Comparison("=", X, float(2**53), "double")
    assert kept(predicate, schema("long"), (2**53 + 1, 2**53 + 1), (2**54, 2**54), (0, 5)) == [0]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Comparison("=", X, Decimal("1.5"), "decimal(2,1)"), [0]),
        (Comparison("=", X, Decimal("1.505"), "decimal(4,3)"), []),
        (Comparison(">", X, Decimal("1.755"), "decimal(4,3)"), [1]),
        (Comparison("<", X, 2, "int"), [0]),
        (Comparison("=", X, 1.5, "double"), [0]),
        (Comparison("=", X, Decimal("1." + "5" * 37), "decimal(38,37)"), [0, 1]),
        (In(X, (Decimal("1.75"), Decimal("9.9")), "decimal(4,2)"), [0]),
    ],
)
@pytest.mark.parametrize("type_name", ["decimal(5,2)", "decimal(20,2)"])
def test_decimals_of_any_scale(type_name: str, predicate: Predicate, expected: list[int]) -> None:
    assert kept(predicate, schema(type_name), (1.25, 1.75), (2, 3.5)) == expected


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Comparison("=", X, "m", "string"), [1]),
        (Comparison("<", X, "b", "string"), [0]),
        (Comparison("<", X, "a", "string"), []),
        (Comparison(">", X, "c", "string"), [1, 2]),
        (StartsWith(X, "zz"), [2]),
        (StartsWith(X, "a"), [0]),
        (StartsWith(X, ""), [0, 1, 2]),
        (Not(StartsWith(X, "a")), [0, 1, 2]),
        (Comparison("=", X, "\U0001f600", "string"), []),
        (Comparison("=", X, 5, "int"), [0, 1, 2]),
        (In(X, ("b", "q"), "string"), [0]),
        (InRanges(X, (("d", "k"), ("zz", "zzz")), False, "string"), [2]),
    ],
)
def test_strings(predicate: Predicate, expected: list[int]) -> None:
    assert kept(predicate, schema("string"), ("a", "c"), ("l", "n"), ("z", "zzzz")) == expected


def test_old_tie_breakers_stand_for_everything_above_them() -> None:
    files = [("a", "x" * 32 + "\ufffd"), ("a", "x" * 31 + "?\ufffd"), ("a", "x" * 31)]
    whole = Comparison("=", X, "x" * 32 + "\U0001f600!", "string")
    assert kept(whole, schema("string"), *files) == [0, 1]
    halved = Comparison("=", X, "x" * 31 + "\U0001f600!", "string")
    assert kept(halved, schema("string"), *files[1:]) == [0]


@pytest.mark.parametrize(
    "metadata",
    [{"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}, {"__COLLATIONS": {"x": "icu.UNICODE_CI"}}],
)
def test_padded_and_collated_strings_are_kept(metadata: dict[str, Any]) -> None:
    predicate = Comparison("=", X, "A", "string")
    files = [("b", "c"), ("b", "c", 10), None]
    assert kept(predicate, schema("string", **metadata), *files) == [0, 2]
    assert kept_by_value(predicate, "string", ["a", None, "zz"], **metadata) == [0, 2]


def test_char_in_a_struct_is_padded_too() -> None:
    inner = StructType((StructField("x", PrimitiveType("string")), StructField("y", PrimitiveType("long"))))
    metadata = {"__CHAR_VARCHAR_TYPE_STRING": "struct<x:char(5),y:bigint>"}
    table_schema = StructType((StructField("s", inner, True, metadata),))
    stats = '{"numRecords":1,"minValues":{"s":{"x":"ab"}},"maxValues":{"s":{"x":"ab"}},"nullCount":{"s":{"x":0}}}'
    assert kept(Comparison("=", ColumnRef(("s", "x")), "ab   ", "string"), table_schema, stats) == [0]


def test_varchar_is_a_string() -> None:
    predicate = Comparison("=", X, "A", "varchar(3)")
    metadata = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}
    assert kept(predicate, schema("string", **metadata), ("A", "B"), ("B", "C")) == [0]


@pytest.mark.parametrize("type_name", ["binary", "variant", "interval year"])
def test_types_without_an_order_are_kept(type_name: str) -> None:
    predicate = Comparison("=", X, b"a", "binary")
    assert kept(predicate, schema(type_name), ("a", "b"), (None, None, 10)) == [0]


def test_nulls_of_arrays_are_not_what_writers_count() -> None:
    table_schema = StructType((StructField("x", ArrayType(PrimitiveType("long"))),))
    assert kept(IsNull(X), table_schema, (None, None, 0)) == [0]
    assert kept(IsNotNull(X), table_schema, (None, None, 10)) == [0]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Comparison("=", X, datetime(2024, 1, 1, 0, 0, 0, 999, UTC), "timestamp"), [0]),
        (Comparison(">", X, datetime(2024, 1, 1, 0, 0, 0, 998, UTC), "timestamp"), [0, 1, 2]),
        (Comparison(">", X, datetime(2024, 1, 1, 0, 0, 0, 999, UTC), "timestamp"), [1, 2]),
        (Comparison("<", X, datetime(2024, 1, 1, tzinfo=UTC), "timestamp"), [2]),
        # Midnight in New York.
        (Comparison("=", X, date(2024, 2, 1), "date"), [1]),
        (Comparison("=", X, "2024-02-01 00:00:00", "string"), [1]),
        (Comparison("=", X, datetime(2024, 2, 1), "timestamp_ntz"), [1]),
        (Comparison("=", X, "tomorrow", "string"), [0, 1, 2]),
        # The offset has lost its 58 seconds.
        (Comparison("=", X, datetime(1883, 11, 1, 16, 52, 58, tzinfo=UTC), "timestamp"), [2]),
    ],
)
def test_timestamps(predicate: Comparison, expected: list[int]) -> None:
    files = [
        ("2024-01-01T00:00:00.000Z", "2024-01-01T00:00:00.000Z"),
        ("2024-02-01T00:00:00.000-05:00", "2024-02-01T00:00:00.000-05:00"),
        ("1883-11-01T09:00:00.000-07:52", "9999-12-31T00:00:00.000Z"),
    ]
    if predicate.op == "=" and expected == [1]:
        files[2] = ("1883-11-01T09:00:00.000-07:52", "1883-11-01T09:00:00.000-07:52")
    if predicate.op == "=" and expected == [0]:
        files[2] = ("1883-11-01T09:00:00.000-07:52", "1883-11-01T09:00:00.000-07:52")
    assert kept(predicate, schema("timestamp"), *files, zone="America/New_York") == expected


@pytest.mark.parametrize(
    "predicate",
    [
        *(Comparison(op, X, "AB\0", "string") for op in ("=", "<=", ">=", "<=>")),
        Comparison("<", X, "AB\0\0", "string"),
        Comparison("<>", X, "AB", "string"),
        StartsWith(X, "AB\0"),
        In(X, ("AB\0",), "string"),
    ],
)
def test_strings_that_end_with_nul(predicate: Predicate) -> None:
    """NumPy takes NULs off the end of a plain string."""
    assert kept(predicate, schema("string"), ("AB\0", "AB\0")) == [0]
    assert kept(predicate, schema("string"), None, partitions=["AB\0"]) == [0]


def test_strings_of_an_hour_that_comes_twice() -> None:
    """Outside ANSI mode IN compares them with the column's strings, which two instants have."""
    twice = In(X, ("2024-11-03 01:30:00",), "string")
    files = [(f"2024-11-0{day}T0{hour}:30:00.000Z",) * 2 for day in (3, 5) for hour in (5, 6)]
    assert kept(twice, schema("timestamp"), *files, zone="America/New_York") == [0, 1]


@pytest.mark.parametrize("zone", ["Not/A_Zone", "PST"])
def test_unknown_zones_keep_what_depends_on_them(zone: str) -> None:
    files = [("2024-01-01T00:00:00.000Z", "2024-01-02T00:00:00.000Z")]
    far = Comparison("=", X, "1999-01-01", "string")
    assert kept(far, schema("timestamp"), *files, zone=zone) == [0]
    instant = Comparison("=", X, datetime(1999, 1, 1, tzinfo=UTC), "timestamp")
    assert kept(instant, schema("timestamp"), *files, zone=zone) == []
    values = ["1999-01-01 20:00:00", "2024-01-01 00:00:00", "2024-01-01T00:00:00Z"]
    assert kept_by_value(instant, "timestamp", values, zone) == [0]


def test_dates_and_times_without_zone() -> None:
    day = Comparison("=", X, date(2024, 1, 2), "date")
    assert kept(day, schema("date"), ("2024-01-01", "2024-01-03"), ("2024-01-03", "2024-01-09")) == [0]
    # A file from before the column was widened from DATE.
    files = [("2024-01-01", "2024-01-01"), ("2024-01-02T00:00:00.000", "2024-01-02T00:00:00.000")]
    local = Comparison("=", X, datetime(2024, 1, 1), "timestamp_ntz")
    assert kept(local, schema("timestamp_ntz"), *files) == [0]
    micros = Comparison("=", X, datetime(2024, 1, 2, 0, 0, 0, 500), "timestamp_ntz")
    assert kept(micros, schema("timestamp_ntz"), *files) == [1]


VALUES = [None, "1", "10", "x", ...]


@pytest.mark.parametrize(
    ("type_name", "predicate", "values", "expected"),
    [
        ("integer", Comparison("=", X, 10, "int"), VALUES, [2, 3, 4]),
        ("integer", Comparison("<>", X, 10, "int"), VALUES, [1, 3, 4]),
        ("integer", Not(Comparison("=", X, 10, "int")), VALUES, [1, 3, 4]),
        # Outside ANSI mode Spark reads what it cannot read as the type as NULL.
        ("integer", IsNull(X), VALUES, [0, 3, 4]),
        ("integer", IsNotNull(X), VALUES, [1, 2, 3, 4]),
        ("integer", Comparison("<=>", X, None, "int"), [*VALUES, ""], [0, 3, 4, 5]),
        ("byte", IsNull(X), ["1", "127", "-128", "128", "300", "-129"], [3, 4, 5]),
        ("byte", Comparison(">", X, 100, "int"), ["1", "127", "-128", "300"], [1, 3]),
        ("short", Comparison("<=>", X, None, "int"), ["32767", "32768"], [1]),
        ("date", IsNull(X), ["2024-02-29", "2024-02-30"], [1]),
        ("boolean", IsNull(X), ["true", "maybe"], [1]),
        ("timestamp", IsNull(X), ["2021-09-08 11:11:11", "soon"], [1]),
        ("string", IsNull(X), [None, "null", "", "a"], [0, 2]),
        ("string", Comparison("=", X, "", "string"), [None, "null", "", "a"], [2]),
        ("string", Comparison("=", X, "a/b c%:=", "string"), ["a/b c%:=", "a%2Fb c%25%3A%3D"], [0]),
        ("boolean", Comparison("=", X, True, "boolean"), ["true", "false", None], [0]),
        (
            "date",
            Comparison(">", X, date(2024, 1, 1), "date"),
            ["2024-01-01", "2024-01-02", "2024-1-2"],
            [1, 2],
        ),
        ("double", Comparison("=", X, NAN, "double"), ["NaN", "1.0", "1.0E10"], [0]),
        ("double", Comparison(">", X, 5.0, "double"), ["NaN", "1.0", "1.0E10", "-Infinity"], [0, 2]),
        ("double", Comparison("<>", X, 1.0, "double"), ["NaN", "1.0"], [0]),
        ("decimal(5,2)", Comparison("=", X, Decimal("1.5"), "decimal(2,1)"), ["1.50", "1.5", "1.51"], [0, 1]),
        ("byte", Comparison("=", X, 1, "tinyint"), ["1", "+1", "01", "2"], [0, 1, 2]),
        (
            "timestamp",
            Comparison("=", X, datetime(2021, 9, 8, 9, 11, 11, tzinfo=UTC), "timestamp"),
            ["2021-09-08 11:11:11", "2021-09-08T09:11:11.000000Z", "2021-09-08 09:11:11", "2021-09-08"],
            [0, 1],
        ),
        (
            "timestamp_ntz",
            Comparison("=", X, datetime(2021, 9, 8, 11, 11, 11, 500000), "timestamp_ntz"),
            ["2021-09-08 11:11:11.5", "2021-09-08 11:11:11"],
            [0],
        ),
    ],
)
def test_partition_values(type_name: str, predicate: Predicate, values: list[Any], expected: list[int]) -> None:
    assert kept_by_value(predicate, type_name, values, "+02:00") == expected


def test_partition_values_of_a_zone_with_rules() -> None:
    """Java may know other rules than Python."""
    equal = Comparison("=", X, datetime(2021, 9, 8, 9, 11, 11, tzinfo=UTC), "timestamp")
    values = ["2021-09-08 11:11:11", "2021-09-08T09:11:11.000000Z", "2021-09-08 09:11:11", "2021-09-08T09:11:12Z"]
    values += ["2021-09-10 11:11:11", "2021-09-06 11:11:11", "no time"]
    assert kept_by_value(equal, "timestamp", values, "Europe/Berlin") == [0, 1, 2, 6]
    assert kept_by_value(equal, "timestamp", values, "America/Nowhere") == [0, 1, 2, 6]
    other = Comparison("<>", X, datetime(2021, 9, 8, 9, 11, 11, tzinfo=UTC), "timestamp")
    assert kept_by_value(other, "timestamp", values, "Europe/Berlin") == [0, 2, 3, 4, 5, 6]


def test_physical_names_under_column_mapping() -> None:
    metadata = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}
    table_schema = schema("long", **metadata)
    stats = '{"numRecords":1,"minValues":{"col-1":5},"maxValues":{"col-1":5},"nullCount":{"col-1":0}}'
    misleading = '{"numRecords":1,"minValues":{"x":5},"maxValues":{"x":5},"nullCount":{"x":0}}'
    assert kept(Comparison("=", X, 6, "int"), table_schema, stats, misleading) == [1]


def test_nested_and_dotted_names_are_not_mixed_up() -> None:
    inner = StructType((StructField("b", PrimitiveType("long")),))
    table_schema = StructType((StructField("a.b", PrimitiveType("long")), StructField("a", inner)))
    stats = (
        '{"numRecords":1,"minValues":{"a.b":1,"a":{"b":7}},"maxValues":{"a.b":1,"a":{"b":7}},'
        '"nullCount":{"a.b":0,"a":{"b":0}}}'
    )
    assert kept(Comparison("=", ColumnRef(("a", "b")), 7, "int"), table_schema, stats) == [0]
    assert kept(Comparison("=", ColumnRef(("a", "b")), 1, "int"), table_schema, stats) == []
    assert kept(Comparison("=", ColumnRef(("a.b",)), 1, "int"), table_schema, stats) == [0]
    assert kept(IsNull(ColumnRef(("a",))), table_schema, stats) == [0]


def test_a_struct_beside_its_field() -> None:
    table = StructType((StructField("s", schema("integer"), True),))
    field = ColumnRef(("s", "x"))
    stats = [{"numRecords": 1, "minValues": {"s": {"x": x}}, "maxValues": {"s": {"x": x}}} for x in (1, 2)]
    adds = [AddFile(f"f{at}", {}, 1, 1, stats=json.dumps(one)) for at, one in enumerate(stats)]
    for null in (IsNull(ColumnRef(("s",))), IsNotNull(ColumnRef(("s",)))):
        both = And((null, Comparison("=", field, 2, "integer")))
        mask = files_that_may_match(both, FileTable.from_add_files(adds), table, [], "UTC")
        assert list(mask) == [False, True]


def test_partition_values_and_statistics_together() -> None:
    table_schema = StructType((StructField("x", PrimitiveType("string")), StructField("y", PrimitiveType("long"))))
    adds = [
        AddFile(
            f"f{at}",
            {"x": part},
            1,
            1,
            stats=f'{{"numRecords":1,"minValues":{{"y":{at}}},"maxValues":{{"y":{at}}},"nullCount":{{"y":0}}}}',
        )
        for at, part in enumerate("aabb")
    ]
    both = And((Comparison("=", X, "b", "string"), Comparison("<", ColumnRef(("y",)), 3, "int")))
    either = Or((Comparison("=", X, "b", "string"), Comparison("<", ColumnRef(("y",)), 1, "int")))
    files = FileTable.from_add_files(adds)
    assert files_that_may_match(both, files, table_schema, ["x"], "UTC").tolist() == [
        False,
        False,
        True,
        False,
    ]
    assert files_that_may_match(either, files, table_schema, ["x"], "UTC").tolist() == [
        True,
        False,
        True,
        True,
    ]
    none = files.filter(np.zeros(4, dtype=bool))
    assert files_that_may_match(both, none, table_schema, ["x"], "UTC").tolist() == []


def test_contradicting_bounds_are_not_believed() -> None:
    assert kept(Comparison("=", X, 5, "int"), schema("long"), (9, 1)) == [0]


def test_wide_bounds_still_bound() -> None:
    wide = '{"numRecords":10,"minValues":{"x":1},"maxValues":{"x":5},"nullCount":{"x":3},"tightBounds":false}'
    assert kept(Comparison("=", X, 6, "int"), schema("long"), wide) == []
    assert kept(Comparison("=", X, 5, "int"), schema("long"), wide) == [0]
    assert kept(IsNull(X), schema("long"), wide) == [0]


def test_instants_against_local_times_and_dates() -> None:
    # 05:00 UTC is midnight in New York.
    instant = Comparison("=", X, datetime(2024, 1, 2, 5, tzinfo=UTC), "timestamp")
    local = ("2024-01-02T00:00:00.000", "2024-01-02T00:00:00.000")
    far = ("2024-01-09T00:00:00.000", "2024-01-09T00:00:00.000")
    assert kept(instant, schema("timestamp_ntz"), local, far, zone="America/New_York") == [0]
    days = [("2024-01-02", "2024-01-02"), ("2024-01-09", "2024-01-09")]
    assert kept(instant, schema("date"), *days, zone="America/New_York") == [0]
    midnight = Comparison(">=", X, datetime(2024, 1, 9), "timestamp_ntz")
    assert kept(midnight, schema("date"), *days) == [1]
