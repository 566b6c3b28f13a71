"""replaceWhere on any column: the rows that match are deleted by the merge's operators, new ones take their place."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from deltamerge.commands.auto_compact import merge_and_compact
from deltamerge.commands.delete_update import delete_statement
from deltamerge.log.properties import is_enabled
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.analysis_errors import own_error
from deltamerge.merge.command import MergeIntoCommand, only_warning
from deltamerge.merge.executors.merge_changes import AppendedRows
from deltamerge.merge.statement import to_column
from deltamerge.scan.read_again import read_again
from deltamerge.spark.session import empty_frame, merge_conf
from deltamerge.spark.table import Table, spark_schema
from deltamerge.sql.merge_ast import Expression
from deltamerge.write.constraints import columns_in
from deltamerge.write.data_files import change_folder, removing_leftovers
from deltamerge.write.frame_rows import write_fitted
from deltamerge.write.layout import data_folder
from deltamerge.write.overwrite_kind import illegal_option
from deltamerge.write.stale_rows import refuse_stale_rows
from deltamerge.write.table_commits import changed_metadata
from deltamerge.write.table_writer import FrameWrite, written_definition


def replaces_rows(snapshot: Snapshot, condition: Expression) -> bool:
    """Return whether a condition asks for more than whole partitions."""
    if condition.column is not None:
        return True
    partitions = snapshot.metadata.partition_columns
    return any(path[0] not in partitions for path in columns_in(condition.text, spark_schema(snapshot)).values())


def replace_rows(table: Table, frame: DataFrame, asked: FrameWrite) -> int | None:
    """Delete the rows for which a condition is TRUE and append a frame's rows, for which it must be, in one commit.

    Delta: WriteIntoDelta with replaceWhere on data columns.

    Returns:
        The version that was made, or that was read where nothing was to be replaced and written; None where the table
        has the transaction already.
    """
    snapshot, condition, notes = table.snapshot(), asked.condition, asked.notes
    assert condition is not None
    if not asked.data_change:
        raise illegal_option("dataChange", "false", "which goes with replaceWhere only on partition columns")
    if notes.transaction is not None and notes.transaction.is_in(snapshot):
        return None
    frame = read_again(frame, table, snapshot)
    refuse_stale_rows(table, snapshot, frame)
    definition = written_definition(snapshot, table.name, asked, frame.schema, merge_conf(table.spark))
    folder = data_folder(definition.properties)
    has_feed = is_enabled(snapshot.metadata.configuration, "delta.enableChangeDataFeed")
    with removing_leftovers(table.store, folder) as landed:
        written, schema = write_fitted(
            table, frame, definition, folder, asked.file_options, all_match=condition, with_changes=has_feed
        )
        parameters = asked.history_entry(asked.partition_columns or ()).parameters
        metadata = changed_metadata(snapshot, definition.properties, schema)
        outcome = merge_and_compact(
            MergeIntoCommand(
                table,
                delete_statement(table, (), condition),
                transaction=notes.transaction,
                user_metadata=notes.user_metadata,
                snapshot=snapshot,
                appended=AppendedRows(written, metadata[0] if metadata else None, parameters, landed),
            )
        )
    if written.change_files and not outcome.metrics.get("numTargetChangeFilesAdded"):
        # Where no row was deleted from within a file, the new files themselves say what was inserted.
        with only_warning("the change data of version %s cannot be deleted; VACUUM does it later", outcome.version):
            table.store.delete_folder(change_folder(folder))
    return snapshot.version if outcome.version is None else outcome.version


def check_condition(condition: Expression, table: Table, snapshot: Snapshot) -> None:
    """Refuse a condition over columns that the table lacks, before anything is written."""
    try:
        # Over Connect it is analyzed when the schema is asked for.
        _ = empty_frame(table.spark, spark_schema(snapshot)).where(to_column(condition)).schema
    except AnalysisException as error:
        raise own_error(error, f"replaceWhere = {condition.text}") from None
