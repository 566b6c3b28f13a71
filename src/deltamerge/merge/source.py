"""The source of a merge: the columns in use, read once, numbered, and what is known of its keys."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Observation
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
    StructType,
    TimestampType,
)
from pyspark.storagelevel import StorageLevel

from deltamerge.merge.observed import observed
from deltamerge.merge.resolved import ResolvedMerge, TakeSource
from deltamerge.names import MergeNames
from deltamerge.scan.paths import file_key, without_file_scheme
from deltamerge.session import release_checkpoint
from deltamerge.skipping.clusters import MOST_RANGES, Slices
from deltamerge.skipping.predicates import ALWAYS, NEVER, And, InRanges, Predicate
from deltamerge.sql.conditions import EquiKey
from deltamerge.sql.names import quote
from deltamerge.sql.operand_names import VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from deltamerge.table import Table

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
# Of so many partitions of so many rows the keys' hashes come to the driver.
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


@dataclass(frozen=True)
class Source:
    """The source as the executors read it.

    Args:
        frame: The user's columns, then the row number; the user's qualifiers hold.
        summary: What is known of it, where Spark keeps its rows; else None.
    """

    frame: DataFrame
    summary: SourceSummary | None = None

    def release(self) -> None:
        """Gives back what Spark keeps of it; the source cannot be read afterwards."""
        if self.summary is not None:
            release_checkpoint(self.frame)


def columns_in_use(merge: ResolvedMerge) -> tuple[int, ...]:
    """Finds the source columns that a merge may refer to.

    A column is left out only where its name stands in no expression's text at all, nor can be put there by a variable,
    so none is missed.

    Args:
        merge: The merge.

    Returns:
        Positions in the source's schema, in order; all of them where two columns have one name.
    """
    everything = tuple(range(len(merge.source_schema.fields)))
    names = [name.lower() for name in merge.source_schema.names]
    if len(set(names)) < len(names):
        return everything
    texts = [text.lower() for text in _texts(merge)]
    if any(VARIABLE in text for text in texts):
        return everything
    taken = {o.index for c in merge.clauses for o in c.outputs if isinstance(o, TakeSource)}
    used = [
        i
        for i, name in enumerate(names)
        if i in taken or any(name in text or name.replace("`", "``") in text for text in texts)
    ]
    return tuple(used) if used else everything[:1]


def _texts(merge: ResolvedMerge) -> list[str]:
    statement = merge.statement
    texts = [statement.condition.text, *statement.dedupe_by]
    for clause in statement.clauses:
        texts.append(clause.to_sql())
    return texts


def narrowed(merge: ResolvedMerge) -> ResolvedMerge:
    """Leaves the source's columns out that a merge does not refer to.

    Args:
        merge: The merge.

    Returns:
        The same merge over a source of the columns in use.
    """
    used = columns_in_use(merge)
    if len(used) == len(merge.source_schema.fields):
        return merge
    position = {old: new for new, old in enumerate(used)}
    source = merge.statement.source.select(*(quote(merge.source_schema.names[i]) for i in used))
    clauses = tuple(
        replace(
            clause,
            outputs=tuple(
                replace(o, index=position[o.index]) if isinstance(o, TakeSource) else o
                for o in clause.outputs
            ),
        )
        for clause in merge.clauses
    )
    return replace(
        merge,
        statement=replace(merge.statement, source=source),
        clauses=clauses,
        source_schema=StructType([merge.source_schema.fields[i] for i in used]),
    )


def reads_table(frame: DataFrame, table: Table) -> bool:
    """Tells whether a source may read a table's files: then it has the rows of the version that it was made from.

    Args:
        frame: The source.
        table: The table.
    """
    root = without_file_scheme(table.store.absolute("")).rstrip("/") + "/"
    try:
        return any(file_key(file).startswith(root) for file in frame.inputFiles())
    except PySparkException:
        return True


def read_source(merge: ResolvedMerge, names: MergeNames) -> Source:
    """Gives the source as it is, to be computed each time it is read.

    Args:
        merge: The merge.
        names: The merge's own names.
    """
    return Source(_numbered(merge.statement.source, names))


def materialize_source(
    merge: ResolvedMerge,
    names: MergeNames,
    level: str,
    keys: Sequence[SourceKey],
    slices: Mapping[tuple[str, ...], Slices],
) -> Source:
    """Computes the source once, keeps its rows for all later reads and finds the ranges of its keys on the way.

    Args:
        merge: The merge.
        names: The merge's own names.
        level: Where Spark keeps the rows, such as ``DISK_ONLY``.
        keys: Its keys.
        slices: The slices of the target's columns by which gaps between keys are found.

    Returns:
        The kept source and its summary. Delta: MergeIntoMaterializeSource.
    """
    frame = _numbered(merge.statement.source, names)
    if merge.source_alias is not None:
        frame = frame.alias(merge.source_alias)
    found = Observation()
    counted = frame.observe(found, *_aggregates(keys, names, slices))
    kept = counted.localCheckpoint(eager=True, storageLevel=getattr(StorageLevel, level))
    seen = observed(found)
    if not seen:
        # Spark Connect does not hand out what a checkpoint observes.
        return Source(kept, summarize_source(Source(kept), None, keys, names, slices))
    return Source(kept, summary_of(seen, keys, slices))


def _numbered(frame: DataFrame, names: MergeNames) -> DataFrame:
    return frame.select("*", F.monotonically_increasing_id().alias(names.source_row_index))


def summarize_source(
    source: Source,
    alias: str | None,
    keys: Sequence[SourceKey],
    names: MergeNames,
    slices: Mapping[tuple[str, ...], Slices] | None,
) -> SourceSummary:
    """Counts the source's rows and finds the range of each of its keys, in one job.

    Args:
        source: The source.
        alias: The name that qualifies its columns.
        keys: Its keys.
        names: The merge's own names.
        slices: As for `materialize_source`; None where the source may give other rows at the next read, so that its
            keys' gaps say nothing.

    Returns:
        The count, and the predicate that every target row fulfils which the source can match.
    """
    frame = source.frame if alias is None else source.frame.alias(alias)
    found = frame.agg(*_aggregates(keys, names, slices)).collect()[0]
    return summary_of(found.asDict(), keys, slices)


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


def _aggregates(
    keys: Sequence[SourceKey], names: MergeNames, slices: Mapping[tuple[str, ...], Slices] | None
) -> list[Column]:
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
    if keys:
        is_whole = F.lit(True)
        for key in keys:
            is_whole = is_whole if key.key.null_safe else is_whole & F.expr(key.key.source_text).isNotNull()
        aggregates.append(F.count(F.when(is_whole, F.lit(1))).alias("whole"))
        if all(isinstance(key.given, AtomicType) for key in keys):
            hashed = F.xxhash64(*(F.expr(key.key.source_text) for key in keys))
            is_counted = is_whole & is_among_first(_COUNTED_ROWS, _COUNTED_PARTITIONS)
            aggregates.append(F.collect_set(F.when(is_counted, hashed)).alias("hashes"))
    for i, key in enumerate(_ranged(keys)):
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
            aggregates.append(F.collect_set(F.when(is_first, value)).alias(f"few{i}"))
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
            ``whole``, how many rows may match by their NULLs, and ``hashes`` of their keys, where partitions have no
            more rows than that; and of the i-th key whose order is kept ``lo<i>`` and ``hi<i>``, its range, ``n<i>``,
            how many are not NULL, ``bytes<i>``, the bytes of its texts, and ``slices<i>``, which of the target's slices
            have a value, or ``few<i>``, its values where partitions have few rows.
        keys: The keys.
        slices: As for `materialize_source`.
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
            few = sorted(row[f"few{i}"])
            whole = not any(isinstance(value, str) and _NO_TEXT in value for value in few)
            ranges = [(value, value) for value in few] if whole and len(few) <= MOST_RANGES else ranges
        parts.append(_key_predicate(key.key, key.given, ranges, count - row[f"n{i}"]))
    predicate = And(tuple(parts)) if parts else (ALWAYS if count else NEVER)
    texts = sum(row.get(f"bytes{i}") or 0 for i in range(len(ranged)))
    summary = SourceSummary(count, predicate, count * _ROW_NUMBER_BYTES * (1 + width) + texts, partitions)
    if not keys or "whole" not in row:
        return summary
    nulls, hashes, repeated = count - int(row["whole"]), row.get("hashes"), None
    if hashes is not None and (row["longest"] or 0) < _COUNTED_ROWS and partitions <= _COUNTED_PARTITIONS:
        repeated = count - nulls - len(hashes)
    return replace(summary, null_keys=nulls, repeated_keys=repeated)


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
