"""Rows on their way into files: named as the table's columns, checked, and put together where they are few."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame

from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.output.frames import Rows
from deltamerge.spark import columns as F
from deltamerge.write.constraints import checked
from deltamerge.write.data_files import WrittenFiles, write_files, write_files_with_changes


def table_columns(rows: Rows, execution: Execution, hidden: tuple[str, ...] = ()) -> DataFrame:
    """Select the output columns under the table's names, and hidden ones."""
    schema, names = execution.merge.output_schema, execution.merge.names
    return rows.frame.select(
        *(F.col(names.output(i)).alias(f.name) for i, f in enumerate(schema.fields)),
        *(F.col(f"`{name}`") for name in hidden),
    )


def guarded_rows(execution: Execution, frame: DataFrame) -> DataFrame:
    """Make rows of the table ready to be written: put together by partition, constraints checked."""
    return _checked(execution, repartition_if_needed(execution, frame))


def guarded_changes(execution: Execution, frame: DataFrame) -> DataFrame:
    """Make rows of the table and of its change data ready to be written; see `guarded_rows`."""
    is_table_row = F.col(execution.merge.names.change_type).isNull()
    return _checked(execution, repartition_if_needed(execution, frame), is_table_row)


def _checked(execution: Execution, frame: DataFrame, is_table_row: Column | None = None) -> DataFrame:
    target = execution.write_target
    paths = [key.target.path for key in execution.context.references.on.equi_keys]
    return checked(
        frame,
        target.schema,
        target.configuration,
        target.partition_columns,
        is_table_row,
        key=tuple(dict.fromkeys(path[0] for path in paths if len(path) == 1)),
    )


def repartition_if_needed(execution: Execution, frame: DataFrame) -> DataFrame:
    """Bring the rows of a partition together, where the session wants that."""
    columns = execution.snapshot.metadata.partition_columns
    if not columns or not execution.conf.repartition_before_write:
        return frame
    return frame.repartition(*("`" + name.replace("`", "``") + "`" for name in columns))


def put_together(execution: Execution, frame: DataFrame, tasks: int, rows: int) -> DataFrame:
    """Let Spark put rows together that would come from many tasks, each of which would write a small file."""
    limits = execution.limits
    many = tasks > limits.tasks_without_rebalance and rows < tasks * limits.rows_of_a_task
    return frame.hint("rebalance") if many else frame


def write_table_rows(execution: Execution, frame: DataFrame, hidden: tuple[str, ...] = ()) -> WrittenFiles:
    target = replace(execution.write_target, hidden_columns=hidden)
    return write_files(guarded_rows(execution, frame), target)


def write_with_changes(execution: Execution, frame: DataFrame, hidden: tuple[str, ...] = ()) -> WrittenFiles:
    """Write rows of the table and of its change data."""
    target = replace(execution.write_target, hidden_columns=hidden)
    guarded = guarded_changes(execution, frame)
    return write_files_with_changes(guarded, execution.merge.names.change_type, target)
