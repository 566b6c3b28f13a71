"""What a statement means for one snapshot of its target: every name looked up, every type known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql.types import DataType, StructField, StructType

from deltamerge.merge.analysis.internal_columns import InternalColumns
from deltamerge.merge.statement import MergeStatement, to_column
from deltamerge.spark import columns as F
from deltamerge.sql.merge_ast import ClauseKind, MergeClause, Update
from deltamerge.sql.names import free_prefix
from deltamerge.workers.row_pairs import SKIPPED, by_source_number
from deltamerge.write.align import align, set_fields
from deltamerge.write.generated_columns import generation_expression
from deltamerge.write.identity_columns import explicit_insert, identity_column, identity_update
from deltamerge.write.store_assignment import StoreAssignment


def type_at(schema: StructType, path: Sequence[str]) -> DataType:
    data_type: DataType = schema
    for part in path:
        assert isinstance(data_type, StructType)
        data_type = next(f.dataType for f in data_type.fields if f.name == part)
    return data_type


@dataclass(frozen=True)
class TakeTarget:
    """The target's own value stays."""


@dataclass(frozen=True)
class TakeSource:
    """The source's column at a position.

    Args:
        keep_target_fields: Whether fields that only the target's struct has keep their values.
    """

    index: int
    keep_target_fields: bool


@dataclass(frozen=True)
class TakeValue:
    index: int


@dataclass(frozen=True)
class SetFields:
    """The target's struct with some of its fields set.

    Args:
        fields: The path below the column, and the position among the clause's values.
    """

    fields: tuple[tuple[tuple[str, ...], int], ...]


@dataclass(frozen=True)
class TakeDefault:
    """The column's default, NULL where it has none."""


@dataclass(frozen=True)
class TakeGenerated:
    """A generated column's expression over what the row's other columns become."""


Output: TypeAlias = TakeTarget | TakeSource | TakeValue | SetFields | TakeDefault | TakeGenerated


def values_of(output: Output) -> tuple[int, ...]:
    """Return the positions, among the clause's values, of those that an output column is made of."""
    if isinstance(output, SetFields):
        return tuple(value for _, value in output.fields)
    return (output.index,) if isinstance(output, TakeValue) else ()


def reads_own_value(output: Output) -> bool:
    return isinstance(output, (TakeTarget, SetFields)) or (isinstance(output, TakeSource) and output.keep_target_fields)


@dataclass(frozen=True)
class ResolvedClause:
    """One WHEN clause.

    Args:
        outputs: For each output column what it becomes; empty for DELETE and DO NOTHING.
    """

    clause: MergeClause
    number: int
    value_types: tuple[DataType, ...] = ()
    outputs: tuple[Output, ...] = ()

    @cached_property
    def condition(self) -> Column | None:
        return None if self.clause.condition is None else to_column(self.clause.condition)

    @cached_property
    def values(self) -> tuple[Column, ...]:
        """The assigned values as Spark evaluates them, over the user's names."""
        return tuple(to_column(value) for value in self.clause.values)

    @property
    def kind(self) -> ClauseKind:
        return self.clause.kind

    @property
    def name(self) -> str:
        """The name of columns that count its rows."""
        return f"{self.kind}_{self.number}"

    @property
    def key(self) -> tuple[ClauseKind, int]:
        return self.kind, self.number

    @property
    def code(self) -> int:
        """The number that pairs of rows have for a MATCHED or BY SOURCE clause."""
        return self.number if self.kind == "matched" else by_source_number(self.number)

    @property
    def skip_key(self) -> tuple[ClauseKind, int]:
        """The key of the clause that takes the rows which this UPDATE would leave as they are."""
        return self.kind, SKIPPED + self.number

    @property
    def action(self) -> str:
        return self.clause.action_name


