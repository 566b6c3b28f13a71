"""Expressions in which the aliases of the sides' frames qualify the columns.

A statement may name a column with its table's whole name, and a Column may be bound to the source's frame or to one of
the target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import Column, SparkSession

from deltamerge.merge.analysis.resolve import TARGET_ALIAS
from deltamerge.merge.statement import MergeStatement
from deltamerge.spark.column_trees import printed_sql
from deltamerge.spark.frame_columns import FrameSide, by_aliases, columns_by_name, has_qualifiers, is_bound
from deltamerge.sql.merge_ast import Expression, NameParts
from deltamerge.sql.qualifiers import alias_for, aliases_of, replace_qualifiers

_SOURCE_ALIAS = "__dm_source"


def with_columns_by_alias(spark: SparkSession, statement: MergeStatement) -> MergeStatement:
    """Return a statement whose expressions know the sides' columns by the aliases of the sides' frames.

    Where Columns are bound to frames, a source without a name gets an alias, so that a name that both sides have is
    one side's.

    Raises:
        DeltaAnalysisException: A name or a Column may be of both sides.
    """
    expressions = [statement.condition, *(e for clause in statement.clauses for e in clause.expressions)]
    names = (statement.target_name, statement.source_name)
    if max(map(len, names)) > 1:
        statement = _with_aliases(statement, names, by_aliases(spark, names))
    if not any(each.column is not None and is_bound(each.column) for each in expressions):
        return statement
    source_name = statement.source_name
    if not source_name and statement.has_source and not has_qualifiers(statement.source):
        source_name = (_SOURCE_ALIAS,)
    statement = replace(statement, source_name=source_name)
    sides = [
        FrameSide((statement.source,), statement.source_alias),
        FrameSide(statement.target_frames(), statement.target_alias or TARGET_ALIAS),
    ]
    by_name = columns_by_name(spark, sides)

    def named(expression: Expression) -> Expression:
        column = expression.column
        return expression if column is None else _with_column(expression, by_name(column))

    return _rewritten(statement, named)


def _with_column(expression: Expression, column: Column) -> Expression:
    if column is expression.column:
        return expression
    return replace(expression, column=column, text=printed_sql(str(column)))


def _with_aliases(
    statement: MergeStatement, names: tuple[NameParts, NameParts], column_by_aliases: Callable[[Column], Column]
) -> MergeStatement:
    def aliased(expression: Expression) -> Expression:
        if expression.column is not None:
            return _with_column(expression, column_by_aliases(expression.column))
        text = replace_qualifiers(expression.text, names)
        return expression if text == expression.text else replace(expression, text=text, span=None)

    def target_column(column: NameParts) -> NameParts:
        alias, length = alias_for(column, names[:1])
        return column if alias is None else (str(statement.target_alias), *column[length:])

    rewritten = _rewritten(statement, aliased, target_column)
    target, source = aliases_of(names)
    return replace(
        rewritten,
        target_name=() if target is None else (target,),
        source_name=() if source is None else (source,),
    )


def _rewritten(
    statement: MergeStatement,
    expression: Callable[[Expression], Expression],
    target_column: Callable[[NameParts], NameParts] = tuple,
) -> MergeStatement:
    return replace(
        statement,
        condition=expression(statement.condition),
        clauses=tuple(clause.rewritten(expression, target_column) for clause in statement.clauses),
    )
