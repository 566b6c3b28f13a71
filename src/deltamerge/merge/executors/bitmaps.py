"""Sets of row numbers as bitmaps: made in Spark, 32,768 rows a piece, and put together on the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as F

from deltamerge.workers.row_blocks import BLOCK_BYTES, Blocks, blocks_of_bits

if TYPE_CHECKING:
    from pyspark.sql import Column

# The size of Spark's own bitmaps (bitmap_construct_agg).
_ROW_BITS = 15
_PIECE_BYTES = (1 << _ROW_BITS) // 8


@dataclass(frozen=True)
class RowSet:
    """A set of row numbers.

    Args:
        pieces: For each 32,768 rows in which there is one, by their number: the bits, the lowest first (4,096 bytes).
    """

    pieces: Mapping[int, bytes]

    def __len__(self) -> int:
        return sum(_count(piece) for piece in self.pieces.values())

    def bitmap(self) -> bytes:
        """Gives one bitmap from row 0 to the last of the set."""
        if not self.pieces:
            return b""
        whole = bytearray((max(self.pieces) + 1) * _PIECE_BYTES)
        for number, piece in self.pieces.items():
            whole[number * _PIECE_BYTES : (number + 1) * _PIECE_BYTES] = piece
        return bytes(whole)

    def blocks(self) -> Iterator[Blocks]:
        """Gives the blocks that are not empty, by which Spark finds rows of the set."""
        for number, piece in self.pieces.items():
            yield blocks_of_bits(piece, number * (len(piece) // BLOCK_BYTES))


NO_ROWS = RowSet({})


def united(sets: Iterable[RowSet]) -> RowSet:
    """Gives the rows that are in any of some sets."""
    pieces: dict[int, bytes] = {}
    for rows in sets:
        for number, piece in rows.pieces.items():
            before = pieces.get(number)
            pieces[number] = piece if before is None else _either(before, piece)
    return RowSet(pieces)


def _either(left: bytes, right: bytes) -> bytes:
    both = np.frombuffer(left, np.uint8) | np.frombuffer(right, np.uint8)
    return both.tobytes()


def _count(piece: bytes) -> int:
    return int.from_bytes(piece, "little").bit_count()


def piece_of(row: Column) -> Column:
    """Gives the number of the piece that a row is in."""
    return F.shiftright(row, _ROW_BITS)


def bit_of(row: Column) -> Column:
    """Gives the place of a row in its piece."""
    return row.bitwiseAND(F.lit((1 << _ROW_BITS) - 1))


def rows_in(piece: int, bits: bytes) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Gives the numbers of the rows in a piece."""
    places = np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little"))
    return (places + (piece << _ROW_BITS)).astype(np.uint64)