@dataclass(frozen=True)
class ResolvedMerge:
    """A whole MERGE.

    Args:
        double_quoted_identifiers: Whether double quotes stand around names in the session's SQL.
        partition_columns: The target's.
    """

    statement: MergeStatement
    clauses: tuple[ResolvedClause, ...]
    target_schema: StructType
    output_schema: StructType
    source_schema: StructType
    target_alias: str
    assignment: StoreAssignment
    double_quoted_identifiers: bool = False
    partition_columns: tuple[str, ...] = ()

    @property
    def source_alias(self) -> str | None:
        return self.statement.source_alias

    @cached_property
    def condition(self) -> Column:
        return to_column(self.statement.condition)

    @cached_property
    def names(self) -> InternalColumns:
        return InternalColumns(free_prefix((*self.output_schema.names, *self.source_schema.names)))

    def of_kind(self, kind: ClauseKind) -> tuple[ResolvedClause, ...]:
        return tuple(clause for clause in self.clauses if clause.kind == kind)

    @property
    def case_sensitive(self) -> bool:
        return self.assignment.case_sensitive

    @property
    def matched(self) -> tuple[ResolvedClause, ...]:
        return self.of_kind("matched")

    @property
    def not_matched(self) -> tuple[ResolvedClause, ...]:
        return self.of_kind("not_matched")

    @property
    def not_matched_by_source(self) -> tuple[ResolvedClause, ...]:
        return self.of_kind("not_matched_by_source")

    @property
    def inserting(self) -> list[ResolvedClause]:
        return [clause for clause in self.not_matched if clause.action == "insert"]

    @property
    def inserts(self) -> bool:
        return bool(self.inserting)

    @property
    def changing(self) -> list[ResolvedClause]:
        clauses = (*self.matched, *self.not_matched_by_source)
        return [clause for clause in clauses if clause.action in ("update", "delete")]

    @property
    def changing_by_source(self) -> list[ResolvedClause]:
        return [clause for clause in self.changing if clause.kind == "not_matched_by_source"]

    @property
    def skipping(self) -> list[ResolvedClause]:
        return [clause for clause in self.clauses if clause.action == "skip_unchanged"]

    @property
    def given(self) -> list[ResolvedClause]:
        return [clause for clause in self.clauses if clause.action != "skip_unchanged"]

    @property
    def is_only_one_unconditional_delete(self) -> bool:
        """Whether several source rows may match one target row: it is deleted, whichever of them does it."""
        return (
            len(self.matched) == 1 and self.matched[0].clause.condition is None and self.matched[0].action == "delete"
        )

    @property
    def changes_all_it_matches(self) -> bool:
        """Whether a row that no clause changes makes no difference: no INSERT asks whether it matched."""
        clauses = self.matched
        return not self.inserts or (
            any(clause.clause.condition is None for clause in clauses)
            and all(clause.action in ("update", "delete") for clause in clauses)
        )

    @property
    def evolves_schema(self) -> bool:
        return self.output_schema != self.target_schema


@dataclass(frozen=True)
class SideColumns:
    """The columns that outputs are made of, wherever clauses are evaluated.

    Args:
        target: Returns the target's own value of an output column, in the output's type.
        source: Returns the source's column at a position.
        value: Returns the clause's value at a position.
    """

    target: Callable[[int], Column]
    source: Callable[[int], Column]
    value: Callable[[int], Column]


def assigned(merge: ResolvedMerge, clause: ResolvedClause, index: int, columns: SideColumns) -> Column:
    """Return what an output column becomes, in its type, where a clause takes it from the source or assigns it."""
    field, output = merge.output_schema.fields[index], clause.outputs[index]
    assignment, types = merge.assignment.into(field.name), clause.value_types
    if isinstance(output, TakeSource):
        existing = columns.target(index) if output.keep_target_fields else None
        given = merge.source_schema.fields[output.index].dataType
        return align(columns.source(output.index), given, field.dataType, assignment, existing)
    if isinstance(output, TakeValue):
        return align(columns.value(output.index), types[output.index], field.dataType, assignment)
    assert isinstance(output, SetFields) and isinstance(field.dataType, StructType)
    changes = {
        path: align(columns.value(value), types[value], type_at(field.dataType, path), assignment)
        for path, value in output.fields
    }
    return set_fields(columns.target(index), field.dataType, changes)


def target_value(merge: ResolvedMerge, index: int, own: Callable[[], Column]) -> Column:
    """Return the target's own value of an output column, in the output's type; a new column is NULL."""
    wanted = merge.output_schema.fields[index].dataType
    if index >= len(merge.target_schema.fields):
        return F.lit(None).cast(wanted)
    by_name = replace(merge.assignment, structs_by_name=True)
    return align(own(), merge.target_schema.fields[index].dataType, wanted, by_name)


def outputs_of_table(clause: MergeClause, outputs: tuple[Output, ...], schema: StructType) -> tuple[Output, ...]:
    """Return what an UPDATE or INSERT makes of the columns; generated ones that it does not set are computed anew."""
    return tuple(_output(clause, output, field) for output, field in zip(outputs, schema.fields, strict=True))


def _output(clause: MergeClause, output: Output, field: StructField) -> Output:
    identity = identity_column(field)
    if identity is not None:
        if isinstance(clause.action, Update) and not isinstance(output, TakeTarget):
            raise identity_update(field.name, f" in: {clause.to_sql()}")
        if not isinstance(output, (TakeTarget, TakeDefault)) and not identity.allow_explicit_insert:
            raise explicit_insert(field.name, f" in: {clause.to_sql()}")
    if generation_expression(field) is not None and isinstance(output, (TakeTarget, TakeDefault)):
        return TakeGenerated()
    return output
