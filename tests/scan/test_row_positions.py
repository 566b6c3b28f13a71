"""Sets of row positions: from Spark's pieces, and into blocks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from pyroaring import BitMap64

from deltamerge.scan.row_positions import from_pieces
from deltamerge.workers.row_blocks import BLOCK_ROWS, WORDS, mask_of
from deltamerge.workers.vector_blocks import blocks_of

PIECE_ROWS = 1 << 15


def piece(rows: Iterable[int]) -> bytes:
    bits = np.zeros(PIECE_ROWS, np.bool_)
    bits[list(rows)] = True
    return np.packbits(bits, bitorder="little").tobytes()


def test_no_pieces() -> None:
    assert from_pieces([]) == BitMap64()
    assert from_pieces([(3, piece([]))]) == BitMap64()


def test_bits_of_a_byte_count_from_the_lowest() -> None:
    assert from_pieces([(0, b"\x01" + b"\x00" * 4_095)]) == BitMap64([0])
    assert from_pieces([(0, b"\x00\x82")]) == BitMap64([9, 15])


def test_pieces_in_any_order() -> None:
    pieces = [(5, piece([0, 7])), (0, piece([1, PIECE_ROWS - 1])), (1 << 20, piece([4]))]
    expected = [1, PIECE_ROWS - 1, 5 * PIECE_ROWS, 5 * PIECE_ROWS + 7, (1 << 20) * PIECE_ROWS + 4]
    assert list(from_pieces(pieces)) == expected


def test_all_rows_of_a_piece() -> None:
    found = from_pieces([(1, b"\xff" * (PIECE_ROWS // 8))])
    assert found == BitMap64(range(PIECE_ROWS, 2 * PIECE_ROWS))


def test_no_positions_are_no_blocks() -> None:
    numbers, words = blocks_of(BitMap64())
    assert (len(numbers), len(words)) == (0, 0)


def test_blocks_of_positions() -> None:
    numbers, words = blocks_of(BitMap64([0, 63, 64, 3 * BLOCK_ROWS + 1, (1 << 40) + 5]))
    assert numbers.tolist() == [0, 3, 1 << 28]
    assert numbers.dtype == words.dtype == np.int64
    by_block = words.reshape(-1, WORDS)
    # The highest bit of a word is the sign of the BIGINT that Spark reads.
    assert by_block[0, :2].tolist() == [1 - (1 << 63), 1]
    assert by_block[1, 0] == 2
    assert by_block[2, 0] == 1 << 5
    assert np.count_nonzero(words) == 4


@pytest.mark.parametrize("seed", range(5))
def test_positions_come_back_from_blocks(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = 40_000
    expected = random.random(rows) < random.choice([0.0001, 0.3, 0.999])
    positions = np.flatnonzero(expected)
    pieces = {number: piece(positions[positions >> 15 == number] - (number << 15)) for number in (1, 0)}
    found = from_pieces(pieces.items())
    assert list(found) == positions.tolist()
    assert np.array_equal(mask_of(blocks_of(found), rows), expected)
