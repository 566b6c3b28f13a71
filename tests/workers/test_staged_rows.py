"""Rows of the source in files of tasks, up to the limits of all tasks together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.staged_rows import TOO_MANY, Staging, TakenRows, staging


def test_tasks_stop_where_others_have_staged_enough(tmp_path: Path) -> None:
    read: list[int] = []

    def batches(task: int) -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            read.append(task)
            yield pa.RecordBatch.from_pydict({"k": [1, 2]})

    stage = staging(LOCAL_FILES, Staging(str(tmp_path), ("k",), 9, 1 << 30))
    found = [batch.to_pylist()[0] for task in range(3) for batch in stage(batches(task))]
    assert [(row["path"] == TOO_MANY, row["staged"]) for row in found] == [(False, 6), (True, 4), (True, 2)]
    assert read == [0, 0, 0, 1, 1, 2]


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=6), st.data())
def test_rows_are_taken_in_their_order_from_every_piece(pieces: list[list[int]], data: st.DataObject) -> None:
    columns = pa.table(
        {
            "number": pa.chunked_array(pieces, pa.int64()),
            "text": pa.chunked_array([list(map(str, piece)) for piece in pieces], pa.string()),
            "other pieces": pa.chunked_array([[n for piece in pieces for n in piece]], pa.int64()),
        }
    )
    rows = data.draw(st.lists(st.integers(0, len(columns) - 1), max_size=9)) if len(columns) else []
    wanted = TakenRows(np.array(rows, np.int64))
    for column in columns.columns:
        values = column.to_pylist()
        assert wanted.of(column).to_pylist() == [values[row] for row in rows]
