"""What one pass over the source finds out about its keys: their ranges and gaps, NULLs and repetitions."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from pyspark.sql import Column
from pyspark.sql.types import (
    AtomicType,
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

from deltamerge.merge.analysis.internal_columns import InternalColumns
from deltamerge.merge.analysis.join_keys import JoinKey, JoinKeys
from deltamerge.merge.limits import Limits
from deltamerge.skipping.histogram import (
    STRING_BYTES,
    UNIT_DIGITS,
    IntegerHistogram,
    KeyHistogram,
    StringHistogram,
)
from deltamerge.skipping.key_ranges import MOST_RANGES
from deltamerge.skipping.predicates import ALWAYS, NEVER, And, InRanges, Predicate
from deltamerge.spark import columns as F
from deltamerge.sql.conditions import EquiKey
from deltamerge.sql.names import quote

_NUMBERS = (ByteType, ShortType, IntegerType, LongType, DecimalType)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)

_ROW_NUMBER_BYTES = 16
_MOST_LONG = (1 << 63) - 1
_PARTITION_BITS = 33
# Where keys that repeat are not counted, they are estimated with such a standard error.
_STANDARD_ERROR = 0.03
# So many digits Spark's decimals have at most, and so many those that it makes of integers.
_MOST_DIGITS = 38
_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 20}


@dataclass(frozen=True)
class SourceSummary:
    """What one pass over the source finds out.

    Args:
        predicate: What a target row that it can match looks like.
        key_bytes: About how many bytes its keys and row numbers take.
        row_bytes: The same of whole rows; None where that was not looked for.
        null_keys: How many rows have NULL in a key, and match nothing for it; None where they were not counted.
        repeated_keys: How many rows have all keys of a row before them; None where they were not counted.
        repeated_share: Which part of the rows has, by an estimate, where they were not counted and it is not small.
    """

    row_count: int
    predicate: Predicate
    key_bytes: int
    partitions: int
    null_keys: int | None = None
    repeated_keys: int | None = None
    repeated_share: float | None = None
    row_bytes: int | None = None

    @property
    def key_notes(self) -> tuple[str, ...]:
        """Sentences on rows whose keys are seldom meant to be as they are."""
        found = []
        if self.null_keys:
            one = self.null_keys == 1
            rows = "1 source row has" if one else f"{self.null_keys:,} source rows have"
            found.append(f"{rows} NULL in a key, so {'it matches' if one else 'they match'} nothing.")
        if self.repeated_keys:
            one = self.repeated_keys == 1
            rows = "1 source row repeats" if one else f"{self.repeated_keys:,} source rows repeat"
            found.append(f"{rows} the key of another source row.")
        elif self.repeated_keys is None and self.repeated_share is not None:
            found.append(f"About {self.repeated_share:.0%} of the source rows repeat the key of another.")
        return tuple(found)


NO_ROWS = SourceSummary(row_count=0, predicate=NEVER, key_bytes=0, partitions=0)
"""Of a statement without a source."""


def can_broadcast(size: int | None, auto_broadcast_join_threshold: str, most_bytes: int) -> bool:
    """Return whether so many bytes of the source may be sent to every executor.

    Args:
        auto_broadcast_join_threshold: ``spark.sql.autoBroadcastJoinThreshold``; a negative one forbids it.
    """
    forbidden = auto_broadcast_join_threshold.lstrip().startswith("-")
    return not forbidden and size is not None and size <= most_bytes


def ranged_keys(keys: Sequence[JoinKey]) -> list[JoinKey]:
    """Return the keys whose ranges in the source are ranges of the target's values."""
    return [key for key in keys if _keep_order(key.given, key.wanted)]


