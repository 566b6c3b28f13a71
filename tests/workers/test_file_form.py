"""Files written again as the table has them now: wider types, and the ids of their rows."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.log.features import type_widening
from deltamerge.workers.file_columns import read_columns
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.parquet_patch import AS_IT_WAS, FileForm, patch_file
from deltamerge.workers.row_blocks import Blocks, blocks_of_rows
from deltamerge.workers.row_tracking import HiddenColumns, Origin
from deltamerge.workers.table_columns import can_widen

HIDDEN = HiddenColumns("_id", "_version")
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
NARROW = {
    "a": pa.array([1, None, 3], pa.int8()),
    "b": pa.array([1, None, 3], pa.int32()),
    "c": pa.array([1.5, None, float("nan")], pa.float32()),
    "d": pa.array([Decimal("1.25"), None, Decimal("-1.00")], pa.decimal128(5, 2)),
    "e": pa.array([date(2024, 1, 2), None, date(1969, 1, 1)]),
    "f": pa.array([7, None, 9], pa.int32()),
    "same": ["x", None, "z"],
}
WIDE = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.decimal128(12, 2)),
        ("c", pa.float64()),
        ("d", pa.decimal128(10, 3)),
        ("e", pa.timestamp("us")),
        ("f", pa.float64()),
        ("same", pa.string()),
    ]
)
DECIMALS = ((5, 2), (7, 4), (6, 4), (10, 0), (12, 2), (20, 0), (9, 0))
LOG_NAMES = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    **{f"decimal({p},{s})": pa.decimal128(p, s) for p, s in DECIMALS},
}


def blocks(rows: list[int]) -> Blocks:
    return blocks_of_rows(np.array(rows, np.uint64))


@pytest.mark.parametrize("before", LOG_NAMES)
@pytest.mark.parametrize("after", LOG_NAMES)
def test_the_changes_are_those_of_the_protocol(before: str, after: str) -> None:
    assert can_widen(LOG_NAMES[before], LOG_NAMES[after]) == type_widening.can_widen(before, after)


def write(path: Path) -> None:
    table = pa.table(NARROW).replace_schema_metadata({SPARK_SCHEMA: b"{}", b"kept": b"1"})
    pq.write_table(table, path, column_encoding={"e": "DELTA_BINARY_PACKED"}, use_dictionary=["b"])


def test_narrow_columns_are_read_as_wide_ones(tmp_path: Path) -> None:
    write(tmp_path / "old.parquet")
    found = read_columns(LOCAL_FILES, str(tmp_path / "old.parquet"), {}, {f.name: (f.name, f.type) for f in WIDE})
    assert found.select(WIDE.names).to_pylist()[0] == {
        "a": 1,
        "b": Decimal("1.00"),
        "c": 1.5,
        "d": Decimal("1.250"),
        "e": datetime(2024, 1, 2),
        "f": 7.0,
        "same": "x",
    }
    with pytest.raises(ValueError, match="column same is not int64"):
        read_columns(LOCAL_FILES, str(tmp_path / "old.parquet"), {}, {"same": ("same", pa.int64())})


def test_patched_files_are_as_wide_as_the_table(tmp_path: Path) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    write(source)
    assert patch_file(LOCAL_FILES, str(source), str(target), blocks([0]), FileForm(WIDE)).rows == 2
    read = pq.ParquetFile(target)
    assert read.schema_arrow.remove_metadata() == WIDE
    expected = (
        read_columns(LOCAL_FILES, str(source), {}, {f.name: (f.name, f.type) for f in WIDE}).select(WIDE.names).slice(1)
    )
    assert str(read.read().to_pylist()) == str(expected.to_pylist())
    assert SPARK_SCHEMA not in read.metadata.metadata
    assert read.metadata.metadata[b"kept"] == b"1"
    patch_file(LOCAL_FILES, str(source), str(target), blocks([0]), AS_IT_WAS)
    assert pq.read_metadata(target).metadata[SPARK_SCHEMA] == b"{}"


def test_days_too_far_for_timestamps(tmp_path: Path) -> None:
    far = pa.table({"e": pa.array([110_000_000], pa.int32()).cast(pa.date32())})
    pq.write_table(far, tmp_path / "old.parquet")
    with pytest.raises(ValueError, match="a day is too far away"):
        read_columns(LOCAL_FILES, str(tmp_path / "old.parquet"), {}, {"e": ("e", pa.timestamp("us"))})


def test_rows_keep_their_ids(tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{n}.parquet" for n in range(3))
    pq.write_table(pa.table({"n": [0, 1, 2, 3]}), first, row_group_size=2)
    form = FileForm(pa.schema([]), hidden=HIDDEN)
    assert patch_file(LOCAL_FILES, str(first), str(second), blocks([1]), form, Origin(100, 7)).rows == 3
    assert pq.read_table(second).to_pydict() == {"n": [0, 2, 3], "_id": [100, 102, 103], "_version": [7, 7, 7]}
    # What the file has itself counts; what it lacks comes from its place in the log.
    ids, versions = (pa.array(values, pa.int64()) for values in ([100, None, 103], [7, None, None]))
    partly = pa.table({"n": [0, 2, 3], "_id": ids, "_version": versions})
    pq.write_table(partly, second)
    assert patch_file(LOCAL_FILES, str(second), str(third), blocks([0]), form, Origin(500, 9)).rows == 2
    assert pq.read_table(third).to_pydict() == {"n": [2, 3], "_id": [501, 103], "_version": [9, 9]}


def test_hidden_columns_that_were_never_null(tmp_path: Path) -> None:
    """Writers that require values in them: the new file's may be NULL, as those of all other files."""
    old, new = str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    fields = [pa.field("n", pa.int64()), pa.field("_id", pa.int64(), nullable=False), pa.field("_version", pa.int64())]
    rows = pa.table({"n": [0, 1, 2, 3], "_id": [5, 6, 7, 8], "_version": [3] * 4}, schema=pa.schema(fields))
    pq.write_table(rows, old, row_group_size=2)
    done = patch_file(LOCAL_FILES, old, new, blocks([3]), FileForm(pa.schema([]), hidden=HIDDEN), Origin(100, 7))
    assert done.rows == 3
    assert pq.read_table(new).to_pydict() == {"n": [0, 1, 2], "_id": [5, 6, 7], "_version": [3] * 3}


