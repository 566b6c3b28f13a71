"""Values as ranges with the gaps between them: each value where they are few, the densest parts where they are many."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.skipping.timestamps import EPOCH_DATE

Ranges = tuple[tuple[object, object], ...]

# Each is compared with the bounds of all files.
MOST_RANGES = 1_000
# Of very many values the gaps are found part by part.
_VALUES_AT_ONCE = 1 << 22
# Sorting more strings takes longer than reading some files in vain.
_MOST_STRINGS = 200_000


def may_have_key_ranges(type_name: str, values: int) -> bool:
    """Return whether it is worth reading so many values of a type, by Spark's name of it, for `key_ranges`."""
    return type_name != "string" or values <= _MOST_STRINGS


def key_ranges(values: pa.ChunkedArray, most: int = MOST_RANGES) -> Ranges | None:
    """Return ranges that hold all values and as little else as possible, in order and without overlap.

    None for values other than integers, dates or strings, and for dates that Python does not have. NULLs do not
    count.
    """
    if pa.types.is_date32(values.type):
        return _as_dates(_of_integers(values.cast(pa.int32()), most))
    if pa.types.is_integer(values.type):
        return _of_integers(values, most)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return _of_strings(values.drop_null(), most)
    return None


def _of_integers(values: pa.ChunkedArray, most: int) -> tuple[tuple[int, int], ...]:
    """Leave the widest gaps out."""
    ordered, count = np.empty(len(values) - values.null_count, np.int64), 0
    for chunk in values.chunks:
        there = chunk.drop_null()
        ordered[count : count + len(there)] = there.to_numpy()
        count += len(there)
    if not count:
        return ()
    ordered.sort()
    widths, after = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    for first in range(0, len(ordered), _VALUES_AT_ONCE):
        piece = ordered[first : first + _VALUES_AT_ONCE + 1].view(np.uint64)
        # The difference of two 64-bit integers fits 64 bits without a sign.
        gaps = piece[1:] - piece[:-1]
        places = np.flatnonzero(gaps > 1)
        widths, after = np.concatenate((widths, gaps[places])), np.concatenate((after, places + first))
        if len(after) >= most:
            narrow = len(after) - (most - 1)
            widest = np.sort(np.argpartition(widths, min(narrow, len(after) - 1))[narrow:])
            widths, after = widths[widest], after[widest]
    lows = ordered[np.concatenate(([0], after + 1))]
    highs = ordered[np.concatenate((after, [len(ordered) - 1]))]
    return tuple(zip(lows.tolist(), highs.tolist(), strict=True))


def _as_dates(days: tuple[tuple[int, int], ...]) -> Ranges | None:
    try:
        return tuple((EPOCH_DATE + timedelta(low), EPOCH_DATE + timedelta(high)) for low, high in days)
    except OverflowError:
        return None


def _of_strings(values: pa.ChunkedArray, most: int) -> Ranges | None:
    """Cut the strings, in the order of their bytes, into parts of the same size."""
    distinct = pc.unique(values)
    if not len(distinct):
        return ()
    ordered = distinct.take(pc.sort_indices(distinct))
    size = -(-len(ordered) // most)
    begins = np.arange(0, len(ordered), size)
    ends = np.minimum(begins + size, len(ordered)) - 1
    try:
        lows, highs = (ordered.take(pa.array(places)).to_pylist() for places in (begins, ends))
    except UnicodeDecodeError:
        return None
    return tuple(zip(lows, highs, strict=True))
