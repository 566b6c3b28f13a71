"""Sources that are Parquet files as they lie there, so that tasks may read them without Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.spark.session import physical_plan
from deltamerge.workers.staged_rows import (
    SPARK_VERSION,
    KeptFile,
    in_order,
    is_of_other_calendar,
    plain_types,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# One scan of one path, nothing above it, and nothing that it leaves out. Of several paths one may be named twice, and
# a catalog's partitions may lie anywhere.
_SCAN = re.compile(
    r"== Physical Plan ==\n(\*\(1\) )?(ColumnarToRow\n\+- )?FileScan parquet [^\n]*DataFilters: \[\], Format: Parquet, "
    r"Location: InMemoryFileIndex\(1 paths\)[^\n]*, PartitionFilters: \[\], PushedFilters: \[\], ReadSchema: [^\n]*\n*"
)
_MOST_FILES = 64
_PARTITION = re.compile(r"/([^/=]+)=")
_FIELD_ID = "parquet.field.id"
_OFFSET_BYTES = 4
# From here on all calendars agree, and all zones' offsets are whole minutes.
_FIRST_DAY, _FIRST_TIME = date(1582, 10, 15), datetime(1900, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class PlainParquet:
    """Parquet files.

    Args:
        files: The files.
        uris: How Spark names each of them.
        is_whole: Whether Spark reads the frame's rows from the files alone: their folders tell of no column, and no
            setting or option changes what a value is.
        rows: The rows of each.
        bytes: What their columns take without compression.
        bytes_in_memory: About what they take once they are read.
        ranges: Of each key the least and the greatest value, None where there is none.
        key_bytes: What the keys take without compression.
    """

    files: tuple[KeptFile, ...]
    uris: tuple[str, ...]
    is_whole: bool
    rows: tuple[int, ...]
    bytes: int
    bytes_in_memory: int
    ranges: tuple[tuple[Any, Any], ...]
    key_bytes: int


def plain_parquet(
    frame: DataFrame, types: Mapping[str, pa.DataType], keys: Sequence[str]
) -> PlainParquet | None:
    """Looks at a source's plan and at its files' footers.

    Args:
        frame: The source.
        types: The types of its columns in Arrow.
        keys: The columns whose ranges are wanted.

    Returns:
        The files where the source is nothing but a scan of local Parquet files that hold just these types, and whose
        footers tell the ranges; else None.
    """
    if any(field.name in types and _FIELD_ID in (field.metadata or {}) for field in frame.schema):
        return None
    if _SCAN.fullmatch(physical_plan(frame)) is None:
        return None
    uris = list(frame.inputFiles())
    paths = [local_path(uri) for uri in uris]
    if not paths or len(paths) > _MOST_FILES or None in paths:
        return None
    folders = {name.lower() for uri in uris for name in _PARTITION.findall(unquote(uri))}
    if any(name.lower() in folders for name in types):
        # The folder's name says what the column is, whatever the file holds.
        return None
    found = [_file(path, types, keys) for path in paths if path is not None]
    if None in found:
        return None
    files = [file for file in found if file is not None]
    return PlainParquet(
        files=tuple(file.files[0] for file in files),
        uris=tuple(uris),
        is_whole=all(file.is_whole for file in files)
        and not any(
            field.name.lower() in folders or _FIELD_ID in (field.metadata or {}) for field in frame.schema
        ),
        rows=tuple(file.rows[0] for file in files),
        bytes=sum(file.bytes for file in files),
        bytes_in_memory=sum(file.bytes_in_memory for file in files),
        ranges=tuple(_united([file.ranges[index] for file in files]) for index in range(len(keys))),
        key_bytes=sum(file.key_bytes for file in files),
    )


def local_path(uri: str) -> str | None:
    """Gives the path of a file on this machine; None where it is elsewhere."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file") or parts.netloc:
        return None
    path = unquote(parts.path)
    return path if os.path.isfile(path) else None  # noqa: PTH113


def _file(path: str, types: Mapping[str, pa.DataType], keys: Sequence[str]) -> PlainParquet | None:
    try:
        kept = KeptFile.of(path)
        metadata = pq.read_metadata(path)
        schema = plain_types(metadata.schema.to_arrow_schema())
    except (OSError, pa.ArrowException):
        return None
    if is_of_other_calendar(metadata) or len({name.lower() for name in schema.names}) < len(schema):
        return None
    if any(name not in schema.names or schema.field(name).type != kind for name, kind in types.items()):
        return None
    leaves = {metadata.schema.column(index).path: index for index in range(len(metadata.schema))}
    if any(name not in leaves for name in types):
        return None
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    old = set[int]()
    if SPARK_VERSION not in (metadata.metadata or {}):
        dated = [index for index in leaves.values() if _is_temporal(metadata.schema.column(index))]
        old = {index for index in dated if not all(_is_modern(group.column(index)) for group in groups)}
    if any(leaves[name] in old for name in types):
        return None
    ranges = []
    for name in keys:
        bounds = [_bounds(group.column(leaves[name])) for group in groups]
        if None in bounds:
            return None
        ranges.append(_united([bound for bound in bounds if bound is not None]))
    sizes = {name: sum(g.column(leaves[name]).total_uncompressed_size for g in groups) for name in types}
    return PlainParquet(
        files=(kept,),
        uris=(),
        is_whole=not old,
        rows=(metadata.num_rows,),
        bytes=sum(sizes.values()),
        bytes_in_memory=sum(
            _in_memory(g.column(leaves[name]), types[name]) for g in groups for name in types
        ),
        ranges=tuple(ranges),
        key_bytes=sum(sizes[name] for name in keys),
    )


def _is_temporal(column: Any) -> bool:  # noqa: ANN401
    return bool(column.physical_type == "INT96" or column.logical_type.type in ("DATE", "TIMESTAMP"))


def _in_memory(column: Any, kind: pa.DataType) -> int:  # noqa: ANN401
    """Says about how many bytes a column chunk's values take, however few its dictionary takes."""
    try:
        width = -(-kind.bit_width // 8)
    except ValueError:
        low, high = _bounds(column) or ("", "")
        width = _OFFSET_BYTES + max(len(low or ""), len(high or ""))
    decoded: int = column.num_values * width
    return max(decoded, int(column.total_uncompressed_size))


def _is_modern(column: Any) -> bool:  # noqa: ANN401
    """Tells whether no setting or option changes what Spark makes of a column's dates or times."""
    bounds = _bounds(column)
    if bounds is None:
        return False
    low = bounds[0]
    if isinstance(low, datetime):
        return low.replace(tzinfo=low.tzinfo or timezone.utc) >= _FIRST_TIME
    return low is None or (isinstance(low, date) and low >= _FIRST_DAY)


def _bounds(column: Any) -> tuple[Any, Any] | None:  # noqa: ANN401
    """Gives a column chunk's range, of Nones where all is NULL; None where the footer does not tell."""
    statistics = column.statistics
    if statistics is None:
        return None
    if statistics.has_min_max:
        return statistics.min, statistics.max
    all_null = statistics.has_null_count and statistics.null_count == column.num_values
    return (None, None) if all_null else None


def _united(bounds: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    lows, highs = ([pair[at] for pair in bounds if pair[at] is not None] for at in (0, 1))
    return (min(lows, key=in_order), max(highs, key=in_order)) if lows else (None, None)
