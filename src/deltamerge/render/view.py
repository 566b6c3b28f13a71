"""The content of a report as strings and shares, before it is laid out for a terminal or a page."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from deltamerge.merge.outcome import ClauseOutcome, MergeOutcome, StepTiming
from deltamerge.render.plan_view import PlanView, plan_view
from deltamerge.render.printable import count, duration, printable, size

LONGEST_LINE = 600
"""A statement's line longer than this many characters is cut: the rest is in the JSON."""

_DONE = {"update": "updated", "delete": "deleted", "insert": "inserted"}


@dataclass(frozen=True)
class ClauseLine:
    """One clause: such as ``1,234``, ``rows updated``, ``update`` and ``WHEN MATCHED AND s.deleted``.

    For DO NOTHING `rows` is empty; in an explanation `done` is, and `rows` are ``1,234 rows``.
    """

    rows: str
    done: str
    action: str
    when: str


@dataclass(frozen=True)
class TimeLine:
    """One step: such as ``scanning files for matches``, ``1.3 s`` and its share of the whole time, 0 to 1."""

    what: str
    took: str
    share: float


@dataclass(frozen=True)
class PageView:
    """The content of a report or an explanation.

    Args:
        kind: ``report`` or ``plan``.
        result: A sentence on what the merge did, or would do.
        changed: Whether there is a new version.
        failure: The message of the error that the merge would end in.
    """

    kind: str
    heading: str
    table: str
    result: str
    statement: str
    clauses: tuple[ClauseLine, ...]
    plan: PlanView | None
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    changed: bool = False
    failure: str = ""
    warnings: tuple[str, ...] = ()
    total: str = ""
    times: tuple[TimeLine, ...] = ()


def report_view(outcome: MergeOutcome) -> PageView:
    outcome = printable(outcome)
    total = outcome.metrics.get("executionTimeMs", sum(step.milliseconds for step in outcome.steps))
    return PageView(
        kind="report",
        heading="Merge into",
        table=outcome.table,
        result=_result(outcome),
        statement=statement_lines(outcome.statement),
        clauses=tuple(_clause(clause) for clause in outcome.clauses),
        plan=None if outcome.plan is None else plan_view(outcome.plan),
        facts=_facts(outcome),
        changed=outcome.version is not None,
        total=duration(total),
        times=_times(outcome.steps, total),
    )


def _result(outcome: MergeOutcome) -> str:
    if outcome.version is None:
        return f"Nothing changed: no new version, the table stays at version {outcome.read_version}."
    changed = sum(clause.rows for clause in outcome.clauses)
    return f"Version {outcome.read_version} → {outcome.version}: {count(changed, 'row')} changed."


def statement_lines(sql: str) -> str:
    """Return a statement without the margin that its lines share, very long lines cut."""
    lines = textwrap.dedent(sql).strip().splitlines()
    return "\n".join(_cut(line.rstrip()) for line in lines)


def one_line(sql: str) -> str:
    return _cut(" ".join(sql.split()))


def _cut(line: str) -> str:
    over = len(line) - LONGEST_LINE
    return line if over <= 0 else f"{line[:LONGEST_LINE]} … ({count(over, 'more character')})"


def _clause(clause: ClauseOutcome) -> ClauseLine:
    kind = f"WHEN {clause.kind.replace('_', ' ').upper()}"
    when = kind if clause.condition is None else f"{kind} AND {clause.condition}"
    when = one_line(when)
    if clause.action == "do_nothing":
        return ClauseLine("", "no row changed by", clause.action, when)
    noun = "row" if clause.rows == 1 else "rows"
    done = f"{noun} {_DONE.get(clause.action, clause.action)}"
    if clause.skipped:
        done += f", {count(clause.skipped, 'unchanged row')} skipped"
    return ClauseLine(f"{clause.rows:,}", done, clause.action, when)


