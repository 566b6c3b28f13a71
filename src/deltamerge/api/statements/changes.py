"""MERGE, DELETE, UPDATE, INSERT and TRUNCATE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import DataFrame

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.merge_sql import merge_command
from deltamerge.api.report import MergePlanReport, MergeReport
from deltamerge.api.statements import frames
from deltamerge.api.statements.queries import query_frame
from deltamerge.api.statements.tables import Tables
from deltamerge.api.write_delta import write_frame
from deltamerge.commands.auto_compact import merge_and_compact
from deltamerge.commands.delete_update import delete, truncate, update
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.merge.explain import explain_merge
from deltamerge.spark import columns as F
from deltamerge.spark.session import conf_value
from deltamerge.spark.table import spark_schema
from deltamerge.sql.merge_ast import Expression
from deltamerge.sql.names import quote
from deltamerge.sql.qualifiers import replace_qualifier
from deltamerge.sql.statements.ast import DeleteRows, InsertRows, ParsedMerge, TruncateTable, UpdateRows
from deltamerge.sql.statements.changes import with_defaults
from deltamerge.write.defaults import CURRENT_DEFAULT
from deltamerge.write.overwrite_kind import PARTITION_OVERWRITE_MODE, write_kind
from deltamerge.write.table_writer import FrameWrite


def run_merge_rows(tables: Tables, parsed: ParsedMerge, _: str) -> DataFrame:
    """Run a MERGE, for its counts, or EXPLAIN one, for its plan."""
    command = merge_command(tables, parsed)
    if parsed.explain is None:
        return MergeReport(merge_and_compact(command)).counts(tables.spark)
    plan = MergePlanReport(explain_merge(command, analyze=parsed.explain == "analyze"))
    return frames.table(tables.spark, [(str(plan),)], "plan STRING")


def run_delete(tables: Tables, found: DeltaTable, statement: DeleteRows) -> DataFrame:
    alias, rewritten = _aliased(statement)
    condition = None if statement.condition is None else rewritten(statement.condition)
    outcome = delete(found.table, alias, condition)
    return frames.affected_rows(tables.spark, outcome, "numTargetRowsDeleted")


def run_update(tables: Tables, found: DeltaTable, statement: UpdateRows) -> DataFrame:
    alias, rewritten = _aliased(statement)
    condition = None if statement.condition is None else rewritten(statement.condition)
    assignments = tuple(
        replace(a, value=rewritten(a.value)) if isinstance(a.value, Expression) else a for a in statement.assignments
    )
    outcome = update(found.table, alias, condition, assignments)
    return frames.affected_rows(tables.spark, outcome, "numTargetRowsUpdated")


def _aliased(statement: DeleteRows | UpdateRows) -> tuple[str | None, Callable[[Expression], Expression]]:
    """Return the name that qualifies a table's columns, and what puts it in the place of the table's whole name."""
    parts = statement.table.parts
    if statement.alias is not None or statement.table.path is not None:
        return statement.alias, lambda expression: expression

    def rewritten(expression: Expression) -> Expression:
        text = replace_qualifier(expression.text, parts, quote(parts[-1]))
        return expression if text == expression.text else replace(expression, text=text, span=None)

    return parts[-1], rewritten


def run_truncate(tables: Tables, found: DeltaTable, _: TruncateTable) -> DataFrame:
    truncate(found.table)
    return frames.nothing(tables.spark)


def run_insert(tables: Tables, found: DeltaTable, statement: InsertRows) -> DataFrame:
    rows = insert_frame(tables, found, statement)
    write_frame(found.table, rows, _insert(statement, conf_value(tables.spark, PARTITION_OVERWRITE_MODE), found))
    return frames.nothing(tables.spark)


def _insert(statement: InsertRows, session_mode: str | None, found: DeltaTable) -> FrameWrite:
    """Return what an INSERT does to the rows that are there."""
    condition = statement.replace_where
    if condition is None and statement.overwrites and not _is_dynamic(found, session_mode):
        condition = _partitions(statement)
    overwrites = statement.overwrites or condition is not None
    kind = write_kind(overwrites, condition, overwrites_schema=False, mode=None, session_mode=session_mode)
    return FrameWrite(kind, None if condition is None else Expression(condition))


def _partitions(statement: InsertRows) -> str | None:
    """Return the condition of the partitions that a statement names with their values."""
    fixed = [f"{quote(name)} <=> {value}" for name, value in statement.partition if value is not None]
    return " AND ".join(fixed) or None


def _is_dynamic(found: DeltaTable, session_mode: str | None) -> bool:
    """Return whether an overwrite replaces only the partitions that get rows."""
    return (session_mode or "").lower() == "dynamic" and bool(found.table.snapshot().metadata.partition_columns)


def insert_frame(tables: Tables, found: DeltaTable, statement: InsertRows) -> DataFrame:
    """Return the rows of an INSERT under the names of the table's columns."""
    schema = spark_schema(found.table.snapshot())
    spelled = {name.lower(): name for name in schema.names}
    fixed = {spelled.get(name.lower(), name): value for name, value in statement.partition if value is not None}
    names = [name for name in schema.names if name not in fixed]
    if statement.columns:
        names = [spelled.get(parts[-1].lower(), parts[-1]) for parts in statement.columns]
    defaults = {field.name: field.metadata.get(CURRENT_DEFAULT) for field in schema.fields}
    frame = query_frame(tables, with_defaults(statement.query, [defaults.get(name) for name in names]))
    if not statement.by_name:
        check_arity(found, len(names), len(frame.columns), names_given=bool(statement.columns))
        frame = frame.toDF(*names)
    for name, value in fixed.items():
        frame = frame.withColumn(name, F.expr(value))
    return frame


def check_arity(found: DeltaTable, wanted: int, given: int, *, names_given: bool) -> None:
    """Refuse rows with more or fewer columns than are written by their places."""
    if wanted == given:
        return
    problem = "not enough data columns" if given < wanted else "too many data columns"
    of_what = "the statement names" if names_given else "target table has"
    raise DeltaAnalysisException(
        "DELTA_INSERT_COLUMN_ARITY_MISMATCH",
        f"Cannot write to '{found.table.name}', {problem}; {of_what} {wanted} column(s) but the inserted data has "
        f"{given} column(s). To leave columns out, name the others: INSERT INTO table (a, b) ….",
        parameters={"tableName": found.table.name, "numColumns": str(wanted), "insertColumns": str(given)},
    )
