"""The content of a plan's tree, before it is laid out for a terminal or a page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from deltamerge.merge.plan import DecisionName, MergePlan
from deltamerge.render.printable import count, duration, size

_TITLES: dict[DecisionName, str] = {
    "source": "Source",
    "match": "Matches",
    "changed_rows": "Changed rows",
    "unchanged_rows": "Unchanged rows",
}
# What an operator did: the count's name, one of what it counts, and what was done with it.
_DONE = {
    "source": (("rows", "row", "read"),),
    "match": (
        ("files", "file", "read"),
        ("files_skipped", "file", "skipped"),
        ("files_touched", "file", "touched"),
    ),
    "changed_rows": (
        ("rows_inserted", "row", "inserted"),
        ("rows_updated", "row", "updated"),
        ("rows_deleted", "row", "deleted"),
        ("files", "file", "written"),
    ),
    "unchanged_rows": (
        ("rows_copied", "row", "copied"),
        ("files_removed", "file", "removed"),
        ("deletion_vectors", "deletion vector", "written"),
    ),
}
_PLAIN_WORD = re.compile(r"[a-z]+[ ,']")


@dataclass(frozen=True)
class PlanNode:
    """One decision: such as ``Matches``, ``join``, why, what it did, and the declined operators with reasons."""

    title: str
    choice: str
    reason: str
    done: str
    declined: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PlanView:
    """A plan's name and its decisions, in the order in which a merge carries them out."""

    name: str
    nodes: tuple[PlanNode, ...]


def plan_view(plan: MergePlan) -> PlanView:
    return PlanView(
        plan.name,
        tuple(
            PlanNode(
                title=_TITLES[name],
                choice=decision.choice,
                reason=_sentence(decision.reason),
                done=_done(name, decision.done),
                declined=tuple((other.choice, _ended(other.reason)) for other in decision.declined),
            )
            for name, decision in plan.decisions.items()
        ),
    )


def _done(name: DecisionName, done: Mapping[str, int]) -> str:
    known = {key for key, _, _ in _DONE[name]} | {"bytes", "milliseconds"}
    parts = []
    for key, noun, verb in _DONE[name]:
        if done.get(key):
            bytes_of_files = f" ({size(done['bytes'])})" if key == "files" and "bytes" in done else ""
            parts.append(f"{count(done[key], noun)}{bytes_of_files} {verb}")
    parts += [f"{key.replace('_', ' ')}: {value:,}" for key, value in done.items() if key not in known and value]
    if done and not parts and name in ("source", "match"):
        parts.append("nothing read")
    took = duration(done["milliseconds"]) if done.get("milliseconds") else ""
    return "; ".join(filter(None, (", ".join(parts), took)))


def _sentence(reason: str) -> str:
    """Return a reason as a sentence; names of settings and the like keep their first letter."""
    plain = _PLAIN_WORD.match(reason) is not None
    return _ended(reason[:1].upper() + reason[1:] if plain else reason)


def _ended(reason: str) -> str:
    return reason if not reason or reason.endswith((".", "!", "?")) else f"{reason}."
