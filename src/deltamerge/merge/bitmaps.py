"""Sets of row numbers as bitmaps: made in Spark, 32,768 rows a piece, and put together on the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# The size of Spark's own bitmaps (bitmap_construct_agg).
_ROW_BITS = 15
_PIECE_BYTES = (1 << _ROW_BITS) // 8
_WORD_BITS = 6


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

    def words(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Gives the words of 64 rows that are not empty: their numbers and their bits, both BIGINT."""
        numbers, bits = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for number, piece in self.pieces.items():
            words = np.frombuffer(piece, "<i8")
            filled = np.flatnonzero(words)
            numbers.append(filled + (number << (_ROW_BITS - _WORD_BITS)))
            bits.append(words[filled])
        return np.concatenate(numbers), np.concatenate(bits)


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


def word_of(row: Column) -> Column:
    """Gives the number of the word of 64 rows that a row is in."""
    return F.shiftright(row, _WORD_BITS)


def holds(word: Column, row: Column) -> Column:
    """Tells whether a row is in a set, given the set's word of this row; NULL where there is no such word."""
    return F.getbit(word, row.bitwiseAND(F.lit((1 << _WORD_BITS) - 1)).cast("int")) == F.lit(1)


def words_frame(
    spark: SparkSession, sets: Mapping[str, RowSet], file_column: str, word_column: str, bits_column: str
) -> DataFrame:
    """Makes a frame of sets of row numbers.

    Args:
        spark: The session.
        sets: The sets by name, such as a file's.
        file_column: The column for the name.
        word_column: The column for the number of a word of 64 rows.
        bits_column: The column for the word.

    Returns:
        One row a word; words without rows are left out.
    """
    names: list[pa.Array] = [pa.array([], pa.string())]
    numbers: list[pa.Array] = [pa.array([], pa.int64())]
    bits: list[pa.Array] = [pa.array([], pa.int64())]
    for name, rows in sets.items():
        words, values = rows.words()
        names.append(pa.repeat(pa.scalar(name, pa.string()), len(words)))
        numbers.append(pa.array(words, pa.int64()))
        bits.append(pa.array(values, pa.int64()))
    columns = {
        file_column: pa.chunked_array(names),
        word_column: pa.chunked_array(numbers),
        bits_column: pa.chunked_array(bits),
    }
    return spark.createDataFrame(pa.table(columns))
