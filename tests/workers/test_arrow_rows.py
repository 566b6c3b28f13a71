"""New and changed rows as tasks write them: rows that go to another partition, and new rows by partition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.workers.arrow_rows import writing
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.first_contact import StoreFailed
from deltamerge.workers.new_rows import ChangingFile, InsertedRows, NewRows, new_file_work, patch_work
from deltamerge.workers.parquet_patch import FileForm
from deltamerge.workers.row_pairs import MOVED, NO_CLAUSE, RowPairs, read_pairs, write_numbers, write_pairs
from deltamerge.workers.row_tracking import HiddenColumns, Origin
from deltamerge.workers.row_values import ClauseRows, ColumnValue, RowValue
from deltamerge.workers.staged_rows import STAGED_SUFFIX, StagedFile, StagedRows

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
HIDDEN = HiddenColumns("_id", "_version")


def pairs(folder: Path, rows: Sequence[int], sources: Sequence[int], clauses: Sequence[int]) -> str:
    found = RowPairs(*(np.array(numbers, np.int64) for numbers in (rows, sources, clauses)))
    return write_pairs(LOCAL_FILES, str(folder), found)


def staged_rows(folder: Path) -> StagedRows:
    """Return source rows 0 to 3, in two files."""
    found = []
    for number, ids in enumerate(([1, 2], [7, 8])):
        path = str(folder / f"{number}{STAGED_SUFFIX}")
        LOCAL_FILES.write_arrow(path, [pa.table({"sid": ids, "sv": [f"s{i}" for i in ids]})])
        found.append(StagedFile(path, len(ids)))
    return StagedRows(tuple(found))


def made_of(folder: Path, **others: Any) -> NewRows:
    return NewRows(
        staged=staged_rows(folder),
        updates={0: ClauseRows({"v": "sv"})},
        inserts={0: ClauseRows({"id": "sid", "v": "sv"})},
        clause=None,
        form=FileForm(COLUMNS, (), HIDDEN),
        not_null=frozenset(),
        metadata={},
        pairs=(),
        options={"compression": "snappy"},
        **others,
    )


def run(new: NewRows, *works: str) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pydict({"work": list(works)})
    found = [row for done in writing(LOCAL_FILES, new)([batch]) for row in done.to_pylist()]
    assert all(row["unfit"] is None for row in found), found
    return found


@pytest.mark.parametrize("patches", [True, False])
def test_moved_rows_keep_their_ids_and_are_no_deletes(tmp_path: Path, patches: bool) -> None:
    before, kept_rows, moved, *changes = (
        str(tmp_path / f"{name}.parquet") for name in ("old", "kept", "moved", "before", "after")
    )
    pq.write_table(pa.table({"id": [0, 1, 2, 3], "v": ["a", "b", "c", "d"]}), before)
    origin = Origin(100, 5)
    stays = ChangingFile(before, pairs(tmp_path, [0, 1, 2], [0, 0, 1], [NO_CLAUSE - 2, MOVED, 0]), origin)
    goes = ChangingFile(before, pairs(tmp_path, [1], [0], [0]), origin)
    works = [
        patch_work(stays, kept_rows, changes[0]) if patches else new_file_work(kept_rows, changes[0], changed=[stays]),
        new_file_work(moved, changes[1], moved=[goes]),
    ]
    done = run(made_of(tmp_path), *works)
    assert [(row["rows"], row["change_rows"]) for row in done] == [(2 if patches else 1, 4), (1, 1)]
    same = [{"id": 3, "v": "d", "_id": 103, "_version": 5}] if patches else []
    updated = [{"id": 2, "v": "s2", "_id": 102, "_version": None}]
    assert pq.read_table(kept_rows).to_pylist() == updated + same
    assert pq.read_table(moved).to_pylist() == [{"id": 1, "v": "s1", "_id": 101, "_version": None}]
    there = sorted((row["_change_type"], row["id"], row["v"]) for row in pq.read_table(changes[0]).to_pylist())
    assert there == [
        ("delete", 0, "a"),
        ("update_postimage", 2, "s2"),
        ("update_preimage", 1, "b"),
        ("update_preimage", 2, "c"),
    ]
    assert pq.read_table(changes[1]).to_pylist() == [{"id": 1, "v": "s1", "_change_type": "update_postimage"}]


def test_hidden_columns_are_filled_in_every_row_group(tmp_path: Path) -> None:
    """Also in a file that has them, and where no row of a row group changes: NULL stands for what the log has."""
    before, target = str(tmp_path / "old.parquet"), str(tmp_path / "new.parquet")
    hidden = {"_id": [7, None, 9, None], "_version": [None, 2, 2, None]}
    rows = pa.table({"id": [0, 1, 2, 3], "v": ["a", "b", "c", "d"], **hidden})
    pq.write_table(rows, before, row_group_size=2)
    changing = ChangingFile(before, pairs(tmp_path, [1], [0], [0]), Origin(100, 5))
    (done,) = run(made_of(tmp_path), patch_work(changing, target, ""))
    assert done["rows"] == 4
    assert pq.read_table(target).to_pylist() == [
        {"id": 0, "v": "a", "_id": 7, "_version": 5},
        {"id": 1, "v": "s1", "_id": 101, "_version": None},
        {"id": 2, "v": "c", "_id": 9, "_version": 2},
        {"id": 3, "v": "d", "_id": 103, "_version": 5},
    ]


def test_a_column_that_is_read_is_spelled_otherwise_in_the_file(tmp_path: Path) -> None:
    """It may not be taken for one that the file lacks, which would be NULL."""
    before, target = str(tmp_path / "old.parquet"), str(tmp_path / "new.parquet")
    pq.write_table(pa.table({"id": [0, 1], "N": [1, 2], "v": ["a", "b"]}), before)
    field = pa.field("n", pa.int64())
    value = RowValue(ColumnValue(0, pa.string()), target={0: field})
    new = replace(made_of(tmp_path), updates={0: ClauseRows({"v": value})}, form=FileForm(COLUMNS.append(field)))
    work = patch_work(ChangingFile(before, pairs(tmp_path, [1], [0], [0])), target, "")
    (answer,) = writing(LOCAL_FILES, new)([pa.RecordBatch.from_pydict({"work": [work]})])
    (done,) = answer.to_pylist()
    assert "another case" in done["unfit"]
    assert not Path(target).exists()


def test_a_store_that_fails_is_no_reason_against_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StoreFailed("source cannot be read: the operation took too long")

    before = str(tmp_path / "old.parquet")
    pq.write_table(pa.table({"id": [0, 1], "v": ["a", "b"]}), before)
    work = patch_work(ChangingFile(before, pairs(tmp_path, [1], [0], [0])), str(tmp_path / "new.parquet"), "")
    monkeypatch.setattr("deltamerge.workers.source_parts.open_staged", fail)
    with pytest.raises(StoreFailed):
        list(writing(LOCAL_FILES, made_of(tmp_path))([pa.RecordBatch.from_pydict({"work": [work]})]))
    assert not (tmp_path / "new.parquet").exists()


def test_a_file_whose_rows_all_go_is_not_written(tmp_path: Path) -> None:
    before, target, changes = (str(tmp_path / f"{name}.parquet") for name in ("old", "kept", "before"))
    pq.write_table(pa.table({"id": [1], "v": ["b"]}), before)
    stays = ChangingFile(before, pairs(tmp_path, [0], [0], [MOVED]))
    (done,) = run(made_of(tmp_path), new_file_work(target, changes, changed=[stays]))
    assert (done["rows"], done["change_rows"], Path(target).exists()) == (0, 1, False)
    assert pq.read_table(changes).column("_change_type").to_pylist() == ["update_preimage"]


def test_new_rows_by_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("arrow_rows", "staged_rows"):
        monkeypatch.setattr(f"deltamerge.workers.{module}.PIECE_BYTES", 1)
    order = write_numbers(LOCAL_FILES, str(tmp_path), [np.array([0, 3]), np.array([2])])
    new = made_of(tmp_path, order=order)
    targets = [str(tmp_path / f"{name}.parquet") for name in "ab"]
    done = run(
        new,
        new_file_work(targets[0], "", inserted=InsertedRows(0, 2)),
        new_file_work(targets[1], "", inserted=InsertedRows(2, 3)),
    )
    assert [json.loads(row["detail"]) for row in done] == [{"0": 2}, {"0": 1}]
    assert [pq.read_table(path).column("id").to_pylist() for path in targets] == [[1, 8], [7]]


def test_moved_rows_are_among_the_changing_ones(tmp_path: Path) -> None:
    found = read_pairs(LOCAL_FILES, pairs(tmp_path, [0, 1, 2], [0, 1, 2], [MOVED, NO_CLAUSE, 3])).changing
    assert found.rows.tolist() == [0, 2]
