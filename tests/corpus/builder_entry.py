"""A recorded statement as the builder's calls, so that both entries are held to the same cases."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql import merge_ast as m
from deltamerge.sql.merge_parser import parse_merge

from .deltamerge_engine import COUNTS, Deltamerge
from .runner import Numbers
from .sql import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ONLY_IN_SQL: dict[str, tuple[str, ...]] = {
    "common table expressions": ("source_kinds/cte",),
    "a column named twice": ("errors_analysis/set-field-twice",),
    "a statement that cannot be read": (
        "errors_analysis/*-before-last-without-condition",
        "errors_analysis/update-in-not-matched",
        "errors_analysis/delete-in-not-matched",
        "errors_analysis/star-in-by-source",
    ),
}
"""The cases that the builder has no words for, by the reason; ``topic/id``, with ``*`` for any text."""

TELL_THEIR_OWN_TIME = frozenset(
    {"timestamps_and_types/one-value-now", "timestamps_and_types/one-value-current-timestamp"}
)
"""The cases whose source, a DataFrame, asks for the time: what it gets is not the statement's (docs/differences.md)."""

_METHODS = {
    ("matched", m.Update): "whenMatchedUpdate",
    ("matched", m.Delete): "whenMatchedDelete",
    ("matched", m.DoNothing): "whenMatchedDoNothing",
    ("not_matched", m.Insert): "whenNotMatchedInsert",
    ("not_matched", m.DoNothing): "whenNotMatchedDoNothing",
    ("not_matched_by_source", m.Update): "whenNotMatchedBySourceUpdate",
    ("not_matched_by_source", m.Delete): "whenNotMatchedBySourceDelete",
    ("not_matched_by_source", m.DoNothing): "whenNotMatchedBySourceDoNothing",
}
_DELTA_PATH = re.compile(r"\bdelta\.`((?:[^`]|``)+)`", re.IGNORECASE)


class NotInBuilder(Exception):
    """The builder has no words for what a statement says; the message is the reason."""


@dataclass(frozen=True)
class Calls:
    """A merge as the builder's calls.

    Args:
        path: The target's path.
        target_alias: Its alias.
        source: The query that gives the source.
        source_alias: The source's alias.
        condition: ON.
        clauses: Methods with their arguments.
        evolves: Whether ``withSchemaEvolution`` is called.
    """

    path: str
    target_alias: str | None
    source: str
    source_alias: str | None
    condition: str
    clauses: tuple[tuple[str, dict[str, Any]], ...]
    evolves: bool


def only_in_sql(name: str) -> str | None:
    """Gives the reason why a case is left out, or None."""
    for reason, patterns in ONLY_IN_SQL.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            return reason
    return None


def builder_calls(statement: str) -> Calls:
    """Turns a statement into calls.

    Raises:
        NotInBuilder: That cannot be.
    """
    try:
        parsed = parse_merge(statement)
    except DeltaParseException:
        raise NotInBuilder("a statement that cannot be read") from None
    if parsed.target.path is None:
        raise NotInBuilder("a target by name")
    if parsed.ctes is not None:
        raise NotInBuilder("common table expressions")
    source = parsed.source
    return Calls(
        path=parsed.target.path,
        target_alias=parsed.target_alias,
        source=f"SELECT * FROM {source.sql}",
        source_alias=source.alias or (source.name[-1] if source.name and source.path is None else None),
        condition=parsed.condition.text,
        clauses=tuple(_call(clause) for clause in parsed.clauses),
        evolves=parsed.schema_evolution,
    )


def _call(clause: m.MergeClause) -> tuple[str, dict[str, Any]]:
    action = clause.action
    method = _METHODS[clause.kind, type(action)]
    arguments: dict[str, Any] = {}
    if clause.condition is not None:
        arguments["condition"] = clause.condition.text
    if isinstance(action, m.Update | m.Insert):
        if isinstance(action.assignments, m.Star):
            method += "All"
            if action.assignments.except_columns:
                arguments["except_cols"] = [_name(name) for name in action.assignments.except_columns]
        else:
            arguments["set" if isinstance(action, m.Update) else "values"] = _dictionary(action.assignments)
    return method, arguments


def _name(parts: m.NameParts) -> str:
    return ".".join(quote(part) for part in parts)


def _dictionary(assignments: tuple[m.Assignment, ...]) -> dict[str, str]:
    named = {_name(a.target): "DEFAULT" if isinstance(a.value, m.Default) else a.value.text for a in assignments}
    if len(named) < len(assignments):
        raise NotInBuilder("a column named twice")
    return named


def source_frame(spark: SparkSession, calls: Calls) -> DataFrame:
    """Makes the source; Delta tables in its query become views first."""
    from deltamerge import DeltaTable

    text = calls.source
    for number, path in enumerate(dict.fromkeys(_DELTA_PATH.findall(text))):
        view = f"builder_source_{number}"
        DeltaTable.forPath(spark, path.replace("``", "`")).toDF().createOrReplaceTempView(view)
        text = text.replace(f"delta.`{path}`", view)
    frame = spark.sql(text)
    return frame if calls.source_alias is None else frame.alias(calls.source_alias)


class BuilderEntry(Deltamerge):
    """deltamerge as an engine of the cases, by the builder."""

    def merge(self, spark: SparkSession, statement: str) -> tuple[Numbers, Numbers]:
        """Runs a MERGE by the builder's calls."""
        from deltamerge import DeltaTable

        calls = builder_calls(statement)
        target = DeltaTable.forPath(spark, calls.path)
        if calls.target_alias is not None:
            target = target.alias(calls.target_alias)
        merge = target.merge(source_frame(spark, calls), calls.condition)
        if calls.evolves:
            merge = merge.withSchemaEvolution()
        for method, arguments in calls.clauses:
            merge = getattr(merge, method)(**arguments)
        metrics = dict(merge.run().metrics)
        counts = {name: metrics[metric] for name, metric in COUNTS.items()}
        return {"num_affected_rows": sum(counts.values()), **counts}, metrics
