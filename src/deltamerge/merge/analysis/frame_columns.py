"""Expressions in which the aliases of the sides' frames qualify the columns.

A statement may name a column with its table's whole name, and a Column may be bound to the source's frame or to one of
the target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession

from deltamerge.merge.analysis.resolve import TARGET_ALIAS
from deltamerge.merge.statement import MergeStatement
from deltamerge.spark.column_nodes import names_by_attributes
from deltamerge.spark.column_trees import printed_sql
from deltamerge.spark.frame_columns import FrameSide, columns_by_name, is_bound, with_other_names
from deltamerge.spark.qualified_columns import QualifiedColumn, qualified_columns, with_copies
from deltamerge.spark.session import is_connect
from deltamerge.sql.merge_ast import Expression, Insert, NameParts, Star, Update
from deltamerge.sql.qualifiers import alias_for, aliases_of, qualifiers_in, rename_columns, to_aliases
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
    return _with_inserted_columns(spark, _unbound(spark, statement))


def _unbound(spark: SparkSession, statement: MergeStatement) -> MergeStatement:
    """Return a statement in which Columns that are bound to frames are Columns by name.

    A source without a name gets an alias, so that a name that both sides have is one side's, unless its columns are
    known by qualifiers that the alias would hide: then those without one get names of their own.
    """
    if not any(each.column is not None and is_bound(each.column) for each in _expressions(statement)):
        return statement
    columns = () if is_connect(spark) or not statement.has_source else qualified_columns(statement.source)
    repeated = _repeated(statement.source)
    needs_qualifiers = not statement.source_name and _needs_qualifiers(statement, columns, repeated)
    if statement.has_source and not statement.source_name and not needs_qualifiers:
        statement = replace(statement, source_name=(_SOURCE_ALIAS,))
    alone = [c for c in columns if c.name.lower() in repeated or (needs_qualifiers and not c.qualifier)]
    statement, own = _with_names_of_their_own(statement, alone)
    alias = () if statement.source_alias is None else (statement.source_alias,)
    sides = [
        FrameSide(
            (statement.source,),
            statement.source_alias,
            tuple((own[c.place],) if c.place in own else (*(alias or c.qualifier), c.name) for c in columns),
        ),
        FrameSide(statement.target_frames(), statement.target_alias or TARGET_ALIAS),
    ]
    by_name = columns_by_name(spark, sides)
    return _rewritten(statement, lambda each: _with_column(each, by_name))


def _with_inserted_columns(spark: SparkSession, statement: MergeStatement) -> MergeStatement:
    """Return a statement whose INSERT clauses name the source's columns without qualifiers below the source's frame.

    ON and MATCHED clauses are evaluated on the source's own frame, which knows these; INSERT clauses on rows that have
    been joined, which know the source's columns by their names and one alias alone.
    """
    inserted = [each for clause in statement.of_kind("not_matched") for each in clause.expressions]
    if statement.source_name not in ((), (_SOURCE_ALIAS,)) or not any("." in each.text for each in inserted):
        return statement
    columns = [column for column in qualified_columns(statement.source) if column.qualifier]
    repeated = _repeated(statement.source)
    statement, own = _with_names_of_their_own(statement, [c for c in columns if c.name.lower() in repeated])

    def renaming(parts: NameParts, longest: int) -> tuple[NameParts, int]:
        for length in range(min(longest, len(parts) - 1), 0, -1):
            found = [c for c in columns if folded((*c.qualifier[-length:], c.name)) == parts[: length + 1]]
            if len(found) == 1:
                return (own.get(found[0].place, found[0].name),), length + 1
        return (), 0

    other_names = with_other_names(spark, renaming)

    def renamed(expression: Expression) -> Expression:
        if expression.column is not None:
            return replace(expression, column=other_names(expression.column))
        sql = expression.evaluated or expression.text
        other = rename_columns(sql, renaming)
        return expression if other == sql else replace(expression, evaluated=other)

    clauses = (c.rewritten(renamed) if c.kind == "not_matched" else c for c in statement.clauses)
    return replace(statement, clauses=tuple(clauses)) if columns else statement


def _needs_qualifiers(statement: MergeStatement, columns: Sequence[QualifiedColumn], repeated: Collection[str]) -> bool:
    """Return whether ON or MATCHED clauses name columns by qualifiers below the source's frame, or may do so."""
    qualifiers = {folded(column.qualifier) for column in columns if column.qualifier}
    if not qualifiers or (repeated and _has_star(statement)):
        # Beside a star columns of one name have no names of their own.
        return bool(qualifiers)
    on_pairs = [statement.condition, *(e for clause in statement.of_kind("matched") for e in clause.expressions)]
    used = frozenset[NameParts]().union(*map(_qualifiers_in, on_pairs))
    return any(qualifier[-length:] in used for qualifier in qualifiers for length in range(1, len(qualifier) + 1))


def _qualifiers_in(expression: Expression) -> frozenset[NameParts]:
    # A bound Column prints with its qualifier, which is none that it is looked up by.
    names = None if expression.column is None else names_by_attributes(expression.column)
    if names is None:
        return qualifiers_in(expression.evaluated or expression.text)
    return frozenset(folded(parts[:length]) for parts in names for length in range(1, len(parts)))


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
    own = {column.place: f"{_SOURCE_ALIAS}_{column.name}_{column.place}" for column in columns}
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
