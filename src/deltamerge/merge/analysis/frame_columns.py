"""Columns that the statement takes from the source's frame, or from one of the target, as columns by name."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from deltamerge.merge.analysis.resolve import TARGET_ALIAS
from deltamerge.merge.statement import MergeStatement
from deltamerge.spark.column_trees import printed_sql
from deltamerge.spark.frame_columns import FrameSide, columns_by_name, has_qualifiers, is_bound
from deltamerge.sql.merge_ast import Expression

_SOURCE_ALIAS = "__dm_source"


def with_columns_by_name(spark: SparkSession, statement: MergeStatement) -> MergeStatement:
    """Return a statement whose Columns name the sides' columns, instead of being bound to frames.

    The source gets an alias where it has no name of its own, so that a name that both sides have is one side's.
    """
    expressions = [statement.condition, *(e for clause in statement.clauses for e in clause.expressions)]
    if not any(each.column is not None and is_bound(each.column) for each in expressions):
        return statement
    alias = statement.source_alias
    if alias is None and statement.has_source and not has_qualifiers(statement.source):
        alias = _SOURCE_ALIAS
    sides = [
        FrameSide((statement.source,), alias),
        FrameSide(statement.target_frames(), statement.target_alias or TARGET_ALIAS),
    ]
    by_name = columns_by_name(spark, sides)

    def named(expression: Expression) -> Expression:
        column = None if expression.column is None else by_name(expression.column)
        if column is expression.column:
            return expression
        return replace(expression, column=column, text=printed_sql(str(column)))

    return replace(
        statement,
        source_alias=alias,
        condition=named(statement.condition),
        clauses=tuple(clause.rewritten(named) for clause in statement.clauses),
    )
