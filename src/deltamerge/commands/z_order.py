"""Rows along a Z-order curve: rows that are near in all of some columns come into the same files.

The place of a value is found among quantiles of its column; the bits of the places, interleaved, make the place on the
curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame

from deltamerge.spark import columns as F
from deltamerge.sql.names import free_prefix, quote

# The most bits of a column's place; 64 quantiles tell apart the files of a partition.
_BITS = 6
_CURVE_BITS = 60
_SAMPLED_ROWS = 100_000


def z_ordered(frame: DataFrame, columns: Sequence[str], files: int) -> DataFrame:
    """Return the rows in the order of the curve over some columns, in as many parts as there are to be files."""
    if not columns:
        return frame
    bits = max(1, min(_BITS, _CURVE_BITS // len(columns)))
    prefix = free_prefix(frame.columns)
    values = [F.col(".".join(map(quote, name.split(".")))) for name in columns]
    quantiles = [f"{prefix}q{place}" for place in range(len(columns))]
    sample = frame.select(*(value.alias(name) for value, name in zip(values, quantiles, strict=True)))
    cuts = sample.limit(_SAMPLED_ROWS) if files == 1 else sample.sample(0.1).limit(_SAMPLED_ROWS)
    bounds = cuts.agg(*(_quantiles(F.col(name), 1 << bits).alias(name) for name in quantiles))
    places = [_place(value, F.col(name), 0, (1 << bits) - 1) for value, name in zip(values, quantiles, strict=True)]
    curve = f"{prefix}curve"
    rows = frame.crossJoin(F.broadcast(bounds)).withColumn(curve, _interleaved(places, bits))
    parts = rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, curve)
    return parts.sortWithinPartitions(curve).drop(curve, *quantiles)


def _quantiles(value: Column, count: int) -> Column:
    """Return the values that cut a sample into so many equal parts, ascending; NULLs come first."""
    ordered = F.sort_array(F.collect_list(value))
    size = F.size(ordered)
    return F.array(*(F.get(ordered, (size * F.lit(cut) / F.lit(count)).cast("int")) for cut in range(1, count)))


def _place(value: Column, bounds: Column, first: int, last: int) -> Column:
    """Return how many bounds are not above a value, by bisection; 0 of NULL."""
    if first == last:
        return F.lit(first)
    middle = (first + last) // 2
    below = F.coalesce(value < F.get(bounds, F.lit(middle)), F.lit(True))
    return F.when(below, _place(value, bounds, first, middle)).otherwise(_place(value, bounds, middle + 1, last))


def _interleaved(places: Sequence[Column], bits: int) -> Column:
    width = len(places)
    parts = [
        F.shiftleft(F.shiftright(place.cast("bigint"), bit).bitwiseAND(F.lit(1).cast("bigint")), bit * width + at)
        for at, place in enumerate(places)
        for bit in range(bits)
    ]
    return reduce(add, parts)
