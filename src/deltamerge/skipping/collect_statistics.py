"""Statistics of a freshly written Parquet file, from its footer, as Delta's ``stats`` JSON.

Protocol: Per-file Statistics; the choice of columns, types and truncation is delta-spark's
``StatisticsCollection``. What the footer does not have exactly is left out, which readers take as unknown; only the
NULLs of arrays and maps may be counted in the file itself.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltamerge.log.features.column_mapping import COLUMN_ID
from deltamerge.log.schema import PrimitiveType, StructField, StructType, lower_case
from deltamerge.skipping.columns import COLLATIONS, column_type, put
from deltamerge.skipping.indexed import IndexedColumns, leaves_of
from deltamerge.skipping.keys import scaled
from deltamerge.skipping.timestamps import EPOCH, EPOCH_DATE
from deltamerge.workers.null_counts import uncounted_leaves
from deltamerge.workers.parquet_footer import has_wrong_bounds
from deltamerge.workers.staged_rows import is_of_other_calendar
from deltamerge.workers.table_columns import FIELD_ID, parts_of, stored_type

ASCII_MAX_CHARACTER = "\x7f"
UTF8_MAX_CHARACTER = "\U0010ffff"
# These versions of parquet-mr order NaN above everything, so that a maximum that is a number proves that there is none.
# Later ones and other writers leave NaN out of their statistics; before, it depends on the place of NaN (PARQUET-1246).
_ORDERS_NAN = re.compile(r"parquet-mr version 1\.1[0-7]\.")
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
# Counts the NULLs of a column by its path in the file and its leaves there.
NullCounter: TypeAlias = Callable[[tuple[str, ...], tuple[int, ...]], "int | None"]
NOTHING_KNOWN: Mapping[tuple[str, ...], bool] = MappingProxyType({})
_OF_CALENDAR = frozenset({"date", "timestamp", "timestamp_ntz"})
_UNITS_PER_MILLI = {"milliseconds": 1, "microseconds": 1_000, "nanoseconds": 1_000_000}


@dataclass(frozen=True)
class _Leaf:
    """One leaf column of the footer over all row groups; None for what it does not have."""

    low: object
    high: object
    null_count: int | None
    index: int


@dataclass(frozen=True)
class _Place:
    """A field of the file.

    Args:
        counted: Those of its leaves whose missing values the footer counts.
        level: The definition level at which it is not NULL.
    """

    path: tuple[str, ...]
    leaves: tuple[int, ...]
    counted: tuple[int, ...]
    level: int
    id: bytes | None = None


_ABSENT = _Place((), (), (), 0)


def parquet_statistics(
    footer: pq.FileMetaData,
    schema: StructType,
    indexed: IndexedColumns,
    count_nulls: NullCounter | None = None,
    has_nan: Mapping[tuple[str, ...], bool] = NOTHING_KNOWN,
) -> str:
    """Return the statistics of a file, the ``stats`` JSON of an AddFile.

    Floating-point maxima are left out unless `has_nan` tells whether the column, by its path in the file, has NaN, or
    the file's writer is known to let NaN into them: Spark's NaN is greater than everything, and a maximum without it
    would make readers skip its rows. The physical names of `schema`, the table's, are looked for in the file.
    `count_nulls` counts in the file how often an array or a map is NULL, where the footer does not have it; None, as a
    result too, leaves the count out.
    """
    places = _places(footer)
    by_lower = _unique_by_lower(places)
    ids = {place.id for place in places.values() if place.id is not None}
    if not places and footer.num_columns:
        return _to_json({"numRecords": footer.num_rows})
    trees: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for column in leaves_of(schema):
        if column.path not in indexed.paths:
            continue
        place = places.get(column.path)
        if place is None:
            place = by_lower.get(lower_case(column.path), _ABSENT)
        if place is None or (place is _ABSENT and _id(column.field) in ids):
            # The file has several columns of the name, or the column under another one.
            continue
        found = _column(footer, column.field, place, indexed.string_prefix_length, has_nan.get(place.path), count_nulls)
        for tree, value in zip(trees.values(), found, strict=True):
            if value is not None:
                put(tree, column.path, value)
    stats: dict[str, Any] = {"numRecords": footer.num_rows, **trees}
    if indexed.tight_bounds:
        stats["tightBounds"] = True
    return _to_json(stats)


def _column(
    footer: pq.FileMetaData,
    field: StructField,
    place: _Place,
    prefix_length: int,
    has_nan: bool | None,
    count_nulls: NullCounter | None,
) -> tuple[object, object, int | None]:
    """Return a column's minimum, maximum and NULLs, None for each that is not known."""
    if not place.leaves:
        # The file lacks the column: it reads as NULL in every row.
        return None, None, footer.num_rows
    if not isinstance(field.data_type, PrimitiveType) or len(place.leaves) > 1:
        return None, None, _nulls_of_many(footer, place, count_nulls)
    leaf = _leaf(footer, place.leaves[0], has_nan)
    if field.metadata.get(COLLATIONS):
        return None, None, leaf.null_count
    low, high = _bounds(footer, leaf, field.data_type.name, prefix_length, has_nan)
    return low, high, leaf.null_count


