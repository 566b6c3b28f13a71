"""Rows that take the place of others, and were read from the table before these were changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from pyspark.sql import DataFrame

from deltamerge.exceptions import ConcurrentAppendException
from deltamerge.log.actions import AddFile, RemoveFile
from deltamerge.log.commits import read_commit
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.table_reads import version_read
from deltamerge.spark.table import Table

PartitionValues: TypeAlias = "frozenset[tuple[str, str | None]]"


def partitions_of(files: Iterable[AddFile]) -> set[PartitionValues]:
    return {_key(file.partition_values) for file in files}


def refuse_stale_rows(
    table: Table, newest: Snapshot, frame: DataFrame, partitions: Collection[PartitionValues] | None = None
) -> None:
    """Refuse a frame that has read a version of the table since which rows in the same place were changed.

    delta-spark reads the table anew when the frame is written; a frame here keeps the version that it was made from.

    Args:
        newest: The version whose rows are replaced; what is committed later is a conflict.
        partitions: Those in which rows are replaced or written; None for all.

    Raises:
        ConcurrentAppendException: The changes would be lost.
    """
    read = version_read(frame, table)
    if read is None:
        return
    for version in range(read + 1, newest.version + 1):
        for action in read_commit(table.store, version).actions:
            if not isinstance(action, (AddFile, RemoveFile)) or not action.data_change:
                continue
            values = action.partition_values
            if partitions is None or values is None or _key(values) in partitions:
                raise ConcurrentAppendException(
                    "DELTA_CONCURRENT_APPEND",
                    f"The rows that are to replace others were read from version {read} of table {table.name}, and "
                    f"version {version} has changed rows in their place since: they would be lost. Read the table "
                    "again, and write what that returns. Nothing was committed.",
                    parameters={"tableName": table.name, "version": str(version)},
                )


def _key(values: Mapping[str, str | None]) -> PartitionValues:
    return frozenset(values.items())
