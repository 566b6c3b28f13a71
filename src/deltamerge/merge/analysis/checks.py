"""What can be wrong before any name in a statement is looked up."""

from __future__ import annotations

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.schema import fits_into, parse_schema, simple_string
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.statement import MergeStatement
from deltamerge.spark.table import Table
from deltamerge.sql.merge_ast import KIND_AS_SQL, ClauseKind

_OMIT_CONDITION: dict[ClauseKind, str] = {
    "matched": "DELTA_NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION",
    "not_matched": "DELTA_NON_LAST_NOT_MATCHED_CLAUSE_OMIT_CONDITION",
    "not_matched_by_source": "DELTA_NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION",
}


def check_clause_order(statement: MergeStatement) -> None:
    """Refuse a merge without clauses, or with a clause that hides the ones after it."""
    if not statement.clauses:
        raise DeltaAnalysisException(
            "DELTA_MERGE_MISSING_WHEN",
            "There must be at least one WHEN clause in a MERGE statement: say what is to happen to rows that "
            "match, or to those that do not.",
        )
    for kind, error_class in _OMIT_CONDITION.items():
        clauses = statement.of_kind(kind)
        for position, clause in enumerate(clauses[:-1], start=1):
            if clause.condition is None:
                raise DeltaAnalysisException(
                    error_class,
                    f"When there are more than one {KIND_AS_SQL[kind]} clauses in a MERGE statement, only the last "
                    f"can omit the condition. Clause {position} of {len(clauses)} has none and would take every "
                    f"row: {clause.to_sql()}",
                )


def check_schema_since_analysis(table: Table, snapshot: Snapshot) -> None:
    """Refuse a table whose columns were dropped, renamed or given other types since a user's call opened it."""
    if table.opened_schema is None or table.opened_schema == snapshot.metadata.schema_string:
        return
    opened = parse_schema(table.opened_schema)
    if fits_into(opened, snapshot.schema):
        return
    difference = f"it was {simple_string(opened)}, it is {simple_string(snapshot.schema)}"
    flag = "set spark.databricks.delta.checkLatestSchemaOnRead to false"
    raise DeltaAnalysisException(
        "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
        f"The schema of table {table.name} has changed in an incompatible way since your DeltaTable object was "
        f"created: {difference}. Open the table again, or {flag}.",
        parameters={"schemaDiff": difference, "legacyFlagMessage": f"Or {flag}."},
    )
