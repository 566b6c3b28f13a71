"""What a report says, in words and shares, before it is laid out for a terminal or a page."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from deltamerge.merge.outcome import ClauseOutcome, MergeOutcome, StepTiming
from deltamerge.render.units import count, duration, size

LONGEST_LINE = 600
"""A statement's line longer than this many characters is cut: the rest is in the JSON."""

_KINDS = {
    "matched": "WHEN MATCHED",
    "not_matched": "WHEN NOT MATCHED",
    "not_matched_by_source": "WHEN NOT MATCHED BY SOURCE",
}
_DONE = {"update": "updated", "delete": "deleted", "insert": "inserted"}


@dataclass(frozen=True)
class ClauseLine:
    """One clause of a report.

    Args:
        rows: How many rows it changed, such as ``1,234``; empty where the clause is to change none.
        done: What it did with them, such as ``rows updated``.
        action: ``update``, ``delete``, ``insert`` or ``do_nothing``.
        when: When it does that, such as ``WHEN MATCHED AND s.deleted``.
    """

    rows: str
    done: str
    action: str
    when: str


@dataclass(frozen=True)
class TimeLine:
    """One step of a report.

    Args:
        what: What was done, such as ``scanning files for matches``.
        took: How long, such as ``1.3 s``.
        share: Its part of the whole time, 0 to 1.
    """

    what: str
    took: str
    share: float


@dataclass(frozen=True)
class ReportView:
    """A report's words.

    Args:
        table: The target's path or URL.
        result: The sentence that says what came of the merge.
        changed: Whether there is a new version.
        statement: The MERGE.
        clauses: What each clause did, in the statement's order.
        facts: Labels and what there is to say under them: source, files read, removed and written, executor.
        notes: Further sentences.
        total: The whole time.
        times: Where it went.
    """

    table: str
    result: str
    changed: bool
    statement: str
    clauses: tuple[ClauseLine, ...]
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    total: str
    times: tuple[TimeLine, ...]


def view_of(outcome: MergeOutcome) -> ReportView:
    """Puts a merge into words.

    Args:
        outcome: The merge.

    Returns:
        What its report says.
    """
    total = outcome.metrics.get("executionTimeMs", sum(step.milliseconds for step in outcome.steps))
    return ReportView(
        table=outcome.table,
        result=_result(outcome),
        changed=outcome.version is not None,
        statement=_statement(outcome.statement),
        clauses=tuple(_clause(clause) for clause in outcome.clauses),
        facts=_facts(outcome),
        notes=outcome.notes,
        total=duration(total),
        times=_times(outcome.steps, total),
    )


def _result(outcome: MergeOutcome) -> str:
    if outcome.version is None:
        return f"Nothing changed: no new version, the table stays at version {outcome.read_version}."
    changed = sum(clause.rows for clause in outcome.clauses)
    return f"Version {outcome.read_version} → {outcome.version}: {count(changed, 'row')} changed."


def _statement(text: str) -> str:
    lines = textwrap.dedent(text).strip().splitlines()
    return "\n".join(_cut(line.rstrip()) for line in lines)


def _cut(line: str) -> str:
    over = len(line) - LONGEST_LINE
    return line if over <= 0 else f"{line[:LONGEST_LINE]} … ({count(over, 'more character')})"


def _clause(clause: ClauseOutcome) -> ClauseLine:
    kind = _KINDS.get(clause.kind, clause.kind)
    when = kind if clause.condition is None else f"{kind} AND {clause.condition}"
    when = _cut(" ".join(when.split()))
    if clause.action == "do_nothing":
        return ClauseLine("", "rows left alone", clause.action, when)
    noun = "row" if clause.rows == 1 else "rows"
    done = f"{noun} {_DONE.get(clause.action, clause.action)}"
    return ClauseLine(f"{clause.rows:,}", done, clause.action, when)


def _facts(outcome: MergeOutcome) -> tuple[tuple[str, str], ...]:
    metrics = outcome.metrics
    facts = [
        ("Source", count(metrics["numSourceRows"], "row") if "numSourceRows" in metrics else ""),
        ("Read", _read(metrics)),
        ("Removed", _removed(metrics)),
        ("Written", _written(metrics)),
        ("Change data", _change_data(metrics)),
        ("Executor", _executor(outcome)),
    ]
    return tuple((label, text) for label, text in facts if text)


def _read(metrics: Mapping[str, int]) -> str:
    before, after = metrics.get("numTargetFilesBeforeSkipping"), metrics.get("numTargetFilesAfterSkipping")
    if before is None or after is None:
        return ""
    all_bytes = metrics.get("numTargetBytesBeforeSkipping", 0)
    read_bytes = metrics.get("numTargetBytesAfterSkipping", 0)
    if before == 0:
        return "nothing: the table has no files"
    if after == 0:
        return f"none of the table's {count(before, 'file')} ({size(all_bytes)})"
    partitions = metrics.get("numTargetPartitionsAfterSkipping", 0)
    where = f", in {count(partitions, 'partition')}" if partitions else ""
    if after == before:
        return (
            f"the table's only file ({size(all_bytes)})"
            if before == 1
            else (f"all of the table's {count(before, 'file')} ({size(all_bytes)})")
        )
    return (
        f"{after:,} of the table's {count(before, 'file')} ({size(read_bytes)} of {size(all_bytes)}){where}"
    )


def _removed(metrics: Mapping[str, int]) -> str:
    files = metrics.get("numTargetFilesRemoved", 0)
    return f"{count(files, 'file')} ({size(metrics.get('numTargetBytesRemoved', 0))})" if files else ""


def _written(metrics: Mapping[str, int]) -> str:
    files, copied = metrics.get("numTargetFilesAdded", 0), metrics.get("numTargetRowsCopied", 0)
    vectors = sum(
        metrics.get(name, 0) for name in ("numTargetDeletionVectorsAdded", "numTargetDeletionVectorsUpdated")
    )
    parts = []
    if files:
        parts.append(f"{count(files, 'file')} ({size(metrics.get('numTargetBytesAdded', 0))})")
    if vectors:
        parts.append(count(vectors, "deletion vector"))
    text = " and ".join(parts)
    if text and copied:
        text += f"; {count(copied, 'unchanged row')} had to be copied"
    return text


def _change_data(metrics: Mapping[str, int]) -> str:
    files = metrics.get("numTargetChangeFilesAdded", 0)
    return f"{count(files, 'file')} ({size(metrics.get('numTargetChangeFileBytes', 0))})" if files else ""


def _executor(outcome: MergeOutcome) -> str:
    return (
        f"{outcome.executor}, because {outcome.executor_reason}"
        if outcome.executor_reason
        else outcome.executor
    )


def _times(steps: tuple[StepTiming, ...], total: int) -> tuple[TimeLine, ...]:
    """Gives the steps that matter; what is shorter than a fiftieth of the whole goes under one name."""
    if total <= 0:
        return ()
    shown = [step for step in steps if step.milliseconds * 50 >= total]
    rest = max(0, total - sum(step.milliseconds for step in shown))
    lines = [(step.description, step.milliseconds) for step in shown]
    if shown and rest * 50 >= total:
        lines.append(("everything else", rest))
    return tuple(TimeLine(what, duration(took), min(1.0, took / total)) for what, took in lines)
