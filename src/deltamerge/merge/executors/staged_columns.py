"""What a key lookup stages of each source row: its own columns, and what Spark computes of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pyspark.sql import Column

from deltamerge.merge.analysis.resolved_merge import (
    ResolvedClause,
    TakeDefault,
    TakeGenerated,
    TakeTarget,
    values_of,
)
from deltamerge.merge.executors.execution import Execution, derivation_of, stored_value
from deltamerge.merge.executors.lookup_recipe import LookupRecipe, row_value
from deltamerge.merge.output.derived_columns import Derivation
from deltamerge.spark import columns as F
from deltamerge.workers.conditions import ClauseChoice
from deltamerge.workers.row_values import ClauseRows, Setting
from deltamerge.write.identity_columns import identity_column


@dataclass(frozen=True)
class StagedColumns:
    """What is staged of each source row.

    Args:
        own: The columns that are the source's as they are, by name: their positions there.
        updates: The UPDATE clauses by code, with the staged columns and those that Spark computes of pairs.
        matched: The column with the number of the MATCHED clause that takes the row where it matches, NULL where none
            changes anything; None where the first one takes all, and where it depends on the target's row.
        inserts: The INSERT clauses by number.
        clause: The column with the number of the INSERT clause that takes the row; None where the only one takes all.
        computed: The columns that are not the source's own, as expressions over the evaluated rows.
        derivations: What is added to these before.
        values: By the number of a MATCHED clause the positions of its values that these read.
        chosen: Those of the computed ones that hold clauses' numbers and need no Spark.
    """

    own: Mapping[str, int]
    updates: Mapping[int, ClauseRows] = field(default_factory=dict)
    matched: str | None = None
    inserts: Mapping[int, ClauseRows] = field(default_factory=dict)
    clause: str | None = None
    computed: Mapping[str, Column] = field(default_factory=dict)
    chosen: Mapping[str, ClauseChoice] = field(default_factory=dict)
    derivations: tuple[Derivation, ...] = ()
    values: Mapping[int, Collection[int]] = field(default_factory=dict)

    @property
    def needs_spark(self) -> bool:
        return bool(self.computed.keys() - self.chosen.keys())

    @property
    def asked(self) -> list[int]:
        """The positions of the source's columns that decide which clause takes a row."""
        return sorted(frozenset[int]().union(*(choice.columns for choice in self.chosen.values())))


def columns_to_stage(execution: Execution, recipe: LookupRecipe) -> StagedColumns:
    """Return what is staged of each source row."""
    merge, arrow, names = execution.merge, execution.context.arrow, execution.merge.names
    columns, clauses = _Columns(execution, recipe), recipe.clauses
    for index in recipe.keys.source:
        if index is not None:
            columns.of_source(index)
    for name in recipe.computed_keys:
        columns.compute(name, F.col(name))
    of_pairs = recipe.pair_values
    updated = {
        update.code: ClauseRows(
            columns.of_clause(update, of_pairs.columns.get(update.code, {})),
            of_pairs.holds.get(update.code) if recipe.reads_pairs else columns.derive(update),
        )
        for update in clauses.updates
    }
    for index in (*sorted(recipe.pair_values.source), *recipe.choices.source_columns):
        columns.of_source(index)
    matched = None
    if clauses.matched and not clauses.take_all and recipe.choices.pair is None and not recipe.reads_pairs:
        taken, numbers = F.col(names.clause("matched")), [n for kind, n in clauses.numbers if kind == "matched"]
        matched = columns.compute(names.clause("matched"), F.when(taken.isin(*numbers), taken))
        columns.choose(matched, arrow.source_choice(merge.matched, numbers))
    inserting = merge.inserting
    inserted = {insert.number: ClauseRows(columns.of_clause(insert), columns.derive(insert)) for insert in inserting}
    clause = None
    if inserting and any(c.clause.condition is not None or c.action != "insert" for c in merge.not_matched):
        clause = columns.compute(names.clause("not_matched"), F.col(names.clause("not_matched")))
        numbers = [c.number for c in merge.not_matched]
        columns.choose(clause, arrow.source_choice(merge.not_matched, numbers))
    return StagedColumns(
        own=columns.own,
        updates=updated,
        matched=matched,
        inserts=inserted,
        clause=clause,
        computed=columns.computed,
        chosen=columns.chosen,
        derivations=tuple(columns.derivations),
        values=columns.values,
    )


class _Columns:
    def __init__(self, execution: Execution, recipe: LookupRecipe) -> None:
        self._execution = execution
        self._recipe = recipe
        self.own: dict[str, int] = {}
        self.computed: dict[str, Column] = {}
        self.chosen: dict[str, ClauseChoice] = {}
        self.derivations: list[Derivation] = []
        self.values = defaultdict[int, set[int]](set)

    def compute(self, name: str, column: Column) -> str:
        self.computed.setdefault(name, column)
        return name

    def derive(self, clause: ResolvedClause) -> str | None:
        """Compute what a clause's rows need besides; return the column that says whether constraints hold."""
        derivation = derivation_of(self._execution, clause)
        if derivation is None:
            return None
        self.derivations.append(derivation)
        for index in derivation.inputs:
            self._reading(clause, index)
        return self.compute(derivation.holds, F.col(derivation.holds)) if derivation.checks else None

    def _reading(self, clause: ResolvedClause, index: int) -> None:
        if clause.kind == "matched":
            self.values[clause.number].update(values_of(clause.outputs[index]))

    def choose(self, name: str, choice: ClauseChoice | None) -> None:
        if choice is not None:
            self.chosen[name] = choice

    def of_source(self, index: int) -> str:
        name = self._execution.merge.names.source(index)
        self.own[name] = index
        return name

    def of_clause(
        self, clause: ResolvedClause, of_pairs: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, Setting]:
        """Return what an UPDATE or INSERT sets the table's columns to.

        Args:
            of_pairs: Those that are computed of pairs.
        """
        merge = self._execution.merge
        references = self._execution.references.of(clause)
        found: dict[str, Setting] = {}
        for index, (output, column) in enumerate(zip(clause.outputs, merge.output_schema.fields, strict=True)):
            if isinstance(output, TakeTarget):
                continue
            if isinstance(output, TakeDefault) and identity_column(column) is not None:
                # It follows from the row's number, which is known once all rows are staged.
                continue
            if column.name in of_pairs:
                found[column.name] = of_pairs[column.name]
                continue
            taken = references.taken_as_is(index)
            computed = row_value(self._execution.context, self._recipe.table, clause, index) if taken is None else None
            if taken is not None:
                found[column.name] = self.of_source(taken)
            elif computed is not None:
                found[column.name] = computed
                for place in computed.source:
                    self.of_source(place - len(merge.target_schema))
            else:
                self._reading(clause, index)
                name = merge.names.stored(clause.kind, clause.number, index)
                value = F.col(name)
                if not isinstance(output, TakeGenerated):
                    value = stored_value(self._execution, clause, index)
                found[column.name] = self.compute(name, value)
        return found
