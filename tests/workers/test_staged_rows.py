"""Rows of the source in files of tasks, up to the limits of all tasks together."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamerge.workers.decoded_files import decoding, decoding_work
from deltamerge.workers.files import LOCAL_FILES, Files
from deltamerge.workers.source_parts import SourceOpener
from deltamerge.workers.staged_rows import (
    TOO_MANY,
    SourceChanged,
    StagedFile,
    StagedRows,
    Staging,
    TakenRows,
    open_staged,
    staging,
)


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


class Replaced(Files):
    """Files of which one has other rows, or is damaged, once its last row group is asked for."""

    def parquet_columns(
        self,
        path: str,
        names: Sequence[str],
        groups: Sequence[int] | None = None,
        *,
        memory_map: bool = True,
        keep: bool = False,
    ) -> pq.ParquetFile:
        if groups in (None, [1]):
            write_source(path, "new" if Path(path).stem == "other" else None)
        return super().parquet_columns(path, names, groups, memory_map=memory_map, keep=keep)


def write_source(path: str, value: str | None) -> None:
    new = Path(f"{path}.new")
    if value is None:
        new.write_bytes(b"PAR1")
    else:
        pq.write_table(pa.table({"k": range(4), "v": [value] * 4}), new, row_group_size=2)
    new.replace(path)


def decode(files: Files, file: StagedFile, folder: Path) -> object:
    work = pa.record_batch({"work": [decoding_work(file, [0, 1], f"{folder}/new.staged.arrow")]})
    return list(decoding(files, ["k", "v"])([work]))


READS: dict[str, Callable[[Files, StagedFile, Path], object]] = {
    "decoded": decode,
    "all": lambda files, file, _: open_staged(files, StagedRows((file,)), ["k", "v"]),
    "in parts": lambda files, file, _: SourceOpener(files, StagedRows((file,), in_parts=True), ["k", "v"]).part_with(
        np.array([3])
    ),
}


@pytest.mark.parametrize("name", ["other", "damaged"])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_source_file_that_is_replaced_while_it_is_read(
    tmp_path: Path, read: Callable[[Files, StagedFile, Path], object], name: str
) -> None:
    path = f"{tmp_path}/{name}.parquet"
    write_source(path, "old")
    file = StagedFile(path, 4, *LOCAL_FILES.version(path))
    read(LOCAL_FILES, file, tmp_path)
    with pytest.raises(SourceChanged, match=f"{path} was changed meanwhile"):
        read(Replaced(), file, tmp_path)


TRUNCATING = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from deltamerge.workers.files import LOCAL_FILES, Files
from deltamerge.workers.source_parts import SourceOpener
from deltamerge.workers.staged_rows import SourceChanged, StagedFile, StagedRows

class Truncating(Files):
    def parquet_columns(self, path, *given, **options):
        opened = super().parquet_columns(path, *given, **options)
        open(path, "w").close()
        return opened

path, in_parts = sys.argv[1], sys.argv[2] == "in parts"
pq.write_table(pa.table({"k": np.arange(100_000)}), path, compression="none", use_dictionary=False)
file = StagedFile(path, 100_000, *LOCAL_FILES.version(path))
try:
    SourceOpener(Truncating(), StagedRows((file,), in_parts=in_parts), ["k"]).part_with(np.array([99_999]))
except SourceChanged as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["all", "in parts"])
def test_a_source_file_that_is_written_again_in_place(tmp_path: Path, kind: str) -> None:
    """Memory that maps a file ends the process where the file has become shorter."""
    command = [sys.executable, "-c", TRUNCATING, str(tmp_path / "a.parquet"), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, f"{tmp_path}/a.parquet was changed meanwhile"), done.stderr