def test_nested_columns_get_the_fields_that_their_table_has(tmp_path: Path) -> None:
    """New and wider fields are in the file, with the other columns' codecs and without Spark's old schema."""
    narrow = pa.struct([("x", pa.int32()), ("l", pa.list_(pa.field("element", pa.struct([("f", pa.float32())]))))])
    source, target = str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    values = [{"x": 1, "l": [{"f": 0.5}, None]}, None, {"x": None, "l": None}, {"x": 4, "l": []}]
    table = pa.table({"s": pa.array(values, narrow), "n": [1, 2, 3, 4]})
    with pq.ParquetWriter(source, table.schema, compression="zstd", use_dictionary=["n"]) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({SPARK_SCHEMA: b"{}"})
    inner = pa.struct([("f", pa.float64()), ("new", pa.string())])
    wide = pa.struct(
        [("x", pa.int64()), ("l", pa.list_(pa.field("element", inner))), ("m", pa.map_(pa.string(), inner))]
    )
    form = FileForm(pa.schema([("s", wide), ("n", pa.int64())]))
    done = patch_file(LOCAL_FILES, source, target, blocks([3]), form)
    assert done.rows == 3
    file = pq.ParquetFile(target)
    assert file.schema_arrow.field("s").type == wide
    assert file.read().column("s").to_pylist() == [
        {"x": 1, "l": [{"f": 0.5, "new": None}, None], "m": None},
        None,
        {"x": None, "l": None, "m": None},
    ]
    chunks = [file.metadata.row_group(0).column(index) for index in range(file.metadata.num_columns)]
    assert {chunk.compression for chunk in chunks} == {"ZSTD"}
    assert SPARK_SCHEMA not in file.metadata.metadata
    asked = {"s": ("s", wide)}
    assert read_columns(LOCAL_FILES, source, {}, asked).column("s").to_pylist()[:2] == file.read()["s"].to_pylist()[:2]


def test_nested_columns_that_are_spelled_otherwise(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"s": [{"X": 1}]}), path)
    with pytest.raises(ValueError, match="which is not read as"):
        read_columns(LOCAL_FILES, path, {}, {"s": ("s", pa.struct([("x", pa.int64())]))})


def test_nested_columns_of_other_writers_stay_as_they_are(tmp_path: Path) -> None:
    source, target = str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    kind = pa.struct([("x", pa.large_string()), ("X", pa.list_(pa.large_string()))])
    table = pa.table({"s": pa.array([{"x": "a", "X": ["b"]}, None, {"x": None, "X": None}], kind)})
    pq.write_table(table, source)
    for form in (
        AS_IT_WAS,
        FileForm(pa.schema([("s", pa.struct([("x", pa.string()), ("X", pa.list_(pa.string()))]))])),
    ):
        patch_file(LOCAL_FILES, source, target, blocks([1]), form)
        assert pq.read_table(target).to_pylist() == [table.to_pylist()[0], table.to_pylist()[2]]
