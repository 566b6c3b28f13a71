"""A merge's report for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from deltamerge.merge.outcome import MergeOutcome


def to_dict(outcome: MergeOutcome) -> dict[str, Any]:
    """Return a report as plain values, fit for JSON."""
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
    """Return a report as JSON, indented by two spaces."""
    return json.dumps(to_dict(outcome), ensure_ascii=False, indent=2)
