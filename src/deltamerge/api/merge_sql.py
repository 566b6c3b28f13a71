"""merge_sql and plan_sql: a MERGE statement in SQL, run or explained."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.merge_builder import columns_to_dedupe_by
from deltamerge.api.report import MergePlanReport, MergeReport
from deltamerge.api.statements.queries import query_frame
from deltamerge.api.statements.tables import Tables
from deltamerge.commands.auto_compact import merge_and_compact
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.merge.begin import Begun, begin
from deltamerge.merge.command import MergeIntoCommand
from deltamerge.merge.explain import explain_merge
from deltamerge.merge.outcome import Progress
from deltamerge.merge.statement import MergeStatement
from deltamerge.scan.parquet_files import read_parquet
from deltamerge.spark.session import in_session
from deltamerge.spark.table import Table, counting_requests
from deltamerge.spark.variables import substituted
from deltamerge.sql.current_time import fix_current_time
from deltamerge.sql.merge_parser import parse_merge
from deltamerge.sql.statements.ast import ParsedMerge
from deltamerge.storage.credentials import StoreOptions
from deltamerge.txn.application import option_transaction

NamedTables: TypeAlias = "Mapping[str, str | DeltaTable]"

# A table or a join in parentheses is none.
_QUERY = re.compile(r"\(\s*(\(|(SELECT|WITH|VALUES|TABLE|FROM)\b)", re.IGNORECASE)


def merge_sql(
    spark: SparkSession,
    statement: str,
    tables: NamedTables | None = None,
    progress: Progress | None = None,
    *,
    dedupe_by: str | Sequence[str] | None = None,
    skip_unchanged: bool = False,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    user_metadata: str | None = None,
    options: StoreOptions | None = None,
) -> MergeReport:
    """Run a MERGE statement.

    Args:
        spark: The session, in which the source's tables and views are looked up.
        statement: A MERGE in Delta's SQL.
        tables: Delta tables by the names that they have in the statement; paths or `DeltaTable`s.
        progress: An object whose ``step(name, description)`` is called as each step begins, such as
            `show_progress`.
        dedupe_by: A source column or several: of the source rows with one key the latest by these is merged; see
            `DeltaTable.merge`.
        skip_unchanged: Whether a row to which an UPDATE would give the values that it has is left alone; see
            `DeltaTable.merge`.
        txn_app_id: The application that merges; with `txn_version` the merge is done once, however often the
            application tries. By default the session's ``spark.databricks.delta.write.txnAppId``.
        txn_version: The application's number for this merge, greater than those of its earlier writes. By default the
            session's ``spark.databricks.delta.write.txnVersion``.
        user_metadata: A string for the commit's ``userMetadata``. By default the session's
            ``spark.databricks.delta.commitInfo.userMetadata``.
        options: The options of the object store of tables that are named by a path, under obstore's names or
            Hadoop's; see `DeltaTable.forPath`.

    Returns:
        The report.

    Raises:
        DeltaIllegalArgumentException: Only one of `txn_app_id` and `txn_version` is given, or a setting is wrong.
        DeltaParseException: The statement cannot be parsed; the message shows where.
        DeltaAnalysisException: A name, a type or a clause is wrong; nothing was read or written.
        DeltaRuntimeException: The data is at fault; the table is unchanged.
        DeltaConcurrentModificationException: Another writer's commit conflicts; the table is as that left it.
    """
    parsed = parse_merge(substituted(spark, statement))
    if parsed.explain is not None:
        raise DeltaAnalysisException(
            "UNSUPPORTED_FEATURE.EXPLAIN_MERGE",
            "merge_sql runs a MERGE. To see what it would do, use plan_sql, or `deltamerge plan` on the command line.",
        )
    transaction = option_transaction(txn_app_id, txn_version)
    command = merge_command(_tables(spark, options, tables), parsed, dedupe_by, skip_unchanged=skip_unchanged)
    command = replace(command, transaction=transaction, user_metadata=user_metadata)
    return MergeReport(merge_and_compact(command, progress))


def plan_sql(
    spark: SparkSession,
    statement: str,
    tables: NamedTables | None = None,
    progress: Progress | None = None,
    *,
    dedupe_by: str | Sequence[str] | None = None,
    skip_unchanged: bool = False,
    analyze: bool = False,
    options: StoreOptions | None = None,
) -> MergePlanReport:
    """Return what a MERGE statement would do, without writing anything.

    Args:
        spark: The session, in which the source's tables and views are looked up.
        statement: A MERGE in Delta's SQL; ``EXPLAIN`` before it changes nothing, ``EXPLAIN ANALYZE`` does what
            `analyze` does.
        tables: Delta tables by the names that they have in the statement; paths or `DeltaTable`s.
        progress: An object whose ``step(name, description)`` is called as each step begins, such as
            `show_progress`.
        dedupe_by: A source column or several; see `merge_sql`.
        skip_unchanged: Whether rows that an UPDATE would leave as they are are left alone; see `merge_sql`.
        analyze: Whether to read the source and match its rows too, for the rows that each clause would change;
            otherwise only the log, and footers of a source's Parquet files, are read.
        options: The options of an object store; see `merge_sql`.

    Returns:
        The plan; with `analyze` its forecast also holds the error that the merge would end with.

    Raises:
        DeltaParseException: The statement cannot be parsed; the message shows where.
        DeltaAnalysisException: A name, a type or a clause is wrong, or the plan that the session asks for does not
            fit.
    """
    parsed = parse_merge(substituted(spark, statement))
    command = merge_command(_tables(spark, options, tables), parsed, dedupe_by, skip_unchanged=skip_unchanged)
    analyze = analyze or parsed.explain == "analyze"
    return MergePlanReport(explain_merge(command, analyze=analyze, progress=progress))


def _tables(spark: SparkSession, options: StoreOptions | None, given: NamedTables | None) -> Tables:
    opened = Tables(spark, options or {})
    named = {n: t if isinstance(t, DeltaTable) else opened.at(t) for n, t in (given or {}).items()}
    return replace(opened, given=named)


def merge_command(
    tables: Tables,
    parsed: ParsedMerge,
    dedupe_by: str | Sequence[str] | None = None,
    *,
    skip_unchanged: bool = False,
) -> MergeIntoCommand:
    """Return the command that a parsed MERGE asks for."""
    target = counting_requests(tables.to_change(parsed.target))
    now, begun = time.time_ns() // 1000, begin(target)
    rows = in_session(_source(tables, parsed, target, begun, now), target.spark)
    statement = _statement(parsed, rows, columns_to_dedupe_by(dedupe_by))
    statement = replace(statement, skip_unchanged=skip_unchanged)
    return MergeIntoCommand(target, statement, timestamp=now, begun=begun)


def _statement(parsed: ParsedMerge, rows: DataFrame, dedupe_by: tuple[str, ...]) -> MergeStatement:
    target, source = parsed.target, parsed.source
    return MergeStatement(
        source=rows,
        source_name=source.name if source.alias is None else (source.alias,),
        source_sql=source.sql,
        target_name=target.parts if parsed.target_alias is None else (parsed.target_alias,),
        condition=parsed.condition,
        clauses=parsed.clauses,
        schema_evolution=parsed.schema_evolution,
        sql=parsed.sql,
        dedupe_by=dedupe_by,
    )


def _source(tables: Tables, parsed: ParsedMerge, target: Table, begun: Begun, now: int) -> DataFrame:
    source = parsed.source
    is_query = source.alias is None and _QUERY.match(source.sql) is not None
    plain = parsed.ctes is None and source.at is None
    if plain and source.format == "parquet" and source.path is not None:
        files = read_parquet(target, source.path, tables.options, begun.opened)
        if files is not None:
            return files
    ctes = f"{parsed.ctes} " if parsed.ctes is not None else ""
    # In FROM a query without an alias would hide the names that its columns have within.
    query = source.sql if is_query else f"SELECT * FROM {source.sql}"
    return query_frame(tables, fix_current_time(f"{ctes}{query}", now))
