"""A whole version of a table as a DataFrame."""

from __future__ import annotations

from pyspark.sql import DataFrame

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.file_table import FileTable
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.newest_reads import NewestRead, tagged
from deltamerge.scan.target import ScanColumns, target_frame
from deltamerge.spark import columns as F
from deltamerge.spark.held_settings import for_reading, session_settings
from deltamerge.spark.table import Table, spark_schema
from deltamerge.sql.names import quote


def table_frame(
    table: Table, snapshot: Snapshot, files: FileTable | None = None, *, is_newest: bool = False
) -> DataFrame:
    """Return a version of a table; the frame stays at this version.

    Args:
        is_newest: Whether it was read as the table's newest version, so that what it may replace is of that version.
    """
    schema = spark_schema(snapshot)
    if not schema.fields:
        raise DeltaAnalysisException(
            "DELTA_READ_TABLE_WITHOUT_COLUMNS",
            f"You are trying to read a Delta table {table.name} that does not have any columns. Merge into it with "
            "schema evolution, or write it anew with some.",
            parameters={"tableName": table.name},
        )
    with session_settings(table.spark, for_reading(table.spark)):
        extra = ScanColumns.beside(schema.names)
        read = snapshot.files if files is None else files
        newest = NewestRead.of(table, snapshot) if is_newest else None
        marks = {} if newest is None else newest.mark
        frame = target_frame(table, snapshot, schema, read.add_files(), extra, as_declared=True, marks=marks)
    rows = frame.select(*(F.col(quote(name)) for name in schema.names))
    return rows if newest is None else tagged(rows, newest)


def newest_frame(table: Table, snapshot: Snapshot) -> DataFrame:
    """Return what is a table's newest version as a frame that tells so; see `read_again`."""
    return table_frame(table, snapshot, is_newest=True)
