"""Sets of row numbers as frames, by which Spark tells the rows of a set from the others.

A block is 4,096 rows, as 64 words of 64 bits: all bits of a file would be copied with every row where Spark generates
no code, and a row of its own for every row number would need hundreds of times the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

_BLOCK_BITS = 12
_WORD_BITS = 6
_WORDS = 1 << (_BLOCK_BITS - _WORD_BITS)
BLOCK_BYTES = _WORDS * 8
# Of so many rows the driver takes a bit each: 128 MiB.
MOST_ROWS = 1 << 30
MOST_BLOCKS = MOST_ROWS >> _BLOCK_BITS
BLOCK_ROWS = 1 << _BLOCK_BITS
# What is computed on the way takes several times the memory of the rows' numbers.
_ROWS_AT_ONCE = 1 << 20

Blocks = tuple["np.ndarray[Any, np.dtype[np.int64]]", "np.ndarray[Any, np.dtype[np.int64]]"]


def block_of(row: Column) -> Column:
    """Gives the number of the block that a row is in (BIGINT)."""
    return F.shiftright(row, _BLOCK_BITS)


def holds(words: Column, row: Column) -> Column:
    """Tells whether a row is in a set.

    Args:
        words: The set's words of the row's block (ARRAY<BIGINT>), NULL where it has none there.
        row: The row's number (BIGINT).
    """
    word = F.shiftright(row, _WORD_BITS).bitwiseAND(F.lit(_WORDS - 1)).cast("int")
    bit = F.getbit(F.get(words, word), row.bitwiseAND(F.lit((1 << _WORD_BITS) - 1)).cast("int"))
    return F.coalesce(bit, F.lit(0).cast("byte")) == F.lit(1)


def blocks_of_bits(bits: bytes, first: int = 0) -> Blocks:
    """Cuts bits into blocks.

    Args:
        bits: Bits, the lowest first; whole blocks.
        first: The number of the first block.

    Returns:
        The numbers of the blocks that are not empty, and their words one after another.
    """
    blocks = np.frombuffer(bits, "<i8").reshape(-1, _WORDS)
    filled = np.flatnonzero(blocks.any(axis=1))
    return filled + first, blocks[filled].reshape(-1)


def blocks_of_rows(rows: np.ndarray[Any, np.dtype[np.uint64]]) -> Blocks:
    """Puts row numbers into blocks.

    Args:
        rows: Row numbers, in order.

    Returns:
        The numbers of the blocks that have some, and their words one after another.
    """
    numbers, words = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    begin = 0
    while begin < len(rows):
        end = begin + _ROWS_AT_ONCE
        if end < len(rows):
            # A block's rows stay together.
            end = int(np.searchsorted(rows, rows[end] >> np.uint64(_BLOCK_BITS) << np.uint64(_BLOCK_BITS)))
        found = _blocks_of_rows(rows[begin:end])
        numbers.append(found[0])
        words.append(found[1])
        begin = end
    return np.concatenate(numbers), np.concatenate(words)


def _blocks_of_rows(rows: np.ndarray[Any, np.dtype[np.uint64]]) -> Blocks:
    numbers, block = np.unique(rows >> np.uint64(_BLOCK_BITS), return_inverse=True)
    place = block * _WORDS + ((rows >> np.uint64(_WORD_BITS)) % np.uint64(_WORDS)).astype(np.int64)
    words = np.zeros(len(numbers) * _WORDS, dtype=np.uint64)
    # Rows come in order, so those of one word stand together.
    places, first = np.unique(place, return_index=True)
    bits = np.left_shift(np.uint64(1), rows % np.uint64(1 << _WORD_BITS))
    words[places] = np.bitwise_or.reduceat(bits, first)
    return numbers.astype(np.int64), words.view(np.int64)


def blocks_table(sets: Iterable[tuple[str, Blocks]], names: Sequence[str]) -> pa.Table:
    """Makes a table of sets.

    Args:
        sets: The name of each, such as a file's, and its blocks; a set may come in several parts.
        names: The names of the three columns.

    Returns:
        A row a block: the set's name (STRING), the block's number (BIGINT), its words (ARRAY<BIGINT>).
    """
    schema = pa.schema(zip(names, (pa.string(), pa.int64(), pa.list_(pa.int64())), strict=True))
    batches = []
    for name, (numbers, words) in sets:
        offsets = pa.array(np.arange(0, len(words) + 1, _WORDS, dtype=np.int32))
        columns = [
            pa.repeat(pa.scalar(name, pa.string()), len(numbers)),
            pa.array(numbers, pa.int64()),
            pa.ListArray.from_arrays(offsets, pa.array(words, pa.int64())),
        ]
        batches.append(pa.record_batch(columns, schema=schema))
    # Spark would make a task of each batch.
    return pa.Table.from_batches(batches, schema).combine_chunks()
