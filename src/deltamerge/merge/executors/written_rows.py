"""Rows on their way into files: named as the table's columns, checked, and put together where they are few."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame, Observation

from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.row_counts import observing_clauses
from deltamerge.merge.output.change_data import generate_cdc_and_output_rows
from deltamerge.merge.output.frames import Rows
from deltamerge.spark import columns as F
from deltamerge.sql.names import quote
from deltamerge.write.constraints import checked
from deltamerge.write.data_files import Job, write_rows

_FOLDER = "rows"


def table_columns(rows: Rows, execution: Execution, hidden: tuple[str, ...] = ()) -> DataFrame:
    schema, names = execution.merge.output_schema, execution.merge.names
    return rows.frame.select(
        *(F.col(names.output(i)).alias(f.name) for i, f in enumerate(schema.fields)),
        *(F.col(quote(name)) for name in hidden),
    )


def guarded_rows(execution: Execution, frame: DataFrame, *, has_changes: bool = False) -> DataFrame:
    """Make rows ready to be written: put together by partition, constraints checked.

    Args:
        has_changes: Whether rows of the change data are among them, which constraints are not about.
    """
    target = execution.write_target
    paths = [key.target.path for key in execution.references.on.equi_keys]
    return checked(
        repartition_if_needed(execution, frame),
        target.schema,
        target.configuration,
        target.partition_columns,
        F.col(execution.merge.names.change_type).isNull() if has_changes else None,
        key=tuple(dict.fromkeys(path[0] for path in paths if len(path) == 1)),
    )


def repartition_if_needed(execution: Execution, frame: DataFrame) -> DataFrame:
    """Bring the rows of a partition together, where the session wants that."""
    columns = execution.snapshot.metadata.partition_columns
    if not columns or not execution.conf.repartition_before_write:
        return frame
    return frame.repartition(*map(quote, columns))


def put_together(execution: Execution, frame: DataFrame, tasks: int, rows: int) -> DataFrame:
    """Let Spark put rows together that would come from many tasks, each of which would write a small file."""
    limits = execution.limits
    many = tasks > limits.tasks_without_rebalance and rows < tasks * limits.rows_of_a_task
    return frame.hint("rebalance") if many else frame


def write_changed_rows(
    execution: Execution, rows: Rows, hidden: tuple[str, ...] = (), *, counting: bool
) -> tuple[Job, Observation | None]:
    """Write what rows have become, by what changed of each; `collect_files` finds the files.

    Args:
        rows: Output columns, the target's own values where there is change data, and `row_change`.
        counting: Whether the rows that each clause takes are counted, which the result observes.
    """
    merge, names = execution.merge, execution.merge.names
    change = F.col(names.change)
    kept = change.isin("insert", "update") | (change.isNull() & F.col(names.file_rewritten))
    observation = None
    if counting or len(merge.inserting) > 1:
        frame, observation = observing_clauses(rows.frame, merge.clauses, names, kept)
        rows = Rows(frame, rows.names)
    if execution.writes_change_data:
        output = generate_cdc_and_output_rows(rows, merge.output_schema, names, hidden)
    else:
        output = table_columns(Rows(rows.frame.where(kept), rows.names), execution, hidden)
    return write_output(execution, output, hidden), observation


def write_output(execution: Execution, frame: DataFrame, hidden: tuple[str, ...] = ()) -> Job:
    """Write rows of the table, with its change data where the merge writes it; `collect_files` finds the files."""
    own = execution.write_target
    # A folder of Spark's own: a committer may empty it, such as S3A's with the conflict mode replace.
    target = replace(own, folder=f"{own.folder}/{_FOLDER}", hidden_columns=hidden)
    has_changes = execution.writes_change_data
    guarded = guarded_rows(execution, frame, has_changes=has_changes)
    return write_rows(guarded, target, execution.merge.names.change_type if has_changes else None)
