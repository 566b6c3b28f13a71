"""What one pass over the source tells of its keys: their ranges and gaps, NULLs and repetitions."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import (
    AtomicType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampType,
)

from deltamerge.names import MergeNames
from deltamerge.skipping.clusters import MOST_RANGES, Slices
from deltamerge.skipping.predicates import ALWAYS, NEVER, And, InRanges, Predicate
from deltamerge.sql.conditions import EquiKey

if TYPE_CHECKING:
    from pyspark.sql import Column

_NUMBERS = (ByteType, ShortType, IntegerType, LongType, DecimalType)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)

# A source whose keys take more than this is not sent to every executor.
_MOST_BROADCAST_BYTES = 64 << 20
_ROW_NUMBER_BYTES = 16
_MOST_LONG = (1 << 63) - 1
_PARTITION_BITS = 33
# Of so few partitions of so few rows each key's values come to the driver.
_FEW_PARTITIONS = 16
_FEW_ROWS = 64
# In so many partitions of so many rows keys that repeat are counted.
_COUNTED_PARTITIONS = 64
_COUNTED_ROWS = 1_024
# What Python has in the place of bytes that are no text.
_NO_TEXT = "\ufffd"


@dataclass(frozen=True)
class SourceKey:
    """A conjunct of ON that equates a target column with an expression over the source, and the types of both.

    Args:
        key: The conjunct.
        given: The type of the source's expression.
        wanted: The type of the target's column.
    """

    key: EquiKey
    given: DataType
    wanted: DataType


@dataclass(frozen=True)
class SourceKeys:
    """What ON says of a source row.

    Args:
        keys: The keys.
        say_all: Whether ON says nothing else of it, so that rows with the same keys match the same.
    """

    keys: tuple[SourceKey, ...]
    say_all: bool


@dataclass(frozen=True)
class SourceSummary:
    """What one pass over the source tells.

    Args:
        row_count: Its rows.
        predicate: What a target row that it can match looks like.
        key_bytes: About how many bytes its keys and row numbers take.
        partitions: In how many partitions its rows lie.
        null_keys: How many rows have NULL in a key, and match nothing for it; None where they were not counted.
        repeated_keys: How many rows have all keys of a row before them; None where they were not counted.
    """

    row_count: int
    predicate: Predicate
    key_bytes: int
    partitions: int
    null_keys: int | None = None
    repeated_keys: int | None = None

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
        return tuple(found)


def can_broadcast(summary: SourceSummary, auto_broadcast_join_threshold: str) -> bool:
    """Tells whether the source's keys may be sent to every executor.

    Args:
        summary: What is known of the source.
        auto_broadcast_join_threshold: ``spark.sql.autoBroadcastJoinThreshold``; a negative one forbids it.
    """
    forbidden = auto_broadcast_join_threshold.lstrip().startswith("-")
    return not forbidden and summary.key_bytes <= _MOST_BROADCAST_BYTES


def _ranged(keys: Sequence[SourceKey]) -> list[SourceKey]:
    return [key for key in keys if _keep_order(key.given, key.wanted)]


def key_aggregates(
    keys: SourceKeys, names: MergeNames, slices: Mapping[tuple[str, ...], Slices] | None
) -> list[Column]:
    """Gives the aggregates over the source's rows that `summary_of` reads.

    Args:
        keys: Its keys.
        names: The merge's own names.
        slices: The slices of the target's columns by which gaps between keys are found; None where the source may give
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
    if keys.keys and keys.say_all:
        is_whole, values = F.lit(True), []
        for key in keys.keys:
            value = F.expr(key.key.source_text)
            # A hash passes over NULLs: that there is one is part of a key that equals others in it.
            values += [value, value.isNull()] if key.key.null_safe else [value]
            is_whole = is_whole if key.key.null_safe else is_whole & value.isNotNull()
        aggregates.append(F.count(F.when(is_whole, F.lit(1))).alias("whole"))
        if all(isinstance(key.given, AtomicType) for key in keys.keys):
            hashed = F.xxhash64(*values)
            is_counted = is_whole & is_among_first(_COUNTED_ROWS, _COUNTED_PARTITIONS)
            aggregates.append(F.size(F.collect_set(F.when(is_counted, hashed))).alias("different"))
    for i, key in enumerate(_ranged(keys.keys)):
        expression = F.expr(key.key.source_text)
        value = _comparable(expression, key.given)
        aggregates += [
            F.min(value).alias(f"lo{i}"),
            F.max(value).alias(f"hi{i}"),
            F.count(value).alias(f"n{i}"),
        ]
        if isinstance(key.given, StringType):
            aggregates.append(F.sum(F.octet_length(expression)).alias(f"bytes{i}"))
        if slices is None:
            continue
        of_target = _slices_of(key, slices)
        if of_target is not None:
            aggregates.append(_filled(value.cast("bigint"), of_target).alias(f"slices{i}"))
        else:
            is_first = is_among_first(_FEW_ROWS, _FEW_PARTITIONS)
            # As text: Spark 4.0 does not hand out arrays that it observes.
            aggregates.append(F.to_json(F.collect_set(F.when(is_first, value))).alias(f"few{i}"))
    return aggregates


