"""Files of the target as an executor reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from deltamerge.log.actions import AddFile
from deltamerge.log.column_mapping import mapping_mode
from deltamerge.merge.execution import Execution
from deltamerge.merge.scopes import Rows, target_rows
from deltamerge.scan.row_tracking import tracked_frame
from deltamerge.scan.target import ScanColumns, target_frame
from deltamerge.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def target_side(execution: Execution, files: tuple[AddFile, ...]) -> Rows:
    """Makes the target's side of a join from some files."""
    merge, names = execution.merge, execution.names
    return target_rows(scan_files(execution, files), merge.target_schema, merge.target_alias, names)


def scan_files(execution: Execution, files: tuple[AddFile, ...]) -> DataFrame:
    """Reads some files of the target, with each row's file and position."""
    return target_frame(*_scan_of(execution, files))


def scan_to_rewrite(execution: Execution, files: tuple[AddFile, ...]) -> DataFrame:
    """Reads files whose rows are written again: with row tracking each row's id and version come last."""
    if execution.row_tracking is None:
        return scan_files(execution, files)
    return tracked_frame(*_scan_of(execution, files), execution.row_tracking)


def _scan_of(
    execution: Execution, files: tuple[AddFile, ...]
) -> tuple[Table, StructType, tuple[str, ...], tuple[AddFile, ...], ScanColumns, str]:
    """Says what `target_frame` and `tracked_frame` are to read."""
    metadata, names = execution.snapshot.metadata, execution.names
    return (
        execution.table,
        execution.merge.target_schema,
        metadata.partition_columns,
        files,
        ScanColumns(names.file_name, names.row_index),
        mapping_mode(metadata.configuration),
    )
