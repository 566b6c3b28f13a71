"""Expressions in which the aliases of the sides' frames qualify the columns.

A statement may name a column with its table's whole name, and a Column may be bound to the source's frame or to one of
the target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession

from deltamerge.merge.analysis.resolve import TARGET_ALIAS
from deltamerge.merge.statement import MergeStatement
from deltamerge.spark import columns as F
from deltamerge.spark.column_trees import printed_sql
from deltamerge.spark.frame_columns import FrameSide, columns_by_name, is_bound, with_other_names
from deltamerge.spark.qualified_columns import QualifiedColumn, qualified_columns
from deltamerge.sql.merge_ast import Assignment, Expression, Insert, NameParts, Star, Update
from deltamerge.sql.qualifiers import alias_for, aliases_of, rename_columns, to_aliases
from deltamerge.sql.relations import folded

_SOURCE_ALIAS = "__dm_source"


def with_columns_by_alias(spark: SparkSession, statement: MergeStatement) -> MergeStatement:
    """Return a statement whose expressions know the sides' columns by the aliases of the sides' frames.

    Raises:
        DeltaAnalysisException: A name or a Column may be of both sides.
    """
    names = (statement.target_name, statement.source_name)
    if max(map(len, names)) > 1:
        statement = _with_aliases(spark, statement, names)
    bound = [each.column for each in _expressions(statement) if each.column is not None and is_bound(each.column)]
    inserted = [each for clause in statement.of_kind("not_matched") for each in clause.expressions]
    if not bound and (statement.source_name or not any("." in each.text for each in inserted)):
        return statement
    source = _source_of(statement)
    if not bound and not any(column.qualifier for column in source.columns):
        return statement
    statement = replace(statement, source_name=source.name)
    if bound:
        sides = [
            FrameSide((statement.source,), statement.source_alias, source.names),
            FrameSide(statement.target_frames(), statement.target_alias or TARGET_ALIAS),
        ]
        by_name = columns_by_name(spark, sides)
        statement = _rewritten(statement, lambda each: _with_column(each, by_name))
    if source.columns:
        statement = _rewritten(statement, _renaming_columns(spark, source, str(statement.source_alias)))
    return replace(statement, source=_with_names_of_their_own(statement.source, source.names))


@dataclass(frozen=True)
class _Source:
    """A source whose columns have one alias and names of their own.

    ON and MATCHED clauses could be evaluated on the source's own frame, which knows names below it; INSERT clauses are
    on rows that have been joined, which know the source's columns by one alias alone.

    Args:
        name: The name that may qualify its columns; no parts for none.
        names: A name for each of its columns that no other one has.
        columns: Those that Spark knows by qualifiers below the frame; none where the frame has an alias of its own.
    """

    name: NameParts
    names: tuple[str, ...]
    columns: tuple[QualifiedColumn, ...]


def _source_of(statement: MergeStatement) -> _Source:
    names = tuple(statement.source.schema.names)
    has_repeated = len(set(folded(names))) < len(names)
    if not statement.has_source or (statement.source_name and not has_repeated):
        return _Source(statement.source_name, names, ())
    columns = qualified_columns(statement.source)
    # A star means the names that the source has, and over Connect only Spark knows which column is which.
    has_star = any(isinstance(assigned, Star) for assigned in _assigned(statement))
    if has_repeated and not has_star and len(columns) == len(names):
        names = _told_apart(columns)
    if statement.source_name:
        return _Source(statement.source_name, names, ())
    own = {column.qualifier[-1] for column in columns if column.qualifier}
    alias = own.pop() if len(own) == 1 else _SOURCE_ALIAS
    taken = (statement.target_alias or "").lower()
    return _Source((_SOURCE_ALIAS if alias.lower() == taken else alias,), names, columns)


def _with_names_of_their_own(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Add columns under names of their own to a frame in which several have one name; that one stays ambiguous."""
    given = frame.schema.names
    if tuple(given) == tuple(names):
        return frame
    places = [f"{_SOURCE_ALIAS}{place}" for place in range(len(names))]
    own = [F.col(place).alias(name) for place, name in zip(places, given, strict=True)]
    added = [F.col(place).alias(name) for place, name, old in zip(places, names, given, strict=True) if name != old]
    return frame.toDF(*places).select(*own, *added)


def _told_apart(columns: Sequence[QualifiedColumn]) -> tuple[str, ...]:
    """Return the columns' names, but for those that several have: with their qualifiers, or else numbers."""
    times = Counter(column.name.lower() for column in columns)
    names = [
        ".".join((*column.qualifier[-1:], column.name)) if times[column.name.lower()] > 1 else column.name
        for column in columns
    ]
    times = Counter(folded(names))
    return tuple(f"{name}#{place}" if times[name.lower()] > 1 else name for place, name in enumerate(names))


def _renaming_columns(spark: SparkSession, source: _Source, alias: str) -> Callable[[Expression], Expression]:
    """Return what names the source's columns by its alias where they are named by qualifiers below its frame."""

    def renaming(parts: NameParts, longest: int) -> tuple[NameParts, int]:
        for length in range(min(longest, len(parts) - 1), 0, -1):
            wanted = parts[: length + 1]
            found = [c for c in source.columns if c.qualifier and folded((*c.qualifier[-length:], c.name)) == wanted]
            if len(found) == 1:
                return (alias, source.names[found[0].place]), length + 1
        return (), 0

    column_by_alias = with_other_names(spark, renaming)

    def renamed(expression: Expression) -> Expression:
        if expression.column is not None:
            return replace(expression, column=column_by_alias(expression.column))
        sql = expression.evaluated or expression.text
        other = rename_columns(sql, renaming)
        return expression if other == sql else replace(expression, evaluated=other)

    return renamed


def _with_column(expression: Expression, changed: Callable[[Column], Column]) -> Expression:
    if expression.column is None:
        return expression
    column = changed(expression.column)
    if column is expression.column:
        return expression
    return replace(expression, column=column, text=printed_sql(str(column)))


def _expressions(statement: MergeStatement) -> Iterator[Expression]:
    yield statement.condition
    for clause in statement.clauses:
        yield from clause.expressions


def _assigned(statement: MergeStatement) -> Iterator[tuple[Assignment, ...] | Star]:
    return (c.action.assignments for c in statement.clauses if isinstance(c.action, (Update, Insert)))


def _with_aliases(spark: SparkSession, statement: MergeStatement, names: tuple[NameParts, NameParts]) -> MergeStatement:
    renaming = to_aliases(names)
    column_by_aliases = with_other_names(spark, renaming)

    def aliased(expression: Expression) -> Expression:
        if expression.column is not None:
            return _with_column(expression, column_by_aliases)
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
