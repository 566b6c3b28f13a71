"""Overwrites of some partitions: those for which a condition holds, or those that get rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
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
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE, find_column
from deltamerge.skipping.keys import Key
from deltamerge.skipping.partition_values import partition_parser
from deltamerge.spark import columns as F
from deltamerge.spark.session import errors_not_logged, merge_conf
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
            replaced = files_of_same_partitions(snapshot, written, merge_conf(table.spark).session_time_zone)
        else:
            _check_written(table, snapshot, written, condition)
            paths = {file.path for file in removed}
            replaced = _filtered(snapshot, [file.path in paths for file in snapshot.files.add_files()])
        rows = WrittenRows(
            replace(definition, schema=schema), snapshot.protocol, written, replaced, condition, condition is None
        )
        return commit_rows(destination_of(table), snapshot, rows)


def files_of_same_partitions(snapshot: Snapshot, files: WrittenFiles, session_time_zone: str) -> FileTable:
    """Return a table's files of the partitions that got files; writers may spell one value in several ways.

    Raises:
        DeltaAnalysisException: A partition value of the table is none of its column's type.
    """
    before = snapshot.files.add_files()
    if not files.files:
        return _filtered(snapshot, [False] * len(before))
    readers = [_reader(snapshot, name, session_time_zone) for name in snapshot.metadata.partition_columns]

    def partition(file: AddFile) -> tuple[Key | None, ...]:
        return tuple(read(file.partition_values) for read in readers)

    written = set(map(partition, files.files))
    return _filtered(snapshot, [partition(file) in written for file in before])


def _reader(snapshot: Snapshot, name: str, session_time_zone: str) -> Callable[[Mapping[str, str | None]], Key | None]:
    """Return what reads one column's value of a file's partition values, as a key."""
    column = find_column(snapshot.schema, (name,), frozenset({name}))
    assert column is not None
    physical = column.physical_path[0]
    ddl = next(field for field in snapshot.schema.fields if field.name == name).metadata.get(CHAR_VARCHAR_TYPE)
    is_char = isinstance(ddl, str) and ddl.lower().startswith("char")
    parse = partition_parser(column.type, session_time_zone)

    def read(values: Mapping[str, str | None]) -> Key | None:
        string = values.get(physical)
        if string is None or string == "":
            return None
        key = (string.rstrip(" ") if is_char else string) if parse is None else parse(string)
        if key is None:
            raise DeltaAnalysisException(
                "DELTAMERGE_PARTITION_VALUE_NOT_READ",
                f"The partition value '{string}' of column {name} cannot be compared with those that are written: it "
                f"cannot surely be read as the column's type in the session's time zone {session_time_zone}. Nothing "
                "was written. Say with replaceWhere which rows are replaced.",
                sqlstate="22018",
                parameters={"column": name, "value": string},
            )
        return key

    return read


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
