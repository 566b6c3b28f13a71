"""Rows with their row ids and the versions that last changed them (Protocol: Row Tracking)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.actions import AddFile
from deltamerge.log.features.row_tracking import ENABLED, materialized_columns
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.newest_reads import NewestRead
from deltamerge.scan.target import NO_MARKS, ScanColumns, target_frame, with_values_by_file
from deltamerge.spark import columns as F
from deltamerge.spark.held_settings import for_reading, session_settings
from deltamerge.spark.table import Table, spark_schema
from deltamerge.sql.names import quote
from deltamerge.workers.row_tracking import HiddenColumns

METADATA = "_metadata"


def tracked_frame(
    table: Table,
    snapshot: Snapshot,
    schema: StructType,
    files: Sequence[AddFile],
    extra: ScanColumns,
    stored: HiddenColumns,
    *,
    marks: Mapping[str, str] = NO_MARKS,
) -> DataFrame:
    """Read files of a table that has row tracking enabled.

    Returns:
        The columns of `target_frame`, then the row's id and the version that last changed it, under the names of the
        hidden columns.
    """
    hidden = [StructField(name, LongType()) for name in stored.names]
    wide = StructType([*schema.fields, *hidden])
    frame = target_frame(table, snapshot, wide, files, extra, marks=marks)
    base, version = extra.file_name + "_base", extra.file_name + "_version"
    by_file = ((file, (file.base_row_id, file.default_row_commit_version)) for file in files)
    types = {base: pa.int64(), version: pa.int64()}
    joined = with_values_by_file(table, frame, extra.file_name, by_file, types)
    own = (*schema.names, extra.file_name, extra.row_index)
    return joined.select(
        *(F.col(quote(name)) for name in own),
        F.coalesce(F.col(f"`{stored.row_id}`"), F.col(base) + F.col(extra.row_index)).alias(stored.row_id),
        F.coalesce(F.col(f"`{stored.row_commit_version}`"), F.col(version)).alias(stored.row_commit_version),
    )


def rows_with_metadata(table: Table, snapshot: Snapshot) -> DataFrame:
    """Return the newest version's columns and a struct ``_metadata`` of ``row_id`` and ``row_commit_version``."""
    stored = materialized_columns(snapshot.metadata)
    if stored is None:
        raise DeltaAnalysisException(
            "DELTA_CHANGELOG_REQUIRES_ROW_TRACKING",
            f"Row ids of table {table.name} can be read only where it has row tracking: set the property {ENABLED} "
            "when the table is made.",
            parameters={"tableName": table.name},
        )
    schema = spark_schema(snapshot)
    with session_settings(table.spark, for_reading(table.spark)):
        extra = ScanColumns.beside((*schema.names, *stored.names))
        marks = replace(NewestRead.of(table, snapshot), columns="").mark
        frame = tracked_frame(table, snapshot, schema, snapshot.files.add_files(), extra, stored, marks=marks)
    return frame.select(
        *(F.col(quote(name)) for name in schema.names),
        F.struct(
            F.col(f"`{stored.row_id}`").alias("row_id"),
            F.col(f"`{stored.row_commit_version}`").alias("row_commit_version"),
        ).alias(METADATA),
    )
