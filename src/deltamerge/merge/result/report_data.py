"""What a merge did: its metrics, its plan as carried out, and the outcome that reports show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.executors.merge_changes import MergeChanges
from deltamerge.merge.outcome import ClauseOutcome, MergeOutcome
from deltamerge.merge.plan import DecisionName, MergePlan
from deltamerge.merge.result.metrics import WRITING_STEPS, no_metrics, operation_parameters
from deltamerge.merge.statement import MergeStatement
from deltamerge.spark.table import Table

SOURCE_STEPS = ("plan_source", "materialize_source", "summarize_source", "number_source")


def outcome_of(
    statement: MergeStatement, changes: MergeChanges, version: int | None, metrics: Mapping[str, int]
) -> MergeOutcome:
    execution = changes.execution
    merge, table, plan = execution.merge, execution.table, execution.plan
    return MergeOutcome(
        table=table.name,
        statement=statement.to_sql(f"delta.`{table.name}`"),
        executor=plan.name,
        executor_reason=plan.match.reason,
        read_version=execution.snapshot.version,
        version=version,
        metrics={**metrics, "executionTimeMs": execution.steps.elapsed},
        clauses=_clause_outcomes(merge, changes),
        steps=execution.steps.timings,
        notes=_notes(changes),
        operation_parameters=operation_parameters(merge),
        plan=carried_out(changes, metrics),
    )


def carried_out(changes: MergeChanges, metrics: Mapping[str, int]) -> MergePlan:
    """Return the plan with what each operator read, wrote and took."""
    steps, target, plan = changes.execution.steps, changes.target, changes.execution.plan
    done: dict[DecisionName, dict[str, int]] = {
        "source": {
            "rows": changes.source_rows,
            "milliseconds": steps.milliseconds(*SOURCE_STEPS),
        },
        "match": {
            "files": target.sizes.files_after,
            "bytes": target.sizes.bytes_after,
            "files_skipped": target.sizes.files_before - target.sizes.files_after,
            "files_touched": len(changes.touched.rewrite),
            "milliseconds": steps.milliseconds("plan", "find_touched_files"),
        },
        "changed_rows": {
            "rows_inserted": changes.inserted,
            "rows_updated": metrics["numTargetRowsUpdated"],
            "rows_deleted": metrics["numTargetRowsDeleted"],
            "files": len(changes.written.files),
            "bytes": metrics["numTargetBytesAdded"],
            "milliseconds": steps.milliseconds(*WRITING_STEPS),
        },
        "unchanged_rows": {
            "rows_copied": changes.copied,
            "files_removed": len(changes.removed_files),
            "deletion_vectors": changes.vectors.vectors_added,
            "milliseconds": steps.milliseconds("write_deletion_vectors"),
        },
    }
    decisions = {name: replace(decision, done=done[name]) for name, decision in plan.decisions.items()}
    return MergePlan(**decisions)


def _notes(changes: MergeChanges) -> tuple[str, ...]:
    """Return how many files were not read, and which source rows have odd keys, where that is known."""
    sizes, summary = changes.target.sizes, changes.summary
    before, skipped = sizes.files_before, sizes.files_before - sizes.files_after
    about_keys = () if summary is None else summary.key_notes
    if not skipped:
        return about_keys
    by = (
        "ON's conditions on the target"
        if summary is None
        else "the source's key ranges and the conditions on the target"
    )
    files = "The table's only file" if before == 1 else f"{skipped:,} of {before:,} files"
    was = "was" if skipped == 1 else "were"
    return (f"{files} {was} not read, thanks to {by}.", *about_keys)


def _clause_outcomes(merge: ResolvedMerge, changes: MergeChanges) -> tuple[ClauseOutcome, ...]:
    rows = {**changes.touched.rows_by_clause, **changes.inserted_by_clause}
    return tuple(
        ClauseOutcome(
            kind=clause.kind,
            action=clause.action,
            condition=None if clause.clause.condition is None else clause.clause.condition.text,
            rows=rows.get(clause.key, 0),
            text=clause.clause.to_sql(),
            skipped=rows.get(clause.skip_key, 0),
        )
        for clause in merge.given
    )


def already_committed(table: Table, statement: MergeStatement, snapshot: Snapshot) -> MergeOutcome:
    return MergeOutcome(
        table=table.name,
        statement=statement.to_sql(f"delta.`{table.name}`"),
        executor="none",
        executor_reason="the application transaction was committed before",
        read_version=snapshot.version,
        version=None,
        metrics=no_metrics(statement),
        clauses=(),
        steps=(),
        notes=("The table already holds this application transaction (txnAppId, txnVersion); nothing was done.",),
    )
