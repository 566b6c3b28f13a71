"""Expressions in which the aliases of the sides' frames qualify the columns.

A statement may name a column with its table's whole name, and a Column may be bound to the source's frame or to one of
the target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from pyspark.sql import Column, SparkSession

from deltamerge.merge.analysis.resolve import TARGET_ALIAS
from deltamerge.merge.statement import MergeStatement
from deltamerge.spark.column_trees import printed_sql
from deltamerge.spark.frame_columns import FrameSide, columns_by_name, has_qualifiers, is_bound, with_other_names
from deltamerge.spark.qualified_columns import qualified_columns
from deltamerge.sql.merge_ast import Assignment, Expression, Insert, NameParts, Star, Update
from deltamerge.sql.qualifiers import alias_for, aliases_of, rename_columns, to_aliases
from deltamerge.sql.relations import folded

_SOURCE_ALIAS = "__dm_source"


def with_columns_by_alias(spark: SparkSession, statement: MergeStatement) -> MergeStatement:
    """Return a statement whose expressions know the sides' columns by the aliases of the sides' frames.

    Where Columns are bound to frames, a source without a name gets an alias, so that a name that both sides have is
    one side's.

    Raises:
        DeltaAnalysisException: A name or a Column may be of both sides.
    """
    names = (statement.target_name, statement.source_name)
    if max(map(len, names)) > 1:
        statement = _with_aliases(spark, statement, names)
    return _with_qualified_source(spark, _unbound(spark, statement))


def _unbound(spark: SparkSession, statement: MergeStatement) -> MergeStatement:
    expressions = [statement.condition, *(e for clause in statement.clauses for e in clause.expressions)]
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


def _with_qualified_source(spark: SparkSession, statement: MergeStatement) -> MergeStatement:
    """Return a statement whose source has one alias, if INSERT clauses qualify its columns by the names of its parts.

    ON and MATCHED clauses are evaluated on the source's own frame, which knows these names; INSERT clauses on rows that
    have been joined, which know the source's columns by one alias alone.
    """
    inserted = [each for clause in statement.of_kind("not_matched") for each in clause.expressions]
    has_own_name = statement.source_name not in ((), (_SOURCE_ALIAS,))
    if has_own_name or not any("." in each.text for each in inserted):
        return statement
    columns = qualified_columns(statement.source)
    if not any(column.qualifier for column in columns):
        return statement
    names = list(statement.source.schema.names)
    repeated = {name for name, times in Counter(folded(names)).items() if times > 1}
    if repeated and any(isinstance(star, Star) for star in _assigned(statement)):
        # A star means the names that the source has.
        return statement
    for column in columns:
        if column.name.lower() in repeated:
            names[column.place] = ".".join((*column.qualifier[-1:], column.name))
    own = {column.qualifier[-1] for column in columns if column.qualifier}
    alias = own.pop() if len(own) == 1 and not statement.source_name else _SOURCE_ALIAS
    if alias.lower() == (statement.target_alias or "").lower():
        alias = _SOURCE_ALIAS

    def renaming(parts: NameParts, longest: int) -> tuple[NameParts, int]:
        for length in range(min(longest, len(parts) - 1), 0, -1):
            qualifier, name = parts[:length], parts[length]
            found = [c for c in columns if folded((*c.qualifier[-length:], c.name)) == (*qualifier, name)]
            if len(found) == 1:
                return (alias, names[found[0].place]), length + 1
        return (), 0

    columns_by_alias = with_other_names(spark, renaming)

    def renamed(expression: Expression) -> Expression:
        if expression.column is not None:
            return replace(expression, column=columns_by_alias(expression.column))
        sql = expression.evaluated or expression.text
        other = rename_columns(sql, renaming)
        return expression if other == sql else replace(expression, evaluated=other)

    return replace(_rewritten(statement, renamed), source=statement.source.toDF(*names), source_name=(alias,))


def _assigned(statement: MergeStatement) -> Iterator[tuple[Assignment, ...] | Star]:
    return (c.action.assignments for c in statement.clauses if isinstance(c.action, (Update, Insert)))


def _with_aliases(spark: SparkSession, statement: MergeStatement, names: tuple[NameParts, NameParts]) -> MergeStatement:
    renaming = to_aliases(names)
    column_by_aliases = with_other_names(spark, renaming)

    def aliased(expression: Expression) -> Expression:
        if expression.column is not None:
            return _with_column(expression, column_by_aliases(expression.column))
        text = rename_columns(expression.text, renaming)
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
