"""Rows that deletion vectors name, taken out of a scan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A block of rows is 64 words of 64 bits: a whole file's bits would be copied with every row where Spark generates no
# code, and a row of its own for every position would need hundreds of times the memory.
_BLOCK_BITS = 12
_WORD_BITS = 6
_WORDS = 1 << (_BLOCK_BITS - _WORD_BITS)
# Above this the blocks are left to Spark's own choice of a join.
_MOST_BROADCAST_BYTES = 256 << 20


def without_deleted_rows(
    frame: DataFrame, file_name: str, row_index: str, deleted: Iterable[tuple[Sequence[str], BitMap64]]
) -> DataFrame:
    """Takes out the rows that deletion vectors name.

    Args:
        frame: Rows of files.
        file_name: Its column with the file's URI as Spark spells it (STRING).
        row_index: Its column with the row's position in its file (BIGINT).
        deleted: For each file the spellings that Spark may use, and the deleted positions.

    Returns:
        The other rows. Protocol: Deletion Vectors.
    """
    block_file, block_number, block_words = (f"{file_name}_{part}" for part in ("file", "block", "words"))
    table = _blocks(deleted, (block_file, block_number, block_words))
    if not table.num_rows:
        return frame
    blocks = frame.sparkSession.createDataFrame(table)
    if table.nbytes <= _MOST_BROADCAST_BYTES:
        blocks = F.broadcast(blocks)
    row = F.col(row_index)
    same_block = (F.col(file_name) == F.col(block_file)) & (
        F.shiftright(row, _BLOCK_BITS) == F.col(block_number)
    )
    word = F.shiftright(row, _WORD_BITS).bitwiseAND(F.lit(_WORDS - 1)).cast("int")
    bit = F.getbit(F.get(block_words, word), row.bitwiseAND(F.lit((1 << _WORD_BITS) - 1)).cast("int"))
    marked = frame.join(blocks, same_block, "left")
    return marked.where(F.coalesce(bit, F.lit(0).cast("byte")) == F.lit(0)).drop(
        block_file, block_number, block_words
    )


def _blocks(deleted: Iterable[tuple[Sequence[str], BitMap64]], names: Sequence[str]) -> pa.Table:
    batches = []
    for spellings, positions in deleted:
        numbers, words = _blocks_of(positions)
        for spelling in spellings:
            file = pa.repeat(pa.scalar(spelling, pa.string()), len(numbers))
            batches.append(pa.record_batch([file, numbers, words], names=list(names)))
    schema = pa.schema(zip(names, (pa.string(), pa.int64(), pa.list_(pa.int64())), strict=True))
    return pa.Table.from_batches(batches, schema)


def _blocks_of(positions: BitMap64) -> tuple[pa.Array, pa.Array]:
    """Gives the numbers of the blocks that have deleted rows, and their words."""
    if not positions:
        return pa.array([], pa.int64()), pa.array([], pa.list_(pa.int64()))
    rows: npt.NDArray[np.uint64] = np.frombuffer(positions.to_array(), dtype=np.uint64)
    numbers, block = np.unique(rows >> np.uint64(_BLOCK_BITS), return_inverse=True)
    place = block * _WORDS + ((rows >> np.uint64(_WORD_BITS)) % np.uint64(_WORDS)).astype(np.int64)
    # Positions come in order, so those of one word stand together.
    places, first = np.unique(place, return_index=True)
    bits = np.left_shift(np.uint64(1), rows % np.uint64(1 << _WORD_BITS))
    words = np.zeros(len(numbers) * _WORDS, dtype=np.uint64)
    words[places] = np.bitwise_or.reduceat(bits, first)
    offsets = pa.array(np.arange(0, len(words) + 1, _WORDS, dtype=np.int32))
    bounded = pa.ListArray.from_arrays(offsets, pa.array(words.view(np.int64)))
    return pa.array(numbers.astype(np.int64)), bounded
