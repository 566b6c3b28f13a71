"""Overwrites of some partitions: those for which a condition holds, or those that get rows."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.actions import AddFile
from deltamerge.log.file_table import FileTable
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.partition_rows import files_where
from deltamerge.spark import columns as F
from deltamerge.spark.session import errors_not_logged
from deltamerge.spark.table import Table
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.data_files import WrittenFiles, removing_leftovers
from deltamerge.write.frame_rows import write_fitted
from deltamerge.write.layout import data_folder
from deltamerge.write.table_commits import WrittenRows, commit_rows, rows_definition
from deltamerge.write.table_writer import destination_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


def overwrite_partitions(table: Table, frame: DataFrame, condition: str | None) -> int:
    """Replace the rows of some of a table's partitions by a frame's; return the new version.

    Args:
        condition: SQL over partition columns, which must hold for the new rows, too; None for the partitions that get
            rows. Delta: replaceWhere, partitionOverwriteMode = dynamic.

    Raises:
        DeltaAnalysisException: The condition names other columns, a row is not in these partitions, or the rows do
            not fit the table.
        InvariantViolationException: A row violates a constraint.
    """
    snapshot = table.snapshot()
    snapshot.check_writable()
    refuse_append_only(snapshot, table.name, "the overwrite deletes rows")
    # An impossible condition is refused before anything is written.
    removed = None if condition is None else _files_where(table, snapshot, snapshot.files.add_files(), condition)
    definition = rows_definition(snapshot, None)
    folder = data_folder(definition.properties, str(uuid.uuid4()))
    with removing_leftovers(table.store, folder):
        written, schema = write_fitted(table, frame, definition, folder)
        if condition is None or removed is None:
            replaced = files_of_same_partitions(snapshot, written)
        else:
            _check_written(table, snapshot, written, condition)
            paths = {file.path for file in removed}
            replaced = _filtered(snapshot, [file.path in paths for file in snapshot.files.add_files()])
        rows = WrittenRows(replace(definition, schema=schema), snapshot.protocol, written, replaced, condition)
        return commit_rows(destination_of(table), snapshot, rows)


def files_of_same_partitions(snapshot: Snapshot, files: WrittenFiles) -> FileTable:
    """Return a table's files of the partitions that got files."""
    written = {tuple(sorted(file.partition_values.items(), key=str)) for file in files.files}
    before = (tuple(sorted(file.partition_values.items(), key=str)) for file in snapshot.files.add_files())
    return _filtered(snapshot, [values in written for values in before])


def _filtered(snapshot: Snapshot, mask: Sequence[bool]) -> FileTable:
    return snapshot.files.filter(np.array(mask, np.bool_))


def _check_written(table: Table, snapshot: Snapshot, written: WrittenFiles, condition: str) -> None:
    fitting = _files_where(table, snapshot, written.files, condition)
    if len(fitting) < len(written.files):
        raise DeltaAnalysisException(
            "DELTA_REPLACE_WHERE_MISMATCH",
            f"Written data does not conform to partial table overwrite condition or constraint '{condition}'. Leave "
            "out the rows of other partitions. Nothing was written.",
            sqlstate="44000",
            parameters={"replaceWhere": condition},
        )


def _files_where(table: Table, snapshot: Snapshot, files: Sequence[AddFile], condition: str) -> tuple[AddFile, ...]:
    columns = snapshot.metadata.partition_columns
    schema = StructType([field for field in rows_definition(snapshot, None).schema.fields if field.name in columns])
    with errors_not_logged():
        try:
            return files_where(table, snapshot, files, schema, F.expr(condition))
        except AnalysisException as error:
            if not (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
                raise
            raise DeltaAnalysisException(
                "DELTA_NON_PARTITION_COLUMN_REFERENCE",
                f"The rows to overwrite, those with {condition}, are not whole partitions; the partition columns are "
                f"[{', '.join(columns)}]. Delete the rows first, then insert the others.",
                sqlstate="42P10",
                parameters={"columnList": ", ".join(columns)},
            ) from error
