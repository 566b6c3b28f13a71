"""Columns of files in a table's shape, at any depth and from slices."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql.types import StructField, StructType

from deltamerge.data_source.file_parts import partition_value
from deltamerge.scan.file_types import arrow_schema
from deltamerge.workers.null_counts import uncounted_leaves
from deltamerge.workers.partition_names import partition_strings, without_empty
from deltamerge.workers.table_columns import (
    Part,
    Shape,
    can_become,
    has_null,
    has_times,
    in_plain_types,
    in_type,
    leaves_of,
    shape_of,
    shaped,
)
from deltamerge.workers.table_files import batch_of_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INNER = pa.struct([("x", pa.int64()), ("new", pa.string())])
RENAMED = Shape(INNER, (Part("col-1", Shape(pa.int64())), Part("col-2", Shape(pa.string()))))
STORED = pa.struct([("col-0", pa.int32()), ("col-1", pa.int32())])


@pytest.mark.parametrize("start", [0, 1])
def test_structs_lists_and_maps(start: int) -> None:
    structs = [{"col-0": 9, "col-1": 1}, None, {"col-0": 9, "col-1": None}, {"col-0": 9, "col-1": 3}]
    expected = [{"x": 1, "new": None}, None, {"x": None, "new": None}, {"x": 3, "new": None}]
    column = pa.array(structs, STORED).slice(start)
    assert shaped(column, RENAMED).to_pylist() == expected[start:]
    lists = pa.array([[structs[0], None], None, [], [structs[3]]], pa.list_(STORED)).slice(start)
    of_lists = Shape(pa.list_(INNER), (Part("element", RENAMED),))
    assert shaped(lists, of_lists).to_pylist() == [[expected[0], None], None, [], [expected[3]]][start:]
    maps = pa.array([[("a", structs[0])], None, [], [("b", structs[3])]], pa.map_(pa.string(), STORED)).slice(start)
    of_maps = Shape(pa.map_(pa.string(), INNER), (Part("key", Shape(pa.string())), Part("value", RENAMED)))
    assert shaped(maps, of_maps).to_pylist() == [[("a", expected[0])], None, [], [("b", expected[3])]][start:]


def test_a_type_that_is_the_same_may_still_have_its_fields_elsewhere() -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    swapped = Shape(kind, (Part("b", Shape(pa.int64())), Part("a", Shape(pa.int64()))))
    assert shaped(pa.array([{"a": 1, "b": 2}], kind), swapped).to_pylist() == [{"a": 2, "b": 1}]


def test_fields_go_by_ids_where_they_have_them() -> None:
    fields = [pa.field("other", pa.int64(), metadata={b"PARQUET:field_id": b"7"}), pa.field("a", pa.int64())]
    assert Part("a", Shape(pa.int64()), 7).index_in(fields) == 0
    assert Part("a", Shape(pa.int64()), 8).index_in(fields) is None
    assert Part("A", Shape(pa.int64())).index_in(fields) == 1


def test_values_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="string, which is not read as int64"):
        shaped(pa.array(["1"]), Shape(pa.int64()))
    with pytest.raises(pa.ArrowInvalid):
        shaped(pa.array([300]), Shape(pa.int8()))
    with pytest.raises(ValueError, match="double, which is not read as float"):
        shaped(pa.array([1e300]), Shape(pa.float32()))
    with pytest.raises(pa.ArrowInvalid, match="out of bounds"):
        shaped(pa.array([1 << 62], pa.timestamp("ms")), Shape(pa.timestamp("us", "UTC")))


def test_columns_of_types_that_only_arrow_has() -> None:
    """Spark reads how Parquet has their values."""
    lists, durations = Shape(pa.list_(pa.int64()), (Part("element", Shape(pa.int64())),)), pa.duration("ms")
    cases: list[tuple[pa.DataType, list[object], Shape]] = [
        (pa.json_(), ['{"a": 1}', None, "[]"], Shape(pa.string())),
        (pa.json_(pa.large_string()), ['{"a": 1}', None, "[]"], Shape(pa.string())),
        (pa.list_view(pa.int32()), [[1, None], None, [], [2]], lists),
        (pa.large_list_view(pa.int8()), [[1, None], None, [], [2]], lists),
    ]
    for kind, values, shape in cases:
        column = pa.array(values, kind)
        for found, expected in ((column, values), (column.slice(1), values[1:]), (column.slice(2), values[2:])):
            made = shaped(found, shape)
            made.validate(full=True)
            assert (made.type, made.to_pylist()) == (shape.target, expected), kind
    assert shaped(pa.array([1, None, 0], pa.bool8()), Shape(pa.int8())).to_pylist() == [1, None, 0]
    assert shaped(pa.array([1, None], durations), Shape(pa.int64())).to_pylist() == [1, None]
    within = pa.array([{"x": [1]}, None], pa.struct([("x", pa.list_view(durations))]))
    of_struct = Shape(pa.struct([("x", lists.target)]), (Part("x", lists),))
    assert shaped(within, of_struct).to_pylist() == [{"x": [1]}, None]
    # Lists of a view may overlap and be in any order.
    values = pa.array([1, 2, 3])
    view = pa.ListViewArray.from_arrays(pa.array([1, 0], pa.int32()), pa.array([2, 2], pa.int32()), values)
    assert shaped(view, lists).to_pylist() == [[2, 3], [1, 2]]


def test_bytes_that_are_read_as_a_string() -> None:
    """Spark does not check that bytes are UTF-8 which no annotation says to be a string."""
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)):
        column = pa.array([b"ab", None, b"\xff\x80"], kind)
        for found in (column, column.slice(1)):
            made = shaped(found, Shape(pa.string()))
            assert made.type == pa.string()
            assert made.cast(pa.binary()).to_pylist() == found.to_pylist()


def test_times_are_cut_to_microseconds_before_them() -> None:
    nanoseconds = [-1500, -1000, -1, 0, 999, 1500, None, -(1 << 63), (1 << 63) - 1]
    for zone in (None, "UTC"):
        found = shaped(pa.array(nanoseconds, pa.timestamp("ns", zone)), Shape(pa.timestamp("us", "UTC")))
        assert found.type == pa.timestamp("us", "UTC")
        expected = [None if each is None else each // 1000 for each in nanoseconds]
        assert found.cast(pa.int64()).to_pylist() == expected
    milliseconds = pa.array([-1, 2], pa.timestamp("ms"))
    assert shaped(milliseconds, Shape(pa.timestamp("us"))).cast(pa.int64()).to_pylist() == [-1000, 2000]


@pytest.mark.quick
def test_numbers_as_partition_values_are_spelled_as_by_spark(spark: SparkSession) -> None:
    numbers = [0.0, -0.0, 0.1, 1.0, -2.5, 100.0, 0.001, 0.000999, 9999999.0, 1e7, 1.25e7, -12345678.0, 1.5e-9, 3.4e38]
    values = [*numbers, float("nan"), float("inf"), float("-inf"), None]
    for kind in (pa.float32(), pa.float64()):
        rows = pa.table({"n": range(len(values)), "v": pa.array(values, kind)})
        found = spark.createDataFrame(rows).orderBy("n").selectExpr("CAST(v AS STRING) AS s").toArrow().column("s")
        assert partition_strings(rows.column("v").combine_chunks()).to_pylist() == found.to_pylist()


@pytest.mark.parametrize(
    ("value", "kind", "string"),
    [
        ("a/b=c", pa.string(), "a/b=c"),
        ("", pa.string(), ""),
        (True, pa.bool_(), "true"),
        (-3, pa.int16(), "-3"),
        (Decimal("1.50"), pa.decimal128(5, 2), "1.50"),
        (date(2024, 2, 29), pa.date32(), "2024-02-29"),
        (datetime(2024, 5, 1, 12, tzinfo=timezone.utc), pa.timestamp("us", "UTC"), "2024-05-01T12:00:00.000000Z"),
        (datetime(2024, 5, 1, 12, 0, 0, 500), pa.timestamp("us"), "2024-05-01 12:00:00.0005"),
        (b"xy", pa.binary(), "xy"),
        (1e16, pa.float64(), "1.0E16"),
        (0.5, pa.float32(), "0.5"),
        (float("-inf"), pa.float64(), "-Infinity"),
    ],
)
def test_partition_values_are_read_as_they_were_written(value: object, kind: pa.DataType, string: str | None) -> None:
    assert partition_strings(pa.array([value, None], kind)).to_pylist() == [string, None]
    assert partition_value(string, kind, "UTC").to_pylist() == [None if value == "" else value]


MICROS_OF_A_DAY = 86_400_000_000


@pytest.mark.parametrize("days", [2_932_897, -719_893, -719_528, -719_162, 2_932_896, -4_371_920])
def test_partition_values_of_years_that_python_lacks(days: int) -> None:
    """They are spelled as Spark spells them: of the years 10000, -1, 0, 1, 9999 and -10000."""
    day = {
        2_932_897: "+10000-01-01",
        -719_893: "-0001-01-01",
        -719_528: "0000-01-01",
        -719_162: "0001-01-01",
        2_932_896: "9999-12-31",
        -4_371_920: "-10000-02-03",
    }[days]
    micros = days * MICROS_OF_A_DAY + 3_600_000_500
    for kind, value, string in (
        (pa.date32(), days, day),
        (pa.timestamp("us", "UTC"), micros, f"{day}T01:00:00.000500Z"),
        (pa.timestamp("us"), micros, f"{day} 01:00:00.0005"),
    ):
        integers = pa.int32() if pa.types.is_date(kind) else pa.int64()
        column = pa.array([value, None], integers).cast(kind)
        assert partition_strings(column).to_pylist() == [string, None]
        assert partition_value(string, kind, "Europe/Berlin").cast(integers).to_pylist() == [value]


def test_times_of_far_years_without_an_offset_are_not_guessed() -> None:
    with pytest.raises(ValueError, match="time zone"):
        partition_value("+10000-01-01 00:00:00", pa.timestamp("us", "UTC"), "Europe/Berlin")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_an_empty_partition_value_is_null(kind: pa.DataType) -> None:
    column = pa.array(["", "a", None], pa.string()).cast(kind)
    assert without_empty(column).to_pylist() == [None, *column.to_pylist()[1:]]
    numbers = pa.array([0, None])
    assert without_empty(numbers) is numbers


def test_rows_become_batches() -> None:
    kind = pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int32()))), ("t", pa.timestamp("us", "UTC"))])
    at = datetime(2024, 5, 1, 12)
    batch = batch_of_rows([(1, ({"a": [1, None]}, at)), (2, None)], pa.schema([("id", pa.int64()), ("s", kind)]))
    assert batch.to_pylist() == [
        {"id": 1, "s": {"m": [("a", [1, None])], "t": at.astimezone(timezone.utc)}},
        {"id": 2, "s": None},
    ]
    vectors = StructType([StructField("v", VectorUDT())])
    (row,) = batch_of_rows([(Vectors.dense([1.0]),)], arrow_schema(vectors)).to_pylist()
    assert row == {"v": {"type": 1, "size": None, "indices": None, "values": [1.0]}}


STRUCT = pa.struct([("x", pa.int64()), ("y", pa.string()), ("z", pa.list_(pa.date32()))])
NARROW = pa.struct([("y", pa.large_string()), ("x", pa.int16()), ("gone", pa.float32())])


@pytest.mark.parametrize("chunked", [True, False])
def test_fields_of_a_file_in_the_types_of_its_table(chunked: bool) -> None:
    column = pa.array([{"y": "a", "x": 1, "gone": 0.5}, None, {"y": None, "x": None, "gone": None}], NARROW)
    expected = [{"x": 1, "y": "a", "z": None}, None, {"x": None, "y": None, "z": None}]
    found = in_type(pa.chunked_array([column.slice(0, 1), column.slice(1)]) if chunked else column, STRUCT)
    assert (found.type, found.to_pylist()) == (STRUCT, expected)
    lists = pa.array([[expected[0], None], None], pa.list_(pa.field("item", STRUCT, nullable=False)))
    assert in_type(lists, pa.list_(STRUCT)).to_pylist() == [[expected[0], None], None]
    maps = pa.array([[("a", {"y": "b", "x": 2, "gone": 1.0})], None], pa.map_(pa.string(), NARROW))
    assert in_type(maps, pa.map_(pa.string(), STRUCT)).to_pylist() == [[("a", {"x": 2, "y": "b", "z": None})], None]


@pytest.mark.parametrize(
    ("found", "wanted", "becomes"),
    [
        (NARROW, STRUCT, True),
        (STRUCT, STRUCT, False),
        (pa.list_(pa.int8()), pa.list_(pa.int32()), True),
        (pa.list_(pa.int32()), pa.list_(pa.int8()), False),
        (pa.struct([("X", pa.int64())]), pa.struct([("x", pa.int64())]), False),
        (pa.struct([("x", pa.int64()), ("X", pa.int64())]), pa.struct([("x", pa.int64())]), False),
        (pa.struct([("x", pa.string())]), pa.struct([("x", pa.int64())]), False),
        (pa.int64(), pa.struct([("x", pa.int64())]), False),
        (pa.map_(pa.string(), pa.date32()), pa.map_(pa.string(), pa.timestamp("us")), True),
        (pa.int32(), pa.int64(), True),
    ],
)
def test_which_types_become_others(found: pa.DataType, wanted: pa.DataType, becomes: bool) -> None:
    assert can_become(found, wanted) == becomes
    if not becomes and found != wanted and pa.types.is_nested(wanted):
        with pytest.raises(ValueError, match="which is not read as"):
            in_type(pa.nulls(1, found), wanted)


def test_nested_columns_in_plain_types() -> None:
    kind = pa.struct([pa.field("x", pa.large_list(pa.field("item", pa.large_string(), False)), False)])
    table = pa.table({"s": pa.array([{"x": ["a"]}, None], kind), "n": pa.array(["b", None], pa.string_view())})
    expected = pa.schema([("s", pa.struct([("x", pa.list_(pa.string()))])), ("n", pa.string())])
    for rows in (table, table.to_batches()[0]):
        plain = in_plain_types(rows)
        assert type(plain) is type(rows)
        assert plain.schema == expected
        assert plain.to_pylist() == table.to_pylist()
    assert in_plain_types(plain) is plain


def test_what_is_inside() -> None:
    assert [has_times(kind) for kind in (STRUCT, NARROW, pa.map_(pa.string(), STRUCT))] == [True, False, True]
    kind = pa.map_(pa.string(), pa.struct([("l", pa.list_(pa.int8())), ("d", pa.date32())]))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"m": pa.nulls(1, kind), "s": pa.nulls(1, STRUCT)}), sink)
    file = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    paths = [file.schema.column(index).path for index in range(len(file.schema))]
    found = [leaf for field in file.schema_arrow for leaf in leaves_of(field)]
    assert [path for path, _ in found] == paths
    assert [str(leaf) for _, leaf in found] == ["string", "int8", "date32[day]", "int64", "string", "date32[day]"]


PAIR = pa.struct([("x", pa.int64()), ("y", pa.int64())])


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(PAIR),
        pa.large_list(PAIR),
        pa.list_(PAIR, 2),
        pa.list_view(PAIR),
        pa.large_list_view(PAIR),
        pa.list_(pa.list_(PAIR, 2)),
        pa.fixed_shape_tensor(pa.int64(), [2]),
    ],
    ids=str,
)
def test_leaves_of_every_list(kind: pa.DataType) -> None:
    sink = pa.BufferOutputStream()
    schema = pa.schema([("a", pa.int32()), ("box", kind), ("id", pa.int64())])
    pq.ParquetWriter(sink, schema).close()
    file = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    paths = [file.schema.column(index).path for index in range(len(file.schema))]
    assert [path for field in schema for path, _ in leaves_of(field)] == paths
    assert uncounted_leaves("another writer", schema) == {index for index, path in enumerate(paths) if "." in path}


def test_values_that_are_null() -> None:
    inner = pa.struct([("x", pa.int64()), ("in", pa.struct([("y", pa.int64())]))])
    column = pa.array([{"x": 1, "in": {"y": None}}, {"x": 2, "in": {"y": 3}}], inner)
    assert not has_null(column, ())
    assert not has_null(column, ("x",))
    assert not has_null(column, ("in",))
    assert has_null(column, ("in", "y"))
    assert not has_null(column.slice(1), ("in", "y"))
    assert has_null(pa.array([None], inner), ("x",))
    assert shape_of(inner).is_as_found
