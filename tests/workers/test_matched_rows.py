"""Rows of source and target side by side, read from files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.workers import matched_rows
from deltamerge.workers.file_columns import Asked
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.matched_rows import pairing_rows
from deltamerge.workers.row_pairs import NO_CLAUSE, NO_SOURCE, NO_VALUES, RowPairs, by_source_number, write_pairs
from deltamerge.workers.staged_rows import STAGED_SUFFIX, StagedFile, StagedRows, taken

TARGET: Asked = {"t0": ("id", pa.int64()), "t1": ("name", pa.string())}


def stage(folder: Path, *tables: pa.Table) -> StagedRows:
    files = []
    for number, table in enumerate(tables):
        path = folder / f"{number}{STAGED_SUFFIX}"
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
        files.append(StagedFile(str(path), len(table)))
    return StagedRows(tuple(files))


def source_rows(*values: str) -> pa.Table:
    return pa.table({"s0": list(values), "s1": pa.array(range(len(values)), pa.int32())})


def write(path: Path, rows: int, **options: Any) -> Path:
    ids = pa.array(range(100, 100 + rows), pa.int64())
    pq.write_table(pa.table({"name": [f"n{i}" for i in range(rows)], "id": ids}), path, **options)
    return path


def pairs(folder: Path, rows: Sequence[tuple[int, int, int]]) -> str:
    """Keeps pairs of a row, a source row and a clause: of all that a clause takes there are values."""
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    values = np.where(columns[2] == NO_CLAUSE, NO_VALUES, np.arange(len(rows)))
    return write_pairs(LOCAL_FILES, str(folder), RowPairs(columns[0], columns[1], columns[2], values))


def side_by_side(
    staged: StagedRows,
    files: Sequence[tuple[Path, str]],
    values: Mapping[str, str | None] | None = None,
    *,
    source: Sequence[str] = ("s0", "s1"),
    target: Asked = TARGET,
) -> list[tuple[Any, ...]]:
    batch = pa.RecordBatch.from_pydict(
        {
            "path": [str(path) for path, _ in files],
            "values": [json.dumps(values or {})] * len(files),
            "pairs": [of_file for _, of_file in files],
            "exchanged": ["[]"] * len(files),
        }
    )
    found = []
    for answer in pairing_rows(LOCAL_FILES, staged, source, target, "number", "clause")([batch]):
        assert answer.schema.names == [*source, *target, "number", "clause"]
        found += [tuple(row.values()) for row in answer.to_pylist()]
    return found


@pytest.mark.parametrize("row_group_size", [1 << 20, 2])
def test_pairs_of_rows(tmp_path: Path, row_group_size: int) -> None:
    staged = stage(tmp_path, source_rows("a", "b"), source_rows("c"))
    path = write(tmp_path / "f", 7, row_group_size=row_group_size)
    of_file = pairs(tmp_path, [(1, 2, 0), (1, 0, 1), (6, 1, NO_CLAUSE)])
    assert side_by_side(staged, [(path, of_file)]) == [
        ("c", 0, 101, "n1", 0, 0),
        ("a", 0, 101, "n1", 1, 1),
    ]


@pytest.mark.parametrize("row_group_size", [1 << 20, 2])
def test_rows_that_nothing_matches(tmp_path: Path, row_group_size: int) -> None:
    staged = stage(tmp_path, source_rows("a"))
    path = write(tmp_path / "f", 5, row_group_size=row_group_size)
    first = by_source_number(0)
    of_file = pairs(tmp_path, [(0, NO_SOURCE, first), (2, 0, 0), (3, NO_SOURCE, first)])
    assert side_by_side(staged, [(path, of_file)]) == [
        (None, None, 100, "n0", 0, first),
        ("a", 0, 102, "n2", 1, 0),
        (None, None, 103, "n3", 2, first),
    ]


def test_a_source_of_which_no_row_is_staged(tmp_path: Path) -> None:
    path, of_file = write(tmp_path / "f", 3), pairs(tmp_path, [(1, NO_SOURCE, by_source_number(0))])
    assert side_by_side(StagedRows(()), [(path, of_file)], source=()) == [(101, "n1", 0, by_source_number(0))]


def test_only_row_groups_with_pairs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    whole = pq.ParquetFile.read_row_groups

    def reading(file: Any, groups: Sequence[int], *rest: Any, **more: Any) -> Any:
        read.extend(groups)
        return whole(file, groups, *rest, **more)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", reading)
    path = write(tmp_path / "f", 10, row_group_size=2)
    of_file = pairs(tmp_path, [(2, 0, 0), (9, 0, 0)])
    found = side_by_side(stage(tmp_path, source_rows("a")), [(path, of_file)])
    assert [row[2] for row in found] == [102, 109]
    assert read == [1, 4]


def test_partition_values_and_columns_that_a_file_lacks(tmp_path: Path) -> None:
    target: Asked = {**TARGET, "t2": ("part", pa.int32()), "t3": ("missing", pa.string())}
    path, of_file = write(tmp_path / "f", 3), pairs(tmp_path, [(1, 0, 0)])
    staged = stage(tmp_path, source_rows("a"))
    found = side_by_side(staged, [(path, of_file)], {"part": "7"}, target=target)
    assert found == [("a", 0, 101, "n1", 7, None, 0, 0)]
    found = side_by_side(staged, [(path, of_file)], {"part": None}, target=target)
    assert found == [("a", 0, 101, "n1", None, None, 0, 0)]


def test_only_partition_values(tmp_path: Path) -> None:
    path, of_file = write(tmp_path / "f", 3), pairs(tmp_path, [(0, 0, 0), (2, NO_SOURCE, -2)])
    part: Asked = {"t0": ("part", pa.string())}
    found = side_by_side(stage(tmp_path, source_rows("a")), [(path, of_file)], {"part": "x"}, target=part)
    assert found == [("a", 0, "x", 0, 0), (None, None, "x", 1, -2)]


def test_file_with_another_type(tmp_path: Path) -> None:
    path, of_file = write(tmp_path / "f", 3), pairs(tmp_path, [(0, 0, 0)])
    with pytest.raises(ValueError, match="column id is not string"):
        side_by_side(stage(tmp_path, source_rows("a")), [(path, of_file)], target={"t0": ("id", pa.string())})


def test_several_files(tmp_path: Path) -> None:
    staged = stage(tmp_path, source_rows("a", "b"))
    files = [
        (write(tmp_path / "f", 3), pairs(tmp_path, [(0, 1, 0)])),
        (write(tmp_path / "g", 3), pairs(tmp_path, [])),
        (write(tmp_path / "h", 3), pairs(tmp_path, [(2, 0, 0), (2, 1, NO_CLAUSE)])),
    ]
    assert side_by_side(staged, files) == [("b", 1, 100, "n0", 0, 0), ("a", 0, 102, "n2", 0, 0)]


def test_batches_are_not_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matched_rows, "_ROWS_AT_ONCE", 2)
    path, of_file = write(tmp_path / "f", 5), pairs(tmp_path, [(row, 0, 0) for row in range(5)])
    columns = {"path": [str(path)], "values": ["{}"], "pairs": [of_file], "exchanged": ["[]"]}
    work = pairing_rows(LOCAL_FILES, stage(tmp_path, source_rows("a")), ("s0",), TARGET, "number", "clause")
    batches = list(work([pa.RecordBatch.from_pydict(columns)]))
    assert [batch.num_rows for batch in batches] == [2, 2, 1]


def parquet_file(path: Path, rows: int) -> StagedFile:
    return StagedFile(str(path), rows, *LOCAL_FILES.version(str(path)))


def test_source_in_parquet_files_beside_computed_columns(tmp_path: Path) -> None:
    path = tmp_path / "source.parquet"
    pq.write_table(pa.table({"own": ["a", "b", "c"]}), path)
    (computed,) = stage(tmp_path, pa.table({"at": [2, 0, 1], "twice": ["cc", "aa", "bb"]})).files
    staged = StagedRows((parquet_file(path, 3),), {"s0": "own"}, (computed,), "at")
    of_file = write(tmp_path / "f", 2), pairs(tmp_path, [(0, 1, 0), (1, 2, 0)])
    found = side_by_side(staged, [of_file], source=("twice", "s0"))
    assert [row[:2] for row in found] == [("bb", "b"), ("cc", "c")]


def test_source_file_that_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "source.parquet"
    pq.write_table(pa.table({"own": ["a"]}), path)
    staged = StagedRows((parquet_file(path, 1),))
    pq.write_table(pa.table({"own": ["a", "b"]}), path)
    with pytest.raises(ValueError, match="was changed meanwhile"):
        side_by_side(staged, [(write(tmp_path / "f", 1), pairs(tmp_path, [(0, 0, 0)]))], source=("own",))


def test_strings_that_one_array_would_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = stage(tmp_path, source_rows("long" * 10, "b"))
    path = write(tmp_path / "f", 9)
    of_file = pairs(tmp_path, [(row, row % 2, 0) for row in range(9)])
    expected = side_by_side(staged, [(path, of_file)])
    monkeypatch.setattr(matched_rows, "_MOST_STRING_BYTES", 100)
    assert side_by_side(staged, [(path, of_file)]) == expected
    assert len(expected) == 9


@pytest.mark.parametrize("most", [1, 1 << 30])
def test_nested_columns_of_both_sides(tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the source are in two pieces, and are taken for rows without a source row, too."""
    monkeypatch.setattr(matched_rows, "_MOST_STRING_BYTES", most)
    kind = pa.struct([("x", pa.int64()), ("l", pa.list_(pa.string()))])
    values = [{"x": 1, "l": ["a", None]}, None, {"x": None, "l": None}]
    parts = [pa.table({"s0": pa.array(some, kind)}) for some in (values[:2], values[2:])]
    staged = stage(tmp_path, *parts)
    target = tmp_path / "f"
    pq.write_table(pa.table({"s": pa.array(values * 2, kind)}), target)
    rows = [(0, 2, 0), (1, NO_SOURCE, 1), (2, 0, 0), (4, 1, 0), (5, 0, 0)]
    found = side_by_side(staged, [(target, pairs(tmp_path, rows))], source=["s0"], target={"t0": ("s", kind)})
    assert [row[:2] for row in found] == [
        (values[2], values[0]),
        (None, values[1]),
        (values[0], values[2]),
        (None, values[1]),
        (values[0], values[2]),
    ]


