"""What the statement's expressions look at: the target's columns, the source's, and the keys that ON equates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from deltamerge.merge.analysis.arrow_conditions import ArrowValue, ClauseChoice, arrow_condition
from deltamerge.merge.analysis.resolved_merge import (
    Output,
    ResolvedClause,
    ResolvedMerge,
    TakeDefault,
    TakeGenerated,
    TakeSource,
    TakeTarget,
    TakeValue,
)
from deltamerge.merge.source.key_summary import SourceKey, SourceKeys
from deltamerge.merge.statement import Expression
from deltamerge.skipping.predicates import ALWAYS, Predicate
from deltamerge.spark.classic_columns import read_classic_column
from deltamerge.spark.connect_columns import read_proto
from deltamerge.sql.condition_reader import read_condition
from deltamerge.sql.conditions import ConditionShape, EquiKey, shape_of_tree
from deltamerge.sql.expression import Name, Node, names_in, unreadable
from deltamerge.sql.resolution import FieldTree, Relation, Scope


def condition_shape(merge: ResolvedMerge) -> ConditionShape:
    """Looks at ON: what it says of the target alone, and which keys it equates."""
    return _shape(merge.statement.condition, _scope(merge, sees_source=True), merge.double_quoted_identifiers)


def _shape(condition: Expression, scope: Scope, quoted: bool) -> ConditionShape:
    return shape_of_tree(expression_tree(condition, quoted), scope)


def expression_tree(expression: Expression, double_quoted_identifiers: bool) -> Node:
    """Reads a condition or a value.

    Args:
        expression: It.
        double_quoted_identifiers: ``spark.sql.ansi.doubleQuotedIdentifiers``.
    """
    if expression.column is None:
        return read_condition(expression.evaluated or expression.text, double_quoted_identifiers)
    return condition_tree(expression, double_quoted_identifiers)


def condition_tree(condition: Expression, double_quoted_identifiers: bool) -> Node:
    """Reads a condition that came as a Column.

    Args:
        condition: The condition.
        double_quoted_identifiers: ``spark.sql.ansi.doubleQuotedIdentifiers``, for what `expr` was given.
    """
    column: Any = condition.column
    if type(column).__module__.startswith("pyspark.sql.connect"):
        return read_proto(column.to_plan(None), double_quoted_identifiers)
    tree = read_classic_column(condition.text, double_quoted_identifiers)
    names = condition.attribute_names
    if names is None or not names_in(tree).issuperset(names):
        return unreadable(condition.text)
    return tree


def _scope(merge: ResolvedMerge, *, sees_source: bool) -> Scope:
    source = merge.source_schema if sees_source else StructType([])
    return Scope(
        target=_relation(merge.target_alias, merge.target_schema),
        source=_relation(merge.source_alias, source),
        case_sensitive=merge.case_sensitive,
    )


def _relation(alias: str | None, schema: StructType) -> Relation:
    times = Counter(name.lower() for name in schema.names)
    duplicates = frozenset(name for name in schema.names if times[name.lower()] > 1)
    return Relation(((alias,),) if alias is not None else (), field_tree(schema), duplicates)


def field_tree(schema: StructType) -> FieldTree:
    """Gives a schema's columns and struct fields by name."""
    return {
        field.name: field_tree(field.dataType) if isinstance(field.dataType, StructType) else None
        for field in schema.fields
    }


def assigns_from_source(merge: ResolvedMerge, clause: ResolvedClause) -> bool:
    """Tells whether all that an UPDATE writes comes certainly from the source row alone."""
    return all(_from_source(merge, clause))


def sets_from_source(merge: ResolvedMerge, clause: ResolvedClause) -> bool:
    """Tells whether all that an UPDATE sets comes certainly from the source row alone; other columns may stay."""
    found = zip(_from_source(merge, clause), clause.outputs, strict=True)
    return all(is_from_source or isinstance(output, TakeTarget) for is_from_source, output in found)


