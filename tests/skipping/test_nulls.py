"""NULLs of arrays, maps and variants: from the footer where it tells, else from the file."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.log.schema import ArrayType, MapType, PrimitiveType, StructField, StructType
from deltamerge.skipping.collect_statistics import count_nulls, parquet_statistics
from deltamerge.skipping.indexed import IndexedColumns
from deltamerge.workers.thrift_compact import BINARY, I64, read_struct, write_struct

LONG = PrimitiveType("long")
ARRAY = ArrayType(LONG)
MAP = MapType(PrimitiveType("string"), LONG)
VARIANT = PrimitiveType("variant")


def fields(**types: Any) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in types.items()))


def collected(
    table: pa.Table, schema: StructType, *, reads: bool = True, **options: int
) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
    """Gives the statistics of a file and the paths of the columns that were read for them."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    read = []

    def counted(path: tuple[str, ...], leaves: tuple[int, ...]) -> int | None:
        assert reads, f"{path} is read"
        read.append(path)
        return count_nulls(pq.ParquetFile(buffer), path, leaves)

    indexed = IndexedColumns.of(schema, (), {})
    text = parquet_statistics(pq.read_metadata(buffer), schema, indexed, counted)
    return json.loads(text)["nullCount"], read


def array_of_structs(values: Sequence[Any]) -> pa.ListArray:
    return pa.array(values, pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[1, None], None, [], [2]], 1),
        ([None, None, [None]], 2),
        ([[]], 0),
        ([[None], [1]], 0),
        ([None, None], 2),
        ([None, *[[1]] * 3000, [], None], 2),
    ],
)
@pytest.mark.parametrize("row_group_size", [1000, 2])
def test_arrays_with_missing_parts(values: list[list[int | None] | None], expected: int, row_group_size: int) -> None:
    table = pa.table({"x": pa.array(values, pa.list_(pa.int64()))})
    assert collected(table, fields(x=ARRAY), row_group_size=row_group_size) == ({"x": expected}, [("x",)])


def test_maps_structs_and_arrays_of_structs() -> None:
    schema = fields(
        m=MAP,
        n=fields(x=ARRAY, m=MAP),
        s=ArrayType(fields(a=LONG, b=PrimitiveType("string"))),
        deep=ArrayType(ARRAY),
    )
    rows: list[Any] = [{"x": [1], "m": [("k", None)]}, None, {"x": None, "m": None}, {"x": [], "m": []}]
    table = pa.table(
        {
            "m": pa.array([[("k", None)], None, [], [("l", 1)]], pa.map_(pa.string(), pa.int64())),
            "n": pa.array(
                rows,
                pa.struct([("x", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64()))]),
            ),
            "s": array_of_structs([[{"a": 1, "b": None}, None], None, [], None]),
            "deep": pa.array([[[1], None, []], None, [], [[None]]], pa.list_(pa.list_(pa.int64()))),
        }
    )
    found, read = collected(table, schema)
    assert found == {"m": 1, "n": {"x": 2, "m": 2}, "s": 2, "deep": 1}
    assert read == [("m",), ("n", "x"), ("n", "m"), ("s",), ("deep",)]


def test_names_with_dots_and_of_another_case() -> None:
    schema = StructType((StructField("a.b", ARRAY), StructField("a", fields(b=ARRAY)), StructField("Case", ARRAY)))
    table = pa.table(
        {
            "a": pa.array([{"b": [None]}, {"b": None}, None], pa.struct([("b", pa.list_(pa.int64()))])),
            "a.b": pa.array([[], [], None], pa.list_(pa.int64())),
            "cASE": pa.array([None, None, [None]], pa.list_(pa.int64())),
        }
    )
    assert collected(table, schema)[0] == {"a.b": 1, "a": {"b": 2}, "Case": 2}


