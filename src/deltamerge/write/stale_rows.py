"""Rows that were read from a version of the table that they are written to, and others have changed it since."""

from __future__ import annotations

from pyspark.sql import DataFrame

from deltamerge.exceptions import ConcurrentAppendException
from deltamerge.log.actions import AddFile, Metadata, RemoveFile
from deltamerge.log.commits import read_commit
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.table_reads import versions_read
from deltamerge.spark.table import Table
from deltamerge.write.table_commits import FilesAmong


class StaleRows(ConcurrentAppendException):
    """A frame keeps rows of an older version: to run again with it changes nothing."""


def refuse_stale_rows(table: Table, newest: Snapshot, frame: DataFrame, among: FilesAmong | None = None) -> None:
    """Refuse a frame that has read a version of the table since which rows in the same place were changed.

    delta-spark reads the table anew when the frame is used; here `read_again` does, where it can.

    Args:
        newest: The version that is merged into or written to; what is committed later is a conflict.
        among: Returns which of some files are of the partitions whose rows are replaced; None for all.

    Raises:
        StaleRows: The changes would be lost, or done twice.
    """
    read = min(versions_read(frame, table, newest), default=newest.version)
    for version in range(read + 1, newest.version + 1):
        if _changes_rows(table, version, newest, among):
            raise StaleRows(
                "DELTA_CONCURRENT_APPEND",
                f"The rows to merge or write were read from version {read} of table {table.name} itself, and version "
                f"{version} has changed rows of the table since, which they do not take into account. Read the table "
                "again in the loop, batch or retry that uses its rows: this frame keeps the version at which it was "
                "made. Nothing was committed.",
                parameters={"tableName": table.name, "version": str(version)},
            )


def _changes_rows(table: Table, version: int, newest: Snapshot, among: FilesAmong | None) -> bool:
    try:
        actions = read_commit(table.store, version).actions
    except FileNotFoundError:
        # It has been cleaned up, and nothing else says what it changed.
        return True
    files = [action for action in actions if isinstance(action, (AddFile, RemoveFile)) and action.data_change]
    if among is None or not files:
        return bool(files)
    partition_columns = newest.metadata.partition_columns
    if any(isinstance(action, Metadata) and action.partition_columns != partition_columns for action in actions):
        return True
    known = [AddFile(f.path, f.partition_values, 0, 0) for f in files if f.partition_values is not None]
    return len(known) < len(files) or bool(among(known))
