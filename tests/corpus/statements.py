"""Recorded statements other than MERGE: what each commits, returns or refuses, and the table that they leave.

The oracle's own Python uses this module, too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .canonical import canonical_lines
from .outcome import commit_actions, commits
from .runner import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = Path(__file__).parents[1] / "data" / "statements"
TABLES = FOLDER / "tables.json"
# Times and sizes are each engine's own: only that they are recorded is compared.
_OWN = re.compile(r".*(TimeMs|Bytes|FileSize|FilesSize|SizeAfterRestore|Size|sizeOfDataToDelete)$")
# Names that are made anew each time.
_RANDOM = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "*"),
    (re.compile(r"#\d+L?"), ""),
    (re.compile(r"part-[\w.*-]+\.parquet"), "part"),
    (re.compile(r"deltamerge-\w+/(\d+/)?"), ""),
)
WITHOUT_CLASS = "an error without a class"
_NO_ACTION = ("commitInfo", "txn")


class StatementEngine(Protocol):
    """What runs statements and reads Delta tables."""

    def sql(self, spark: SparkSession, statement: str) -> DataFrame:
        """Runs a statement."""

    def read(self, spark: SparkSession, path: str) -> DataFrame:
        """Reads a Delta table."""

    def changes(self, spark: SparkSession, path: str, version: int) -> DataFrame:
        """Reads the change data of one version."""


@dataclass(frozen=True)
class StatementCase:
    """Statements that run one after another on one table.

    Args:
        topic: The file that it is in.
        values: What the file has for it.
        setup: The statements that make its tables.
    """

    topic: str
    values: Mapping[str, Any]
    setup: tuple[str, ...]

    @property
    def name(self) -> str:
        """Gives the case's name."""
        return f"{self.topic}/{self.values['id']}"

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Gives the statements, each with what it is expected to do."""
        return self.values["steps"]


def load_statements() -> Iterator[StatementCase]:
    """Read all cases."""
    tables: dict[str, list[str]] = json.loads(TABLES.read_text(encoding="utf-8"))
    for topic in statement_topics():
        for values in json.loads((FOLDER / f"{topic}.json").read_text(encoding="utf-8")):
            made = tables[values["table"]] if "table" in values else []
            yield StatementCase(topic, values, (*made, *values.get("setup", ())))


def statement_topics() -> list[str]:
    """Return the names of the topics."""
    return sorted(path.stem for path in FOLDER.glob("*.json") if path != TABLES)


def write_statements(topic: str, cases: Sequence[Mapping[str, Any]]) -> None:
    """Write a topic's file: a line for each part of a case and for each statement."""
    blocks = []
    for case in cases:
        lines = [f"{json.dumps(k)}: {_line(v)}" for k, v in case.items() if k not in ("steps", "after")]
        lines.append('"steps": [\n  ' + ",\n  ".join(_line(step) for step in case["steps"]) + "\n ]")
        lines += [f'"after": {_line(case["after"])}'] if "after" in case else []
        blocks.append(",\n ".join(lines))
    content = ",\n".join(f"{{{block}}}" for block in blocks)
    (FOLDER / f"{topic}.json").write_text(f"[\n{content}\n]\n", encoding="utf-8")


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def filled(statement: str, folder: str) -> str:
    """Put a case's folder in a statement's places; ``{target}`` is the table in it."""
    return statement.replace("{target}", f"delta.`{folder}/target`").replace("{folder}", folder)


def run_statements(engine: StatementEngine, spark: SparkSession, case: StatementCase, folder: str) -> dict[str, Any]:
    """Run a case's statements on its tables, which are in the folder.

    Returns:
        ``steps``, for each what it did, and ``after``, what the table is then: as ``expect`` and ``after`` of a case.
    """
    target = os.path.join(folder, "target")
    with settings(spark, case.values.get("conf", {})):
        steps = [_run(engine, spark, case, step, folder, target) for step in case.steps]
    found = {"steps": steps, "after": _state(engine, spark, target) if commits(target) else {}}
    return json.loads(_without_random(json.dumps(found, ensure_ascii=False), folder))


def _run(
    engine: StatementEngine, spark: SparkSession, case: StatementCase, step: Mapping[str, Any], folder: str, target: str
) -> dict[str, Any]:
    before = commits(target)
    try:
        found = _result(engine.sql(spark, filled(step["sql"], folder)), step)
    except Exception as error:
        # Whatever a statement raises is what it did.
        found = _error(error)
    new = [version for version in commits(target) if version not in before]
    found["commits"] = [_commit(engine, spark, case, target, version) for version in new]
    return found


def _result(frame: DataFrame, step: Mapping[str, Any]) -> dict[str, Any]:
    selected = frame.selectExpr(*step["select"]) if "select" in step else frame
    lines = canonical_lines(selected) if selected.columns else []
    return {"columns": frame.schema.simpleString().removeprefix("struct"), "result": lines} if frame.columns else {}


