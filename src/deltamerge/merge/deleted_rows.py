"""The positions of rows that a merge deletes or replaces, gathered as bitmaps by Spark's own aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pyroaring import BitMap64
from pyspark.sql import functions as F

from deltamerge.scan.paths import file_key

if TYPE_CHECKING:
    from pyspark.sql import Column

# What one bitmap of Spark's bitmap_construct_agg holds.
_BUCKET_BITS = 15
_BUCKET_ROWS = 1 << _BUCKET_BITS


def bucket_of(row_index: Column) -> Column:
    """Gives the number of the bucket of 32,768 rows that a position lies in."""
    return F.shiftright(row_index, _BUCKET_BITS)


def bitmap_of(row_index: Column, chosen: Column) -> Column:
    """Aggregates the positions of one bucket into a bitmap (BINARY).

    Args:
        row_index: The rows' positions in their file (BIGINT).
        chosen: TRUE for the rows whose positions are wanted.
    """
    position = row_index.bitwiseAND(F.lit(_BUCKET_ROWS - 1))
    return F.bitmap_construct_agg(F.when(chosen, position))


def positions_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, BitMap64]:
    """Puts buckets together.

    Args:
        rows: ``file`` (as Spark spells it), ``bucket`` and ``bitmap`` of each.

    Returns:
        The chosen positions by `file_key`; files without any are left out.
    """
    found: dict[str, BitMap64] = {}
    for row in rows:
        bits = np.unpackbits(np.frombuffer(row["bitmap"], dtype=np.uint8), bitorder="little")
        positions = BitMap64((np.flatnonzero(bits) + (row["bucket"] << _BUCKET_BITS)).astype(np.uint64))
        if positions:
            key = file_key(row["file"])
            found[key] = found.get(key, BitMap64()) | positions
    return found