def taken_column(merge: ResolvedMerge, clause: ResolvedClause, output: Output) -> int | None:
    """Finds the source's column that a clause takes as it is.

    Args:
        merge: The merge.
        clause: The clause.
        output: What one of its columns becomes.

    Returns:
        The column's position, whether a star or an assignment names it; None where the value is anything else.
    """
    if isinstance(output, TakeSource):
        return output.index
    if not isinstance(output, TakeValue):
        return None
    value = clause.clause.values[output.index]
    node = expression_tree(value, merge.double_quoted_identifiers)
    return _source_column(merge, node) if isinstance(node, Name) else None


def taken_as_it_is(merge: ResolvedMerge, clause: ResolvedClause, index: int) -> int | None:
    """Finds the source's column that a clause puts into the table's column at a position, without a cast."""
    taken = taken_column(merge, clause, clause.outputs[index])
    if (
        taken is None
        or merge.source_schema.fields[taken].dataType != merge.output_schema.fields[index].dataType
    ):
        return None
    return taken


def takes_as_it_is(merge: ResolvedMerge, clause: ResolvedClause) -> bool:
    """Tells whether an UPDATE only takes columns of the source that have the types of the table's."""
    return all(
        isinstance(output, TakeTarget) or taken_as_it_is(merge, clause, index) is not None
        for index, output in enumerate(clause.outputs)
    )


def _source_column(merge: ResolvedMerge, name: Name) -> int | None:
    """Finds the position of the source's column that a name stands for."""
    return _column(_scope(merge, sees_source=True), "source", merge.source_schema, name)


def _target_column(merge: ResolvedMerge, name: Name) -> int | None:
    """Finds the position of the target's column that a name stands for where there is no source."""
    return _column(_scope(merge, sees_source=False), "target", merge.target_schema, name)


def _either_column(merge: ResolvedMerge, name: Name) -> int | None:
    """Finds the position of a column of either side: first stand the target's, then the source's."""
    scope = _scope(merge, sees_source=True)
    of_target = _column(scope, "target", merge.target_schema, name)
    if of_target is not None:
        return of_target
    of_source = _column(scope, "source", merge.source_schema, name)
    return None if of_source is None else len(merge.target_schema) + of_source


def _column(scope: Scope, side: str, schema: StructType, name: Name) -> int | None:
    found = scope.resolve(name.parts)
    if found is None or found.side != side or not found.known or len(found.path) > 1:
        return None
    return schema.names.index(found.path[0]) if schema.names.count(found.path[0]) == 1 else None


def clause_choice(
    merge: ResolvedMerge, clauses: Sequence[ResolvedClause], kept: Collection[int]
) -> ClauseChoice | None:
    """Tells how Arrow finds out which MATCHED or NOT MATCHED clause takes a source row.

    Args:
        merge: The merge.
        clauses: The clauses of one kind, in order.
        kept: The numbers that are to be told.

    Returns:
        How; None where a condition is left to Spark.
    """
    return _choice(merge, clauses, kept, partial(_source_column, merge), merge.source_schema)


def pair_choice(merge: ResolvedMerge, kept: Collection[int]) -> ClauseChoice | None:
    """Tells how Arrow finds out which MATCHED clause takes a pair of rows.

    Args:
        merge: The merge.
        kept: The numbers that are to be told.

    Returns:
        How, by columns that are named by their positions among the target's columns and, after these, the source's;
        None where a condition is left to Spark.
    """
    both = StructType([*merge.target_schema.fields, *merge.source_schema.fields])
    return _choice(merge, merge.matched, kept, partial(_either_column, merge), both)


def by_source_choice(merge: ResolvedMerge, kept: Collection[int]) -> ClauseChoice | None:
    """Tells how Arrow finds out which NOT MATCHED BY SOURCE clause takes a target row that nothing matches.

    Args:
        merge: The merge.
        kept: The numbers that are to be told.

    Returns:
        How, by columns that are named by their positions in the target; None where a condition is left to Spark.
    """
    column = partial(_target_column, merge)
    return _choice(merge, merge.not_matched_by_source, kept, column, merge.target_schema)


