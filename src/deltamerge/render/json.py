"""A merge's report for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from deltamerge.merge.outcome import MergeOutcome


def to_dict(outcome: MergeOutcome) -> dict[str, Any]:
    """Gives a report as plain values, fit for JSON.

    Args:
        outcome: The merge.

    Returns:
        table, statement, read_version, version (None where nothing changed), executor, executor_reason, metrics,
        clauses (each kind, action, condition, rows, text), steps (each name, description, milliseconds), notes,
        operation_parameters.
    """
    return {
        "table": outcome.table,
        "statement": outcome.statement,
        "read_version": outcome.read_version,
        "version": outcome.version,
        "executor": outcome.executor,
        "executor_reason": outcome.executor_reason,
        "metrics": dict(outcome.metrics),
        "clauses": [asdict(clause) for clause in outcome.clauses],
        "steps": [asdict(step) for step in outcome.steps],
        "notes": list(outcome.notes),
        "operation_parameters": dict(outcome.operation_parameters),
    }


def to_json(outcome: MergeOutcome) -> str:
    """Gives a report as JSON text, indented by two spaces.

    Args:
        outcome: The merge.
    """
    return json.dumps(to_dict(outcome), ensure_ascii=False, indent=2)
