"""Sets of row positions: Roaring bitmaps in memory, blocks (`workers.row_blocks`) for Spark and for tasks.

Spark itself returns positions as bitmaps of 32,768 rows (``bitmap_construct_agg``), here called pieces.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from pyroaring import BitMap64
from pyspark.sql import Column

from deltamerge.spark import columns as F
from deltamerge.workers.row_blocks import BLOCK_BITS, WORD_BITS, WORDS

_PIECE_BITS = 15


def piece_of(row: Column) -> Column:
    return F.shiftright(row, _PIECE_BITS)


def bit_in_piece(row: Column) -> Column:
    return row.bitwiseAND(F.lit((1 << _PIECE_BITS) - 1))


def from_pieces(pieces: Iterable[tuple[int, bytes]]) -> BitMap64:
    """Return the positions in pieces: each its number and its bits, the lowest first."""
    found = [
        np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")) + (piece << _PIECE_BITS)
        for piece, bits in pieces
    ]
    return BitMap64(np.concatenate(found).astype(np.uint64)) if found else BitMap64()


def block_of(row: Column) -> Column:
    return F.shiftright(row, BLOCK_BITS)


def is_in_block(words: Column, row: Column) -> Column:
    """Return whether a row is in a set.

    Args:
        words: The set's words of the row's block (ARRAY<BIGINT>), NULL where it has none there.
    """
    word = F.shiftright(row, WORD_BITS).bitwiseAND(F.lit(WORDS - 1)).cast("int")
    bit = F.getbit(F.get(words, word), row.bitwiseAND(F.lit((1 << WORD_BITS) - 1)).cast("int"))
    return F.coalesce(bit, F.lit(0).cast("byte")) == F.lit(1)
