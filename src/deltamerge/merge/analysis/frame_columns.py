"""Expressions in which the aliases of the sides' frames qualify the columns.

A statement may name a column with its table's whole name, and a Column may be bound to the source's frame or to one of
the target.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession

from deltamerge.merge.statement import SOURCE_ALIAS, TARGET_ALIAS, MergeStatement
from deltamerge.spark.column_nodes import names_by_attributes
from deltamerge.spark.column_trees import printed_sql
from deltamerge.spark.frame_columns import FrameSide, columns_by_name, is_bound, with_other_names
from deltamerge.spark.qualified_columns import QualifiedColumn, qualified_columns, qualifiers_of, with_copies
from deltamerge.spark.session import is_connect
from deltamerge.sql.merge_ast import ClauseKind, Expression, Insert, NameParts, Star, Update
from deltamerge.sql.qualifiers import (
    Renaming,
    alias_for,
    aliases_of,
    has_scopes,
    qualifiers_in,
    rename_columns,
    to_aliases,
)
from deltamerge.sql.relations import folded


def with_columns_by_alias(spark: SparkSession, statement: MergeStatement) -> MergeStatement:
    """Return a statement whose expressions know the sides' columns by the aliases of the sides' frames.

    Raises:
        DeltaAnalysisException: A name or a Column may be of both sides.
    """
    names = (statement.target_name, statement.source_name)
    if max(map(len, names)) > 1:
        statement = _with_aliases(spark, statement, names)
    if statement.has_source and not statement.source_name:
        statement = _with_source_alias(spark, statement)
    return _unbound(spark, statement)


def _with_source_alias(spark: SparkSession, statement: MergeStatement) -> MergeStatement:
    """Return a statement that knows a source's columns by an alias, not by qualifiers below the source's frame.

    There is no alias where it would hide a qualifier that ON or a MATCHED clause goes on to use: one that is the
    target's, too, or that tells columns of one name apart beside a star. Then INSERT clauses alone, which are evaluated
    on rows that have been joined, know the columns by their names.
    """
    has_bound = any(each.column is not None and is_bound(each.column) for each in _expressions(statement))
    if not has_bound and not any("." in each.text for each in _expressions(statement)):
        return statement
    source, target = statement.source, folded(statement.target_name)
    columns = [column for column in qualified_columns(source) if column.qualifier]
    repeated = _repeated(source)
    with_own, own = _with_names_of_their_own(statement, [c for c in columns if c.name.lower() in repeated])
    named: dict[str, list[tuple[NameParts, str]]] = defaultdict(list)
    for column in columns:
        named[column.name.lower()].append((folded(column.qualifier), own.get(column.place, column.name)))

    def renaming(parts: NameParts, longest: int) -> tuple[NameParts, int]:
        for length in range(min(longest, len(parts) - 1), 0, -1):
            found = [name for whole, name in named.get(parts[length], ()) if whole[-length:] == parts[:length]]
            if len(found) == 1 and found[0].lower() not in repeated:
                return tuple(found), length + 1
        return (), 0

    def to_alias(parts: NameParts, longest: int) -> tuple[NameParts, int]:
        found, length = renaming(parts, longest)
        return ((SOURCE_ALIAS, *found) if found else ()), length

    def in_pairs(parts: NameParts, longest: int) -> tuple[NameParts, int]:
        return ((), 0) if parts[:1] == target else to_alias(parts, longest)

    of_pairs = _renamed(spark, in_pairs)
    aliased = _with_clauses(with_own, {"matched": of_pairs, "not_matched": _renamed(spark, to_alias)})
    aliased = replace(aliased, condition=of_pairs(statement.condition), source_name=(SOURCE_ALIAS,))
    qualifiers = qualifiers_of(source, columns)
    below = {name[-length:] for name in qualifiers or () for length in range(1, len(name) + 1)}
    by_qualifier = has_bound and any(c.name.lower() in repeated and c.place not in own for c in columns)
    is_known = qualifiers is not None or has_bound
    if is_known and not by_qualifier and below.isdisjoint(_qualifiers_of_pairs(aliased)):
        return aliased
    by_name = _renamed(spark, renaming)
    # There a name alone could be another column: they keep the qualifier, which Spark does not know then.
    return _with_clauses(with_own, {"not_matched": lambda each: each if has_scopes(each.text) else by_name(each)})


def _with_clauses(
    statement: MergeStatement, rewritten: Mapping[ClauseKind, Callable[[Expression], Expression]]
) -> MergeStatement:
    clauses = (c.rewritten(rewritten[c.kind]) if c.kind in rewritten else c for c in statement.clauses)
    return replace(statement, clauses=tuple(clauses))


def _renamed(spark: SparkSession, renaming: Renaming) -> Callable[[Expression], Expression]:
    other_names = with_other_names(spark, renaming)

    def renamed(expression: Expression) -> Expression:
        if expression.column is not None:
            return _with_column(expression, other_names)
        other = rename_columns(expression.sql, renaming)
        return expression if other == expression.sql else replace(expression, evaluated=other)

    return renamed


def _qualifiers_of_pairs(statement: MergeStatement) -> frozenset[NameParts]:
    """Return the qualifiers of columns in ON and in MATCHED clauses, which are evaluated on the source's own frame."""
    of_pairs = [statement.condition, *(e for clause in statement.of_kind("matched") for e in clause.expressions)]
    return frozenset[NameParts]().union(*map(_qualifiers_in, of_pairs))


