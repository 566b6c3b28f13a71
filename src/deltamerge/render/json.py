"""A merge's report for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from deltamerge.merge.outcome import MergeOutcome


def to_dict(outcome: MergeOutcome) -> dict[str, Any]:
    """Return a report as plain values, fit for JSON."""
    values = asdict(outcome).items()
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values}


def to_json(outcome: MergeOutcome) -> str:
    """Return a report as JSON, indented by two spaces."""
    return json.dumps(to_dict(outcome), ensure_ascii=False, indent=2)
