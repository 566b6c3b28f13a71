"""What one merge did, as frozen data: what reports and renderings are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from deltamerge.merge.planning.plan import MergePlan


@dataclass(frozen=True)
class ClauseOutcome:
    """One WHEN clause and what came of it.

    Args:
        kind: ``matched``, ``not_matched`` or ``not_matched_by_source``.
        action: ``update``, ``delete``, ``insert`` or ``do_nothing``.
        condition: The clause's condition as the user wrote it, or None.
        rows: How many rows of the table it changed.
        text: The clause as SQL, for a person to read.
    """

    kind: str
    action: str
    condition: str | None
    rows: int
    text: str


@dataclass(frozen=True)
class StepTiming:
    """One step of the merge and how long it took.

    Args:
        name: The step's name, such as ``find_touched_files``.
        description: What it did, for a person to read.
        milliseconds: Wall-clock time.
    """

    name: str
    description: str
    milliseconds: int


@dataclass(frozen=True)
class MergeOutcome:
    """All that is known of a merge that ended well.

    Args:
        table: The target's path or URL.
        statement: The MERGE as SQL; of a merge from the builder, what it says in SQL.
        executor: The plan's name: ``key_lookup``, ``insert_only``, ``low_shuffle`` or ``classic``; ``none`` where the
            application transaction was committed before.
        executor_reason: Why matches were found in this way.
        read_version: The version of the table that was read.
        version: The version that the merge made, or None where nothing changed.
        metrics: Delta's operation metrics by name; counts of rows and files, bytes, milliseconds.
        clauses: The clauses in the statement's order.
        steps: The steps in the order they ran.
        notes: Sentences on what was pruned, skipped or chosen.
        operation_parameters: The commit's ``operationParameters``.
        plan: The plan as it was carried out; None where nothing ran.
    """

    table: str
    statement: str
    executor: str
    executor_reason: str
    read_version: int
    version: int | None
    metrics: Mapping[str, int]
    clauses: tuple[ClauseOutcome, ...]
    steps: tuple[StepTiming, ...]
    notes: tuple[str, ...] = ()
    operation_parameters: Mapping[str, str] = field(default_factory=dict)
    plan: MergePlan | None = None


class Progress(Protocol):
    """Told of each step of a merge as it begins."""

    def step(self, name: str, description: str) -> None:
        """Is called when a step begins.

        Args:
            name: The step's name, such as ``find_touched_files``.
            description: What it is about to do, such as ``rewriting 3 files``.
        """
