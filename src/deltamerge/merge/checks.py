"""What can be wrong with a statement before any name in it is looked up."""

from __future__ import annotations

from deltamerge.errors import DeltaAnalysisException
from deltamerge.statement import KIND_AS_SQL, ClauseKind, MergeStatement

_OMIT_CONDITION: dict[ClauseKind, str] = {
    "matched": "DELTA_NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION",
    "not_matched": "DELTA_NON_LAST_NOT_MATCHED_CLAUSE_OMIT_CONDITION",
    "not_matched_by_source": "DELTA_NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION",
}


def check_clause_order(statement: MergeStatement) -> None:
    """Refuses a merge without clauses, or with a clause that hides the ones after it.

    Args:
        statement: The merge.

    Raises:
        DeltaAnalysisException: There is no WHEN clause, or one that is not the last of its kind has no condition.
    """
    if not statement.clauses:
        raise DeltaAnalysisException(
            "DELTA_MERGE_MISSING_WHEN",
            "There must be at least one WHEN clause in a MERGE statement: say what is to happen to rows that "
            "match, or to those that do not.",
            sqlstate="42601",
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
                    sqlstate="42601",
                )