def test_nothing_is_read_where_the_footer_tells() -> None:
    schema = fields(x=ARRAY, m=MAP, k=LONG, n=fields(k=LONG), v=VARIANT, s=fields(v=VARIANT), gone=ARRAY)
    variant = pa.struct(
        [pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)]
    )
    shredded = pa.struct(
        [
            pa.field("metadata", pa.binary(), nullable=False),
            pa.field("value", pa.binary()),
            pa.field("typed_value", pa.int64()),
        ]
    )
    value = {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}
    table = pa.table(
        {
            "x": pa.array([[1], [2, 3], [4]], pa.list_(pa.int64())),
            "m": pa.array([[("k", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
            "k": [None, None, 1],
            "n": [None, {"k": None}, {"k": 1}],
            "v": pa.array([value, None, value], variant),
            "s": pa.array(
                [{"v": {"metadata": b"\x01\x00\x00", "value": None, "typed_value": 1}}, {"v": None}, None],
                pa.struct([("v", shredded)]),
            ),
        }
    )
    found, _ = collected(table, schema, reads=False)
    assert found == {"x": 0, "m": 0, "k": 2, "n": {"k": 2}, "v": 1, "s": {"v": 2}, "gone": 3}


def miscounted(table: pa.Table, created_by: bytes) -> pq.FileMetaData:
    """Gives the footer of a file whose writer has passed over missing arrays: no value is missing, as it says."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    content = buffer.getvalue()
    length = int.from_bytes(content[-8:-4], "little")
    footer = read_struct(content[-8 - length : -8])
    footer[6] = (BINARY, created_by)
    for column in footer[4][1][1][0][1][1][1]:
        column[3][1][12][1][3] = (I64, 0)
    footer_bytes = write_struct(footer)
    content = content[: -8 - length] + footer_bytes + len(footer_bytes).to_bytes(4, "little") + b"PAR1"
    return pq.read_metadata(io.BytesIO(content))


OF_NUMBERS = pa.list_(pa.struct([("a", pa.struct([("b", pa.int64())]))]))
MISCOUNTED: dict[str, tuple[pa.DataType, Any]] = {
    "s": (OF_NUMBERS, ArrayType(fields(a=fields(b=LONG)))),
    "deep": (pa.list_(OF_NUMBERS), ArrayType(ArrayType(fields(a=fields(b=LONG))))),
    "n": (pa.struct([("s", OF_NUMBERS)]), fields(s=ArrayType(fields(a=fields(b=LONG))))),
}
COUNTED: dict[str, tuple[pa.DataType, Any]] = {
    "m": (
        pa.map_(pa.int64(), pa.struct([("b", pa.int64())])),
        MapType(LONG, fields(b=LONG)),
    ),
    "t": (
        pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ArrayType(fields(a=LONG, b=PrimitiveType("string"))),
    ),
    "x": (pa.list_(pa.int64()), ARRAY),
    "p": (pa.map_(pa.int64(), pa.int64()), MapType(LONG, LONG)),
}


@pytest.mark.parametrize(
    ("created_by", "is_exact", "is_believed"),
    [
        (b"parquet-cpp-arrow version 25.0.1", False, True),
        (b"parquet-cpp-arrow version 26.0.0", True, True),
        (b"parquet-mr version 1.15.2 (build 8e3e1c8)", True, True),
        (b"delta-rs version py-1.6.6", True, True),
        (b"parquet-cpp-arrow version 5.0.0", False, False),
        (b"somebody version 1", False, False),
    ],
)
def test_counts_of_writers_that_pass_over_missing_arrays(created_by: bytes, is_exact: bool, is_believed: bool) -> None:
    """They are left out, and the file is not read for them; numbers in structs were miscounted longer than others."""
    columns = MISCOUNTED | COUNTED
    schema = fields(**{name: delta for name, (_, delta) in columns.items()}, k=LONG)
    arrow = pa.schema([(name, kind) for name, (kind, _) in columns.items()] + [("k", pa.int64())])
    footer = miscounted(pa.Table.from_pylist([{"k": 1}, {"k": 2}], arrow), created_by)
    found = json.loads(parquet_statistics(footer, schema, IndexedColumns.of(schema, (), {})))["nullCount"]
    expected: dict[str, Any] = {"s": 0, "deep": 0, "n": {"s": 0}} if is_exact else {}
    assert found == {**expected, **(dict.fromkeys(COUNTED, 0) if is_believed else {}), "k": 0}


def test_a_column_that_cannot_be_counted_is_left_out() -> None:
    table = pa.table({"x": pa.array([[]], pa.list_(pa.int64()))})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    schema = fields(x=ARRAY)
    indexed = IndexedColumns.of(schema, (), {})
    for count in (None, lambda path, leaves: None):
        text = parquet_statistics(pq.read_metadata(buffer), schema, indexed, count)
        assert json.loads(text)["nullCount"] == {}


def test_the_smallest_leaf_is_read() -> None:
    texts = [[{"a": 1, "b": f"{at}" * 50}] for at in range(1000)]
    buffer = io.BytesIO()
    pq.write_table(pa.table({"x": array_of_structs([*texts, None, []])}), buffer)
    file = pq.ParquetFile(buffer)
    asked = []
    batches = file.iter_batches

    class Watched:
        metadata, schema = file.metadata, file.schema

        def iter_batches(self, **options: Any) -> Callable[..., Any]:
            asked.append(options["columns"])
            return batches(**options)

    assert count_nulls(Watched(), ("x",), [0, 1]) == 1
    assert asked == [["x.list.element.a"]]
