"""Which way of finding the matches fits."""

from __future__ import annotations

from collections.abc import Sequence

from deltamerge.merge.analysis.join_keys import NoPlainKeys, PlainKeys
from deltamerge.merge.planning.context import FOREIGN_NAMES, PlanningContext
from deltamerge.merge.planning.fit import Fits, Operator, always, arrow_type, has_plain_partitions, no, type_name, yes
from deltamerge.workers.table_columns import has_times

INSERT_ONLY = "spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled is false"


def key_lookup(context: PlanningContext, _: str) -> Fits:
    """Key columns are compared in Arrow, file by file."""
    against = (
        _against_session(context)
        or (context.plain_keys.reason if isinstance(context.plain_keys, NoPlainKeys) else None)
        or _against_partitions(context)
        or _against_table(context)
        or _against_by_source(context)
    )
    if against is not None:
        return no(against)
    if not context.merge.statement.has_source:
        return yes("the condition is plain comparisons, so PyArrow finds its rows in each file's columns")
    return yes("ON only equates plain keys, so each file's key columns are looked up in the source's")


def _against_session(context: PlanningContext) -> str | None:
    conf, session = context.conf, context.session
    if conf.materialize_source == "none" and context.merge.statement.has_source:
        return "spark.databricks.delta.merge.materializeSource is none, and a key lookup keeps the source's rows"
    if session.not_opened is not None:
        return session.not_opened
    if context.merge.statement.is_insert_only and not conf.optimize_insert_only_merge:
        return INSERT_ONLY
    return None


def _against_partitions(context: PlanningContext) -> str | None:
    """Return which key's values in the log Python does not read as Spark does."""
    keys, partitions = context.plain_keys, context.snapshot.metadata.partition_columns
    assert isinstance(keys, PlainKeys)
    filters = context.arrow.on_filters
    on_target = filters[0].columns if filters is not None and filters[0] is not None else frozenset()
    for index, field in enumerate(context.merge.target_schema.fields):
        is_read = (field.name,) in keys.target or index in on_target
        if is_read and field.name in partitions and not has_plain_partitions(field):
            return f"the partition column {field.name} is of type {type_name(field)}"
    return None


def _against_table(context: PlanningContext) -> str | None:
    """Return what makes a row in a file more than the values of the table's columns by their names."""
    merge = context.merge
    if context.may_have_foreign_names:
        return FOREIGN_NAMES
    kinds = [kind for field in merge.target_schema.fields if (kind := arrow_type(field.dataType)) is not None]
    if context.session.rebases_dates and any(map(has_times, kinds)):
        return "spark.sql.parquet.datetimeRebaseModeInRead changes dates as they are read"
    if context.has_deletion_vectors and not context.writes_deletion_vectors:
        return "the table has deletion vectors and is to get no more of them"
    return None


def _against_by_source(context: PlanningContext) -> str | None:
    clauses = context.merge.changing_by_source
    has_source = context.merge.statement.has_source
    if clauses and context.arrow.by_source_choice(()) is None:
        return f"{'a NOT MATCHED BY SOURCE' if has_source else 'the'} condition is more than plain comparisons"
    very_many = context.snapshot.files.rows_about() > context.limits.unmatched_rows
    if very_many and any(clause.clause.condition is None for clause in clauses):
        return "a NOT MATCHED BY SOURCE clause may change more rows than a key lookup holds positions of"
    return None


def anti_join(context: PlanningContext, _: str) -> Fits:
    """Spark joins the source with the target's keys and keeps the rows without a match."""
    if not context.merge.statement.is_insert_only:
        return no("there are clauses that update or delete")
    if not context.conf.optimize_insert_only_merge and context.conf.executor == "auto":
        return no(INSERT_ONLY)
    return yes("there are only NOT MATCHED clauses, so it is enough to know which source rows have no match")


def join(context: PlanningContext, _: str) -> Fits:
    """Spark joins source and target once, and the driver keeps the positions of the rows that change."""
    merge, limits, has_source = context.merge, context.limits, context.merge.statement.has_source
    if context.conf.materialize_source == "none" and has_source:
        return no("the source is not kept, and may return other rows each time that it is read")
    if merge.statement.is_insert_only and context.conf.executor == "auto":
        return no("there are only NOT MATCHED clauses")
    if context.summary is not None:
        rows = context.files.rows_about() + context.summary.row_count
        if rows > limits.positions:
            return no(
                "source and files that may match have more rows than the driver takes positions of "
                f"({limits.positions:,})"
            )
    if context.conf.executor == "auto" and has_source and context.files.size_in_bytes <= limits.rewritten_bytes:
        return no(
            f"the files that may match are small ({context.files.size_in_bytes:,} bytes), so that one join that writes "
            "them again costs less"
        )
    return yes("only rows that change are computed; the others are neither joined a second time nor shuffled")


def whole_files(context: PlanningContext, _: str) -> Fits:
    """Files whose rows the condition takes all alike are removed by what the log has of them."""
    (clause,) = context.merge.clauses
    if clause.action != "delete":
        return no("the statement updates rows")
    if not context.references.by_partition(context.snapshot.metadata.partition_columns):
        return no("the condition asks for columns that differ within a file")
    if clause.clause.condition is None:
        return yes("there is no condition, so all files are removed and none is read")
    return yes("the condition only asks for partition columns, so whole files are removed and none is read")


def operators(context: PlanningContext) -> Sequence[Operator]:
    return OPERATORS if context.merge.statement.has_source else WITHOUT_SOURCE


_JOIN_FILES = always("it fits every merge: the touched files are joined with the source")

WITHOUT_SOURCE: Sequence[Operator] = (
    ("whole_files", whole_files),
    ("key_lookup", key_lookup),
    ("join", join),
    ("join_files", _JOIN_FILES),
)
"""Of an UPDATE or DELETE, whose condition is like a NOT MATCHED BY SOURCE clause's."""

OPERATORS: Sequence[Operator] = (
    ("key_lookup", key_lookup),
    ("anti_join", anti_join),
    ("join", join),
    ("join_files", _JOIN_FILES),
)
"""In the order of preference."""
