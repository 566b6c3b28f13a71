"""Keys looked up in files by Arrow: the same rows as a join finds, and nothing where the types are not the keys'."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.workers.key_lookup import UNFIT, looking_up

KEYS = pa.schema([("k0", pa.int64()), ("k1", pa.string()), ("n", pa.int64())])


def stream(rows: list[tuple[int, str, int]]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, KEYS) as writer:
        writer.write_table(
            pa.Table.from_pylist([dict(zip(KEYS.names, row, strict=True)) for row in rows], KEYS)
        )
    return bytes(sink.getvalue())


def found(
    keys: list[tuple[int, str, int]], paths: list[Path], values: Mapping[str, str | None] | None = None
) -> dict[tuple[int, str | None], list[int]]:
    names = [path.name for path in paths]
    batch = pa.RecordBatch.from_pydict(
        {"path": list(map(str, paths)), "file": names, "values": [json.dumps(values or {})] * len(paths)}
    )
    rows: dict[tuple[int, str | None], list[int]] = {}
    for answer in looking_up(stream(keys), ["id", "name"], 0, 7)([batch]):
        for row in answer.to_pylist():
            bits = np.unpackbits(np.frombuffer(row["bits"], np.uint8), bitorder="little")
            numbers = [(row["piece"] << 15) + int(bit) for bit in np.flatnonzero(bits)]
            assert row["n"] >= len(numbers)
            rows.setdefault((row["code"], row["file"]), []).extend(numbers)
    return rows


def write(path: Path, rows: int, start: int = 0, **options: Any) -> Path:
    ids = [None if i % 10 == 0 else i for i in range(start, start + rows)]
    names = [None if i % 7 == 0 else f"n{i}" for i in range(start, start + rows)]
    table = pa.table({"other": [0] * rows, "name": names, "id": pa.array(ids, pa.int64())})
    pq.write_table(table, path, **options)
    return path


def test_positions_over_row_groups_and_files(tmp_path: Path) -> None:
    files = [write(tmp_path / "a", 70_000, row_group_size=999), write(tmp_path / "b", 50, start=70_000)]
    keys = [(3, "n3", 1), (33, "other", 2), (66_662, "n66662", 3), (70_001, "n70001", 1 << 33), (7, "n7", 5)]
    assert found(keys, files) == {(0, "a"): [3, 66_662], (0, "b"): [1], (7, None): [1, 3, 1 << 33]}


def test_null_matches_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "a", 20)
    assert found([(10, "n10", 1), (14, "n14", 2)], [path]) == {}


def test_several_pairs_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a"
    pq.write_table(pa.table({"id": pa.array([1, 1, 2], pa.int64()), "name": ["x", "x", "x"]}), path)
    batch = pa.RecordBatch.from_pydict({"path": [str(path)], "file": ["a"], "values": ["{}"]})
    (answer,) = looking_up(stream([(1, "x", 4), (1, "x", 5)]), ["id", "name"], 0, None)([batch])
    (row,) = answer.to_pylist()
    assert row["n"] == 4
    assert np.unpackbits(np.frombuffer(row["bits"], np.uint8)).sum() == 2


def test_a_column_that_a_file_lacks_is_null(tmp_path: Path) -> None:
    path, fit = tmp_path / "a", write(tmp_path / "b", 20)
    pq.write_table(pa.table({"id": pa.array([3], pa.int64())}), path)
    rows = found([(3, "n3", 0)], [path, fit])
    assert {key[1] for key in rows} == {"b", None}


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"id": pa.array([1], pa.int32()), "name": ["x"]}),
        pa.table({"id": pa.array([1], pa.int64()), "NAME": ["x"]}),
        pa.table({"id": pa.array([1], pa.int64()), "name": [b"x"]}),
    ],
)
def test_other_types_are_told(tmp_path: Path, table: pa.Table) -> None:
    path, fit = tmp_path / "a", write(tmp_path / "b", 20)
    pq.write_table(table, path)
    rows = found([(3, "n3", 0)], [path, fit])
    assert rows[UNFIT, "a"] == []
    assert rows[0, "b"] == [3]


def test_no_keys(tmp_path: Path) -> None:
    assert found([], [write(tmp_path / "a", 20)]) == {}


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ({"id": "3"}, {(0, "a"): [3], (7, None): [1]}),
        ({"id": "03"}, {(0, "a"): [3], (7, None): [1]}),
        ({"id": "4"}, {}),
        ({"id": None}, {}),
        ({"id": ""}, {(UNFIT, "a"): []}),
        ({"id": "three"}, {(UNFIT, "a"): []}),
        ({"id": "3", "name": "n3"}, {(0, "a"): list(range(20)), (7, None): [1]}),
    ],
)
def test_keys_that_are_partition_columns(
    tmp_path: Path, values: dict[str, str | None], rows: dict[tuple[int, str | None], list[int]]
) -> None:
    path = write(tmp_path / "a", 20)
    assert found([(3, "n3", 1)], [path], values) == rows


def test_keys_that_very_many_rows_have_in_common(tmp_path: Path) -> None:
    path = write(tmp_path / "a", 20_000)
    few = [(3, "n3", number) for number in range(400)]
    assert found(few, [path], {"id": "3", "name": "n3"})[0, "a"] == list(range(20_000))
    many = [(3, "n3", number) for number in range(600)]
    assert found(many, [path], {"id": "3", "name": "n3"}) == {(UNFIT, None): []}
    assert found([*many, (4, "n4", 9)], [path], {"id": "4", "name": "n4"})[7, None] == [9]
