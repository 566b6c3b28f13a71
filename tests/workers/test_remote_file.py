"""Columns and whole files by ranges: what is read is what the file holds, and nothing is requested twice."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from deltamerge.workers.obstore_client import ObstoreClient
from deltamerge.workers.remote_file import RemoteFile, column_ranges
from deltamerge.workers.remote_ranges import ArrowRanges, StoreRanges

ROWS = 50_000


class Source:
    """A file that notes what is read of it; its last bytes are known as it is opened."""

    def __init__(self, content: bytes, tail: int) -> None:
        self._content = content
        self.gap = 1 << 20
        self.version = (len(content), 0)
        self.tail = content[len(content) - tail :]
        self.requests: list[tuple[int, int]] = []

    def read(self, first: int, end: int) -> bytes:
        self.requests.append((first, end))
        return self._content[first:end]

    def cut(self, length: int) -> None:
        self._content = self._content[:length]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table(
        {
            "a": pa.array(range(ROWS), pa.int64()),
            "wide": [f"{i * 7919 % ROWS:0100d}" for i in range(ROWS)],
            "s": pa.array([{"x": i, "y.z": str(i % 3)} for i in range(ROWS)]),
            "d.e": [i % 5 for i in range(ROWS)],
        }
    )


@pytest.fixture(params=[1 << 16, 100])
def source(request: pytest.FixtureRequest, table: pa.Table) -> Source:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=20_000, use_dictionary=["d.e"], compression="none")
    return Source(sink.getvalue(), request.param)


def opened(source: Source) -> RemoteFile:
    """Open a file; the footer is read once, if it is not known."""
    file = RemoteFile(source)
    assert len(source.requests) <= 1
    source.requests.clear()
    return file


def size(source: Source) -> int:
    return source.version[0]


@pytest.mark.parametrize("names", [["a"], ["d.e"], ["s"], ["a", "d.e", "s"], []])
def test_columns(names: list[str], source: Source, table: pa.Table) -> None:
    file = opened(source)
    read = file.parquet(column_ranges(file.metadata, names, range(3))).read(names)
    assert read == table.select(names)
    assert sum(end - first for first, end in source.requests) < size(source)
    ends = sorted(source.requests)
    assert all(before[1] <= after[0] for before, after in pairwise(ends))


def test_size_of_the_footer(source: Source) -> None:
    file = opened(source)
    assert file.footer_bytes == file.metadata.serialized_size
    assert not source.requests


def test_row_groups(source: Source, table: pa.Table) -> None:
    file = opened(source)
    of_group = file.parquet(column_ranges(file.metadata, ["a"], [1]))
    requested = len(source.requests)
    assert of_group.read_row_group(1, ["a"]) == table.select(["a"]).slice(20_000, 20_000)
    assert len(source.requests) == requested
    # What was not asked for beforehand is requested now.
    assert of_group.read_row_group(2, ["a", "wide"]) == table.select(["a", "wide"]).slice(40_000)


def test_whole_file(source: Source, table: pa.Table) -> None:
    file = opened(source)
    assert file.parquet([(0, file.size)]).read() == table
    assert sum(end - first for first, end in source.requests) == size(source)


def test_what_is_kept_is_requested_once(source: Source, table: pa.Table) -> None:
    file = opened(source)
    ranges = column_ranges(file.metadata, ["a"], range(3))
    with ThreadPoolExecutor(4) as pool:
        read = list(pool.map(lambda _: file.parquet(ranges, keep=True).read(["a"]), range(8)))
    assert all(each == table.select(["a"]) for each in read)
    assert file.parquet().read(["a"]) == table.select(["a"])
    assert len(set(source.requests)) == len(source.requests)
    assert sum(end - first for first, end in source.requests) <= size(source)
    # It is not kept for those who ask for other columns.
    requested = len(source.requests)
    assert file.parquet(column_ranges(file.metadata, ["wide"], [0])).read_row_group(0, ["wide"]).num_rows == 20_000
    assert len(source.requests) > requested


def test_a_file_that_was_cut_off(source: Source) -> None:
    """The store returns less than was asked for: an error, not another request for ever."""
    file = opened(source)
    source.cut(size(source) // 2)
    with pytest.raises(ValueError, match=f"ends at or before byte .*, not at {size(source)}: it was cut off"):
        file.parquet([(0, file.size)]).read()


def test_ranges_of_obstore_are_of_one_version() -> None:
    client = ObstoreClient("memory:///", {})
    # Until the store has answered, a client is less patient.
    client.put("other", b"")
    content = bytes(range(256)) * 1_000
    client.put("f", content)
    ranges = StoreRanges(client, "f", has_suffixes=True)
    assert ranges.version[0] == len(content)
    assert bytes(ranges.tail) == content[-len(ranges.tail) :]
    assert bytes(ranges.read(10, 300)) == content[10:300]
    assert bytes(StoreRanges(client, "f", has_suffixes=False).read(0, 5)) == content[:5]
    client.put("f", content)
    with pytest.raises(ValueError, match="changed meanwhile"):
        ranges.read(10, 300)
    with pytest.raises(FileNotFoundError):
        StoreRanges(client, "absent", has_suffixes=True)


def test_ranges_of_a_file_system_of_pyarrow(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    ranges = ArrowRanges(pafs.LocalFileSystem(), str(path), 1 << 20)
    assert (ranges.version[0], bytes(ranges.tail), bytes(ranges.read(2, 5))) == (10, b"0123456789", b"234")
    with pytest.raises(FileNotFoundError):
        ArrowRanges(pafs.LocalFileSystem(), str(tmp_path / "absent"), 1 << 20)
