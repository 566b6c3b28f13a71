"""Change data that a task writes beside a file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.workers.change_files import DELETE, INSERT, ChangeWriter
from deltamerge.workers.conditions import Column, Constant, Operation, RowCheck
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.table_writer import TableWriter

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])


def writer(path: Path | str) -> ChangeWriter:
    return ChangeWriter(LOCAL_FILES, str(path), COLUMNS, {"compression": "snappy"}, {b"made": b"here"})


def test_rows_get_the_tables_columns_and_the_kind_of_change(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    with writer(path) as changes:
        changes.add(pa.table({"hidden": [7], "id": pa.array([1], pa.int32())}), DELETE)
        changes.add(pa.table({"v": ["a", "b"], "id": [2, 3]}), INSERT)
        changes.add(pa.table({"v": pa.array([], pa.string()), "id": pa.array([], pa.int64())}), DELETE)
    assert pq.read_table(path).to_pylist() == [
        {"id": 1, "v": None, "_change_type": "delete"},
        {"id": 2, "v": "a", "_change_type": "insert"},
        {"id": 3, "v": "b", "_change_type": "insert"},
    ]
    assert changes.done == (str(path), 3, path.stat().st_size)
    assert pq.read_metadata(path).metadata[b"made"] == b"here"


def test_large_changes_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltamerge.workers.change_files.PIECE_BYTES", 1)
    path = tmp_path / "c.parquet"
    with writer(path) as changes:
        for number in range(3):
            changes.add(pa.table({"id": [number], "v": ["x"]}), INSERT)
    assert pq.read_metadata(path).num_row_groups == 3
    assert changes.done[1] == 3


@pytest.mark.parametrize("wanted", [True, False])
def test_no_changes_are_no_file(tmp_path: Path, wanted: bool) -> None:
    with writer(tmp_path / "c.parquet" if wanted else "") as changes:
        changes.add(pa.table({"id": [1][: 0 if wanted else 1], "v": ["a"][: 0 if wanted else 1]}), INSERT)
    assert changes.done == ("", 0, 0)
    assert list(tmp_path.iterdir()) == []


def test_failures_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltamerge.workers.change_files.PIECE_BYTES", 1)
    with pytest.raises(ValueError, match="full"), writer(tmp_path / "c.parquet") as changes:
        changes.add(pa.table({"id": [1], "v": ["a"]}), INSERT)
        raise ValueError("full")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_of_the_last_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    def fails(writer: TableWriter, _: pa.Table) -> None:
        closed.append(writer._output.stream)
        raise OSError("no space is left")

    monkeypatch.setattr(TableWriter, "write", fails)
    with pytest.raises(OSError, match="no space"), writer(tmp_path / "c.parquet") as changes:
        changes.add(pa.table({"id": [1], "v": ["a"]}), INSERT)
    assert [stream.closed for stream in closed] == [True]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("values", "holds"), [([1, 2], True), ([], True), ([1, 0], False), ([None], False)])
def test_checks(values: list[int | None], holds: bool) -> None:
    """NULL counts as violated."""
    check = RowCheck("positive", Operation(">", (Column(4, "whole"), Constant(0, "whole"))), {4: "col-1"})
    columns = {"col-1": pa.chunked_array([values], pa.int32()), "other": pa.nulls(len(values))}
    if holds:
        check.check(columns, len(values))
        return
    with pytest.raises(ValueError, match="constraint positive"):
        check.check(columns, len(values))