def key_aggregates(
    keys: JoinKeys,
    names: InternalColumns,
    histograms: Mapping[tuple[str, ...], KeyHistogram] | None,
    limits: Limits,
    measured: StructType | None = None,
) -> list[Column]:
    """Return the aggregates over the source's rows that `summary_of_aggregates` reads.

    Args:
        measured: The source's columns, all of which are read, where its bytes are to be known.
        histograms: Of the target's columns, by which gaps between keys are found; None where the source may give
            other rows at the next read, so that its keys' gaps say nothing.
    """
    row = F.col(names.source_row_index)
    # Spark's row numbers have the partition above their lower 33 bits.
    in_partition = row.bitwiseAND(F.lit((1 << _PARTITION_BITS) - 1))

    def is_among_first(rows: int, partitions: int) -> Column:
        return (in_partition < F.lit(rows)) & (row < F.lit(partitions << _PARTITION_BITS))

    aggregates = [
        F.count(F.lit(1)).alias("n"),
        F.max(row).alias("last"),
        F.max(in_partition).alias("longest"),
    ]
    if measured is not None:
        is_sampled = is_among_first(limits.counted_rows, limits.counted_partitions)
        aggregates.append(F.sum(_size_of_row(measured)).alias("row_bytes"))
        aggregates.append(F.avg(F.when(is_sampled, _size_of_nested(measured))).alias("nested_bytes"))
    if keys.keys and keys.say_all:
        is_whole, values = F.lit(True), []
        for key in keys.keys:
            value = F.expr(key.key.source_sql)
            # A hash passes over NULLs: that there is one is part of a key that equals others in it.
            values += [value, value.isNull()] if key.key.null_safe else [value]
            is_whole = is_whole if key.key.null_safe else is_whole & value.isNotNull()
        aggregates.append(F.count(F.when(is_whole, F.lit(1))).alias("whole"))
        if all(isinstance(key.given, AtomicType) for key in keys.keys):
            hashed = F.xxhash64(*values)
            is_counted = is_whole & is_among_first(limits.counted_rows, limits.counted_partitions)
            aggregates.append(F.size(F.collect_set(F.when(is_counted, hashed))).alias("different"))
            about = F.approx_count_distinct(F.when(is_whole, hashed), _STANDARD_ERROR)
            aggregates.append(about.alias("about_different"))
    for i, key in enumerate(ranged_keys(keys.keys)):
        expression = F.expr(key.key.source_sql)
        value = _comparable(expression, key.given)
        aggregates += [
            F.min(value).alias(f"lo{i}"),
            F.max(value).alias(f"hi{i}"),
            F.count(value).alias(f"n{i}"),
        ]
        if isinstance(key.given, StringType):
            aggregates.append(F.sum(F.octet_length(expression)).alias(f"bytes{i}"))
            aggregates.append(F.count(F.when(~F.is_valid_utf8(expression), F.lit(1))).alias(f"not_utf8{i}"))
        if histograms is None:
            continue
        of_target = _histogram_of(key, histograms)
        if of_target is not None:
            aggregates.append(F.bitmap_construct_agg(_bucket_of(value, of_target)).alias(f"buckets{i}"))
        if not isinstance(of_target, IntegerHistogram):
            is_first = is_among_first(limits.listed_rows, limits.listed_partitions)
            # As a string: Spark 4.0 does not hand out arrays that it observes.
            aggregates.append(F.to_json(F.collect_set(F.when(is_first, value))).alias(f"few{i}"))
    return aggregates


def _size_of_row(schema: StructType) -> Column:
    """Return about how many bytes the strings of a row take, and its other values of a fixed size (BIGINT)."""
    size = F.lit(_ROW_NUMBER_BYTES * (1 + len(schema.fields))).cast("bigint")
    for name in _named_once(schema, lambda kind: isinstance(kind, (StringType, BinaryType))):
        size += F.coalesce(F.octet_length(F.col(quote(name))), F.lit(0))
    return size


def _size_of_nested(schema: StructType) -> Column:
    """Return about how many bytes a row's nested values and variants take (INT)."""
    nested = _named_once(schema, lambda kind: isinstance(kind, VariantType) or not isinstance(kind, AtomicType))
    return F.length(F.to_json(F.struct(*(F.col(quote(name)) for name in nested)))) if nested else F.lit(0)


def _named_once(schema: StructType, is_wanted: Callable[[DataType], bool]) -> list[str]:
    names = Counter(name.lower() for name in schema.names)
    return [field.name for field in schema.fields if names[field.name.lower()] == 1 and is_wanted(field.dataType)]


