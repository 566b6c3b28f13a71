"""Sources that are Parquet files in place, which tasks can read without Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from itertools import count
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame

from deltamerge.scan.column_mapping import PARQUET_FIELD_ID
from deltamerge.spark.session import physical_plan
from deltamerge.spark.store_options import are_reached_alike
from deltamerge.storage.task_files import store_kind
from deltamerge.workers.files import Files
from deltamerge.workers.parquet_footer import has_wrong_bounds
from deltamerge.workers.staged_rows import (
    SPARK_VERSION,
    StagedFile,
    in_order,
    is_of_other_calendar,
)
from deltamerge.workers.table_columns import leaves_of, plain_type

# One scan of one path, with nothing above it and no filter. Of several paths one may be named twice, and
# a catalog's partitions may be anywhere.
_SCAN = re.compile(
    r"== Physical Plan ==\n(\*\(1\) )?(ColumnarToRow\n\+- )?FileScan parquet [^\n]*DataFilters: \[\], Format: Parquet, "
    r"Location: InMemoryFileIndex\(1 paths\)[^\n]*, PartitionFilters: \[\], PushedFilters: \[\], ReadSchema: [^\n]*\n*"
)
_MOST_FILES = 64
_PARTITION = re.compile(r"/([^/=]+)=")
_OFFSET_BYTES = 4
# Characters of a plan in a reason.
_SHOWN = 80
# From here on all calendars agree, and all zones' offsets are whole minutes.
_FIRST_DAY, _FIRST_TIME = date(1582, 10, 15), datetime(1900, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class PlainParquet:
    """Parquet files that are all that a source reads.

    Args:
        is_whole: Whether Spark reads the frame's rows from the files only: no column comes from a folder's name, and no
            setting or option changes what a value is.
        groups: The rows of each file's row groups.
        ranges: Each key's least and greatest value, both None where all are NULL.
    """

    files: tuple[StagedFile, ...]
    uris: tuple[str, ...]
    is_whole: bool
    groups: tuple[tuple[int, ...], ...]
    columns: tuple[str, ...]
    bytes: int
    bytes_in_memory: int
    ranges: tuple[tuple[Any, Any], ...]
    key_bytes: int


@dataclass(frozen=True)
class NotPlain:
    reason: str


def plain_parquet(
    frame: DataFrame, types: Mapping[str, pa.DataType], keys: Sequence[str], opened_by: Files, root: str
) -> PlainParquet | NotPlain:
    """Return the files of a source that is a scan of Parquet files with columns of these very types.

    Reads the plan and the footers, which must have statistics of `keys`.
    """
    identified = {field.name for field in frame.schema if PARQUET_FIELD_ID in field.json()}
    if by_id := identified.intersection(types):
        return NotPlain(f"the source's column {min(by_id)} is read by its Parquet field id")
    if _SCAN.fullmatch(plan := physical_plan(frame)) is None:
        return NotPlain(f"the source's plan is not a single scan of Parquet files: {_first_node(plan)}")
    uris = list(frame.inputFiles())
    if not uris:
        return NotPlain("the source has no files")
    if len(uris) > _MOST_FILES:
        return NotPlain(f"the source has {len(uris)} files; up to {_MOST_FILES} are read in place")
    # The value of a column that a folder names comes from there, whatever the file holds.
    folders = {name.lower() for uri in uris for name in _PARTITION.findall(unquote(uri))}
    if named := [name for name in types if name.lower() in folders]:
        return NotPlain(f"the source's column {named[0]} is the name of a folder of its files")
    paths = []
    for uri in uris:
        path = local_path(uri) or _url(uri, opened_by)
        if path is None or not (path.startswith("/") or are_reached_alike(frame.sparkSession, (path, root))):
            return NotPlain(f"the source's files are elsewhere than the table's, at {urlsplit(uri).scheme or '?'}://")
        paths.append(path)
    files = []
    for found in opened_by.ahead(lambda path: _file(opened_by, path, types, keys), paths, paths):
        if isinstance(found, str):
            return NotPlain(found)
        files.append(found)
    return PlainParquet(
        files=tuple(file.files[0] for file in files),
        uris=tuple(uris),
        is_whole=all(file.is_whole for file in files)
        and not identified
        and not any(name.lower() in folders for name in frame.schema.names),
        groups=tuple(file.groups[0] for file in files),
        columns=tuple(types),
        bytes=sum(file.bytes for file in files),
        bytes_in_memory=sum(file.bytes_in_memory for file in files),
        ranges=tuple(_united([file.ranges[index] for file in files]) for index in range(len(keys))),
        key_bytes=sum(file.key_bytes for file in files),
    )


def _first_node(plan: str) -> str:
    lines = plan.removeprefix("== Physical Plan ==").split("\n")
    node = next((line.strip() for line in lines if line.strip()), "")
    return node if len(node) <= _SHOWN else f"{node[:_SHOWN]}…"


def local_path(uri: str) -> str | None:
    """Return the path of a file on this machine; None where it is elsewhere."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file") or parts.netloc:
        return None
    path = unquote(parts.path)
    return path if os.path.isfile(path) else None  # noqa: PTH113


