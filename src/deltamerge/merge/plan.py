"""The plan of a merge as reports show it: four decisions with reasons and, after the run, what each did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

DecisionName: TypeAlias = Literal["match", "source", "changed_rows", "unchanged_rows"]


@dataclass(frozen=True)
class Alternative:
    """An operator that was not chosen, and what was against it."""

    decision: DecisionName
    choice: str
    reason: str


@dataclass(frozen=True)
class Decision:
    """One of the four decisions.

    Args:
        choice: The operator that was chosen.
        reason: Why.
        declined: The operators before it, each with what was against it.
        done: What it read, wrote and took, by name, after the run.
    """

    choice: str
    reason: str
    declined: tuple[Alternative, ...] = ()
    done: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MergePlan:
    """How a merge runs.

    Args:
        match: How matches are found: ``key_lookup``, ``anti_join``, ``join`` or ``join_files``; ``whole_files`` where
            a DELETE only removes files.
        source: How the source is read: ``in_place``, ``staged``, ``checkpoint``, ``read_once`` or ``recomputed``;
            ``none`` of an UPDATE or DELETE.
        changed_rows: Who makes new and updated rows: ``arrow``, ``pair_values`` (Spark computes values of matched rows,
            and Arrow writes them) or ``spark``; ``none`` where there are none.
        unchanged_rows: What becomes of the other rows of touched files: ``none`` (no file is touched),
            ``deletion_vector``, ``patch`` or ``rewrite``.
    """

    match: Decision
    source: Decision
    changed_rows: Decision
    unchanged_rows: Decision

    @property
    def name(self) -> str:
        """The plan's name, as in ``spark.deltamerge.merge.executor``."""
        return PLAN_NAMES[self.match.choice]

    @property
    def decisions(self) -> dict[DecisionName, Decision]:
        """The decisions by name, in the order in which a merge carries them out."""
        return {
            "source": self.source,
            "match": self.match,
            "changed_rows": self.changed_rows,
            "unchanged_rows": self.unchanged_rows,
        }


PLAN_NAMES = {
    "key_lookup": "key_lookup",
    "anti_join": "insert_only",
    "join": "low_shuffle",
    "join_files": "classic",
    "whole_files": "whole_files",
}


class Declined(Exception):
    """Another operator is to be tried; nothing else means that.

    Args:
        decision: The decision that the operator belongs to.
    """

    def __init__(self, decision: DecisionName, choice: str, reason: str) -> None:
        super().__init__(reason)
        self.alternative = Alternative(decision, choice, reason)


class RowsCompete(Declined):
    """Several source rows match and change one target row.

    The join that knows the rows reports them, whichever plan the session asks for.
    """

    def __init__(self) -> None:
        super().__init__("match", "key_lookup", "several source rows match and change one target row")
