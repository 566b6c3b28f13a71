"""From a command to its plan: names resolved, operators chosen; no job runs and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from deltamerge.log.actions import Metadata
from deltamerge.log.change_feed import DISABLE, reserved_among, reserved_names
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.column_references import MergeReferences
from deltamerge.merge.analysis.frame_columns import with_columns_by_alias
from deltamerge.merge.analysis.join_keys import types_of_expressions
from deltamerge.merge.analysis.resolve import resolve
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.analysis.skipped_updates import skipping_unchanged
from deltamerge.merge.begin import files_of_a_run
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.limits import LIMITS
from deltamerge.merge.planning.context import PlanningContext, SessionFacts
from deltamerge.merge.planning.planner import make_plan
from deltamerge.merge.source.dedupe import check_dedupe_by, latest_per_key
from deltamerge.merge.source.key_summary import NO_ROWS
from deltamerge.merge.source.source import narrowed
from deltamerge.merge.statement import MergeStatement
from deltamerge.merge.steps import Steps
from deltamerge.scan.changes import MERGE_ACTION
from deltamerge.spark import column_times
from deltamerge.spark.config import MergeConf
from deltamerge.spark.functions import replaced_operators
from deltamerge.spark.session import conf_value, effective_value, runs_in_local_mode
from deltamerge.sql.current_time import fix_current_time, names_time
from deltamerge.sql.merge_ast import Expression
from deltamerge.storage.store import Store
from deltamerge.storage.task_files import NotOpened
from deltamerge.write.constraints import Check, constraints_of
from deltamerge.write.defaults import default_sql
from deltamerge.write.layout import data_folder
from deltamerge.write.schema_evolution import automatic_widening, evolved_metadata
from deltamerge.write.stored_schema import schema_to_write

if TYPE_CHECKING:
    from deltamerge.merge.command import MergeIntoCommand


def prepare(command: MergeIntoCommand, snapshot: Snapshot, conf: MergeConf, steps: Steps) -> Execution:
    """Resolve, analyze and plan a merge whose timestamp is set."""
    spark, timestamp = command.table.spark, command.timestamp
    assert timestamp is not None
    with steps.step("resolve", "resolving the statement"):
        schema = schema_to_write(snapshot)
        columns = (*schema.names, *command.statement.source.schema.names)
        statement = with_columns_by_alias(spark, command.statement)
        statement = at_one_time(statement, timestamp, columns, conf.session_time_zone)
        check_dedupe_by(statement.dedupe_by, statement.source.schema, conf.case_sensitive)
        if statement.has_source and conf.skip_unchanged:
            statement = replace(statement, skip_unchanged=True)
        configuration, widening = snapshot.metadata.configuration, automatic_widening(snapshot, conf)
        merge = resolve(spark, statement, schema, conf, widening, snapshot.metadata.partition_columns)
        merge = narrowed(skipping_unchanged(spark, merge) if statement.skip_unchanged else merge)
        merge, metadata = table_after(snapshot, merge)
        operators = replaced_operators(spark, _evaluated_sql(statement, merge.output_schema, configuration))
        references = MergeReferences(merge, operators, conf.compares_times_as_strings)
        key_types = types_of_expressions(merge, references.on) if statement.has_source else {}
        merge = latest_per_key(merge, references.on)
    session = _session_facts(spark, command.table.store)
    context = PlanningContext(
        merge,
        references,
        snapshot,
        conf,
        session,
        limits=LIMITS,
        summary=None if statement.has_source else NO_ROWS,
        declined=command.ruled_out,
        returns_changes=command.returns_changes,
        key_types=key_types,
    )
    check_change_data_names(context)
    return Execution(
        table=command.table,
        context=context,
        plan=make_plan(context),
        metadata=metadata,
        steps=steps,
        folder=data_folder(snapshot.metadata.configuration),
        timestamp=timestamp,
        source_read_table=command.snapshot is not None,
        opened=files_of_a_run(command.table.store) if command.begun is None else command.begun.opened,
    )


def _evaluated_sql(statement: MergeStatement, schema: StructType, configuration: Mapping[str, str]) -> tuple[str, ...]:
    """Return the SQL of all expressions that the merge evaluates: the statement's and those that the table has."""
    given = (statement.condition, *(e for clause in statement.clauses for e in clause.expressions))
    checks = (check.expression for check in constraints_of(schema, configuration) if isinstance(check, Check))
    defaults = filter(None, map(default_sql, schema.fields))
    return (*(e.text for e in given), *checks, *defaults)


def _session_facts(spark: SparkSession, store: Store) -> SessionFacts:
    # It also has the name of Spark 3's, which only Spark resolves.
    rebase = effective_value(spark, "spark.sql.parquet.datetimeRebaseModeInRead") or "CORRECTED"
    records = int(conf_value(spark, "spark.sql.files.maxRecordsPerFile") or 0)
    return SessionFacts(
        compression=conf_value(spark, "spark.sql.parquet.compression.codec") or "snappy",
        rebases_dates=rebase.upper() != "CORRECTED",
        records_per_file=records if records > 0 else None,
        not_opened=store.files.reason if isinstance(store.files, NotOpened) else None,
        runs_in_local_mode=runs_in_local_mode(spark),
    )


def check_change_data_names(context: PlanningContext) -> None:
    """Refuse a merge that writes or returns change data of a table that has columns of its names, or would get them."""
    names = context.merge.output_schema.names
    found = reserved_among(names) if context.writes_change_data else []
    if context.returns_changes:
        found += [name for name in names if name.lower() == MERGE_ACTION]
    if found:
        raise reserved_names(found, "run the merge without returning()" if context.returns_changes else DISABLE)


def at_one_time(statement: MergeStatement, microseconds: int, columns: Collection[str], zone: str) -> MergeStatement:
    """Fix the current time of a statement's expressions, also where several Spark queries evaluate them.

    Expressions whose time is fixed already keep it; what is shown of the statement stays as written.
    """
    spark = statement.source.sparkSession

    def at_time(sql: str) -> str:
        return fix_current_time(sql, microseconds, columns, zone)

    def fixed(expression: Expression) -> Expression:
        if expression.column is not None:
            if not names_time(expression.text):
                return expression
            return replace(expression, column=column_times.with_fixed_time(spark, expression.column, at_time))
        sql = at_time(expression.sql)
        return expression if sql == expression.sql else replace(expression, evaluated=sql)

    return replace(
        statement,
        condition=fixed(statement.condition),
        clauses=tuple(clause.rewritten(fixed) for clause in statement.clauses),
    )


def table_after(snapshot: Snapshot, merge: ResolvedMerge) -> tuple[ResolvedMerge, Metadata]:
    if not merge.evolves_schema:
        return merge, snapshot.metadata
    metadata = evolved_metadata(snapshot, merge.output_schema, snapshot.metadata.configuration)
    schema = StructType.fromJson(json.loads(metadata.schema_string or ""))
    return replace(merge, output_schema=schema), metadata
