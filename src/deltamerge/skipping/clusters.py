"""Values as ranges with the gaps between them: every value where they are few, clusters where they are many.

Where values cannot be looked at one by one, the span that matters is cut into slices, and a bit says of each whether
there is a value in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Ranges = tuple[tuple[object, object], ...]

# For each more a range is held against the bounds of all files.
MOST_RANGES = 1_000
# To put more texts in order takes longer than to read some files in vain.
_MOST_TEXTS = 200_000


def may_have_clusters(type_name: str, values: int) -> bool:
    """Tells whether it is worth reading so many values of a type, by Spark's name of it, for `clusters`."""
    return type_name != "string" or values <= _MOST_TEXTS


def clusters(values: pa.ChunkedArray, most: int = MOST_RANGES) -> Ranges | None:
    """Finds ranges that hold all values and as little else as may be.

    Args:
        values: Integers or texts; NULLs do not count.
        most: Of how many ranges at most.

    Returns:
        The lowest and the highest value of each range, in order and without overlap; None for values of other types.
    """
    if pa.types.is_integer(values.type):
        return _of_integers(values.drop_null().to_numpy(), most)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return _of_texts(values.drop_null(), most)
    return None


def _of_integers(values: np.ndarray[Any, Any], most: int) -> Ranges:
    """Leaves the widest gaps out."""
    if not len(values):
        return ()
    ordered = np.sort(values.astype(np.int64))
    # The difference of two 64-bit integers fits 64 bits without a sign.
    gaps = ordered[1:].view(np.uint64) - ordered[:-1].view(np.uint64)
    after = np.flatnonzero(gaps > 1)
    if len(after) >= most:
        narrow = len(after) - (most - 1)
        widest = np.argpartition(gaps[after], min(narrow, len(after) - 1))[narrow:]
        after = np.sort(after[widest])
    lows = ordered[np.concatenate(([0], after + 1))]
    highs = ordered[np.concatenate((after, [len(ordered) - 1]))]
    return tuple(zip(lows.tolist(), highs.tolist(), strict=True))


def _of_texts(values: pa.ChunkedArray, most: int) -> Ranges:
    """Cuts the texts, in the order of their bytes, into parts of the same size."""
    distinct = pc.unique(values)
    if not len(distinct):
        return ()
    ordered = distinct.take(pc.sort_indices(distinct))
    size = -(-len(ordered) // most)
    begins = np.arange(0, len(ordered), size)
    ends = np.minimum(begins + size, len(ordered)) - 1
    lows, highs = (ordered.take(pa.array(places)).to_pylist() for places in (begins, ends))
    return tuple(zip(lows, highs, strict=True))


# The bits of one of Spark's bitmaps (bitmap_construct_agg).
_SLICES = 1 << 15
_MOST_SPAN = 1 << 62


@dataclass(frozen=True)
class Slices:
    """A span of integers cut into 32,768 slices.

    Args:
        begin: Where the first begins.
        width: How many integers each has.
    """

    begin: int
    width: int

    @property
    def end(self) -> int:
        """The integer after the last slice."""
        return self.begin + self.width * _SLICES

    def ranges(self, bits: bytes, low: int, high: int) -> tuple[tuple[int, int], ...]:
        """Finds ranges that hold all values.

        Args:
            bits: For each slice, the lowest bit first, whether it has a value.
            low: The least value, which may lie before the slices.
            high: The greatest value, which may lie behind them.

        Returns:
            The lowest and the highest integer of each range, in order and without overlap, `MOST_RANGES` at most.
        """
        filled = np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little"))
        found: list[tuple[int, int]] = []
        if low < self.begin:
            found.append((low, min(high, self.begin - 1)))
        breaks = np.flatnonzero(np.diff(filled) > 1)
        firsts = filled[np.concatenate(([0], breaks + 1))].tolist() if len(filled) else []
        lasts = filled[np.concatenate((breaks, [len(filled) - 1]))].tolist() if len(filled) else []
        for first, last in zip(firsts, lasts, strict=True):
            begin, end = self.begin + first * self.width, self.begin + (last + 1) * self.width
            found.append((max(low, begin), min(high, end - 1)))
        if high >= self.end:
            found.append((max(low, self.end), high))
        return _without_narrow_gaps(found)


def slices_of(low: int, high: int) -> Slices | None:
    """Cuts a span into slices; None where it is too wide to count in 64 bits."""
    return None if high - low >= _MOST_SPAN else Slices(low, (high - low) // _SLICES + 1)


def _without_narrow_gaps(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    if len(ranges) <= MOST_RANGES:
        return tuple(ranges)
    gaps = [later[0] - sooner[1] for sooner, later in pairwise(ranges)]
    widest = sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)[: MOST_RANGES - 1]
    ends = [*sorted(widest), len(gaps)]
    begins = [0, *(end + 1 for end in ends[:-1])]
    return tuple((ranges[begin][0], ranges[end][1]) for begin, end in zip(begins, ends, strict=True))