def _choice(
    merge: ResolvedMerge,
    clauses: Sequence[ResolvedClause],
    kept: Collection[int],
    column: Callable[[Name], int | None],
    schema: StructType,
) -> ClauseChoice | None:
    found: list[tuple[int, ArrowValue | None]] = []
    for clause in clauses:
        given = clause.clause.condition
        condition = None
        if given is not None:
            tree = expression_tree(given, merge.double_quoted_identifiers)
            condition = arrow_condition(tree, column, schema.fields)
            if condition is None:
                return None
        found.append((clause.number, condition))
    return ClauseChoice(tuple(found), frozenset(kept))


def decides_from_source(merge: ResolvedMerge, clause: ResolvedClause) -> bool:
    """Tells whether a clause's condition, if it has one, certainly looks at the source row alone."""
    condition = clause.clause.condition
    if condition is None:
        return True
    shape = _shape(condition, _scope(merge, sees_source=True), merge.double_quoted_identifiers)
    return all(part.side in ("source_only", "neither") for part in shape.conjuncts)


def _from_source(merge: ResolvedMerge, clause: ResolvedClause) -> list[bool]:
    """Tells for each output column of an UPDATE whether it comes certainly from the source row alone."""
    texts = clause.clause.values
    scope = _scope(merge, sees_source=True)

    def is_from_source(output: Output, field: StructField) -> bool:
        if isinstance(output, TakeSource):
            return not (output.keep_target_fields and "struct<" in field.dataType.simpleString())
        if isinstance(output, TakeValue):
            shape = _shape(texts[output.index], scope, merge.double_quoted_identifiers)
            return all(part.side in ("source_only", "neither") for part in shape.conjuncts)
        return isinstance(output, (TakeDefault, TakeGenerated))

    fields = merge.output_schema.fields
    return [is_from_source(output, field) for output, field in zip(clause.outputs, fields, strict=True)]


def by_source_predicates(merge: ResolvedMerge) -> list[Predicate]:
    """Says what target rows look like that BY SOURCE clauses change where nothing matches them: one for each clause."""
    found: list[Predicate] = []
    for clause in merge.not_matched_by_source:
        condition = clause.clause.condition
        if clause.action == "do_nothing":
            continue
        if condition is None:
            found.append(ALWAYS)
        else:
            scope = _scope(merge, sees_source=False)
            found.append(_shape(condition, scope, merge.double_quoted_identifiers).target_predicate)
    return found


def source_keys(merge: ResolvedMerge, shape: ConditionShape) -> SourceKeys:
    """Gives the keys that ON equates, with the types of both sides, in one analysis."""
    keys = _guarded_keys(merge, shape)
    others = sum(conjunct.side != "target_only" for conjunct in shape.conjuncts) - len(shape.equi_keys)
    if not keys:
        return SourceKeys((), say_all=False)
    columns = [F.expr(key.source_text).alias(f"k{i}") for i, key in enumerate(keys)]
    source = merge.statement.source
    frame = source if merge.source_alias is None else source.alias(merge.source_alias)
    given = [field.dataType for field in frame.select(*columns).schema.fields]
    found = tuple(
        SourceKey(key, data_type, _type_at(merge.target_schema, key.target.path))
        for key, data_type in zip(keys, given, strict=True)
    )
    return SourceKeys(found, say_all=not others)


def _guarded_keys(merge: ResolvedMerge, shape: ConditionShape) -> list[EquiKey]:
    """Lets keys that are computed be computed only of rows that may match: of others that may fail."""
    guards = [c.text for c in shape.conjuncts if c.side in ("source_only", "neither")]
    if not guards:
        return list(shape.equi_keys)
    plain = [key for key in shape.equi_keys if key.source_path is not None]
    if merge.statement.condition.column is not None:
        # What a Column prints is not what it was made from.
        return plain
    # A text may end in a comment.
    admitted = " AND ".join(f"({guard}\n)" for guard in guards)
    return [
        key
        if key.source_path is not None
        else replace(key, source_text=f"CASE WHEN {admitted} THEN {key.source_text}\nEND")
        for key in shape.equi_keys
    ]


def _type_at(schema: StructType, path: tuple[str, ...]) -> DataType:
    field = next(f for f in schema.fields if f.name == path[0])
    if len(path) == 1:
        return field.dataType
    assert isinstance(field.dataType, StructType)
    return _type_at(field.dataType, path[1:])
