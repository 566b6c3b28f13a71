"""Which columns the statement's expressions refer to: each expression is parsed once, here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, StringType, StructField, StructType

from deltamerge.merge.analysis.join_keys import INTEGERS
from deltamerge.merge.analysis.resolved_merge import (
    Output,
    ResolvedClause,
    ResolvedMerge,
    TakeDefault,
    TakeGenerated,
    TakeSource,
    TakeValue,
    reads_own_value,
    values_of,
)
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.skipping.predicates import ALWAYS, And, Or, Predicate
from deltamerge.spark.column_nodes import attribute_names, has_users_functions
from deltamerge.spark.column_trees import read_classic_column, read_proto
from deltamerge.spark.nested_types import contains
from deltamerge.sql.condition_reader import NAMED_OPERATORS, read_condition
from deltamerge.sql.conditions import ConditionShape, shape_of_tree
from deltamerge.sql.expression import (
    Literal,
    Name,
    Node,
    Opaque,
    Operation,
    leaves,
    names_in,
    unreadable,
    without_operations,
    without_operators,
)
from deltamerge.sql.merge_ast import ClauseKind, Expression
from deltamerge.sql.resolution import FieldTree, Relation, Scope
from deltamerge.write.align import same_shape

_COMPARING = frozenset({"=", "<=>", "<>", "<", "<=", ">", ">=", "in", "between"})
# Spark takes these words for functions where there is no column of the name.
_CURRENT_TIME = frozenset({"current_date", "current_time", "current_timestamp", "localtimestamp"})


@dataclass(frozen=True)
class ClauseReferences:
    """What one clause refers to.

    Args:
        condition_from_source: Whether the condition certainly refers to only the source; True without one.
        from_source: For each output column whether its value certainly comes from only the source row.
        source_columns: For each output column the position of the source's column that it is set to, perhaps with a
            cast; None for any other value.
        keeps_value: For each output column whether that column has the output column's type, or one whose cast to it
            is nothing but a wider form of the same value.
    """

    condition_from_source: bool
    from_source: tuple[bool, ...]
    source_columns: tuple[int | None, ...]
    keeps_value: tuple[bool, ...]

    def taken_as_is(self, index: int) -> int | None:
        return self.source_columns[index] if self.keeps_value[index] else None


@dataclass(frozen=True)
class MergeReferences:
    """What the statement's expressions refer to, each part computed when it is first asked for.

    Args:
        replaced: The operators of trees for which the session has functions of its own; only Spark evaluates these.
        times_as_strings: Whether the session compares dates and times with strings as strings; only Spark does.
    """

    merge: ResolvedMerge
    replaced: frozenset[str] = frozenset()
    times_as_strings: bool = False
    _trees: dict[int, Node] = field(default_factory=dict, repr=False, compare=False)

    def tree(self, expression: Expression) -> Node:
        key = id(expression)
        if key not in self._trees:
            self._trees[key] = self._evaluated(expression_tree(expression, self.merge.double_quoted_identifiers))
        return self._trees[key]

    def stored_tree(self, sql: str) -> Node:
        """Return the tree of an expression that the table has: a constraint, a default, that of a generated column."""
        return self._evaluated(read_condition(sql, self.merge.double_quoted_identifiers))

    def _evaluated(self, tree: Node) -> Node:
        """Return a tree without what only Spark evaluates."""
        found = without_operators(tree, self.replaced)
        return without_operations(found, self._may_compare_times) if self.times_as_strings else found

    def _may_compare_times(self, operation: Operation) -> bool:
        has_string = any(isinstance(each, Literal) and isinstance(each.value, str) for each in operation.operands)
        others = [each for each in operation.operands if not isinstance(each, Literal)]
        return operation.op in _COMPARING and has_string and not all(map(self._is_string, others))

    def _is_string(self, node: Node) -> bool:
        place = self.either_column(node) if isinstance(node, Name) else None
        fields = [*self.merge.target_schema.fields, *self.merge.source_schema.fields]
        return place is not None and isinstance(fields[place].dataType, StringType)

    def _shape(self, expression: Expression, scope: Scope) -> ConditionShape:
        return shape_of_tree(self.tree(expression), scope)

    @cached_property
    def _both(self) -> Scope:
        return self._scope(self.merge.source_schema)

    @cached_property
    def _target(self) -> Scope:
        return self._scope(StructType([]))

    @cached_property
    def _source(self) -> Scope:
        return replace(self._both, target=Relation((), {}))

    def _scope(self, source: StructType) -> Scope:
        merge = self.merge
        return Scope(
            target=relation_of(merge.target_alias, merge.target_schema),
            # What has no alias may be a join of frames that have one.
            source=relation_of(merge.source_alias, source, is_qualified_within=merge.source_alias is None),
            case_sensitive=merge.case_sensitive,
        )

    @cached_property
    def on(self) -> ConditionShape:
        """ON: its conjuncts, what it requires of only the target, and the keys it equates."""
        return self._shape(self.merge.statement.condition, self._both)

    @cached_property
    def by_source_predicates(self) -> tuple[Predicate, ...]:
        """For each BY SOURCE clause that changes rows, a predicate that such rows of the target fulfil."""
        clauses = self.merge.changing_by_source
        return tuple(
            ALWAYS if condition is None else self._shape(condition, self._target).target_predicate
            for condition in (clause.clause.condition for clause in clauses)
        )

    def matching(self, source: Predicate) -> Predicate:
        """Return a predicate of the target rows that ON can match, given what the source's keys require of them."""
        return And((self.on.target_predicate, source))

    def to_read(self, source: Predicate) -> Predicate:
        """Return a predicate of the target rows that the merge may have to read: ON's or BY SOURCE clauses'."""
        by_source = self.by_source_predicates
        if ALWAYS in by_source:
            return ALWAYS
        return Or((self.matching(source), *by_source)) if by_source else self.matching(source)

    @cached_property
    def is_deterministic(self) -> bool:
        """Whether ON and the conditions on target rows only compare columns and literals.

        A function may be a user's that returns another value at a second call, or the time.
        """
        clauses = (*self.merge.matched, *self.merge.not_matched_by_source)
        conditions = [c.clause.condition for c in clauses if c.clause.condition is not None]
        trees = map(self.tree, (self.merge.statement.condition, *conditions))
        return all(_is_deterministic(leaf) for tree in trees for leaf in leaves(tree))

    def by_partition(self, columns: Collection[str]) -> bool:
        """Return whether the only clause's condition asks for no other columns of the target than these, if any."""
        (clause,) = self.merge.clauses
        condition = clause.clause.condition
        return condition is None or all(map(partial(self._is_among, columns), leaves(self.tree(condition))))

    def _is_among(self, columns: Collection[str], leaf: Name | Literal | Opaque) -> bool:
        if isinstance(leaf, Literal):
            return True
        if isinstance(leaf, Name):
            names = [leaf]
        elif not leaf.complete or leaf.subquery:
            return False
        else:
            names = [*leaf.names, *(word for word in leaf.words if self.target_column(word) is not None)]
        places = map(self.target_column, names)
        fields = self.merge.target_schema.fields
        return all(place is not None and fields[place].name in columns for place in places)

    def read_by_updates(
        self, outputs: Mapping[tuple[ClauseKind, int], Collection[int]], *, conditions: bool
    ) -> tuple[frozenset[int], frozenset[int]] | None:
        """Return the positions of the columns, target's and source's, that clauses read; None if not certain.

        Args:
            outputs: By a MATCHED or BY SOURCE clause the positions of the output columns that are computed.
        """
        merge = self.merge
        target, source = set[int](), set[int]()
        for clause in (*merge.matched, *merge.not_matched_by_source):
            is_matched = clause.kind == "matched"
            condition = clause.clause.condition if conditions and is_matched else None
            expressions = [] if condition is None else [condition]
            for index in outputs.get(clause.key, ()):
                output = clause.outputs[index]
                expressions += [clause.clause.values[value] for value in values_of(output)]
                if isinstance(output, TakeSource):
                    source.add(output.index)
                if reads_own_value(output) and index < len(merge.target_schema):
                    target.add(index)
            for expression in expressions:
                for part in self._shape(expression, self._both if is_matched else self._target).conjuncts:
                    if part.side == "unreadable":
                        return None
                    target.update(map(merge.target_schema.names.index, part.target_columns))
                    source.update(map(merge.source_schema.names.index, part.source_columns))
        return frozenset(target), frozenset(source)

    def are_literals(self, outputs: Mapping[tuple[ClauseKind, int], Collection[int]]) -> bool:
        """Return whether clauses set `outputs`, as in `read_by_updates`, to literals alone, the same in all rows."""
        for clause in (*self.merge.matched, *self.merge.not_matched_by_source):
            for output in (clause.outputs[index] for index in outputs.get(clause.key, ())):
                if not isinstance(output, TakeValue):
                    return False
                if not all(isinstance(leaf, Literal) for leaf in leaves(self.tree(clause.clause.values[output.index]))):
                    return False
        return True

    @cached_property
    def _clauses(self) -> Mapping[tuple[str, int], ClauseReferences]:
        return {c.key: self._references(c) for c in self.merge.clauses}

    def of(self, clause: ResolvedClause) -> ClauseReferences:
        return self._clauses[clause.key]

    def _references(self, clause: ResolvedClause) -> ClauseReferences:
        condition = clause.clause.condition
        fields = self.merge.output_schema.fields
        outputs = list(zip(clause.outputs, fields, strict=True)) if clause.outputs else []
        columns = tuple(self._source_column_of(clause, output) for output, _ in outputs)
        given = self.merge.source_schema.fields
        return ClauseReferences(
            condition_from_source=condition is None or self._is_from_source(clause, condition),
            from_source=tuple(self._comes_from_source(clause, output, f) for output, f in outputs),
            source_columns=columns,
            keeps_value=tuple(
                column is not None and _keeps_value(given[column].dataType, f)
                for column, (_, f) in zip(columns, outputs, strict=True)
            ),
        )

    def _is_from_source(self, clause: ResolvedClause, expression: Expression) -> bool:
        shape = self._shape(expression, self._target if clause.kind == "not_matched_by_source" else self._both)
        return all(part.side in ("source_only", "neither") for part in shape.conjuncts)

    def _comes_from_source(self, clause: ResolvedClause, output: Output, column: StructField) -> bool:
        if isinstance(output, TakeSource):
            given = self.merge.source_schema.fields[output.index].dataType
            keeps_fields = output.keep_target_fields and contains(column.dataType, StructType)
            return not keeps_fields or same_shape(given, column.dataType)
        if isinstance(output, TakeValue):
            return self._is_from_source(clause, clause.clause.values[output.index])
        return isinstance(output, (TakeDefault, TakeGenerated))

    def _source_column_of(self, clause: ResolvedClause, output: Output) -> int | None:
        if isinstance(output, TakeSource):
            return output.index
        if not isinstance(output, TakeValue) or clause.kind == "not_matched_by_source":
            return None
        tree = self.tree(clause.clause.values[output.index])
        return self.source_column(tree) if isinstance(tree, Name) else None

    def source_column(self, name: Name) -> int | None:
        return column_at(self._both, "source", self.merge.source_schema, name)

    def target_column(self, name: Name) -> int | None:
        return column_at(self._target, "target", self.merge.target_schema, name)

    def inserted_column(self, name: Name) -> int | None:
        """Return the position of a name's column after the target's columns, where only the source is seen."""
        found = column_at(self._source, "source", self.merge.source_schema, name)
        return None if found is None else len(self.merge.target_schema) + found

    def either_column(self, name: Name) -> int | None:
        """Return the position of a name's column among the target's columns and, after these, the source's."""
        of_target = column_at(self._both, "target", self.merge.target_schema, name)
        if of_target is not None:
            return of_target
        of_source = self.source_column(name)
        return None if of_source is None else len(self.merge.target_schema) + of_source


