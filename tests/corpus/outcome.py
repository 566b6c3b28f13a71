"""What a merge did, and how that differs from what a case expects. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .cases import Case


@dataclass(frozen=True)
class Outcome:
    """What came of a merge, in the words of the cases.

    Args:
        rows: The table's rows as canonical JSON, sorted.
        schema: The table's schema as DDL.
        counts: The row that MERGE returns; None where the engine gave none.
        new_version: Whether the merge made a version.
        metrics: Operation metrics of that version as numbers; the engine's own otherwise.
        reported_metrics: The metrics that the engine reported beside the commit; None where it gives none.
        parameters: The commit's operation parameters.
        changes: The version's change data as canonical JSON, sorted; None without a feed or a version.
        rows_check: The results of the case's queries over the rows.
        changes_check: The results of the case's queries over the changes.
        error: The error class; the other fields but ``new_version`` are empty then.
        sqlstate: The error's SQLSTATE.
        message: The error's message.
    """

    rows: tuple[str, ...] = ()
    schema: str = ""
    counts: Mapping[str, int] | None = None
    new_version: bool = False
    metrics: Mapping[str, int] = field(default_factory=dict)
    reported_metrics: Mapping[str, int] | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[str, ...] | None = None
    rows_check: tuple[bool, ...] = ()
    changes_check: tuple[bool, ...] = ()
    error: str | None = None
    sqlstate: str | None = None
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Gives the outcome as what JSON can hold."""
        return asdict(self)


def outcome_from_dict(values: Mapping[str, Any]) -> Outcome:
    """Makes an outcome of what :meth:`Outcome.to_dict` gave."""
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return Outcome(**fields)


def differences(case: Case, got: Outcome) -> list[str]:
    """Lists what is not as the case expects; empty where all is well."""
    expect = case.expect
    if got.error is not None:
        return _error_differences(case, got)
    if "error" in expect:
        return [f"no error, expected {expect['error']}; rows now: {list(got.rows)}"]
    found: list[str] = []

    def compare(what: str, wanted: Any, have: Any) -> None:
        if wanted != have:
            found.append(f"{what}: expected {wanted!r}, got {have!r}")

    if "rows" in expect:
        compare("rows", sorted(expect["rows"]), sorted(got.rows))
    if "rows_check" in expect:
        compare("rows_check", expect["rows_check"], list(got.rows_check))
    if "changes_check" in expect:
        compare("changes_check", expect["changes_check"], list(got.changes_check))
    compare("schema", expect["schema"], got.schema)
    if got.counts is not None:
        compare("counts", expect["counts"], dict(got.counts))
    compare("new_version", expect.get("new_version", False), got.new_version)
    if expect.get("new_version") and got.new_version:
        for name, wanted in expect.get("metrics", {}).items():
            compare(f"operationMetrics.{name}", wanted, got.metrics.get(name))
            if got.reported_metrics is not None:
                compare(f"reported metric {name}", wanted, got.reported_metrics.get(name))
        if "changes" in expect:
            compare("changes", sorted(expect["changes"]), sorted(got.changes or ()))
        found += _parameter_differences(expect.get("parameters", {}), got.parameters)
    return found


def _parameter_differences(wanted: Mapping[str, str], got: Mapping[str, str]) -> list[str]:
    """Compares operation parameters; ON is printed by each engine in its own way."""
    names = [name for name in wanted if name != "predicate"]
    return [
        f"operationParameters.{name}: expected {wanted[name]}, got {got.get(name)}"
        for name in names
        if _decoded(wanted[name]) != _decoded(got.get(name))
    ]


def _decoded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _error_differences(case: Case, got: Outcome) -> list[str]:
    allowed = case.values.get("or_error", [])
    if "error" not in case.expect:
        if got.error in allowed:
            return []
        return [f"error {got.error} ({got.sqlstate}), expected none: {got.message[:1500]}"]
    wanted = case.expect["error"]
    found: list[str] = []
    if got.error != wanted and got.error not in case.values.get("accept", []):
        found.append(f"error: expected {wanted}, got {got.error}: {got.message[:1500]}")
    elif got.error == wanted and got.sqlstate != case.expect["sqlstate"]:
        found.append(f"sqlstate: expected {case.expect['sqlstate']}, got {got.sqlstate}")
    found += message_differences(case, got)
    if got.new_version:
        found.append("the failed merge made a new version")
    return found


def message_differences(case: Case, got: Outcome) -> list[str]:
    """Return which of a case's parts an error's message lacks."""
    # A name may be printed quoted, and in the case in which the table has it.
    return [
        f"message lacks {part!r}: {got.message[:1500]}"
        for part in case.expect["message_parts"]
        if _plain(part) not in _plain(got.message)
    ]


def commits(table: str) -> list[int]:
    """Lists the versions whose commit files the table's log folder holds."""
    return sorted(int(path.stem) for path in Path(table, "_delta_log").glob("*.json") if path.stem.isdigit())


def commit_actions(table: str, version: int) -> list[dict[str, Any]]:
    """Reads the actions of one commit file."""
    text = Path(table, "_delta_log", f"{version:020}.json").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def schema_string(table: str) -> str:
    """Reads the table's newest schema from its commit files."""
    for version in reversed(commits(table)):
        for action in commit_actions(table, version):
            if "metaData" in action:
                return action["metaData"]["schemaString"]
    raise ValueError(f"no metadata in the log of {table}")


def commit_info(table: str, version: int) -> dict[str, Any]:
    """Reads a commit's ``commitInfo``."""
    return next((a["commitInfo"] for a in commit_actions(table, version) if "commitInfo" in a), {})


def as_numbers(metrics: Mapping[str, Any]) -> dict[str, int]:
    """Reads metrics that are written as text."""
    return {name: int(value) for name, value in metrics.items()}


def evaluate(run: Callable[[], Outcome], table: str, before: list[int]) -> Outcome:
    """Runs a merge; of a failure it takes class, SQLSTATE and message."""
    try:
        return run()
    except Exception as error:
        condition = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
        state = getattr(error, "getSqlState", None)
        if condition is None or not condition():
            raise
        return Outcome(
            error=condition(),
            sqlstate=state() if state else None,
            message=_message(error),
            new_version=commits(table) != before,
        )


def _message(error: Exception) -> str:
    """Gives an error's text; where Spark does not know the class, asking for it fails in itself."""
    try:
        return str(error)
    except Exception:
        return str(getattr(error, "_desc", None) or error.args)


def _plain(text: str) -> str:
    return text.replace("`", "").lower()
