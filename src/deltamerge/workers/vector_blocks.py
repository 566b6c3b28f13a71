"""Deletion vector files into blocks of deleted rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from deltamerge.workers.row_blocks import BLOCK_ROWS, Blocks, blocks_of_rows, blocks_table
from deltamerge.workers.vector_format import FILE_FORMAT_VERSION, checked_data, deserialize, stored_size

_POSITIONS_AT_ONCE = 1 << 22


def reading_vectors(
    names: Sequence[str],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that reads vectors, for ``mapInArrow``.

    Args:
        names: The names of the columns of `blocks_table`.

    Returns:
        A function over batches of ``content`` (a vector file's bytes) and ``vectors`` (for each vector its
        ``offset`` and ``size`` in the file, its ``cardinality``, the ``rows`` of the data file, what to call it, and
        the ``files`` that have it, as Spark spells them).
    """

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in range(batch.num_rows):
                content, vectors = (column[row].as_py() for column in batch.columns)
                for vector in vectors:
                    blocks = _blocks(content, vector)
                    yield from blocks_table([(file, blocks) for file in vector["files"]], names).to_batches()

    return read


def passing_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return rows as they are, where all is there that reads a vector; a function for ``mapInArrow``."""
    blocks_of(BitMap64())
    return iter(batches)


def blocks_of(positions: BitMap64) -> Blocks:
    """Return positions as blocks; no more than a few are expanded at once, as a bitmap of ten bytes may have billions.

    The blocks take an eighth of a byte for each row up to the last position: look first whether the file has it.
    """
    if len(positions) <= _POSITIONS_AT_ONCE:
        return blocks_of_rows(np.frombuffer(positions.to_array(), dtype=np.uint64))
    found, begin, last = [], 0, positions.max()
    while begin <= last:
        begin = positions.next_set_bit(begin) // BLOCK_ROWS * BLOCK_ROWS
        some = positions & BitMap64(range(begin, begin + _POSITIONS_AT_ONCE))
        found.append(blocks_of_rows(np.frombuffer(some.to_array(), dtype=np.uint64)))
        begin += _POSITIONS_AT_ONCE
    return np.concatenate([numbers for numbers, _ in found]), np.concatenate([words for _, words in found])


def _blocks(content: bytes, vector: Mapping[str, Any]) -> Blocks:
    begin, size = vector["offset"], vector["size"]
    try:
        if content[:1] != bytes([FILE_FORMAT_VERSION]):
            raise ValueError("its file has another format version")
        positions = deserialize(checked_data(content[begin : begin + stored_size(size)], size))
    except Exception as error:
        # The bitmaps' parser raises errors of several kinds on damaged bytes.
        raise ValueError(f"{vector['name']} cannot be read: {error}") from error
    if len(positions) != vector["cardinality"]:
        raise ValueError(f"{vector['name']} deletes {len(positions)} rows, the log has {vector['cardinality']}")
    if len(positions) and positions.max() >= vector["rows"]:
        raise ValueError(f"{vector['name']} deletes row {positions.max()} of a file of {vector['rows']} rows")
    return blocks_of(positions)
