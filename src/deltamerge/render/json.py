"""Reports and explanations for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from deltamerge.merge.outcome import MergeExplanation, MergeOutcome
from deltamerge.merge.planning.plan import MergePlan
from deltamerge.render.printable import printable_json


def to_dict(data: MergeOutcome | MergeExplanation) -> dict[str, Any]:
    """Return a report or an explanation as plain values, fit for JSON; a plan has its name beside its decisions."""
    values: dict[str, Any] = _plain(data)
    return values


def to_json(data: MergeOutcome | MergeExplanation) -> str:
    """Return a report or an explanation as JSON, indented by two spaces."""
    return printable_json(to_dict(data))


def _plain(value: object) -> Any:  # noqa: ANN401
    if isinstance(value, MergePlan):
        return {"name": value.name, **_plain(value.decisions)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value
