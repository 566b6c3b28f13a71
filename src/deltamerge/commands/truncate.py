"""TRUNCATE TABLE: all files leave the table."""

from __future__ import annotations

from deltamerge.commands.alter_properties import EVERYTHING_READ
from deltamerge.commands.committing import commit_command
from deltamerge.spark.table import Table
from deltamerge.txn.transaction import now_ms
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.table_commits import removals_of


def truncate(table: Table) -> None:
    """Delete all rows of a table. Delta: DeltaOperations.Truncate."""
    started = now_ms()
    snapshot = table.snapshot()
    snapshot.check_writable()
    refuse_append_only(snapshot, table.name, "TRUNCATE deletes rows")
    removed = removals_of(snapshot.files)
    if removed:
        metrics = {"numRemovedFiles": len(removed), "executionTimeMs": now_ms() - started}
        commit_command(table, snapshot, "TRUNCATE", {}, removed, metrics=metrics, read=EVERYTHING_READ)