def _error(error: Exception) -> dict[str, Any]:
    """Return an error's class and SQLSTATE; delta-spark raises some without a class, or with an old one of Spark's."""
    condition = getattr(error, "getCondition", None)
    if condition is None:
        raise error
    name = condition() or ""
    if not name or name.startswith("_LEGACY"):
        return {"error": WITHOUT_CLASS}
    state: Any = getattr(error, "getSqlState", lambda: None)
    return {"error": name, "sqlstate": state()}


def _commit(
    engine: StatementEngine, spark: SparkSession, case: StatementCase, target: str, version: int
) -> dict[str, Any]:
    actions = commit_actions(target, version)
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    unlike = case.values.get("unlike", ())
    metrics = {k: None if _OWN.match(k) else v for k, v in (info.get("operationMetrics") or {}).items()}
    found: dict[str, Any] = {
        "operation": info.get("operation"),
        "parameters": {k: _decoded(v) for k, v in sorted((info.get("operationParameters") or {}).items())},
        "metrics": {k: metrics[k] for k in sorted(metrics) if k not in unlike},
        "isolation": info.get("isolationLevel"),
        "blind": info.get("isBlindAppend"),
        "actions": sorted({next(iter(action)) for action in actions} - set(_NO_ACTION)),
    }
    if case.values.get("feed"):
        changes = engine.changes(spark, target, version).drop("_commit_version", "_commit_timestamp")
        found["changes"] = canonical_lines(changes)
    return found


def _decoded(value: object) -> object:
    """Return what a parameter's JSON means, lists of features in an order of their own."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        read = json.loads(value)
        if isinstance(read, dict):
            return {k: sorted(v) if isinstance(v, list) else v for k, v in sorted(read.items())}
        return read
    return value


def _state(engine: StatementEngine, spark: SparkSession, target: str) -> dict[str, Any]:
    """Describe a table by its rows and the newest actions of its log."""
    metadata: dict[str, Any] = {}
    protocol: dict[str, Any] = {}
    domains: dict[str, Any] = {}
    for version in commits(target):
        for action in commit_actions(target, version):
            metadata = action.get("metaData", metadata)
            protocol = action.get("protocol", protocol)
            if "domainMetadata" in action:
                domains[action["domainMetadata"]["domain"]] = action["domainMetadata"]
    fields = json.loads(metadata["schemaString"])["fields"]
    return {
        "rows": canonical_lines(engine.read(spark, target)) if fields else [],
        "schema": fields,
        "description": metadata.get("description"),
        "partitions": metadata["partitionColumns"],
        "properties": dict(sorted(metadata["configuration"].items())),
        "protocol": {k: sorted(v) if isinstance(v, list) else v for k, v in sorted(protocol.items())},
        "domains": {k: _decoded(v["configuration"]) for k, v in sorted(domains.items()) if not v["removed"]},
    }


def _without_random(text: str, folder: str) -> str:
    text = text.replace(f"file:{folder}", "{folder}").replace(folder, "{folder}")
    for pattern, written in _RANDOM:
        text = pattern.sub(written, text)
    return text


def statement_differences(case: StatementCase, got: Mapping[str, Any]) -> list[str]:
    """Lists what is not as the case expects; empty where all is well."""
    found: list[str] = []
    for step, made in zip(case.steps, got["steps"], strict=True):
        wanted, mine = step["expect"], dict(made)
        is_as_good = wanted.get("error") == WITHOUT_CLASS or mine.get("error") in step.get("accept", ())
        if "error" in wanted and "error" in mine and is_as_good:
            mine |= {"error": wanted["error"], "sqlstate": wanted.get("sqlstate")}
        for name in sorted({*wanted, *mine} - {"commits"}):
            _compare(found, f"{step['sql']}: {name}", wanted.get(name), mine.get(name))
        operations = [[commit["operation"] for commit in of["commits"]] for of in (wanted, mine)]
        _compare(found, f"{step['sql']}: commits", *operations)
        for before, after in zip(wanted["commits"], mine["commits"], strict=False):
            for name in before:
                _compare(
                    found, f"{step['sql']}: {before['operation']} {name}", _plain(before[name]), _plain(after.get(name))
                )
    for name, value in case.values["after"].items():
        _compare(found, f"the table's {name}", value, got["after"].get(name))
    return found


def _plain(value: Any) -> Any:
    """Leave out how conditions are printed, each engine in its own way."""
    if isinstance(value, dict):
        return {k: bool(v) if k == "predicate" else v for k, v in value.items()}
    return value


def _compare(found: list[str], what: str, wanted: object, have: object) -> None:
    if wanted != have:
        found.append(f"{what}: expected {wanted!r}, got {have!r}")
