"""write_delta: a DataFrame into a Delta table without a merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from deltamerge.commands.auto_compact import auto_compaction
from deltamerge.commands.replace_where import check_condition, replace_rows, replaces_rows
from deltamerge.log.snapshot import table_exists
from deltamerge.spark.session import merge_conf, reset_transaction
from deltamerge.spark.table import Table, open_table
from deltamerge.storage.credentials import StoreOptions
from deltamerge.txn.application import option_transaction, session_transaction
from deltamerge.write.table_writer import CommitNotes, FrameWrite, write_table

_MODES = ("append", "overwrite", "error")


def write_delta(
    df: DataFrame,
    path: str,
    mode: str = "error",
    partition_by: str | Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    *,
    overwrite_schema: bool = False,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    options: StoreOptions | None = None,
) -> int | None:
    """Write a DataFrame's rows to a new or existing Delta table.

    Args:
        df: The rows.
        path: A local path or a URL.
        mode: ``append`` adds to a table (and creates it if there is none), ``overwrite`` replaces its rows,
            ``error`` only creates a new one.
        partition_by: The partition columns of a new table, or of one whose schema is replaced.
        properties: The properties of a new or overwritten table, such as ``delta.enableChangeDataFeed``.
        overwrite_schema: Whether an overwrite replaces the columns and the partitioning too: without `partition_by`
            the table has no partitions afterwards. Otherwise it keeps both, with all that belongs to its columns:
            generation expressions, identities, defaults, comments.
        txn_app_id: The application that writes; together with `txn_version` the rows are written only once,
            however often the application retries. By default the session's ``spark.databricks.delta.write.txnAppId``.
        txn_version: The application's number for this write, greater than those of its earlier writes. By default the
            session's ``spark.databricks.delta.write.txnVersion``.
        options: The options of the object store, as for `DeltaTable.forPath`; they are for the log, and Spark writes
            the rows with the session's settings.

    Returns:
        The version that was written, or the table's where there were no rows to append; None if the table has this
        transaction, or a later one of the application, already, so that nothing was done.

    Raises:
        ValueError: The mode is not one of these, or not ``overwrite`` although the schema is to be replaced.
        DeltaIllegalArgumentException: Only one of `txn_app_id` and `txn_version` is given, or the session has only one.
        DeltaAnalysisException: The rows do not fit the table.
        InvariantViolationException: A row violates a constraint.
    """
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, it is '{mode}'")
    if overwrite_schema and mode != "overwrite":
        raise ValueError(f"overwrite_schema goes with mode='overwrite', the mode is '{mode}'")
    columns = (partition_by,) if isinstance(partition_by, str) else partition_by
    asked = FrameWrite(
        "overwrite_schema" if overwrite_schema else mode,
        partition_columns=None if columns is None else tuple(columns),
        properties=properties or {},
        set_properties=properties or {},
        merges_schema=merge_conf(df.sparkSession).schema_auto_merge,
        notes=CommitNotes(option_transaction(txn_app_id, txn_version)),
    )
    return write_frame(open_table(df.sparkSession, path, options), df, asked)


def write_frame(table: Table, frame: DataFrame, asked: FrameWrite) -> int | None:
    """Write a frame, as the session's transaction where the write names none; return the version as `write_delta`."""
    if asked.notes.transaction is not None:
        return _write(table, frame, asked)
    conf = merge_conf(table.spark)
    notes = replace(asked.notes, transaction=session_transaction(conf))
    version = _write(table, frame, replace(asked, notes=notes))
    reset_transaction(table.spark, conf)
    return version


def _write(table: Table, frame: DataFrame, asked: FrameWrite) -> int | None:
    condition = asked.condition
    if condition is not None and table_exists(table.store):
        snapshot = table.snapshot()
        check_condition(condition, table, snapshot)
        if replaces_rows(snapshot, condition):
            return replace_rows(table, frame, asked)
    return write_table(table, frame, asked, on_commit=auto_compaction(table))
