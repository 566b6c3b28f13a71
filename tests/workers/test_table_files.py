"""Files that a task writes, one for each partition: all of them, or none."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.table_columns import Part, Shape
from deltamerge.workers.table_files import RowsToWrite
from deltamerge.workers.table_writer import TableWriter

FRAME = pa.schema([("a", pa.int64()), ("p", pa.string())])


def by_partition(folder: Path, most_rows: int | None = None) -> RowsToWrite:
    columns = Part("a", Shape(pa.int64())), Part("p", Shape(pa.string()))
    stored = pa.schema([("a", pa.int64())])
    partitions = (("p", columns[1]),)
    return RowsToWrite(
        LOCAL_FILES, "t", str(folder), stored, columns[:1], partitions, (), {}, {}, (), None, most_rows, {}, {}, FRAME
    )


def test_files_end_at_a_number_of_rows(tmp_path: Path) -> None:
    partitions = ["x"] * 7 + ["y"] * 3
    batch = pa.RecordBatch.from_pydict({"a": range(10), "p": partitions}, schema=FRAME)
    parts = by_partition(tmp_path, 3).write([batch.slice(0, 8), batch.slice(8)])
    found = [(Path(part.path).parent.name, part.rows, pq.read_table(part.path)["a"].to_pylist()) for part in parts]
    assert sorted(found) == [
        ("p=x", 1, [6]),
        ("p=x", 3, [0, 1, 2]),
        ("p=x", 3, [3, 4, 5]),
        ("p=y", 3, [7, 8, 9]),
    ]


def test_a_disk_that_is_full_at_the_end_leaves_no_file_of_any_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = by_partition(tmp_path)
    written: list[int] = []
    write = TableWriter.write

    def fill(writer: TableWriter, *args: Any) -> None:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(1)
        write(writer, *args)

    monkeypatch.setattr(TableWriter, "write", fill)
    with pytest.raises(OSError, match="No space left"):
        rows.write([pa.RecordBatch.from_pydict({"a": [1, 2, 3], "p": ["x", "y", "z"]}, schema=FRAME)])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_files_that_cannot_be_closed_do_not_keep_others_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave = TableWriter.__exit__

    def fail(writer: TableWriter, *given: Any) -> None:
        leave(writer, *given)
        raise OSError(errno.EIO, "not closed")

    monkeypatch.setattr(TableWriter, "__exit__", fail)
    with pytest.raises(OSError, match="not closed"):
        by_partition(tmp_path).write([pa.RecordBatch.from_pydict({"a": [1, 2, 3], "p": ["x", "y", "z"]}, FRAME)])
    assert [path for path in tmp_path.rglob(".*") if path.is_file()] == []
