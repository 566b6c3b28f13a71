"""Columns and whole files by ranges: what is read is what the file holds, and nothing is requested twice."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.workers.ranged_parquet import column_ranges, fetched

ROWS = 50_000


class Source:
    """A file that notes what is read of it."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.read: list[tuple[int, int]] = []

    def size(self) -> int:
        return len(self._content)

    def read_at(self, length: int, start: int) -> bytes:
        self.read.append((start, start + length))
        return self._content[start : start + length]


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


@pytest.fixture
def source(table: pa.Table) -> Source:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=20_000, use_dictionary=["d.e"], compression="none")
    return Source(sink.getvalue())


def metadata(source: Source) -> Any:
    found = pq.read_metadata(io.BytesIO(source.read_at(source.size(), 0)))
    source.read.clear()
    return found


@pytest.mark.parametrize("names", [["a"], ["d.e"], ["s"], ["a", "d.e", "s"], []])
def test_columns(names: list[str], source: Source, table: pa.Table) -> None:
    footer = metadata(source)
    ranges = column_ranges(footer, names, range(3))
    read = fetched(source, footer, ranges).read(names)
    assert read == table.select(names)
    assert sum(end - first for first, end in source.read) < source.size()
    ends = sorted(source.read)
    assert all(before[1] <= after[0] for before, after in pairwise(ends))


def test_row_groups(source: Source, table: pa.Table) -> None:
    footer = metadata(source)
    file = fetched(source, footer, column_ranges(footer, ["a"], [1]))
    requested = len(source.read)
    assert file.read_row_group(1, ["a"]) == table.select(["a"]).slice(20_000, 20_000)
    assert len(source.read) == requested
    # What was not asked for beforehand is requested now.
    assert file.read_row_group(2, ["a", "wide"]) == table.select(["a", "wide"]).slice(40_000)


def test_whole_file(source: Source, table: pa.Table) -> None:
    footer = metadata(source)
    file = fetched(source, footer, [(0, source.size())])
    assert file.read() == table
    assert sum(end - first for first, end in source.read) == source.size()