def _facts(outcome: MergeOutcome) -> tuple[tuple[str, tuple[str, ...]], ...]:
    # Of a merge that did not run all counts are zero.
    metrics = outcome.metrics if outcome.has_run else {}
    executor = (outcome.executor, outcome.executor_reason) if outcome.plan is None else ()
    facts = [
        ("Source", (count(metrics["numSourceRows"], "row") if "numSourceRows" in metrics else "",)),
        ("Read", (_read(metrics),)),
        ("Removed", (_files(metrics, "numTargetFilesRemoved", "numTargetBytesRemoved"),)),
        ("Written", (_written(metrics),)),
        ("Requests", (_requests(outcome),)),
        ("Change data", (_files(metrics, "numTargetChangeFilesAdded", "numTargetChangeFileBytes"),)),
        ("Executor", (", because ".join(filter(None, executor)),)),
        ("Notes" if len(outcome.notes) > 1 else "Note", outcome.notes),
    ]
    return tuple((label, lines) for label, lines in facts if any(lines))


def _requests(outcome: MergeOutcome) -> str:
    requests = outcome.requests
    if requests is None:
        return ""
    moved = f"{size(requests.bytes_read)} read, {size(requests.bytes_written)} written"
    return f"{requests.requests:,} by the driver, {requests.in_sequence:,} in sequence; {moved}"


def _read(metrics: Mapping[str, int]) -> str:
    before, after = metrics.get("numTargetFilesBeforeSkipping"), metrics.get("numTargetFilesAfterSkipping")
    if before is None or after is None:
        return ""
    all_bytes = metrics.get("numTargetBytesBeforeSkipping", 0)
    if before == 1 and after == 0:
        return f"nothing: the table's only file ({size(all_bytes)}) was skipped"
    read = files_read(before, after, all_bytes, metrics.get("numTargetBytesAfterSkipping", 0))
    partitions = metrics.get("numTargetPartitionsAfterSkipping", 0)
    return f"{read}, in {count(partitions, 'partition')}" if partitions and 0 < after < before else read


def files_read(files: int, read: int, size_in_bytes: int, bytes_read: int) -> str:
    """Return how many of a table's files are read."""
    if files == 0:
        return "nothing: the table has no files"
    if read == 0:
        return f"none of the table's {count(files, 'file')} ({size(size_in_bytes)})"
    if read == files:
        which = "the table's only file" if files == 1 else f"all of the table's {count(files, 'file')}"
        return f"{which} ({size(size_in_bytes)})"
    return f"{read:,} of the table's {count(files, 'file')} ({size(bytes_read)} of {size(size_in_bytes)})"


def _files(metrics: Mapping[str, int], files: str, size_in_bytes: str) -> str:
    number = metrics.get(files, 0)
    return f"{count(number, 'file')} ({size(metrics.get(size_in_bytes, 0))})" if number else ""


def _written(metrics: Mapping[str, int]) -> str:
    copied = metrics.get("numTargetRowsCopied", 0)
    # Those that take another's place are among them.
    vectors = metrics.get("numTargetDeletionVectorsAdded", 0)
    parts = [
        _files(metrics, "numTargetFilesAdded", "numTargetBytesAdded"),
        count(vectors, "deletion vector") if vectors else "",
    ]
    written = " and ".join(filter(None, parts))
    if written and copied:
        written += f"; {count(copied, 'unchanged row')} had to be copied"
    return written


def _times(steps: tuple[StepTiming, ...], total: int) -> tuple[TimeLine, ...]:
    """Return the steps that matter; what is shorter than a fiftieth of the whole is summed up in one line."""
    if total <= 0:
        return ()
    shown = [step for step in steps if step.milliseconds * 50 >= total]
    rest = max(0, total - sum(step.milliseconds for step in shown))
    lines = [(step.description, step.milliseconds) for step in shown]
    if shown and rest * 50 >= total:
        lines.append(("everything else", rest))
    return tuple(TimeLine(what, duration(took), min(1.0, took / total)) for what, took in lines)
