"""What one merge did, as frozen data: what reports and renderings are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from deltamerge.exceptions import DeltaConcurrentModificationException
from deltamerge.merge.plan import MergePlan
from deltamerge.workers.request_counter import RequestCounts


@dataclass(frozen=True)
class ClauseOutcome:
    """One WHEN clause and what came of it.

    Args:
        kind: ``matched``, ``not_matched`` or ``not_matched_by_source``.
        action: ``update``, ``delete``, ``insert`` or ``do_nothing``.
        condition: The condition as written.
        rows: How many rows of the table it changed.
        text: The clause as SQL, for a person to read.
        skipped: How many rows an UPDATE would have left as they are, and `skip_unchanged` left alone.
    """

    kind: str
    action: str
    condition: str | None
    rows: int
    text: str
    skipped: int = 0


@dataclass(frozen=True)
class StepTiming:
    name: str
    description: str
    milliseconds: int


@dataclass(frozen=True)
class LostCommit:
    """A commit of another writer that was first.

    Args:
        version: Its version, or None where that is not known.
        operation: What it did, such as ``MERGE``; empty where several were first.
        rule: The error class of the conflict, such as ``DELTA_CONCURRENT_APPEND``.
        why: Why the merge lost, where the rule does not say it.
    """

    version: int | None
    operation: str
    rule: str
    why: str = ""

    @staticmethod
    def of(error: DeltaConcurrentModificationException) -> LostCommit:
        found = error.parameters
        version = found.get("version")
        number = None if version is None else int(version)
        return LostCommit(number, found.get("operation", ""), error.error_class, found.get("reason", ""))


@dataclass(frozen=True)
class MergeOutcome:
    """All that is known of a merge that ended well.

    Args:
        table: The target's path or URL.
        statement: The MERGE as SQL; of a merge from the builder, the equivalent SQL.
        executor: The plan's name; ``none`` where the application transaction was committed before.
        executor_reason: Why matches were found in this way.
        version: The version that the merge made, or None where nothing changed.
        metrics: Delta's operation metrics by name; counts of rows and files, bytes, milliseconds. All are zero where
            nothing ran.
        notes: Sentences on what was pruned, skipped or chosen.
        plan: The plan as it was carried out; None where nothing ran.
        lost_to: The commits that were first and made the merge run again, one for each lost run.
        reconciled_with: The commits that were first and changed other rows of the same files, so that both hold.
        requests: The requests of this process to the table's object store; those of Spark's tasks and of Spark itself
            are not among them. None for a table elsewhere.
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
    lost_to: tuple[LostCommit, ...] = ()
    reconciled_with: tuple[LostCommit, ...] = ()
    requests: RequestCounts | None = None

    @property
    def has_run(self) -> bool:
        """Whether the merge ran; otherwise its application transaction was committed before."""
        return self.executor != "none"


@dataclass(frozen=True)
class ClauseForecast:
    """One WHEN clause and how many rows it would change.

    Args:
        text: The clause as SQL.
        rows: Target rows that it would update or delete, source rows that it would insert.
    """

    text: str
    rows: int


@dataclass(frozen=True)
class MergeForecast:
    """What a merge would do, found by reading the source and matching its rows; nothing was written.

    Args:
        files_touched: Files with rows that a clause changes.
        bytes_to_write: About how many bytes would be written: touched files again, or only changed rows.
        null_keys: Source rows with NULL in a key, which match nothing; None where they were not counted.
        repeated_keys: Source rows with the keys of another; None where they were not counted.
        failure: The message of the error that the merge would end with; None where it would succeed.
    """

    source_rows: int
    clauses: tuple[ClauseForecast, ...]
    files_touched: int
    bytes_touched: int
    bytes_to_write: int
    null_keys: int | None = None
    repeated_keys: int | None = None
    failure: str | None = None


@dataclass(frozen=True)
class MergeExplanation:
    """What a merge would do, as far as the statement and the log say, and the forecast where it was asked for.

    Args:
        table: The target's path or URL.
        statement: The MERGE as SQL.
        version: The version of the table that was read.
        files_to_read: Files that ON's conditions and BY SOURCE clauses leave, before the source's keys are known.
        read_predicate: The rows of the target that are read, in words.
        features: Sentences on what the table's features cost in this merge.
        conflicts: Sentences on which other writers' commits this merge would conflict with.
        warnings: Sentences on what makes this merge slower or wider than it need be, each with what to do.
        forecast: What reading the source and matching its rows showed; None where that was not asked for.
    """

    table: str
    statement: str
    version: int
    plan: MergePlan
    files: int
    bytes: int
    files_to_read: int
    bytes_to_read: int
    read_predicate: str
    features: tuple[str, ...]
    conflicts: tuple[str, ...]
    warnings: tuple[str, ...]
    forecast: MergeForecast | None = None


class Progress(Protocol):
    def step(self, name: str, description: str) -> None:
        """Is called when a step begins.

        Args:
            name: The step's name, such as ``find_touched_files``.
            description: What it is about to do, such as ``rewriting 3 files``.
        """


@runtime_checkable
class MeasuredProgress(Progress, Protocol):
    """A progress that is also called with the amount of work."""

    def measure(self, files: int, size: int) -> None:
        """Is called after `step` where the step goes through files of the table.

        Args:
            files: How many.
            size: Their bytes.
        """

    def advance(self, done: int, of: int) -> None:
        """Is called as work in the driver's process goes on; what Spark's tasks have done, Spark knows.

        Args:
            done: How many parts of the step's work are done.
            of: How many there are.
        """