def _nulls_of_many(footer: pq.FileMetaData, place: _Place, count_nulls: NullCounter | None) -> int | None:
    """Count the NULLs of a list, a map or a variant, whose leaves count missing parts as well."""
    for index in place.counted:
        nulls = _leaf(footer, index).null_count
        # A leaf that must be in every value, as a variant's metadata, misses only with the whole value.
        if nulls == 0 or footer.schema.column(index).max_definition_level == place.level:
            return nulls
    # Where the footer counts none, to read all of them would cost more than the count is worth.
    return None if count_nulls is None or not place.counted else count_nulls(place.path, place.counted)


def _bounds(
    footer: pq.FileMetaData, leaf: _Leaf, type_name: str, prefix_length: int, has_nan: bool | None
) -> tuple[object, object]:
    kind = column_type(type_name)
    if leaf.low is None or leaf.high is None or kind is None:
        return None, None
    if kind.kind in _OF_CALENDAR and is_of_other_calendar(footer):
        # Spark reads them as other days than the footer has.
        return None, None
    column = footer.schema.column(leaf.index)
    if kind.kind == "string":
        return _string_bounds(leaf, prefix_length)
    if kind.kind in ("float", "double"):
        return _float_bounds(leaf, kind.kind, has_nan is not None or _orders_nan(footer.created_by))
    read = _reader(kind.kind, column)
    return (None, None) if read is None else (read(leaf.low), read(leaf.high))