def test_strings_in_pieces_that_one_array_would_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow would put them together before it takes rows of them."""
    column, places = pa.chunked_array([["a", None], ["b"]]), pa.array([2, None, 0, 1, 2])
    expected = column.take(places).to_pylist()
    seen: list[pa.ChunkedArray] = []

    def noting(one: pa.ChunkedArray, rows: Any) -> Any:
        seen.append(one)
        return taken(one, rows)

    monkeypatch.setattr(matched_rows, "taken", noting)
    assert matched_rows._taken_in_pieces(column, places).to_pylist() == expected == ["b", None, "a", None, "b"]
    assert seen == [column]


def test_nested_rows_that_are_longer_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow finds out that one array does not hold them."""
    values = [["a"], None, ["b", "c"]]
    column, places = pa.chunked_array([values[:2], values[2:]]), pa.array([2, None, 0, 1, 2])

    def taking(one: pa.ChunkedArray, rows: Any) -> Any:
        if len(rows) > 1:
            raise pa.ArrowInvalid("Take operation overflowed binary array capacity")
        return taken(one, rows)

    monkeypatch.setattr(matched_rows, "taken", taking)
    found = matched_rows._taken_in_pieces(column, places)
    assert found.to_pylist() == [values[2], None, values[0], None, values[2]]
    monkeypatch.setattr(matched_rows, "taken", lambda *_: taking(column, [0, 0]))
    with pytest.raises(pa.ArrowInvalid, match="overflowed"):
        matched_rows._taken_in_pieces(column, places)
