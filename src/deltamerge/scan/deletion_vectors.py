"""Rows that deletion vectors name, taken out of a scan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap64
from pyspark.sql import functions as F

from deltamerge.scan.row_blocks import Blocks, block_of, blocks_of_rows, blocks_table, holds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    file, number, words = columns = tuple(f"{file_name}_{part}" for part in ("file", "block", "words"))
    table = blocks_table(_blocks(deleted), columns)
    if not table.num_rows:
        return frame
    blocks = frame.sparkSession.createDataFrame(table)
    if table.nbytes <= _MOST_BROADCAST_BYTES:
        blocks = F.broadcast(blocks)
    row = F.col(row_index)
    same_block = (F.col(file_name) == F.col(file)) & (block_of(row) == F.col(number))
    return frame.join(blocks, same_block, "left").where(~holds(F.col(words), row)).drop(*columns)


def _blocks(deleted: Iterable[tuple[Sequence[str], BitMap64]]) -> Iterator[tuple[str, Blocks]]:
    for spellings, positions in deleted:
        blocks = blocks_of_rows(np.frombuffer(positions.to_array(), dtype=np.uint64))
        yield from ((spelling, blocks) for spelling in spellings)
