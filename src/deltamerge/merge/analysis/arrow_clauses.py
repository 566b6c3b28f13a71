"""What of a statement Arrow evaluates as Spark does: which clause takes a row, and the values that clauses set."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import pyarrow as pa
from pyspark.sql.types import NullType, StructField

from deltamerge.merge.analysis.arrow_conditions import Columns, arrow_condition
from deltamerge.merge.analysis.arrow_values import arrow_value, assigned_value, plain_type
from deltamerge.merge.analysis.column_references import MergeReferences, column_at, relation_of
from deltamerge.merge.analysis.resolved_merge import (
    ResolvedClause,
    ResolvedMerge,
    TakeDefault,
    TakeSource,
    TakeValue,
)
from deltamerge.scan.file_types import arrow_of_plain
from deltamerge.sql.expression import conjuncts_of
from deltamerge.sql.resolution import Relation, Scope
from deltamerge.workers.conditions import ClauseChoice, Condition, Operation, RowCheck, columns_of
from deltamerge.workers.row_values import ColumnValue, Literal, Value
from deltamerge.write.constraints import Check
from deltamerge.write.defaults import default_sql
from deltamerge.write.generated_columns import generation_expression
from deltamerge.write.identity_columns import identity_column


@dataclass(frozen=True)
class ArrowClauses:
    """What Arrow evaluates of a statement, each part found when it is first asked for.

    Conditions and values over both sides have the target's columns by their positions and, after these, the source's.

    Args:
        zone: The session's time zone; None leaves what depends on it to Spark.
    """

    references: MergeReferences
    zone: str | None = None

    @property
    def merge(self) -> ResolvedMerge:
        return self.references.merge

    @cached_property
    def _both(self) -> Columns:
        fields = [*self.merge.target_schema.fields, *self.merge.source_schema.fields]
        return Columns(self.references.either_column, fields, self.zone)

    @cached_property
    def _inserted(self) -> Columns:
        """The source's columns, all that an INSERT sees, at the positions that they have after the target's."""
        return Columns(self.references.inserted_column, self._both.fields, self.zone)

    @cached_property
    def _source(self) -> Columns:
        return Columns(self.references.source_column, self.merge.source_schema.fields, self.zone)

    @cached_property
    def _target(self) -> Columns:
        return Columns(self.references.target_column, self.merge.target_schema.fields, self.zone)

    @cached_property
    def _written(self) -> Columns:
        schema = self.merge.output_schema
        scope = Scope(relation_of(None, schema), Relation((), {}), self.merge.case_sensitive)
        return Columns(partial(column_at, scope, "target", schema), schema.fields, self.zone)

    @cached_property
    def on_filters(self) -> tuple[ClauseChoice | None, ClauseChoice | None] | None:
        """What ON requires besides equal keys of only the target's row, and of only the source's.

        Each holds where a row has a number, and is None where ON requires nothing; None in all where a condition is
        about both sides or Spark must evaluate it.
        """
        required: dict[str, list[Condition]] = {"target_only": [], "source_only": []}
        on = self.references.on
        keys = {id(node) for node in on.key_nodes}
        parts = conjuncts_of(self.references.tree(self.merge.statement.condition))
        for part, conjunct in zip(parts, on.conjuncts, strict=True):
            if id(part) in keys:
                continue
            condition = arrow_condition(part, self._both)
            if condition is None or conjunct.side not in required:
                return None
            required[conjunct.side].append(condition)
        return _all_of(required["target_only"]), _all_of(required["source_only"])

    def row_check(self, check: Check) -> RowCheck | None:
        """Return a constraint as Arrow evaluates it on rows as they are written; None where Spark must evaluate it.

        Its columns are named as in the table.
        """
        if check.generated is not None:
            return None
        condition = arrow_condition(self.references.stored_tree(check.expression), self._written)
        if condition is None:
            return None
        return RowCheck(check.name, condition, {i: self._written.fields[i].name for i in columns_of(condition)})

    def source_choice(self, clauses: Sequence[ResolvedClause], returned: Collection[int]) -> ClauseChoice | None:
        """Return which MATCHED or NOT MATCHED clause takes a source row; None where Spark must evaluate a condition."""
        return self._choice(clauses, returned, self._source)

    def pair_choice(self, returned: Collection[int]) -> ClauseChoice | None:
        return self._choice(self.merge.matched, returned, self._both)

    def by_source_choice(self, returned: Collection[int]) -> ClauseChoice | None:
        return self._choice(self.merge.not_matched_by_source, returned, self._target)

    def _choice(
        self, clauses: Sequence[ResolvedClause], returned: Collection[int], columns: Columns
    ) -> ClauseChoice | None:
        found: list[tuple[int, Condition | None]] = []
        for clause in clauses:
            condition = None
            if clause.clause.condition is not None:
                condition = arrow_condition(self.references.tree(clause.clause.condition), columns)
                if condition is None:
                    return None
            found.append((clause.number, condition))
        return ClauseChoice(tuple(found), frozenset(returned))

    def value(self, clause: ResolvedClause, index: int) -> Value | None:
        """Return what an UPDATE or INSERT sets an output column to; None where Spark must compute it."""
        output, field = clause.outputs[index], self.merge.output_schema.fields[index]
        if isinstance(output, TakeDefault):
            return None if identity_column(field) is not None else self._default(field)
        if isinstance(output, TakeSource):
            given = plain_type(self.merge.source_schema.fields[output.index])
            taken = None if given is None else ColumnValue(len(self.merge.target_schema) + output.index, given)
            return None if taken is None else assigned_value(taken, field)
        if not isinstance(output, TakeValue):
            return None
        columns = {
            "matched": self._both,
            "not_matched": self._inserted,
            "not_matched_by_source": self._target,
        }[clause.kind]
        value = arrow_value(self.references.tree(clause.clause.values[output.index]), columns)
        kind = clause.value_types[output.index]
        # A Column's literals print alike whatever their types are.
        if value is None or value.type != (pa.null() if isinstance(kind, NullType) else arrow_of_plain(kind)):
            return None
        return assigned_value(value, field)

    def _default(self, field: StructField) -> Value | None:
        sql = default_sql(field)
        if sql is None:
            kind = plain_type(field)
            return None if kind is None else Literal(None, kind)
        value = arrow_value(self.references.stored_tree(sql), Columns(lambda _: None, (), self.zone))
        return None if value is None else assigned_value(value, field)

    def generated(self, index: int) -> Value | None:
        """Return a generated column over the output columns; None where Spark must compute it."""
        field = self.merge.output_schema.fields[index]
        sql = generation_expression(field)
        if sql is None:
            return None
        value = arrow_value(self.references.stored_tree(sql), self._written)
        return None if value is None else assigned_value(value, field)


def _all_of(conditions: Sequence[Condition]) -> ClauseChoice | None:
    if not conditions:
        return None
    whole = conditions[0] if len(conditions) == 1 else Operation("and", tuple(conditions))
    return ClauseChoice(((0, whole),), frozenset({0}))