def _url(uri: str, opened_by: Files) -> str | None:
    """Return the URL of a file in a store that is opened as the table's is."""
    scheme, colon, rest = uri.partition("://")
    url = f"{scheme}://{unquote(rest)}"
    return url if colon and store_kind(scheme) == opened_by.kind and opened_by.reaches(url) else None


def _file(opened_by: Files, path: str, types: Mapping[str, pa.DataType], keys: Sequence[str]) -> PlainParquet | str:
    found = _looked_at(opened_by, path, types, keys)
    return f"the source's file {path} {found}" if isinstance(found, str) else found


def _looked_at(
    opened_by: Files, path: str, types: Mapping[str, pa.DataType], keys: Sequence[str]
) -> PlainParquet | str:
    """Read a file's footer; a string is a reason against the file."""
    try:
        version = opened_by.version(path)
        with opened_by.parquet(path, memory_map=False) as opened:
            metadata = opened.metadata
        found = metadata.schema.to_arrow_schema()
    except (OSError, pa.ArrowException) as error:
        return f"cannot be read: {error}"
    if is_of_other_calendar(metadata):
        return "has dates or times of another calendar"
    if len({name.lower() for name in found.names}) < len(found):
        return "has two columns of one name"
    for name, kind in types.items():
        if name not in found.names or plain_type(found.field(name).type) != kind:
            return f"has no column {name} of type {kind}"
    leaves = _leaves(found)
    if sum(map(len, leaves.values())) != metadata.num_columns:
        return "has a column of a type that is not known"
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    old = set[int]()
    if SPARK_VERSION not in (metadata.metadata or {}):
        dated = [index for index in range(metadata.num_columns) if _is_temporal(metadata.schema.column(index))]
        old = {index for index in dated if not all(_is_modern(group.column(index)) for group in groups)}
    if ancient := [name for name in types if not old.isdisjoint(leaves[name])]:
        return f"may have dates or times in column {ancient[0]} that depend on a setting of the session"
    ranges = []
    for name in keys:
        (leaf,) = leaves[name]
        if has_wrong_bounds(metadata, leaf):
            return f"may have wrong statistics of the key {name}, as files of {metadata.created_by or 'its writer'}"
        bounds = [_bounds(group.column(leaf)) for group in groups]
        known = [bound for bound in bounds if bound is not None]
        if len(known) < len(bounds):
            return f"has no statistics of the key {name}"
        ranges.append(_united(known))
    sizes = {name: sum(g.column(i).total_uncompressed_size for g in groups for i in leaves[name]) for name in types}
    return PlainParquet(
        files=(StagedFile(path, metadata.num_rows, *version),),
        uris=(),
        is_whole=not old,
        groups=(tuple(group.num_rows for group in groups),),
        columns=tuple(types),
        bytes=sum(sizes.values()),
        bytes_in_memory=sum(
            _in_memory(group.column(index), kind)
            for group in groups
            for name in types
            for index, kind in leaves[name].items()
        ),
        ranges=tuple(ranges),
        key_bytes=sum(sizes[name] for name in keys),
    )


def _leaves(schema: pa.Schema) -> dict[str, dict[int, pa.DataType]]:
    """Return for each column the numbers of its leaves in the file, and their types."""
    numbers = count()
    return {field.name: {next(numbers): kind for _, kind in leaves_of(field)} for field in schema}


def _is_temporal(column: Any) -> bool:  # noqa: ANN401
    return bool(column.physical_type == "INT96" or column.logical_type.type in ("DATE", "TIMESTAMP"))


def _in_memory(column: Any, kind: pa.DataType) -> int:  # noqa: ANN401
    """Estimate the bytes of a column chunk's values once its dictionary is resolved."""
    try:
        width = -(-kind.bit_width // 8)
    except ValueError:
        low, high = _bounds(column) or ("", "")
        width = _OFFSET_BYTES + max(len(low or ""), len(high or ""))
    decoded: int = column.num_values * width
    return max(decoded, int(column.total_uncompressed_size))


def _is_modern(column: Any) -> bool:  # noqa: ANN401
    """Return whether no setting or option changes what Spark reads as a column's dates or times."""
    bounds = _bounds(column)
    if bounds is None:
        return False
    low = bounds[0]
    if isinstance(low, datetime):
        return low.replace(tzinfo=low.tzinfo or timezone.utc) >= _FIRST_TIME
    return low is None or (isinstance(low, date) and low >= _FIRST_DAY)


def _bounds(column: Any) -> tuple[Any, Any] | None:  # noqa: ANN401
    """Return a column chunk's range, of Nones where all is NULL; None where the footer has none."""
    statistics = column.statistics
    if statistics is None:
        return None
    if statistics.has_min_max:
        try:
            low, high = statistics.min, statistics.max
        except (OverflowError, UnicodeDecodeError):
            # A day that Python's calendar lacks, or a string that is not UTF-8.
            return None
        return None if in_order(high) < in_order(low) else (low, high)
    all_null = statistics.has_null_count and statistics.null_count == column.num_values
    return (None, None) if all_null else None


def _united(bounds: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    lows, highs = ([pair[at] for pair in bounds if pair[at] is not None] for at in (0, 1))
    return (min(lows, key=in_order), max(highs, key=in_order)) if lows else (None, None)
