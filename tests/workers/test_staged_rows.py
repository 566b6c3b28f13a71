"""Rows of the source in files of tasks, up to the limits of all tasks together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.staged_rows import TOO_MANY, StagedRows, staging


def test_tasks_stop_where_others_have_kept_enough(tmp_path: Path) -> None:
    read: list[int] = []

    def batches(task: int) -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            read.append(task)
            yield pa.RecordBatch.from_pydict({"k": [1, 2]})

    stage = staging(LOCAL_FILES, StagedRows(str(tmp_path), ("k",), 9, 1 << 30))
    found = [batch.to_pylist()[0] for task in range(3) for batch in stage(batches(task))]
    assert [(row["path"] == TOO_MANY, row["kept"]) for row in found] == [(False, 6), (True, 4), (True, 2)]
    assert read == [0, 0, 0, 1, 1, 2]