def _reader(kind: str, column: Any) -> Callable[[Any], object] | None:  # noqa: ANN401
    """Return the function from a footer's raw value to its JSON value."""
    whole = column.physical_type in ("INT32", "INT64")
    logical = json.loads(column.logical_type.to_json())
    if kind == "integral" and whole and logical.get("isSigned", True):
        return int
    if kind == "decimal" and logical.get("Type") == "Decimal":
        scale = int(logical["scale"])
        return lambda raw: scaled(_unscaled(raw), scale)
    if kind == "date" and whole and logical.get("Type") == "Date":
        return _date_string
    if kind in ("timestamp", "timestamp_ntz") and whole and logical.get("Type") == "Timestamp":
        zoned = kind == "timestamp"
        units = _UNITS_PER_MILLI[logical["timeUnit"]]
        if logical["isAdjustedToUTC"] == zoned:
            return lambda raw: _timestamp_string(raw // units, "Z" if zoned else "")
    return None


def _date_string(days: int) -> str | None:
    try:
        return (EPOCH_DATE + timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def _timestamp_string(millis: int, zone: str) -> str | None:
    try:
        local: datetime = EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return None
    return local.isoformat(timespec="milliseconds") + zone


def _float_bounds(leaf: _Leaf, kind: str, knows_nan: bool) -> tuple[object, object]:
    low, high = leaf.low, leaf.high
    if not isinstance(low, float) or not isinstance(high, float):
        return None, None
    # Footers may have either zero for both.
    lower, upper = _Number(-0.0 if low == 0 else low, kind), _Number(0.0 if high == 0 else high, kind)
    return lower, upper if knows_nan else None


def _orders_nan(created_by: str | None) -> bool:
    return _ORDERS_NAN.match(created_by or "") is not None


def _string_bounds(leaf: _Leaf, prefix_length: int) -> tuple[str | None, str | None]:
    if not isinstance(leaf.low, bytes) or not isinstance(leaf.high, bytes):
        return None, None
    try:
        low, high = leaf.low.decode(), leaf.high.decode()
    except UnicodeDecodeError:
        return None, None
    return low[:prefix_length], truncate_max_string(high, prefix_length)


def truncate_max_string(string: str, prefix_length: int) -> str | None:
    """Shorten a maximal string to one not less, as delta-spark's ``truncateMaxStringAgg``.

    `prefix_length` is in units of UTF-16, which Java counts.

    Returns:
        A prefix with a character behind it that is above what it replaces; None where no short string can be.
    """
    if _utf16_length(string) <= prefix_length:
        return string
    if prefix_length <= 0:
        return None
    length = len(_utf16_prefix(string, prefix_length))
    units = _utf16_length(string[:length])
    while units <= 2 * prefix_length:
        if length >= len(string):
            return string
        if string[length] != UTF8_MAX_CHARACTER:
            below_ascii_max = string[length] < ASCII_MAX_CHARACTER
            return string[:length] + (ASCII_MAX_CHARACTER if below_ascii_max else UTF8_MAX_CHARACTER)
        length, units = length + 1, units + 2
    return None


def _utf16_length(string: str) -> int:
    return len(string.encode("utf-16-le")) // 2


def _utf16_prefix(string: str, length: int) -> str:
    """Return the first units of UTF-16, with the whole of a character that begins in them."""
    whole = string.encode("utf-16-le")[: 2 * length].decode("utf-16-le", errors="ignore")
    return string[: len(whole) + (_utf16_length(whole) < length)]


def _leaf(footer: pq.FileMetaData, index: int, has_nan: bool | None = None) -> _Leaf:
    """Merge a leaf column's statistics over the row groups, which leave out NaN where the file records it."""
    lows: list[Any] = []
    highs: list[Any] = []
    nulls: int | None = 0
    bounded = True
    raw_order = _raw_order(footer, index)
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(index)
        if chunk.num_values == 0:
            continue
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            nulls = None
        elif nulls is not None:
            nulls += statistics.null_count
        if statistics is not None and statistics.has_min_max:
            lows.append(statistics.min_raw)
            highs.append(statistics.max_raw)
        elif statistics is None or statistics.null_count != chunk.num_values:
            bounded = bounded and has_nan is True
    if has_wrong_bounds(footer, index):
        bounded = False
    if has_nan and bounded:
        return _Leaf(min(lows, default=math.nan), math.nan, nulls, index)
    if not lows or not bounded or (any(map(_is_nan, lows)) and not _orders_nan(footer.created_by)):
        return _Leaf(None, None, nulls, index)
    low, high = min(lows, key=raw_order), max(highs, key=raw_order)
    return _Leaf(None, None, nulls, index) if raw_order(high) < raw_order(low) else _Leaf(low, high, nulls, index)


def _raw_order(footer: pq.FileMetaData, index: int) -> Callable[[Any], Any]:
    """Return how raw values are ordered: decimals in bytes by their number, NaN above all, all else as they are."""
    if footer.schema.column(index).logical_type.type == "DECIMAL":
        return _unscaled
    return lambda raw: (_is_nan(raw), raw)


def _unscaled(raw: int | bytes) -> int:
    return raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _places(footer: pq.FileMetaData) -> dict[tuple[str, ...], _Place]:
    """Return the fields of the file and of its structs by their paths.

    Paths come from the schema's tree: the footer's dotted paths are ambiguous where names hold dots.
    """
    found: dict[tuple[str, ...], _Place] = {}
    index, schema = 0, footer.schema.to_arrow_schema()
    uncounted = uncounted_leaves(footer.created_by, schema)

    def walk(field: pa.Field, path: tuple[str, ...], level: int, named: bool) -> None:
        nonlocal index
        first = index
        kind, level = stored_type(field.type), level + field.nullable
        parts, in_struct = parts_of(kind), named and pa.types.is_struct(kind)
        for _, part in parts:
            walk(part, (*path, part.name), level, in_struct)
        index += not parts
        if named:
            leaves = range(first, index)
            counted = tuple(leaf for leaf in leaves if leaf not in uncounted)
            found[path] = _Place(path, tuple(leaves), counted, level, (field.metadata or {}).get(FIELD_ID))

    for field in schema:
        walk(field, (field.name,), 0, True)
    return found if index == footer.num_columns else {}


def _id(field: StructField) -> bytes | None:
    number = field.metadata.get(COLUMN_ID)
    return None if number is None else str(number).encode()


def _unique_by_lower(places: Mapping[tuple[str, ...], _Place]) -> dict[tuple[str, ...], _Place | None]:
    """Return fields by their names in lower case, None where that is ambiguous."""
    found: dict[tuple[str, ...], _Place | None] = {}
    for path, place in places.items():
        lower = lower_case(path)
        found[lower] = None if lower in found else place
    return found


@dataclass(frozen=True)
class _Number:
    """A floating-point number to be written with the fewest digits that read back as itself in its own type."""

    value: float
    kind: str


def _to_json(value: object) -> str:
    # json.dumps would make decimals floats.
    if isinstance(value, dict):
        return "{" + ",".join(f"{_to_json(key)}:{_to_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, _Number):
        if not math.isfinite(value.value):
            return json.dumps(_NOT_FINITE[str(value.value)])
        return str(np.float32(value.value)) if value.kind == "float" else repr(value.value)
    return json.dumps(value, ensure_ascii=False)


# Elements of a row may be many.
_BATCH_ROWS = 8192


def count_nulls(file: pq.ParquetFile, path: tuple[str, ...], leaves: Sequence[int]) -> int | None:
    """Count the rows in which a column is NULL, or a struct that it is in; None where PyArrow cannot read it.

    Reads the column's smallest leaf only, some rows at a time: every leaf has which rows have a value. `path` is
    the column's in the file, through structs only, `leaves` are the indices of those of its leaves whose missing
    values the footer counts.
    """
    chunks = {leaf: _chunks(file.metadata, leaf) for leaf in leaves}
    smallest = min(leaves, key=lambda leaf: sum(chunk.total_compressed_size for chunk in chunks[leaf]))
    batches = file.iter_batches(
        batch_size=_BATCH_ROWS,
        row_groups=[group for group, chunk in enumerate(chunks[smallest]) if _may_be_null(chunk)],
        columns=[file.schema.column(smallest).path],
        use_threads=False,
    )
    try:
        return sum(int(_at(batch, path).null_count) for batch in batches)
    except pa.ArrowNotImplementedError:
        return None


def _chunks(footer: pq.FileMetaData, leaf: int) -> list[pq.ColumnChunkMetaData]:
    return [footer.row_group(group).column(leaf) for group in range(footer.num_row_groups)]


def _may_be_null(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    return statistics is None or not statistics.has_null_count or statistics.null_count > 0


def _at(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column
