"""Sets of row positions on their way to Spark and to tasks: bitmaps in blocks of 4,096 rows.

A block is 64 words of 64 bits: all bits of a file would be copied with every row where Spark generates no code, and a
row of its own for every position would need hundreds of times the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

BLOCK_BITS = 12
WORD_BITS = 6
WORDS = 1 << (BLOCK_BITS - WORD_BITS)
BLOCK_ROWS = 1 << BLOCK_BITS
# What is computed on the way takes several times the memory of the positions.
_ROWS_AT_ONCE = 1 << 20

Blocks = tuple["np.ndarray[Any, np.dtype[np.int64]]", "np.ndarray[Any, np.dtype[np.int64]]"]
"""The numbers of the blocks that are not empty, and their words one after another."""

NO_BLOCKS: Blocks = (np.empty(0, np.int64), np.empty(0, np.int64))


def blocks_of_rows(rows: np.ndarray[Any, np.dtype[np.uint64]]) -> Blocks:
    numbers, words = [NO_BLOCKS[0]], [NO_BLOCKS[1]]
    begin = 0
    while begin < len(rows):
        end = begin + _ROWS_AT_ONCE
        if end < len(rows):
            # A block's rows stay together.
            end = int(np.searchsorted(rows, rows[end] >> np.uint64(BLOCK_BITS) << np.uint64(BLOCK_BITS)))
        found = _blocks_of_rows(rows[begin:end])
        numbers.append(found[0])
        words.append(found[1])
        begin = end
    return np.concatenate(numbers), np.concatenate(words)


def _blocks_of_rows(rows: np.ndarray[Any, np.dtype[np.uint64]]) -> Blocks:
    numbers, block = np.unique(rows >> np.uint64(BLOCK_BITS), return_inverse=True)
    place = block * WORDS + ((rows >> np.uint64(WORD_BITS)) % np.uint64(WORDS)).astype(np.int64)
    words = np.zeros(len(numbers) * WORDS, dtype=np.uint64)
    # Rows come in order, so those of one word are adjacent.
    places, first = np.unique(place, return_index=True)
    bits = np.left_shift(np.uint64(1), rows % np.uint64(1 << WORD_BITS))
    words[places] = np.bitwise_or.reduceat(bits, first)
    return numbers.astype(np.int64), words.view(np.int64)


def mask_of(blocks: Blocks, rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each row of a file whether it is in a set; a ValueError where a position is not in the file."""
    numbers, words = blocks
    by_block = np.asarray(words, np.int64).reshape(-1, WORDS)
    if len(numbers):
        # Before memory is taken for as many rows.
        last = int(np.argmax(numbers))
        row = int(numbers[last]) * BLOCK_ROWS + int(np.flatnonzero(_bits(by_block[last]))[-1])
        if row >= rows:
            raise ValueError(f"row {row} is not in a file of {rows} rows")
    whole = np.zeros((-(-rows // BLOCK_ROWS), WORDS), np.int64)
    whole[numbers] = by_block
    return _bits(whole)[:rows]


def _bits(words: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.unpackbits(words.astype("<i8").view(np.uint8).reshape(-1), bitorder="little").astype(np.bool_)


def block_columns(sets: Iterable[Blocks]) -> dict[str, pa.Array]:
    """Return sets as two columns, ``blocks`` and ``words`` (ARRAY<BIGINT>), a row a set."""
    found = list(sets)
    kind = pa.list_(pa.int64())
    return {
        "blocks": pa.array([numbers for numbers, _ in found], kind),
        "words": pa.array([words for _, words in found], kind),
    }


def read_blocks(batch: pa.RecordBatch, row: int) -> Blocks:
    numbers, words = (batch.column(name)[row].values.to_numpy() for name in ("blocks", "words"))
    return numbers, words


def blocks_table(sets: Iterable[tuple[str, Blocks]], names: Sequence[str]) -> pa.Table:
    """Return a table of sets, a row a block.

    Args:
        sets: The name of each, such as a file's, and its blocks; a set may come in several parts.
        names: The names of the columns: the set's name (STRING), the block's number (BIGINT), its words
            (ARRAY<BIGINT>).
    """
    schema = pa.schema(zip(names, (pa.string(), pa.int64(), pa.list_(pa.int64())), strict=True))
    batches = []
    for name, (numbers, words) in sets:
        offsets = pa.array(np.arange(0, len(words) + 1, WORDS, dtype=np.int32))
        columns = [
            pa.repeat(pa.scalar(name, pa.string()), len(numbers)),
            pa.array(numbers, pa.int64()),
            pa.ListArray.from_arrays(offsets, pa.array(words, pa.int64())),
        ]
        batches.append(pa.record_batch(columns, schema=schema))
    # Spark would make a task of each batch.
    return pa.Table.from_batches(batches, schema).combine_chunks()
