"""The positions of rows that a merge deletes or replaces, gathered as bitmaps by Spark's own aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyroaring import BitMap64
from pyspark.sql import functions as F

from deltamerge.merge.executors.bitmaps import bit_of, rows_in
from deltamerge.scan.paths import file_key

if TYPE_CHECKING:
    from pyspark.sql import Column


def bitmap_of(row_index: Column, chosen: Column) -> Column:
    """Aggregates the positions of one piece into a bitmap (BINARY).

    Args:
        row_index: The rows' positions in their file (BIGINT).
        chosen: TRUE for the rows whose positions are wanted.
    """
    return F.bitmap_construct_agg(F.when(chosen, bit_of(row_index)))


def positions_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, BitMap64]:
    """Puts pieces together.

    Args:
        rows: ``file`` (as Spark spells it), ``piece`` and ``bitmap`` of each.

    Returns:
        The chosen positions by `file_key`; files without any are left out.
    """
    found: dict[str, BitMap64] = {}
    for row in rows:
        positions = BitMap64(rows_in(row["piece"], row["bitmap"]))
        if positions:
            key = file_key(row["file"])
            found[key] = found.get(key, BitMap64()) | positions
    return found
