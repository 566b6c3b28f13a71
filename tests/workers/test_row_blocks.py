"""Sets of row positions in blocks, as masks and as columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from deltamerge.workers import row_blocks
from deltamerge.workers.row_blocks import (
    BLOCK_ROWS,
    NO_BLOCKS,
    WORDS,
    Blocks,
    block_columns,
    blocks_of_rows,
    blocks_table,
    mask_of,
    read_blocks,
)


def blocks(*rows: int) -> Blocks:
    return blocks_of_rows(np.array(rows, np.uint64))


def rows_of(found: Blocks, rows: int) -> list[int]:
    positions: list[int] = np.flatnonzero(mask_of(found, rows)).tolist()
    return positions


@pytest.mark.parametrize("rows", [0, 1, 5, 64, BLOCK_ROWS, BLOCK_ROWS + 1])
def test_mask_of_no_rows(rows: int) -> None:
    found = mask_of(NO_BLOCKS, rows)
    assert found.tolist() == [False] * rows
    assert found.dtype == np.bool_


@pytest.mark.parametrize(
    "rows",
    [
        [0],
        [BLOCK_ROWS - 1],
        [BLOCK_ROWS],
        [0, 63, 64, 65, BLOCK_ROWS - 1, BLOCK_ROWS, 5 * BLOCK_ROWS + 7],
        [*range(2 * BLOCK_ROWS)],
    ],
)
def test_mask_of_rows(rows: list[int]) -> None:
    found = blocks(*rows)
    assert rows_of(found, 6 * BLOCK_ROWS) == rows
    assert rows_of(found, rows[-1] + 1) == rows


@pytest.mark.parametrize(("row", "rows"), [(5, 5), (5, 0), (BLOCK_ROWS, 100), (3 * BLOCK_ROWS, BLOCK_ROWS)])
def test_row_that_is_not_in_the_file(row: int, rows: int) -> None:
    with pytest.raises(ValueError, match=f"^row {row} is not in a file of {rows} rows$"):
        mask_of(blocks(row), rows)


def test_blocks_in_any_order() -> None:
    numbers, words = blocks(1, BLOCK_ROWS + 2)
    swapped = numbers[::-1], words.reshape(-1, WORDS)[::-1].reshape(-1)
    assert rows_of(swapped, 2 * BLOCK_ROWS) == [1, BLOCK_ROWS + 2]


def test_sets_as_columns() -> None:
    sets = [NO_BLOCKS, blocks(0, 3), blocks(BLOCK_ROWS + 1, 9 * BLOCK_ROWS)]
    batch = pa.RecordBatch.from_pydict({"path": ["a", "b", "c"], **block_columns(sets)})
    assert batch.schema.types[1:] == [pa.list_(pa.int64())] * 2
    for row, expected in enumerate(sets):
        numbers, words = read_blocks(batch, row)
        assert np.array_equal(numbers, expected[0])
        assert np.array_equal(words, expected[1])
    assert rows_of(read_blocks(batch, 1), 10) == [0, 3]


def test_no_sets_as_columns() -> None:
    columns = block_columns([])
    assert {name: (len(column), column.type) for name, column in columns.items()} == {
        "blocks": (0, pa.list_(pa.int64())),
        "words": (0, pa.list_(pa.int64())),
    }


def test_sets_of_a_slice_of_a_batch() -> None:
    batch = pa.RecordBatch.from_pydict(block_columns([blocks(1), blocks(2), blocks(3)]))
    assert rows_of(read_blocks(batch.slice(1), 1), 10) == [3]


def test_sets_through_ipc_keep_their_words() -> None:
    batch = pa.RecordBatch.from_pydict(block_columns([blocks(63)]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    (read,) = pa.ipc.open_stream(sink.getvalue())
    assert rows_of(read_blocks(read, 0), 64) == [63]


def test_blocks_of_very_many_rows_are_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.unique(np.random.default_rng(1).integers(0, 1 << 20, 50_000)).astype(np.uint64)
    whole = blocks_of_rows(rows)
    monkeypatch.setattr(row_blocks, "_ROWS_AT_ONCE", 5_000)
    parts = blocks_of_rows(rows)
    assert np.array_equal(parts[0], whole[0])
    assert np.array_equal(parts[1], whole[1])


def test_table_of_blocks() -> None:
    table = blocks_table([("a", blocks(0, BLOCK_ROWS)), ("b", NO_BLOCKS), ("c", blocks(5))], ("f", "n", "w"))
    assert table.select(["f", "n"]).to_pylist() == [
        {"f": "a", "n": 0},
        {"f": "a", "n": 1},
        {"f": "c", "n": 0},
    ]
    assert [len(words) for words in table["w"].to_pylist()] == [WORDS] * 3