def _slices_of(key: SourceKey, slices: Mapping[tuple[str, ...], Slices]) -> Slices | None:
    return slices.get(key.key.target.path) if has_slices(key) else None


def has_slices(key: SourceKey) -> bool:
    """Tells whether gaps between a key's values can be found by slices: whole numbers, dates and timestamps."""
    return _keep_order(key.given, key.wanted) and not isinstance(key.given, (DecimalType, StringType))


def _filled(value: Column, slices: Slices) -> Column:
    """Tells by a bitmap (BINARY) which slices have a value."""
    begin, last = F.lit(slices.begin).cast("bigint"), F.lit(min(slices.end - 1, _MOST_LONG)).cast("bigint")
    place = F.call_function("div", value - begin, F.lit(slices.width).cast("bigint"))
    return F.bitmap_construct_agg(F.when((value >= begin) & (value <= last), place))


def summary_of(
    row: Mapping[str, Any], keys: Sequence[SourceKey], slices: Mapping[tuple[str, ...], Slices] | None
) -> SourceSummary:
    """Puts into words what aggregates tell of the source.

    Args:
        row: ``n``, the rows; ``last``, the greatest row number; ``longest``, the greatest within a partition;
            ``whole``, how many rows have no NULL that keeps them from a match, and ``different``, how many keys these
            have, where partitions have few rows; and of the i-th key whose order is kept ``lo<i>`` and ``hi<i>``, its
            range, ``n<i>``, how many are not NULL, ``bytes<i>``, the bytes of its texts, and ``slices<i>``, which of
            the target's slices have a value, or ``few<i>``, its values where partitions have few rows, as JSON.
        keys: The keys.
        slices: As for `key_aggregates`.
    """
    count = int(row["n"])
    ranged, width = _ranged(keys), len(keys)
    partitions = 0 if row["last"] is None else (int(row["last"]) >> _PARTITION_BITS) + 1
    parts = []
    for i, key in enumerate(ranged):
        low, high, bits = row[f"lo{i}"], row[f"hi{i}"], row.get(f"slices{i}")
        of_target = None if slices is None else _slices_of(key, slices)
        ranges: Sequence[tuple[Any, Any]] = () if low is None else ((low, high),)
        if ranges and of_target is not None and bits is not None:
            ranges = of_target.ranges(bytes(bits), int(low), int(high))
        elif ranges and f"few{i}" in row and row["longest"] < _FEW_ROWS and partitions <= _FEW_PARTITIONS:
            few = sorted(_read_json(row[f"few{i}"], key.given))
            whole = not any(isinstance(value, str) and _NO_TEXT in value for value in few)
            ranges = [(value, value) for value in few] if whole and len(few) <= MOST_RANGES else ranges
        parts.append(_key_predicate(key.key, key.given, ranges, count - row[f"n{i}"]))
    predicate = And(tuple(parts)) if parts else (ALWAYS if count else NEVER)
    texts = sum(row.get(f"bytes{i}") or 0 for i in range(len(ranged)))
    summary = SourceSummary(count, predicate, count * _ROW_NUMBER_BYTES * (1 + width) + texts, partitions)
    if "whole" not in row:
        return summary
    nulls, different, repeated = count - int(row["whole"]), row.get("different"), None
    if different is not None and (row["longest"] or 0) < _COUNTED_ROWS and partitions <= _COUNTED_PARTITIONS:
        repeated = count - nulls - int(different)
    return replace(summary, null_keys=nulls, repeated_keys=repeated)


def _read_json(values: str, data_type: DataType) -> list[Any]:
    whole_number = Decimal if isinstance(data_type, DecimalType) else int
    found: list[Any] = json.loads(values, parse_float=Decimal, parse_int=whole_number)
    return found


def _keep_order(given: DataType, wanted: DataType) -> bool:
    """Tells whether a range of the source's values is a range of the target's: '9' comes after '10', 9 before 10."""
    if isinstance(given, StringType) or isinstance(wanted, StringType):
        return given.simpleString() == wanted.simpleString() == "string"
    if isinstance(given, _NUMBERS):
        return isinstance(wanted, _NUMBERS)
    return type(given) is type(wanted) and isinstance(given, (DateType, TimestampType))


def _comparable(value: Column, data_type: DataType) -> Column:
    """Gives times as numbers, so that those come over which Python's calendar lacks."""
    if isinstance(data_type, TimestampType):
        return F.unix_micros(value)
    return F.unix_date(value) if isinstance(data_type, DateType) else value


def _key_predicate(
    key: EquiKey, data_type: DataType, ranges: Sequence[tuple[object, object]], nulls: int
) -> Predicate:
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
