"""Nested columns with more strings than PyArrow puts into one array: 2 GiB of them, which take little on a disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.workers.decoded_files import decoding, decoding_work
from deltamerge.workers.file_columns import read_columns, read_row_groups
from deltamerge.workers.files import LOCAL_FILES, read_rows
from deltamerge.workers.left_to_spark import LeftToSpark
from deltamerge.workers.matched_rows import pairing_rows
from deltamerge.workers.parquet_patch import FileForm, patch_file, patching
from deltamerge.workers.row_blocks import block_columns, blocks_of_rows
from deltamerge.workers.row_pairs import RowPairs, write_pairs
from deltamerge.workers.source_exchange import Destination, exchanging
from deltamerge.workers.source_parts import SourceOpener
from deltamerge.workers.staged_rows import STAGED_SUFFIX, StagedFile, StagedRows, open_staged

REASON = "Nested data conversions not implemented for chunked array outputs"
TAGS = pa.list_(pa.string())
# Rows of several pieces.
TABLE = pa.table(
    {
        "id": pa.array(range(10_000), pa.int64()),
        "tags": pa.array([None if i % 3 == 0 else [f"t{i}", None] for i in range(10_000)], TAGS),
        "m": pa.array([[(f"k{i}", i)] for i in range(10_000)], pa.map_(pa.string(), pa.int64())),
    }
)


def refuse(*_: object, **__: object) -> NoReturn:
    raise pa.ArrowNotImplementedError(REASON)


@pytest.fixture
def is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyArrow refuses row groups in one piece."""
    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", refuse)


@pytest.fixture
def is_too_large(is_large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyArrow refuses pieces of row groups, too."""
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", refuse)


@pytest.fixture
def path(tmp_path: Path) -> str:
    pq.write_table(TABLE, tmp_path / "x.parquet", row_group_size=6_000, store_schema=False)
    return str(tmp_path / "x.parquet")


@pytest.fixture
def source(path: str) -> StagedRows:
    status = Path(path).stat()
    file = StagedFile(path, len(TABLE), status.st_size, status.st_mtime_ns)
    return StagedRows((file,), {"id": "id", "tags": "tags"}, in_parts=True)


@pytest.mark.usefixtures("is_large")
def test_row_groups_are_read_in_pieces(path: str, source: StagedRows) -> None:
    file = LOCAL_FILES.parquet(path)
    assert read_rows(file, [0, 1]).equals(TABLE)
    assert read_rows(file, [1], ["tags"]).equals(TABLE.slice(6_000).select(["tags"]))
    asked = {"t": ("tags", TAGS), "n": ("missing", pa.int32())}
    wanted = pa.table({"t": TABLE["tags"], "n": pa.nulls(len(TABLE), pa.int32())})
    assert read_columns(LOCAL_FILES, path, {}, asked).equals(wanted)
    groups = dict(read_row_groups(LOCAL_FILES, path, {}, asked, lambda first, _: first > 0))
    assert list(groups) == [6_000]
    assert groups[6_000].equals(wanted.slice(6_000))
    assert open_staged(LOCAL_FILES, source, ["tags"]).equals(TABLE.select(["tags"]))
    part = SourceOpener(LOCAL_FILES, source, ["tags"]).part_with(np.array([7_000]))
    assert part.rows.equals(TABLE.slice(6_000).select(["tags"]))


@pytest.mark.usefixtures("is_large")
def test_a_file_is_patched_in_pieces(path: str, tmp_path: Path) -> None:
    target, gone = str(tmp_path / "new.parquet"), blocks_of_rows(np.array([1, 9_999], np.uint64))
    form = FileForm(pa.schema([TABLE.schema.field("id"), pa.field("tags", TAGS), TABLE.schema.field("m")]))
    assert patch_file(LOCAL_FILES, path, target, gone, form).rows == len(TABLE) - 2
    keep = np.ones(len(TABLE), np.bool_)
    keep[[1, 9_999]] = False
    written = pa.Table.from_batches(pq.ParquetFile(target).iter_batches())
    assert written.equals(TABLE.filter(pa.array(keep)))


@pytest.mark.usefixtures("is_large")
def test_a_source_is_decoded_in_pieces(source: StagedRows, tmp_path: Path) -> None:
    target = str(tmp_path / f"decoded{STAGED_SUFFIX}")
    work = pa.RecordBatch.from_pydict({"work": [decoding_work(source.files[0], [0, 1], target)]})
    assert len(list(decoding(LOCAL_FILES, ["id", "tags"])([work]))) == 1
    assert LOCAL_FILES.arrow(target).equals(TABLE.select(["id", "tags"]))


def patched(path: str, folder: Path) -> Iterator[pa.RecordBatch]:
    columns = {
        "source": [path],
        "target": [str(folder / "new.parquet")],
        "row_id": pa.array([None], pa.int64()),
        "row_commit_version": pa.array([None], pa.int64()),
        **block_columns(iter([blocks_of_rows(np.array([1], np.uint64))])),
    }
    return patching(LOCAL_FILES, FileForm(pa.schema([])))(pa.table(columns).to_batches())


def paired(path: str, source: StagedRows, folder: Path, *, of_source: bool) -> Iterator[pa.RecordBatch]:
    numbers = np.array([1])
    pairs = write_pairs(LOCAL_FILES, str(folder), RowPairs(numbers, numbers, np.array([0]), np.array([0])))
    given = {"path": [path], "values": ["{}"], "pairs": [pairs], "exchanged": ["[]"]}
    names = ["tags"] if of_source else []
    work = pairing_rows(LOCAL_FILES, source, names, {"t": ("tags", TAGS)}, "number", "clause")
    return work([pa.RecordBatch.from_pydict(given)])


@pytest.mark.usefixtures("is_large")
def test_pairs_are_read_in_pieces(path: str, source: StagedRows, tmp_path: Path) -> None:
    (found,) = paired(path, source, tmp_path, of_source=True)
    assert found.to_pylist() == [{"tags": ["t1", None], "t": ["t1", None], "number": 0, "clause": 0}]


@pytest.mark.usefixtures("is_too_large")
def test_what_pyarrow_does_not_read_is_left_to_spark(path: str, source: StagedRows, tmp_path: Path) -> None:
    """It is no fault of the file: no error says that it is damaged."""
    wanted = tmp_path / "wanted.arrow"
    LOCAL_FILES.write_arrow(str(wanted), [pa.table({"source": np.array([1])})])
    destinations = [Destination(str(wanted), 0, 1)]
    exchange = exchanging(LOCAL_FILES, source, ["tags"], destinations, str(tmp_path))
    decode = decoding(LOCAL_FILES, ["tags"])
    decoded = pa.RecordBatch.from_pydict({"work": [decoding_work(source.files[0], [0], str(tmp_path / "d.arrow"))]})
    works: dict[str, Iterable[pa.RecordBatch]] = {
        "patch": patched(path, tmp_path),
        "pairs of the source": paired(path, source, tmp_path, of_source=True),
        "pairs of the target": paired(path, source, tmp_path, of_source=False),
        "exchange": exchange([pa.RecordBatch.from_pydict({"first": [0], "end": [10_000]})]),
        "decode": decode([decoded]),
    }
    for name, work in works.items():
        with pytest.raises(LeftToSpark, match=f"{REASON}$"):
            print(name, list(work))
    assert json.dumps(sorted(each.name for each in tmp_path.iterdir())).count("new.parquet") == 0