def _bucket_of(value: Column, histogram: KeyHistogram) -> Column:
    """Return the number of the bucket that a value is in (BIGINT), NULL for one outside of the span."""
    if isinstance(histogram, IntegerHistogram):
        number = value.cast("bigint")
        begin, last = (_bigint(end) for end in (histogram.begin, min(histogram.end - 1, _MOST_LONG)))
        return F.when(number.between(begin, last), _part(number, histogram))
    if isinstance(histogram, StringHistogram):
        after = F.substring(value.cast("binary"), len(histogram.prefix) + 1, STRING_BYTES)
        number = F.conv(F.rpad(F.hex(after), 2 * STRING_BYTES, "0"), 16, 10).cast("bigint")
        return F.when(value.between(histogram.low, histogram.high), _part(number, histogram.numbers))
    as_long_as_units = f"decimal({UNIT_DIGITS},{histogram.scale})"
    low, high = (F.lit(str(end)).cast(as_long_as_units) for end in (histogram.low, histogram.high))
    one = F.lit(str(10**histogram.scale)).cast(f"decimal({histogram.scale + 1},0)")
    # A value with more digits after the point than the target's equals none of them, wherever it is rounded to.
    units = (value.cast(as_long_as_units) * one).cast("bigint")
    return F.when(value.between(low, high), _part(units, histogram.units))


def _bigint(number: int) -> Column:
    return F.lit(number).cast("bigint")


def _part(number: Column, histogram: IntegerHistogram) -> Column:
    return F.call_function("div", number - _bigint(histogram.begin), _bigint(histogram.width))


@dataclass(frozen=True)
class KeyRange:
    """What is known of the values of a key whose order is kept.

    Args:
        low: The least value, of times as a number; None where all are NULL.
        high: The greatest value.
        not_null: How many rows have a value.
        string_bytes: The bytes of its strings.
        not_utf8: How many of its strings are no UTF-8.
        buckets: Which buckets of the target's histogram have a value; None where that was not looked for.
        values: All values; none where they are not known.
    """

    low: Any
    high: Any
    not_null: int
    string_bytes: int = 0
    not_utf8: int = 0
    buckets: bytes | None = None
    values: tuple[Any, ...] = ()

    def intervals(self, of_target: KeyHistogram | None) -> Sequence[tuple[Any, Any]]:
        if self.low is None:
            return ()
        if 0 < len(self.values) <= MOST_RANGES:
            return [(value, value) for value in self.values]
        if of_target is not None and self.buckets is not None:
            return of_target.ranges(self.buckets, self.low, self.high)
        return ((self.low, self.high),)


def summary_of(
    rows: int,
    ranges: Sequence[KeyRange],
    keys: Sequence[JoinKey],
    *,
    partitions: int = 0,
    histograms: Mapping[tuple[str, ...], KeyHistogram] | None = None,
) -> SourceSummary:
    """Return what the ranges of a source's keys say.

    Args:
        ranges: Of the `ranged_keys` of the keys, in their order.
        histograms: As for `key_aggregates`.
    """
    parts: list[Predicate] = []
    for key, found in zip(ranged_keys(keys), ranges, strict=True):
        if found.not_utf8:
            # Python has other characters in their place, which stand elsewhere in Spark's order.
            parts.append(ALWAYS)
            continue
        of_target = None if histograms is None else _histogram_of(key, histograms)
        parts.append(_key_predicate(key.key, key.given, found.intervals(of_target), rows - found.not_null))
    predicate = And(tuple(parts)) if parts else (ALWAYS if rows else NEVER)
    key_bytes = rows * _ROW_NUMBER_BYTES * (1 + len(keys)) + sum(found.string_bytes for found in ranges)
    return SourceSummary(rows, predicate, key_bytes, partitions)


