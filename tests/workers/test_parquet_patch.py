"""A patched file is the file it was but for the rows that left: values, types, field ids, encodings, metadata."""

from __future__ import annotations

import datetime as dt
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.nan_columns import nan_columns
from deltamerge.workers.parquet_patch import (
    AS_IT_WAS,
    own_metadata,
    patch_file,
    patching,
    reason_not_to_patch,
)
from deltamerge.workers.row_blocks import Blocks, block_columns, blocks_of_rows
from deltamerge.workers.table_writer import TableWriter

ROWS = 1000
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"7"}),
        pa.field("small", pa.decimal128(9, 2)),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("day", pa.date32()),
        pa.field("x", pa.float64()),
        pa.field("text", pa.string()),
        pa.field("raw", pa.binary(), nullable=False),
        pa.field(
            "st",
            pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.list_(pa.field("element", pa.string())))]),
        ),
        pa.field("m", pa.map_(pa.string(), pa.int16())),
    ],
    metadata={
        b"org.apache.spark.version": b"4.2.0",
        b"org.apache.spark.sql.parquet.row.metadata": b'{"x":1}',
    },
)


def rows(count: int) -> list[dict[str, Any]]:
    utc = dt.timezone.utc
    return [
        {
            "id": i,
            "small": None if i % 5 == 0 else Decimal(i) / 4,
            "at": dt.datetime(1800 + i, 2, 3, 4, 5, 6, 789012, utc),
            "local": dt.datetime(1 + i, 1, 1),
            "day": dt.date(1 + i * 9, 12, 31),
            "x": [float("nan"), -0.0, float("-inf"), None, 1.5][i % 5],
            "text": ["", None, "ä€𝄞", "x" * 40][i % 4],
            "raw": bytes([i % 256]) * (i % 3),
            "st": [None, {"a": None, "b": None}, {"a": i, "b": []}, {"a": 1, "b": [None, "z"]}][i % 4],
            "m": [None, [], [("k", None), ("l", 3)]][i % 3],
        }
        for i in range(count)
    ]


def blocks(positions: list[int]) -> Blocks:
    return blocks_of_rows(np.array(sorted(positions), np.uint64))


def write(path: Path, **options: Any) -> pa.Table:
    table = pa.Table.from_pylist(rows(ROWS), SCHEMA)
    given = {
        "row_group_size": 300,
        "store_schema": False,
        "use_dictionary": ["text"],
        "compression": "zstd",
        **options,
    }
    # Without Arrow's own schema its metadata is not written by itself.
    with pq.ParquetWriter(
        path, SCHEMA.remove_metadata(), **{k: v for k, v in given.items() if k != "row_group_size"}
    ) as writer:
        writer.add_key_value_metadata(SCHEMA.metadata)
        writer.write_table(table.replace_schema_metadata(None), row_group_size=given["row_group_size"])
    return table


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"store_decimal_as_integer": True, "compression": {"id": "snappy", "text": "gzip"}},
        {"store_schema": True, "write_page_index": True, "compression": "none"},
        {"column_encoding": {"id": "DELTA_BINARY_PACKED", "x": "BYTE_STREAM_SPLIT"}},
    ],
)
def test_all_but_the_rows_stays(tmp_path: Path, options: dict[str, Any]) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    write(source, **options)
    gone = [0, 5, 299, 300, *range(600, 900), 999]
    old = pq.ParquetFile(source)
    assert reason_not_to_patch(old) is None
    assert patch_file(LOCAL_FILES, str(source), str(target), blocks(gone)).rows == ROWS - len(gone)
    new = pq.ParquetFile(target)
    assert new.schema.equals(old.schema)
    assert new.schema.column(0).path == "id"
    assert "field_id=7" in str(new.schema)
    assert own_metadata(new) == own_metadata(old)
    assert own_metadata(old).keys() >= SCHEMA.metadata.keys()
    assert nan_columns(new.metadata.metadata) == {("x",): True}
    assert (b"ARROW:schema" in new.metadata.metadata) == (b"ARROW:schema" in old.metadata.metadata)
    kept = [row for i, row in enumerate(old.read().to_pylist()) if i not in set(gone)]
    assert list(map(repr, new.read().to_pylist())) == list(map(repr, kept))
    # The third row group has lost all its rows.
    assert new.metadata.num_row_groups == old.metadata.num_row_groups - 1
    for index in range(old.metadata.num_columns):
        before, after = (file.metadata.row_group(0).column(index) for file in (old, new))
        assert after.compression == before.compression
        assert after.encodings == before.encodings
        assert after.has_column_index == before.has_column_index
        assert after.is_stats_set
    assert list(tmp_path.rglob("*.tmp")) == []


def test_no_row_stays(tmp_path: Path) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    write(source)
    assert patch_file(LOCAL_FILES, str(source), str(target), blocks(list(range(ROWS)))).rows == 0
    assert not target.exists()


def test_a_row_that_is_not_there(tmp_path: Path) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    write(source)
    with pytest.raises(ValueError, match=f"row {ROWS + 3} is not in a file of {ROWS} rows"):
        patch_file(LOCAL_FILES, str(source), str(target), blocks([1, ROWS + 3]))
    assert [path.name for path in tmp_path.iterdir()] == ["old.parquet"]


