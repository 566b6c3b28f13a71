"""What a merge tells of itself: its metrics, and the outcome that reports show."""

from __future__ import annotations

from collections.abc import Mapping

from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.executors.execution import MergeChanges
from deltamerge.merge.outcome import ClauseOutcome, MergeOutcome
from deltamerge.merge.result.metrics import Timings, merge_metrics, operation_parameters
from deltamerge.merge.statement import MergeStatement
from deltamerge.spark.table import Table


def metrics_of(changes: MergeChanges) -> dict[str, int]:
    """Gives all metrics of a merge; see `merge_metrics`."""
    execution, steps = changes.execution, changes.execution.steps
    timings = Timings(
        execution=steps.elapsed,
        materialize_source=steps.milliseconds("materialize_source"),
        scan=steps.milliseconds("plan_source", "summarize_source", "plan", "find_touched_files"),
        rewrite=steps.milliseconds("write_all_changes", "write_only_inserts", "write_deletion_vectors"),
    )
    return merge_metrics(
        execution.merge,
        source_rows=changes.source_rows,
        second_scan_rows=changes.second_scan_rows,
        scan=changes.plan.sizes,
        touched=changes.touched,
        inserted=changes.inserted,
        copied=changes.copied,
        removed=changes.removed_files,
        written=changes.written,
        vectors=changes.vectors,
        is_partitioned=bool(execution.snapshot.metadata.partition_columns),
        timings=timings,
    )


def outcome_of(
    statement: MergeStatement,
    changes: MergeChanges,
    executor: str,
    reason: str,
    version: int | None,
    metrics: Mapping[str, int],
) -> MergeOutcome:
    """Puts together what a merge did.

    Args:
        statement: What the user said.
        changes: What the executor found and wrote.
        executor: Its name.
        reason: Why it ran.
        version: The version that was committed; None where nothing changed.
        metrics: All metrics.
    """
    execution = changes.execution
    merge, table = execution.merge, execution.table
    return MergeOutcome(
        table=table.name,
        statement=statement.to_sql(f"delta.`{table.name}`"),
        executor=executor,
        executor_reason=reason,
        read_version=execution.snapshot.version,
        version=version,
        metrics={**metrics, "executionTimeMs": execution.steps.elapsed},
        clauses=_clause_outcomes(merge, changes),
        steps=execution.steps.timings,
        notes=changes.notes,
        operation_parameters=operation_parameters(merge),
    )


def _clause_outcomes(merge: ResolvedMerge, changes: MergeChanges) -> tuple[ClauseOutcome, ...]:
    rows = {**changes.touched.rows_by_clause, **changes.inserted_by_clause}
    return tuple(
        ClauseOutcome(
            kind=clause.clause.kind,
            action=clause.action,
            condition=None if clause.clause.condition is None else clause.clause.condition.text,
            rows=rows.get((clause.clause.kind, clause.number), 0),
            text=clause.clause.to_sql(),
        )
        for clause in merge.clauses
    )


def already_committed(table: Table, statement: MergeStatement, snapshot: Snapshot) -> MergeOutcome:
    """Says that a table already holds the application transaction of a merge."""
    return MergeOutcome(
        table=table.name,
        statement=statement.to_sql(f"delta.`{table.name}`"),
        executor="none",
        executor_reason="the application transaction was committed before",
        read_version=snapshot.version,
        version=None,
        metrics={},
        clauses=(),
        steps=(),
        notes=(
            "The table already holds this application transaction (txnAppId, txnVersion); nothing was done.",
        ),
    )
