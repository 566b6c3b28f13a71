"""Deletion vector files into blocks of deleted rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from deltamerge.workers.row_blocks import Blocks, blocks_of_rows, blocks_table
from deltamerge.workers.vector_format import FILE_FORMAT_VERSION, checked_data, deserialize, stored_size


def reading_vectors(
    names: Sequence[str],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that reads vectors, for ``mapInArrow``.

    Args:
        names: The names of the columns of `blocks_table`.

    Returns:
        A function over batches of ``content`` (a vector file's bytes) and ``vectors`` (for each vector its
        ``offset`` and ``size`` in the file, its ``cardinality``, what to call it, and the ``files`` that have it, as
        Spark spells them).
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
    blocks_of_rows(np.frombuffer(BitMap64().to_array(), dtype=np.uint64))
    return iter(batches)


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
    return blocks_of_rows(np.frombuffer(positions.to_array(), dtype=np.uint64))
