"""DELETE, UPDATE and TRUNCATE; the first two are merges without a source, by the merge's operators."""

from __future__ import annotations

from pyspark.sql.types import StructType

from deltamerge.commands.alter_properties import EVERYTHING_READ
from deltamerge.commands.auto_compact import merge_and_compact
from deltamerge.commands.committing import commit_command
from deltamerge.merge.command import MergeIntoCommand
from deltamerge.merge.outcome import MergeOutcome
from deltamerge.merge.statement import Frames, MergeStatement, Operation
from deltamerge.spark.session import empty_frame
from deltamerge.spark.table import Table
from deltamerge.sql.merge_ast import Action, Assignment, Delete, Expression, MergeClause, NameParts, Update
from deltamerge.txn.prepared import isolation_level
from deltamerge.txn.transaction import now_ms
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.table_commits import removals_of


def delete(table: Table, name: NameParts, condition: Expression | None, frames: Frames = tuple) -> MergeOutcome:
    """Delete the rows of a table for which a condition is TRUE; all without one.

    Args:
        name: The name that may qualify the table's columns; no parts for none.
        frames: Returns the frames of the table whose columns the condition may refer to.
    """
    return merge_and_compact(MergeIntoCommand(table, delete_statement(table, name, condition, frames)))


def update(
    table: Table,
    name: NameParts,
    condition: Expression | None,
    assignments: tuple[Assignment, ...],
    frames: Frames = tuple,
) -> MergeOutcome:
    """Set columns in the rows of a table for which a condition is TRUE; in all without one.

    Args:
        name: The name that may qualify the table's columns; no parts for none.
        frames: Returns the frames of the table whose columns the expressions may refer to.
    """
    statement = _statement("UPDATE", table, name, condition, Update(assignments), frames)
    return merge_and_compact(MergeIntoCommand(table, statement))


def delete_statement(
    table: Table, name: NameParts, condition: Expression | None, frames: Frames = tuple
) -> MergeStatement:
    return _statement("DELETE", table, name, condition, Delete(), frames)


def _statement(
    operation: Operation,
    table: Table,
    name: NameParts,
    condition: Expression | None,
    action: Action,
    frames: Frames,
) -> MergeStatement:
    shown = f"delta.`{table.name}`" + (f" AS {name[0]}" if len(name) == 1 else "")
    return MergeStatement(
        source=empty_frame(table.spark, StructType([])),
        source_name=(),
        source_sql="",
        target_name=name,
        condition=Expression("false"),
        clauses=(MergeClause("not_matched_by_source", condition, action, statement_on=shown),),
        schema_evolution=False,
        target_frames=frames,
        operation=operation,
    )


def truncate(table: Table) -> None:
    """Delete all rows of a table. Delta: DeltaOperations.Truncate."""
    started = now_ms()
    snapshot = table.snapshot_to_write()
    refuse_append_only(snapshot, table.name, "TRUNCATE deletes rows")
    removed = removals_of(snapshot.files)
    if removed:
        metrics = {"numRemovedFiles": len(removed), "executionTimeMs": now_ms() - started}
        level = isolation_level(snapshot.metadata.configuration)
        commit_command(table, snapshot, "TRUNCATE", {}, removed, metrics=metrics, read=EVERYTHING_READ, isolation=level)
