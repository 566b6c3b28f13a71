"""The change data feed as a DataFrame."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from deltamerge.log.change_feed import COMMIT_TIMESTAMP, COMMIT_VERSION, ChangedFile
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.target import ScanColumns, target_frame, with_values_by_file
from deltamerge.spark import columns as F
from deltamerge.spark.field_metadata import frame_metadata
from deltamerge.spark.held_settings import for_reading, session_settings
from deltamerge.spark.nested_types import nullable_field
from deltamerge.spark.session import empty_frame, is_connect
from deltamerge.spark.table import Table, spark_schema
from deltamerge.sql.names import free_prefix, quote
from deltamerge.workers.change_files import CHANGE_TYPE

MERGE_ACTION = "merge_action"
CHANGE_COLUMNS = (
    StructField(CHANGE_TYPE, StringType()),
    StructField(COMMIT_VERSION, LongType()),
    StructField(COMMIT_TIMESTAMP, TimestampType()),
)
"""What the change data feed has besides a table's columns."""


def changes_frame(
    table: Table, snapshot: Snapshot, files: Sequence[ChangedFile], required: Collection[str] = ()
) -> DataFrame:
    """Return changes: the columns of `snapshot`, then the change's type, version and timestamp.

    Args:
        required: The columns in which no row of the files has NULL; they are not nullable in a classic session.
    """
    fields = spark_schema(snapshot).fields
    required = () if is_connect(table.spark) else required
    schema = StructType([StructField(f.name, f.dataType, f.name not in required, f.metadata) for f in fields])
    # Files of a kind are read in one scan, unless a path occurs with several states of its file.
    groups: dict[tuple[str | None, int], list[ChangedFile]] = {}
    seen: dict[tuple[str | None, str], int] = {}
    for changed in files:
        key = (changed.change_type, changed.file.path)
        seen[key] = seen.get(key, -1) + 1
        groups.setdefault((changed.change_type, seen[key]), []).append(changed)
    if not groups:
        of_frames = (nullable_field(f, frame_metadata) for f in fields)
        known = [StructField(f.name, f.dataType, f.name not in required, f.metadata) for f in of_frames]
        return empty_frame(table.spark, StructType([*known, *CHANGE_COLUMNS]))
    with session_settings(table.spark, for_reading(table.spark)):
        frames = [_rows_of(table, snapshot, schema, group) for group in groups.values()]
        return reduce(lambda left, right: left.union(right), frames)


def changed_rows_frame(table: Table, snapshot: Snapshot, files: Sequence[ChangedFile]) -> DataFrame:
    """Return one row for each changed row: `MERGE_ACTION`, then its new values, of a deleted row the old ones."""
    changes = changes_frame(table, snapshot, files)
    kind = F.col(CHANGE_TYPE)
    action = F.when(kind == "insert", "INSERT").when(kind == "delete", "DELETE").otherwise("UPDATE")
    columns = (F.col(quote(name)) for name in spark_schema(snapshot).names)
    return changes.where(kind != "update_preimage").select(action.alias(MERGE_ACTION), *columns)


def _rows_of(table: Table, snapshot: Snapshot, schema: StructType, files: Sequence[ChangedFile]) -> DataFrame:
    """Read files that all have the same change type, or that all store it with each row."""
    change_type = files[0].change_type
    stored = schema if change_type else StructType([*schema.fields, StructField(CHANGE_TYPE, StringType())])
    prefix = free_prefix(stored.names)
    file, version, time = (prefix + name for name in ("file", "version", "time"))
    extra = ScanColumns(file, prefix + "row")
    rows = target_frame(table, snapshot, stored, [changed.file for changed in files], extra, as_declared=True)
    commits = ((changed.file, (changed.version, changed.timestamp_ms * 1000)) for changed in files)
    joined = with_values_by_file(table, rows, file, commits, {version: pa.int64(), time: pa.int64()})
    # A literal alone is not nullable, as the column is in change files and in delta-spark; Spark makes one of this.
    kind = F.col(CHANGE_TYPE)
    if change_type:
        kind = F.when(F.lit(change_type) != F.lit(""), F.lit(change_type))
    return joined.select(
        *(F.col(quote(name)) for name in schema.names),
        kind.alias(CHANGE_TYPE),
        F.col(version).alias(COMMIT_VERSION),
        F.timestamp_micros(F.col(time)).alias(COMMIT_TIMESTAMP),
    )
