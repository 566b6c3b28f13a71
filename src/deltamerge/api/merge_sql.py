"""MERGE as text: from the parsed statement to the command."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.merge_builder import columns_to_dedupe_by
from deltamerge.api.report import MergeReport
from deltamerge.merge.analysis.resolve import TARGET_ALIAS
from deltamerge.merge.command import MergeIntoCommand, run_merge
from deltamerge.merge.statement import (
    Action,
    Assignment,
    ClauseKind,
    Default,
    Delete,
    DoNothing,
    Expression,
    Insert,
    MergeClause,
    MergeStatement,
    Star,
    Update,
)
from deltamerge.scan.parquet_files import read_parquet
from deltamerge.scan.timestamps import expression_ms
from deltamerge.sql import parsed as p
from deltamerge.sql.current_time import fix_current_time
from deltamerge.sql.merge_parser import parse_merge
from deltamerge.sql.names import parse_name, quote
from deltamerge.sql.relations import (
    TableReference,
    find_table_references,
    replace_qualifier,
    replace_references,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltamerge.merge.outcome import Progress

Tables: TypeAlias = "Mapping[str, str | DeltaTable]"

_KINDS: dict[p.ClauseKind, ClauseKind] = {
    "MATCHED": "matched",
    "NOT MATCHED": "not_matched",
    "NOT MATCHED BY SOURCE": "not_matched_by_source",
}


def merge_sql(
    spark: SparkSession,
    text: str,
    tables: Tables | None = None,
    progress: Progress | None = None,
    *,
    dedupe_by: str | Sequence[str] | None = None,
) -> MergeReport:
    """Runs a MERGE statement.

    Args:
        spark: The session, in which the source's tables and views are looked up.
        text: The statement, as Delta's SQL has it.
        tables: Delta tables by the names that the statement gives them; paths or `DeltaTable`s.
        progress: Is told of each step as it begins.
        dedupe_by: A source column or several: of the source rows with one key the latest by these is merged; see
            `DeltaTable.merge`.

    Returns:
        The report.

    Raises:
        DeltaParseException: The text cannot be read; the message points at the place.
        DeltaAnalysisException: A name, a type or a clause is wrong; nothing was read or written.
        DeltaRuntimeException: The data is at fault; the table is as it was.
        DeltaConcurrentModificationException: Another writer's commit conflicts; the table is as that left it.
    """
    parsed = parse_merge(text)
    named = {name: _table(spark, table) for name, table in (tables or {}).items()}
    target = _target(spark, parsed.target, named)
    now = time.time_ns() // 1000
    statement = MergeStatement(
        source=_source(spark, parsed, named, now),
        source_alias=_source_alias(parsed.source),
        source_text=parsed.source.text,
        target_alias=_target_alias(parsed.target),
        condition=_expression(parsed, parsed.condition),
        clauses=_clauses(parsed),
        schema_evolution=parsed.with_schema_evolution,
        text=parsed.text.strip(),
        dedupe_by=columns_to_dedupe_by(dedupe_by),
    )
    command = MergeIntoCommand(target.table, statement, timestamp=now)
    return MergeReport(run_merge(command, progress))


def _table(spark: SparkSession, table: str | DeltaTable) -> DeltaTable:
    return table if isinstance(table, DeltaTable) else DeltaTable.forPath(spark, table)


def _target(spark: SparkSession, target: p.ParsedTarget, named: Mapping[str, DeltaTable]) -> DeltaTable:
    if target.path is not None:
        return DeltaTable.forPath(spark, target.path)
    name = ".".join(target.name)
    given = {**{key.lower(): table for key, table in named.items()}, **named}
    return given.get(name) or given.get(name.lower()) or DeltaTable.forName(spark, name)


def _target_alias(target: p.ParsedTarget) -> str | None:
    if target.alias is not None:
        return target.alias
    return None if target.path is not None else target.name[-1]


def _source_alias(source: p.ParsedSource) -> str | None:
    if source.alias is not None:
        return source.alias
    return source.name[-1] if source.kind == "name" else None


def _source(
    spark: SparkSession, parsed: p.ParsedMerge, named: Mapping[str, DeltaTable], now: int
) -> DataFrame:
    source = parsed.source
    files = _parquet(spark, source) if parsed.ctes is None else None
    if files is not None:
        return files
    ctes = f"{parsed.ctes.text} " if parsed.ctes is not None else ""
    text = fix_current_time(f"{ctes}SELECT * FROM {source.text}", now)
    references = find_table_references(text, named)
    frames: dict[str, Any] = {
        f"deltamerge_source_{i}": _frame(spark, r, named) for i, r in enumerate(references)
    }
    if not frames:
        return spark.sql(text)
    # The session's formatter puts frames in for names between braces; braces of the user's are doubled for it.
    marks = {r.span: f"\x00{name}\x01{_alias(r)}" for r, name in zip(references, frames, strict=True)}
    marked = replace_references(text, marks).replace("{", "{{").replace("}", "}}")
    return spark.sql(marked.replace("\x00", "{").replace("\x01", "}"), **frames)


def _parquet(spark: SparkSession, source: p.ParsedSource) -> DataFrame | None:
    if source.format != "parquet" or source.path is None:
        return None
    travels = source.version is not None or source.timestamp is not None
    return None if travels else read_parquet(spark, source.path)


def _alias(reference: TableReference) -> str:
    if reference.kind == "name" and reference.needs_alias:
        return f" AS {quote(parse_name(reference.path_or_name)[-1])}"
    return ""


def _frame(spark: SparkSession, reference: TableReference, named: Mapping[str, DeltaTable]) -> DataFrame:
    of_path = reference.kind == "path"
    table = DeltaTable.forPath(spark, reference.path_or_name) if of_path else named[reference.path_or_name]
    if reference.timestamp_text is not None:
        return table.at_moment(expression_ms(spark, reference.timestamp_text))
    return table.toDF() if reference.version is None else table.at(version=reference.version)


def _clauses(parsed: p.ParsedMerge) -> tuple[MergeClause, ...]:
    clauses = sorted(
        (*parsed.matched, *parsed.not_matched, *parsed.not_matched_by_source),
        key=lambda clause: clause.position,
    )
    return tuple(
        MergeClause(
            kind=_KINDS[clause.kind],
            condition=None if clause.condition is None else _expression(parsed, clause.condition),
            action=_action(parsed, clause.action),
        )
        for clause in clauses
    )


def _action(parsed: p.ParsedMerge, action: p.Action) -> Action:
    if isinstance(action, p.Delete):
        return Delete()
    if isinstance(action, p.DoNothing):
        return DoNothing()
    if isinstance(action, p.UpdateStar):
        return Update(Star(tuple(_column(parsed, name) for name in action.except_columns)))
    if isinstance(action, p.InsertStar):
        return Insert(Star(tuple(_column(parsed, name) for name in action.except_columns)))
    if isinstance(action, p.Update):
        return Update(tuple(_assignments(parsed, ((a.column, a.value) for a in action.assignments))))
    return Insert(tuple(_assignments(parsed, zip(action.columns, action.values, strict=True))))


def _assignments(
    parsed: p.ParsedMerge, pairs: Iterable[tuple[p.WrittenName, p.Value]]
) -> Iterable[Assignment]:
    for name, value in pairs:
        given = Default() if value.is_default else _expression(parsed, value)
        yield Assignment(_column(parsed, name), given)


def _column(parsed: p.ParsedMerge, name: p.WrittenName) -> tuple[str, ...]:
    qualifier = parsed.target.name
    if parsed.target.alias is None and len(qualifier) > 1 and name.parts[: len(qualifier)] == qualifier:
        return name.parts[len(qualifier) :]
    return name.parts


def _expression(parsed: p.ParsedMerge, fragment: p.Fragment | p.Value) -> Expression:
    text = fragment.text
    if parsed.target.alias is None and len(parsed.target.name) > 1:
        alias = TARGET_ALIAS if parsed.target.path is not None else parsed.target.name[-1]
        text = replace_qualifier(text, parsed.target.name, quote(alias), case_sensitive=False)
    if parsed.source.alias is None and parsed.source.kind == "name" and len(parsed.source.name) > 1:
        text = replace_qualifier(
            text, parsed.source.name, quote(parsed.source.name[-1]), case_sensitive=False
        )
    return Expression(text, start=fragment.span.start if text == fragment.text else None)
