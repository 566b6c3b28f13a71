"""Rows on their way into files: named as the table's columns, checked, and put together where they are few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.output.frames import Rows
from deltamerge.write.constraints import checked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FEW_TASKS = 8
_ROWS_IN_A_FILE = 200_000


def table_columns(rows: Rows, execution: Execution, hidden: tuple[str, ...] = ()) -> DataFrame:
    """Gives output columns the table's names; the hidden ones keep theirs."""
    schema, names = execution.merge.output_schema, execution.names
    return rows.frame.select(
        *(F.col(names.output(i)).alias(f.name) for i, f in enumerate(schema.fields)),
        *(F.col(f"`{name}`") for name in hidden),
    )


def guarded_rows(execution: Execution, frame: DataFrame) -> DataFrame:
    """Makes rows of the table ready to be written: put together by partition, constraints checked."""
    target = execution.write_target
    frame = repartition_if_needed(execution, frame)
    return checked(frame, target.schema, target.configuration)


def guarded_changes(execution: Execution, frame: DataFrame) -> DataFrame:
    """Makes rows of the table and of its change data ready to be written; see `guarded_rows`."""
    target = execution.write_target
    frame = repartition_if_needed(execution, frame)
    is_table_row = F.col(execution.names.change_type).isNull()
    return checked(frame, target.schema, target.configuration, is_table_row)


def repartition_if_needed(execution: Execution, frame: DataFrame) -> DataFrame:
    """Brings the rows of a partition together, where the session wants that."""
    columns = execution.snapshot.metadata.partition_columns
    if not columns or not execution.conf.repartition_before_write:
        return frame
    return frame.repartition(*("`" + name.replace("`", "``") + "`" for name in columns))


def put_together(frame: DataFrame, tasks: int, rows: int) -> DataFrame:
    """Lets Spark put rows together that would come from many tasks, each of which would write a small file.

    Args:
        frame: The rows.
        tasks: About how many tasks they come from.
        rows: About how many they are.
    """
    return frame.hint("rebalance") if tasks > _FEW_TASKS and rows < tasks * _ROWS_IN_A_FILE else frame