def summary_of_aggregates(
    row: Mapping[str, Any],
    keys: Sequence[JoinKey],
    histograms: Mapping[tuple[str, ...], KeyHistogram] | None,
    limits: Limits,
) -> SourceSummary:
    """Return what the aggregates of `key_aggregates` show.

    Args:
        row: ``n``, the rows; where they were measured ``row_bytes``, about how many bytes they take, and
            ``nested_bytes``, how many more on an average; ``last``, the greatest row number; ``longest``, the greatest
            within a partition; ``whole``, how many rows have no NULL that keeps them from a match, ``different``, how
            many keys these have, where partitions have few rows, and ``about_different``, about how many elsewhere; and
            of the i-th key whose order is kept what a `KeyRange` has, ``few<i>``, its values where partitions have few
            rows, as JSON.
        histograms: As for `key_aggregates`.
    """
    count, longest = int(row["n"]), row.get("longest") or 0
    partitions = 0 if row["last"] is None else (int(row["last"]) >> _PARTITION_BITS) + 1
    lists_all = longest < limits.listed_rows and partitions <= limits.listed_partitions
    ranges = []
    for i, key in enumerate(ranged_keys(keys)):
        low, buckets, few = row[f"lo{i}"], row.get(f"buckets{i}"), row.get(f"few{i}")
        values = sorted(_read_json(few, key.given)) if low is not None and few is not None and lists_all else []
        ranges.append(
            KeyRange(
                low,
                row[f"hi{i}"],
                row[f"n{i}"],
                row.get(f"bytes{i}") or 0,
                row.get(f"not_utf8{i}") or 0,
                None if buckets is None else bytes(buckets),
                tuple(values),
            )
        )
    summary = summary_of(count, ranges, keys, partitions=partitions, histograms=histograms)
    if "row_bytes" in row:
        summary = replace(summary, row_bytes=int((row["row_bytes"] or 0) + (row["nested_bytes"] or 0) * count))
    if "whole" not in row:
        return summary
    whole = int(row["whole"])
    summary = replace(summary, null_keys=count - whole)
    if "different" not in row:
        return summary
    if longest < limits.counted_rows and partitions <= limits.counted_partitions:
        return replace(summary, repeated_keys=whole - int(row["different"]))
    share = (whole - int(row["about_different"])) / count
    return replace(summary, repeated_share=share if share >= limits.repeated_share else None)


def _histogram_of(key: JoinKey, histograms: Mapping[tuple[str, ...], KeyHistogram]) -> KeyHistogram | None:
    return histograms.get(key.key.target.path) if has_histogram(key) else None


def has_histogram(key: JoinKey) -> bool:
    """Return whether gaps between a key's values can be found by a histogram of the target's span."""
    if not _keep_order(key.given, key.wanted):
        return False
    given, scale = key.given, unscaled_digits(key)
    if scale is None:
        return True
    digits, fraction = (given.precision, given.scale) if isinstance(given, DecimalType) else (_DIGITS[type(given)], 0)
    # In a comparison with the span's ends Spark must keep all digits of both.
    return max(fraction, scale) + max(digits - fraction, UNIT_DIGITS - scale) <= _MOST_DIGITS


def unscaled_digits(key: JoinKey) -> int | None:
    """Return how many digits after the point the target's values have; None where neither side is a decimal."""
    if isinstance(key.wanted, DecimalType):
        return key.wanted.scale
    return 0 if isinstance(key.given, DecimalType) else None


def _read_json(values: str, data_type: DataType) -> list[Any]:
    whole_number = Decimal if isinstance(data_type, DecimalType) else int
    found: list[Any] = json.loads(values, parse_float=Decimal, parse_int=whole_number)
    return found


def _keep_order(given: DataType, wanted: DataType) -> bool:
    """Return whether a range of the source's values is a range of the target's: '9' comes after '10', 9 before 10."""
    if isinstance(given, StringType) or isinstance(wanted, StringType):
        return given.simpleString() == wanted.simpleString() == "string"
    if isinstance(given, _NUMBERS):
        return isinstance(wanted, _NUMBERS)
    return type(given) is type(wanted) and isinstance(given, (DateType, TimestampType))


def _comparable(value: Column, data_type: DataType) -> Column:
    """Return times as numbers, so that those come over which Python's calendar lacks."""
    if isinstance(data_type, TimestampType):
        return F.unix_micros(value)
    return F.unix_date(value) if isinstance(data_type, DateType) else value


def _key_predicate(key: EquiKey, data_type: DataType, ranges: Sequence[tuple[object, object]], nulls: int) -> Predicate:
    matches_null = key.null_safe and nulls > 0
    try:
        ends = tuple((_as_literal(low, data_type), _as_literal(high, data_type)) for low, high in ranges)
    except OverflowError:
        return ALWAYS
    return InRanges(key.target, ends, matches_null, data_type.simpleString())


def _as_literal(value: object, data_type: DataType) -> object:
    if isinstance(data_type, TimestampType) and isinstance(value, int):
        return _EPOCH + dt.timedelta(microseconds=value)
    if isinstance(data_type, DateType) and isinstance(value, int):
        return _EPOCH.date() + dt.timedelta(days=value)
    return value