def expression_tree(expression: Expression, double_quoted_identifiers: bool) -> Node:
    if expression.column is None:
        return read_condition(expression.sql, double_quoted_identifiers)
    column: Any = expression.column
    if type(column).__module__.startswith("pyspark.sql.connect"):
        return read_proto(column.to_plan(None), double_quoted_identifiers)
    tree = read_classic_column(expression.text, double_quoted_identifiers)
    names = attribute_names(column)
    # A classic Column prints a name as it is, so that a name may look like anything.
    if names is None or not names_in(tree).issuperset(names):
        return unreadable(expression.text)
    return without_operators(tree, NAMED_OPERATORS.values()) if has_users_functions(column) else tree


def _keeps_value(given: DataType, field: StructField) -> bool:
    """Return whether a value is the same in a column, by whatever rules it is cast to the column's type."""
    wanted = field.dataType
    if CHAR_VARCHAR_TYPE in (field.metadata or {}):
        # It may be too long, or to be padded.
        return False
    if same_shape(given, wanted):
        return True
    if isinstance(given, INTEGERS) and isinstance(wanted, INTEGERS):
        return INTEGERS.index(type(given)) < INTEGERS.index(type(wanted))
    if isinstance(given, DecimalType) and isinstance(wanted, DecimalType):
        return wanted.precision - given.precision >= wanted.scale - given.scale >= 0
    return isinstance(given, FloatType) and isinstance(wanted, DoubleType)


def _is_deterministic(leaf: Node) -> bool:
    if isinstance(leaf, Literal):
        return True
    return isinstance(leaf, Name) and (len(leaf.parts) > 1 or leaf.parts[0].lower() not in _CURRENT_TIME)


def relation_of(alias: str | None, schema: StructType, *, is_qualified_within: bool = False) -> Relation:
    times = Counter(name.lower() for name in schema.names)
    duplicates = frozenset(name for name in schema.names if times[name.lower()] > 1)
    qualifiers = ((alias,),) if alias is not None else ()
    return Relation(qualifiers, field_tree(schema), duplicates, is_qualified_within=is_qualified_within)


def field_tree(schema: StructType) -> FieldTree:
    return {
        field.name: field_tree(field.dataType) if isinstance(field.dataType, StructType) else None
        for field in schema.fields
    }


def column_at(scope: Scope, side: str, schema: StructType, name: Name) -> int | None:
    found = scope.resolve(name.parts)
    if found is None or found.side != side or not found.known or len(found.path) > 1:
        return None
    return schema.names.index(found.path[0]) if schema.names.count(found.path[0]) == 1 else None