def test_a_batch_of_files(tmp_path: Path) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    write(source)
    batch = pa.RecordBatch.from_pydict(
        {
            "source": [str(source)],
            "target": [str(target)],
            "row_id": [5],
            "row_commit_version": [1],
            **block_columns([blocks([0])]),
        }
    )
    (answer,) = patching(LOCAL_FILES, AS_IT_WAS)([batch])
    (row,) = answer.to_pylist()
    assert (row["path"], row["rows"], row["size"]) == (str(target), ROWS - 1, target.stat().st_size)
    assert pq.read_metadata(pa.BufferReader(row["footer"])).num_rows == ROWS - 1


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """A failed merge deletes its folder: a task of it that still runs makes none."""
    source = tmp_path / "old.parquet"
    write(source)
    with pytest.raises(FileNotFoundError):
        patch_file(LOCAL_FILES, str(source), str(tmp_path / "gone" / "new.parquet"), blocks([1]))
    folder = tmp_path / "going"
    folder.mkdir()
    with (
        pytest.raises(FileNotFoundError),
        TableWriter(LOCAL_FILES, str(folder / "new.parquet"), SCHEMA, {}, {}) as writer,
    ):
        shutil.rmtree(folder)
        writer.write(pa.Table.from_pylist(rows(3), SCHEMA))
    assert [path.name for path in tmp_path.iterdir()] == ["old.parquet"]


def test_a_schema_that_parquet_does_not_have(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.month_day_nano_interval())])
    with (
        pytest.raises(pa.ArrowNotImplementedError),
        TableWriter(LOCAL_FILES, str(tmp_path / "x.parquet"), schema, {}, {}),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_fails_half_way(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        TableWriter(LOCAL_FILES, str(tmp_path / "x.parquet"), SCHEMA, {}, {}) as writer,
    ):
        writer.write(pa.Table.from_pylist(rows(3), SCHEMA))
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_texts_that_another_library_reads_as_views(tmp_path: Path) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    table = pa.table(
        {
            "v": pa.array(["a", "b", "c"], pa.string_view()),
            "b": pa.array([b"1", b"2", None], pa.binary_view()),
        }
    )
    pq.write_table(table, source)
    assert reason_not_to_patch(pq.ParquetFile(source)) is None
    assert patch_file(LOCAL_FILES, str(source), str(target), blocks([1])).rows == 2
    assert pq.read_table(target).to_pydict() == {"v": ["a", "c"], "b": [b"1", None]}


def test_what_goes_through_spark_instead(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"at": pa.array([0], pa.timestamp("us"))}), path, use_deprecated_int96_timestamps=True)
    assert reason_not_to_patch(pq.ParquetFile(path)) == "column at is INT96"


@pytest.mark.parametrize("kind", [pa.date32(), pa.list_(pa.struct([("d", pa.date32())])), pa.timestamp("us")])
def test_days_of_another_calendar_go_through_spark(tmp_path: Path, kind: pa.DataType) -> None:
    """A wider type has them in today's calendar, which readers do not know of a file with this metadata."""
    path, old = tmp_path / "t.parquet", {"org.apache.spark.version": "2.4.8"}
    rows = pa.table({"id": [1], "d": pa.nulls(1, kind)})
    pq.write_table(rows.replace_schema_metadata(old), path)
    reason = "its dates and times are in the calendar of Spark 2"
    assert reason_not_to_patch(pq.ParquetFile(path)) == reason
    pq.write_table(rows.select(["id"]).replace_schema_metadata(old), path)
    assert reason_not_to_patch(pq.ParquetFile(path)) is None


def test_columns_of_distinct_values_get_no_dictionary(tmp_path: Path) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    numbers = np.random.default_rng(1).permutation(60_000)
    columns = {
        "distinct": pa.array(numbers),
        "repeated": pa.array(numbers % 100),
        "texts": pa.array([f"{number:060}" for number in numbers]),
        "words": pa.array([f"word {number % 50}" for number in numbers]),
        "decimals": pa.array(numbers).cast(pa.decimal128(20, 0)),
        "some": pa.array(numbers % 3, mask=numbers % 2 == 0),
    }
    table = pa.table({**columns, "small": pa.array([[1]] * len(numbers))})
    with pq.ParquetWriter(source, table.schema, data_page_size=1 << 14) as writer:
        writer.write_table(table, row_group_size=50_000)
        writer.write_table(table.slice(0, 0))
    assert patch_file(LOCAL_FILES, str(source), str(target), blocks([7])).rows == len(numbers) - 1
    new = pq.ParquetFile(target)
    with_dictionary = {
        column.path_in_schema
        for column in map(new.metadata.row_group(0).column, range(new.metadata.num_columns))
        if column.has_dictionary_page
    }
    assert with_dictionary == {"repeated", "words", "some", "small.list.element"}
    assert new.read().equals(table.take(np.delete(np.arange(len(numbers)), 7)).combine_chunks())
    assert target.stat().st_size < source.stat().st_size
