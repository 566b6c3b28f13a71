"""One timestamp for all of a statement's current_timestamp() and the like."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from deltamerge.merge.statement import MergeStatement
from deltamerge.spark import column_times
from deltamerge.sql.current_time import fix_current_time, names_time
from deltamerge.sql.merge_ast import Expression


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
        if expression.evaluated is not None:
            return expression
        sql = at_time(expression.text)
        return expression if sql == expression.text else replace(expression, evaluated=sql)

    return replace(
        statement,
        condition=fixed(statement.condition),
        clauses=tuple(clause.rewritten(fixed) for clause in statement.clauses),
    )