def _qualifiers_in(expression: Expression) -> frozenset[NameParts]:
    # A bound Column prints with its qualifier, which is none that it is looked up by.
    names = None if expression.column is None else names_by_attributes(expression.column)
    if names is None:
        return qualifiers_in(expression.sql)
    return frozenset(folded(parts[:length]) for parts in names for length in range(1, len(parts)))


def _unbound(spark: SparkSession, statement: MergeStatement) -> MergeStatement:
    """Return a statement in which Columns that are bound to frames are Columns by name.

    Where the source has no alias, those of its columns that have no qualifier get names of their own: a name alone may
    be the target's, too.
    """
    if not any(each.column is not None and is_bound(each.column) for each in _expressions(statement)):
        return statement
    columns = () if is_connect(spark) or not statement.has_source else qualified_columns(statement.source)
    repeated, alias = _repeated(statement.source), statement.source_alias

    def known_by(column: QualifiedColumn) -> NameParts:
        return column.qualifier if alias is None else (alias,)

    alone = [c for c in columns if c.name.lower() in repeated or not known_by(c)]
    statement, own = _with_names_of_their_own(statement, alone)
    sides = [
        FrameSide(
            (statement.source,),
            alias,
            tuple((own[c.place],) if c.place in own else (*known_by(c), c.name) for c in columns),
        ),
        FrameSide(statement.target_frames(), statement.target_alias or TARGET_ALIAS),
    ]
    by_name = columns_by_name(spark, sides)
    return _rewritten(statement, lambda each: _with_column(each, by_name))


def _has_star(statement: MergeStatement) -> bool:
    actions = (clause.action for clause in statement.clauses)
    return any(isinstance(a, (Update, Insert)) and isinstance(a.assignments, Star) for a in actions)


def _repeated(frame: DataFrame) -> frozenset[str]:
    times = Counter(folded(frame.schema.names))
    return frozenset(name for name, count in times.items() if count > 1)


def _with_names_of_their_own(
    statement: MergeStatement, columns: Sequence[QualifiedColumn]
) -> tuple[MergeStatement, dict[int, str]]:
    """Return a statement whose source has some columns once more, and their names there by the columns' places.

    A star means the columns that the source has: beside one there are none.
    """
    if _has_star(statement):
        return statement, {}
    own = {column.place: f"{SOURCE_ALIAS}_{column.name}_{column.place}" for column in columns}
    known = statement.source.schema.names
    added = {place: name for place, name in own.items() if name not in known}
    source = with_copies(statement.source, added) if added else statement.source
    return replace(statement, source=source), own


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
