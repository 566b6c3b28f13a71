"""MERGE, DELETE, UPDATE, INSERT and TRUNCATE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

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
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.explain import explain_merge
from deltamerge.spark import columns as F
from deltamerge.spark.session import conf_value, merge_conf
from deltamerge.spark.table import spark_schema
from deltamerge.sql.merge_ast import Expression, NameParts
from deltamerge.sql.names import quote, quote_name
from deltamerge.sql.statements.ast import DeleteRows, InsertRows, ParsedMerge, TruncateTable, UpdateRows
from deltamerge.sql.statements.changes import with_defaults, with_defaults_for_names
from deltamerge.write.align import named_by_position
from deltamerge.write.defaults import CURRENT_DEFAULT
from deltamerge.write.overwrite_kind import PARTITION_OVERWRITE_MODE, write_kind
from deltamerge.write.stored_schema import stored_sql
from deltamerge.write.table_writer import FrameWrite


def run_merge_rows(tables: Tables, parsed: ParsedMerge, sql: str) -> DataFrame:
    """Run a MERGE, for its counts, or EXPLAIN one, for its plan; into a table of another provider Spark merges."""
    name = parsed.target.parts
    if parsed.target.path is None:
        found = tables.called(name) or tables.shown_by(name)
        if found is None and tables.is_of_another_provider(name):
            return query_frame(tables, sql)
        tables = tables if found is None else replace(tables, given={**tables.given, quote_name(name): found})
    command = merge_command(tables, parsed)
    if parsed.explain is None:
        return MergeReport(merge_and_compact(command)).counts(tables.spark)
    plan = MergePlanReport(explain_merge(command, analyze=parsed.explain == "analyze"))
    return frames.table(tables.spark, [(str(plan),)], "plan STRING")


def run_delete(tables: Tables, found: DeltaTable, statement: DeleteRows) -> DataFrame:
    outcome = delete(found.table, _name(statement), statement.condition)
    return frames.affected_rows(tables.spark, outcome, "numTargetRowsDeleted")


def run_update(tables: Tables, found: DeltaTable, statement: UpdateRows) -> DataFrame:
    outcome = update(found.table, _name(statement), statement.condition, statement.assignments)
    return frames.affected_rows(tables.spark, outcome, "numTargetRowsUpdated")


def _name(statement: DeleteRows | UpdateRows) -> NameParts:
    return statement.table.parts if statement.alias is None else (statement.alias,)


def run_truncate(tables: Tables, found: DeltaTable, statement: TruncateTable) -> DataFrame:
    if statement.of_partition:
        raise DeltaAnalysisException(
            "DELTA_TRUNCATE_TABLE_PARTITION_NOT_SUPPORTED",
            "Operation not allowed: TRUNCATE TABLE on Delta tables does not support partition predicates. Delete the "
            "rows of a partition: DELETE FROM table WHERE ….",
        )
    truncate(found.table)
    return frames.nothing(tables.spark)


def run_insert(tables: Tables, found: DeltaTable, statement: InsertRows) -> DataFrame:
    if statement.if_not_exists:
        raise DeltaAnalysisException(
            "UNSUPPORTED_FEATURE.INSERT_PARTITION_SPEC_IF_NOT_EXISTS",
            f"The feature is not supported: INSERT INTO {found.table.name} with IF NOT EXISTS in the PARTITION spec. "
            "Check for the partition's rows first.",
            parameters={"tableName": found.table.name},
        )
    evolves = statement.schema_evolution or merge_conf(tables.spark).schema_auto_merge
    snapshot = found.table.snapshot()
    rows = insert_frame(tables, found, snapshot, statement, evolves=evolves)
    asked = _insert(statement, conf_value(tables.spark, PARTITION_OVERWRITE_MODE), snapshot)
    write_frame(found.table, rows, replace(asked, merges_schema=evolves))
    return frames.nothing(tables.spark)


def _insert(statement: InsertRows, session_mode: str | None, snapshot: Snapshot) -> FrameWrite:
    condition = statement.replace_where
    if condition is None and statement.overwrites and not _is_dynamic(snapshot, session_mode):
        condition = _partitions(statement, spark_schema(snapshot))
    where = None if condition is None else condition.text
    overwrites = statement.overwrites or where is not None
    kind = write_kind(overwrites, where, False, None, session_mode, names_partitions=False)
    return FrameWrite(kind, condition)


def _partitions(statement: InsertRows, schema: StructType) -> Expression | None:
    fixed = _fixed_values(statement, schema)
    where = " AND ".join(f"{quote(name)} <=> {value}" for name, value in fixed.items())
    return Expression(where) if where else None


def _fixed_values(statement: InsertRows, schema: StructType) -> dict[str, str]:
    """Return SQL for the values of partition columns that a statement names, as they are stored.

    Spark: a value is cast to its column's type, not the column to the value's.
    """
    fields = {field.name.lower(): field for field in schema.fields}
    given = [(fields[name.lower()], value) for name, value in statement.partition if value is not None]
    return {
        field.name: stored_sql(f"CAST({value} AS {field.dataType.simpleString()})", field, is_partition=True)
        for field, value in given
    }


def _is_dynamic(snapshot: Snapshot, session_mode: str | None) -> bool:
    return (session_mode or "").lower() == "dynamic" and bool(snapshot.metadata.partition_columns)


def insert_frame(
    tables: Tables, found: DeltaTable, snapshot: Snapshot, statement: InsertRows, *, evolves: bool
) -> DataFrame:
    """Return the rows of an INSERT under the names of the table's columns.

    Args:
        evolves: Whether the table gets the columns that it lacks.
    """
    schema = spark_schema(snapshot)
    spelled = {name.lower(): name for name in schema.names}
    _check_named(statement, spelled)
    _check_partitions(statement, snapshot.metadata.partition_columns)
    fixed = _fixed_values(statement, schema)
    names = [name for name in schema.names if name not in fixed]
    if statement.columns:
        names = [spelled.get(parts[-1].lower(), parts[-1]) for parts in statement.columns]
    defaults = {field.name: field.metadata.get(CURRENT_DEFAULT) for field in schema.fields}
    frame = _queried(tables, statement.query, [defaults.get(name) for name in names])
    if not statement.by_name:
        further = evolves and not statement.columns
        frame = placed(frame, found, names, names_given=bool(statement.columns), evolves=further)
    frame = with_fields_by_position(frame, schema)
    for name, value in fixed.items():
        frame = frame.withColumn(name, F.expr(value))
    return frame


def _queried(tables: Tables, query: str, defaults: Sequence[str | None]) -> DataFrame:
    """Return a query's rows; DEFAULT is a column where there is one. Spark: ResolveColumnDefaultInCommandInputQuery."""
    if "DEFAULT" not in query.upper():
        return query_frame(tables, query)
    query = with_defaults(query, defaults)
    replaced = with_defaults_for_names(query, defaults)
    if replaced == query:
        return query_frame(tables, query)
    try:
        frame = query_frame(tables, query)
        # Connect finds out only now whether there is such a column.
        _ = frame.schema
    except AnalysisException as error:
        if "UNRESOLVED_COLUMN" not in str(error):
            raise
        return query_frame(tables, replaced)
    return frame


