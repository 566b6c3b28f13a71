"""One timestamp for all of a statement's current_timestamp() and the like."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from deltamerge.merge.statement import MergeStatement
from deltamerge.spark import column_times
from deltamerge.sql.current_time import fix_current_time, names_time
from deltamerge.sql.merge_ast import (
    Action,
    Assignment,
    Default,
    Expression,
    Insert,
    MergeClause,
    Star,
    Update,
)


def at_one_time(statement: MergeStatement, microseconds: int, columns: Collection[str]) -> MergeStatement:
    """Fix the current time of a statement's expressions, also where several Spark queries evaluate them.

    Args:
        statement: The statement; expressions whose time is fixed already keep it.
        microseconds: The timestamp, microseconds since 1970.

    Returns:
        The statement with what is to be evaluated; what is shown stays as written.
    """
    spark = statement.source.sparkSession

    def at_moment(text: str) -> str:
        return fix_current_time(text, microseconds, columns)

    def fixed(expression: Expression) -> Expression:
        if expression.column is not None:
            if not names_time(expression.text):
                return expression
            return replace(
                expression, column=column_times.with_fixed_time(spark, expression.column, at_moment)
            )
        if expression.evaluated is not None:
            return expression
        text = at_moment(expression.text)
        return expression if text == expression.text else replace(expression, evaluated=text)

    def fixed_action(action: Action) -> Action:
        if not isinstance(action, (Update, Insert)) or isinstance(action.assignments, Star):
            return action
        assignments = tuple(
            a if isinstance(a.value, Default) else Assignment(a.target, fixed(a.value))
            for a in action.assignments
        )
        return replace(action, assignments=assignments)

    def fixed_clause(clause: MergeClause) -> MergeClause:
        condition = None if clause.condition is None else fixed(clause.condition)
        return replace(clause, condition=condition, action=fixed_action(clause.action))

    return replace(
        statement,
        condition=fixed(statement.condition),
        clauses=tuple(fixed_clause(clause) for clause in statement.clauses),
    )
