"""merge_sql and plan_sql: a MERGE statement in SQL, run or explained."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.merge_builder import columns_to_dedupe_by
from deltamerge.api.plan_report import MergePlanReport
from deltamerge.api.report import MergeReport
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.merge.analysis.resolve import TARGET_ALIAS
from deltamerge.merge.command import MergeIntoCommand, run_merge
from deltamerge.merge.explain import explain_merge
from deltamerge.merge.statement import MergeStatement
from deltamerge.scan.parquet_files import read_parquet
from deltamerge.scan.timestamps import expression_ms
from deltamerge.sql.current_time import fix_current_time
from deltamerge.sql.merge_ast import Expression, NameParts, ParsedMerge, ParsedSource, ParsedTarget
from deltamerge.sql.merge_parser import parse_merge
from deltamerge.sql.names import parse_name, quote
from deltamerge.sql.relations import (
    TableReference,
    find_table_references,
    replace_qualifier,
    replace_references,
)
from deltamerge.txn.application import option_transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltamerge.merge.outcome import Progress

Tables: TypeAlias = "Mapping[str, str | DeltaTable]"


def merge_sql(
    spark: SparkSession,
    statement: str,
    tables: Tables | None = None,
    progress: Progress | None = None,
    *,
    dedupe_by: str | Sequence[str] | None = None,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    user_metadata: str | None = None,
    options: Mapping[str, str] | None = None,
) -> MergeReport:
    """Run a MERGE statement.

    Args:
        spark: The session, in which the source's tables and views are looked up.
        statement: A MERGE in Delta's SQL.
        tables: Delta tables by the names that they have in the statement; paths or `DeltaTable`s.
        progress: Is called with each step as it begins.
        dedupe_by: A source column or several: of the source rows with one key the latest by these is merged; see
            `DeltaTable.merge`.
        txn_app_id: The application that merges; with `txn_version` the merge is done once, however often the
            application tries. By default the session's ``spark.databricks.delta.write.txnAppId``.
        txn_version: The application's number for this merge, greater than those of its writes before. By default the
            session's ``spark.databricks.delta.write.txnVersion``.
        user_metadata: A string for the commit's ``userMetadata``. By default the session's
            ``spark.databricks.delta.commitInfo.userMetadata``.
        options: The options of the object store of tables that are named by a path, under obstore's names or
            Hadoop's; see `DeltaTable.forPath`.

    Returns:
        The report.

    Raises:
        DeltaIllegalArgumentException: Only one of `txn_app_id` and `txn_version` is given, or a setting is wrong.
        DeltaParseException: The statement cannot be parsed; the message points at the place.
        DeltaAnalysisException: A name, a type or a clause is wrong; nothing was read or written.
        DeltaRuntimeException: The data is at fault; the table is as it was.
        DeltaConcurrentModificationException: Another writer's commit conflicts; the table is as that left it.
    """
    parsed = parse_merge(statement)
    if parsed.explain is not None:
        raise DeltaAnalysisException(
            "UNSUPPORTED_FEATURE.EXPLAIN_MERGE",
            "merge_sql runs a MERGE. To see what it would do, use plan_sql, or `deltamerge plan` on the command line.",
            sqlstate="0A000",
        )
    transaction = option_transaction(txn_app_id, txn_version)
    command = _command(_Tables(spark, options or {}), parsed, tables, dedupe_by)
    return MergeReport(run_merge(replace(command, transaction=transaction, user_metadata=user_metadata), progress))


def plan_sql(
    spark: SparkSession,
    statement: str,
    tables: Tables | None = None,
    progress: Progress | None = None,
    *,
    dedupe_by: str | Sequence[str] | None = None,
    analyze: bool = False,
    options: Mapping[str, str] | None = None,
) -> MergePlanReport:
    """Return what a MERGE statement would do, without writing anything.

    Args:
        spark: The session, in which the source's tables and views are looked up.
        statement: A MERGE in Delta's SQL; ``EXPLAIN`` before it changes nothing, ``EXPLAIN ANALYZE`` does what
            `analyze` does.
        tables: Delta tables by the names that they have in the statement; paths or `DeltaTable`s.
        progress: Is called with each step as it begins.
        dedupe_by: A source column or several; see `merge_sql`.
        analyze: Whether to read the source and match its rows too, for the rows that each clause would change;
            otherwise only the log is read.
        options: The options of an object store; see `merge_sql`.

    Returns:
        The plan; with `analyze` its forecast also holds the error that the merge would end with.

    Raises:
        DeltaParseException: The statement cannot be parsed; the message points at the place.
        DeltaAnalysisException: A name, a type or a clause is wrong, or the plan that the session asks for does not
            fit.
    """
    parsed = parse_merge(statement)
    command = _command(_Tables(spark, options or {}), parsed, tables, dedupe_by)
    analyze = analyze or parsed.explain == "analyze"
    return MergePlanReport(explain_merge(command, analyze=analyze, progress=progress))


@dataclass(frozen=True)
class _Tables:
    """Tables by their paths.

    Args:
        options: The options of their object store.
    """

    spark: SparkSession
    options: Mapping[str, str] = field(repr=False)

    def at(self, path: str) -> DeltaTable:
        return DeltaTable.forPath(self.spark, path, dict(self.options))


def _command(
    opened: _Tables,
    parsed: ParsedMerge,
    tables: Tables | None,
    dedupe_by: str | Sequence[str] | None,
) -> MergeIntoCommand:
    given = (tables or {}).items()
    named = {name: table if isinstance(table, DeltaTable) else opened.at(table) for name, table in given}
    target = _target(opened, parsed.target, named)
    now = time.time_ns() // 1000
    statement = _statement(parsed, _source(opened, parsed, named, now), columns_to_dedupe_by(dedupe_by))
    return MergeIntoCommand(target.table, statement, timestamp=now)


def _statement(parsed: ParsedMerge, source: DataFrame, dedupe_by: tuple[str, ...]) -> MergeStatement:
    def expression(given: Expression) -> Expression:
        return _with_aliases(parsed, given)

    def target_column(name: NameParts) -> NameParts:
        return _without_table(parsed.target, name)

    return MergeStatement(
        source=source,
        source_alias=_source_alias(parsed.source),
        source_sql=parsed.source.sql,
        target_alias=_target_alias(parsed.target),
        condition=expression(parsed.condition),
        clauses=tuple(clause.rewritten(expression, target_column) for clause in parsed.clauses),
        schema_evolution=parsed.schema_evolution,
        sql=parsed.sql,
        dedupe_by=dedupe_by,
    )


def _target(opened: _Tables, target: ParsedTarget, named: Mapping[str, DeltaTable]) -> DeltaTable:
    if target.path is not None:
        return opened.at(target.path)
    name = ".".join(target.name)
    given = {**{key.lower(): table for key, table in named.items()}, **named}
    return given.get(name) or given.get(name.lower()) or DeltaTable.forName(opened.spark, name)


def _target_alias(target: ParsedTarget) -> str | None:
    if target.alias is not None:
        return target.alias
    return None if target.path is not None else target.name[-1]


def _source_alias(source: ParsedSource) -> str | None:
    if source.alias is not None:
        return source.alias
    return source.name[-1] if source.kind == "name" else None


def _source(opened: _Tables, parsed: ParsedMerge, named: Mapping[str, DeltaTable], now: int) -> DataFrame:
    source, spark = parsed.source, opened.spark
    plain = parsed.ctes is None and source.version is None and source.timestamp is None
    if plain and source.format == "parquet" and source.path is not None:
        files = read_parquet(spark, source.path)
        if files is not None:
            return files
    ctes = f"{parsed.ctes} " if parsed.ctes is not None else ""
    sql = fix_current_time(f"{ctes}SELECT * FROM {source.sql}", now)
    references = find_table_references(sql, named)
    frames: dict[str, Any] = {f"deltamerge_source_{i}": _frame(opened, r, named) for i, r in enumerate(references)}
    if not frames:
        return spark.sql(sql)
    # The session's formatter replaces names between braces by frames; the user's own braces are doubled for it.
    marks = {r.span: f"\x00{name}\x01{_alias(r)}" for r, name in zip(references, frames, strict=True)}
    marked = replace_references(sql, marks).replace("{", "{{").replace("}", "}}")
    return spark.sql(marked.replace("\x00", "{").replace("\x01", "}"), **frames)


def _alias(reference: TableReference) -> str:
    if reference.kind == "name" and reference.needs_alias:
        return f" AS {quote(parse_name(reference.path_or_name)[-1])}"
    return ""


def _frame(opened: _Tables, reference: TableReference, named: Mapping[str, DeltaTable]) -> DataFrame:
    of_path = reference.kind == "path"
    table = opened.at(reference.path_or_name) if of_path else named[reference.path_or_name]
    if reference.timestamp is not None:
        return table.at_milliseconds(expression_ms(opened.spark, reference.timestamp))
    return table.toDF() if reference.version is None else table.at(version=reference.version)


def _without_table(target: ParsedTarget, name: NameParts) -> NameParts:
    length = len(target.name)
    if target.alias is None and length > 1 and name[:length] == target.name:
        return name[length:]
    return name


def _with_aliases(parsed: ParsedMerge, expression: Expression) -> Expression:
    """Replace tables' names such as ``db.tbl``, which frames do not have, by aliases."""
    target, source, sql = parsed.target, parsed.source, expression.text
    if target.alias is None and len(target.name) > 1:
        alias = TARGET_ALIAS if target.path is not None else target.name[-1]
        sql = replace_qualifier(sql, target.name, quote(alias))
    if source.alias is None and source.kind == "name" and len(source.name) > 1:
        sql = replace_qualifier(sql, source.name, quote(source.name[-1]))
    return expression if sql == expression.text else replace(expression, text=sql, span=None)