def _check_named(statement: InsertRows, known: Mapping[str, str]) -> None:
    """Refuse columns that a statement names and the table lacks: only those of the rows are added."""
    named = [*statement.columns, *((name,) for name, _ in statement.partition)]
    for parts in named:
        if len(parts) > 1 or parts[0].lower() not in known:
            choice, shown = ", ".join(map(quote, known.values())), quote_name(parts)
            raise DeltaAnalysisException(
                "UNRESOLVED_COLUMN.WITH_SUGGESTION",
                f"A column with name {shown} cannot be resolved. Did you mean one of the following? [{choice}].",
                parameters={"objectName": shown, "proposal": choice},
            )


def _check_partitions(statement: InsertRows, columns: Sequence[str]) -> None:
    """Refuse columns in the PARTITION clause that are no partition columns."""
    known = {name.lower() for name in columns}
    for name, _ in statement.partition:
        if name.lower() not in known:
            raise DeltaAnalysisException(
                "NON_PARTITION_COLUMN",
                f"PARTITION clause cannot contain the non-partition column: {quote(name)}. The partition columns are "
                f"[{', '.join(map(quote, columns))}].",
                parameters={"columnName": quote(name)},
            )


def with_fields_by_position(frame: DataFrame, schema: StructType) -> DataFrame:
    """Give the fields of structs, by their places, the names of the table's, also where its columns go by name."""
    wanted = {field.name.lower(): field.dataType for field in schema.fields}
    columns = []
    for given in frame.schema.fields:
        renamed = named_by_position(given.dataType, wanted.get(given.name.lower(), given.dataType), given.name)
        value = F.col(quote(given.name))
        columns.append(value if renamed == given.dataType else value.cast(renamed).alias(given.name))
    return frame.select(*columns)


def placed(
    frame: DataFrame, found: DeltaTable, names: Sequence[str], *, names_given: bool = False, evolves: bool
) -> DataFrame:
    """Give a frame's columns, by their places, the names of those that they are written to.

    Args:
        evolves: Whether further columns are added to the table, by the names that they have.
    """
    wanted, given = len(names), len(frame.columns)
    if not (wanted == given or (evolves and wanted < given)):
        raise _arity_mismatch(found, wanted, given, names_given=names_given)
    return frame.toDF(*names, *frame.columns[wanted:])


def _arity_mismatch(found: DeltaTable, wanted: int, given: int, *, names_given: bool) -> DeltaAnalysisException:
    problem = "not enough data columns" if given < wanted else "too many data columns"
    of_what = "the statement names" if names_given else "target table has"
    return DeltaAnalysisException(
        "DELTA_INSERT_COLUMN_ARITY_MISMATCH",
        f"Cannot write to '{found.table.name}', {problem}; {of_what} {wanted} column(s) but the inserted data has "
        f"{given} column(s). To leave columns out, name the others: INSERT INTO table (a, b) ….",
        parameters={"tableName": found.table.name, "numColumns": str(wanted), "insertColumns": str(given)},
    )
