"""Overwrites of some partitions: those for which a condition holds, or those that get rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.actions import AddFile
from deltamerge.log.features.column_mapping import physical_name
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.partition_rows import files_where
from deltamerge.skipping.keys import Key
from deltamerge.skipping.partition_keys import partition_of
from deltamerge.skipping.partition_values import partition_strings
from deltamerge.spark import columns as F
from deltamerge.spark.session import errors_not_logged, merge_conf
from deltamerge.spark.table import Table
from deltamerge.write.data_files import WrittenFiles
from deltamerge.write.table_commits import FilesAmong, Replaced, rows_definition


def replaced_files(
    table: Table, snapshot: Snapshot, kind: str, condition: str | None, *, keeps_null: bool
) -> Callable[[WrittenFiles], Replaced | None]:
    """Return what finds the files whose place new ones take; it returns None for an append.

    Args:
        keeps_null: As `of_same_partitions` has it.
        condition: For ``replace_where``: SQL over partition columns, which must hold for the new rows, too.

    Raises:
        AnalysisException: The condition names no columns of the table. What is returned raises a
            DeltaAnalysisException where a row is not in the partitions that it names.
    """
    if kind == "append":
        return lambda _: None
    if kind == "dynamic" and snapshot.metadata.partition_columns:
        zone = merge_conf(table.spark).session_time_zone
        return lambda written: replaced_among(
            snapshot, of_same_partitions(snapshot, written, zone, keeps_null=keeps_null)
        )
    if condition is None:
        return lambda _: Replaced(snapshot.files)
    among = partial(_files_where, table, snapshot, condition)
    replaced = replaced_among(snapshot, among)

    def after(written: WrittenFiles) -> Replaced:
        _check_written(among(written.files), written, condition)
        return replaced

    return after


def replaced_among(snapshot: Snapshot, among: FilesAmong) -> Replaced:
    firsts, places = _partitions(snapshot)
    # One file of each partition stands for all of them: a large table has few partitions among many files.
    files = snapshot.files.take(firsts).add_files()
    fitting = {file.path for file in among(files)}
    fits = np.array([file.path in fitting for file in files], np.bool_)
    return Replaced(snapshot.files.filter(fits[places]), among)


def _partitions(snapshot: Snapshot) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first file of each partition, as the log spells its values, and for each file which of them it is."""
    values = snapshot.files.arrow.column("partition_values").combine_chunks()
    places = np.zeros(len(values), np.int64)
    for name in snapshot.metadata.partition_columns:
        field = snapshot.schema.find(name)
        strings, _ = partition_strings(values, name if field is None else physical_name(field))
        encoded = strings.dictionary_encode()
        nulls = len(encoded.dictionary)
        codes = pc.fill_null(encoded.indices, nulls).to_numpy(zero_copy_only=False)
        # Numbered anew for each column, so that the product stays small.
        _, places = np.unique(places * (nulls + 1) + codes, return_inverse=True)
    _, firsts, places = np.unique(places, return_index=True, return_inverse=True)
    return firsts, places


def of_same_partitions(
    snapshot: Snapshot, written: WrittenFiles, session_time_zone: str, *, keeps_null: bool = False
) -> FilesAmong:
    """Return what finds the files of the partitions that got files; writers may spell one value in several ways.

    Args:
        keeps_null: Whether partitions with a NULL among their values are none of these.
    """

    def unread(name: str, string: str) -> Key:
        raise DeltaAnalysisException(
            "DELTAMERGE_PARTITION_VALUE_NOT_READ",
            f"The partition value '{string}' of column {name} cannot be compared with those that are written: it "
            f"cannot surely be read as the column's type in the session's time zone {session_time_zone}. Nothing "
            "was written. Say with replaceWhere which rows are replaced.",
            parameters={"column": name, "value": string},
        )

    partition = partition_of(snapshot, session_time_zone, unread)
    partitions = {key for key in map(partition, written.files) if not (keeps_null and None in key)}
    return lambda files: [file for file in files if partition(file) in partitions] if partitions else []


def _check_written(fitting: Sequence[AddFile], written: WrittenFiles, condition: str) -> None:
    if len(fitting) < len(written.files):
        raise DeltaAnalysisException(
            "DELTA_REPLACE_WHERE_MISMATCH",
            f"Written data does not conform to partial table overwrite condition or constraint '{condition}'. Leave "
            "out the rows of other partitions. Nothing was written.",
            parameters={"replaceWhere": condition},
        )


def _files_where(table: Table, snapshot: Snapshot, condition: str, files: Sequence[AddFile]) -> tuple[AddFile, ...]:
    columns = snapshot.metadata.partition_columns
    schema = StructType([field for field in rows_definition(snapshot, None).schema.fields if field.name in columns])
    with errors_not_logged():
        return files_where(table, snapshot, files, schema, F.expr(condition))
