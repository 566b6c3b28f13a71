"""What a key lookup stages of each source row: its own columns, and what Spark computes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from pyspark.sql import Column

from deltamerge.merge.analysis.resolved_merge import ResolvedClause, TakeDefault, TakeGenerated, TakeTarget
from deltamerge.merge.executors.execution import Execution, derivation_of, stored_value
from deltamerge.merge.executors.lookup_recipe import LookupRecipe, code_of
from deltamerge.merge.output.derived_columns import Derivation
from deltamerge.spark import columns as F
from deltamerge.workers.conditions import ClauseChoice
from deltamerge.write.identity_columns import identity_column


@dataclass(frozen=True)
class StagedColumns:
    """What is staged of each source row.

    Args:
        own: The columns that are the source's as they are, by name: their positions there.
        updates: By the code of an UPDATE clause, for each of the table's columns that it sets the column.
        matched: The column with the number of the MATCHED clause that takes the row where it matches, NULL where none
            changes anything; None where the first one takes all, and where it depends on the target's row.
        inserts: By the number of an INSERT clause, for each of the table's columns the column.
        clause: The column with the number of the INSERT clause that takes the row; None where the only one takes all.
        computed: The columns that are not the source's own, as expressions over the evaluated rows.
        derivations: What is added to these before.
        updates_hold: By the code of an UPDATE clause the column that says whether constraints hold.
        inserts_hold: The same of INSERT clauses.
        chosen: Those of the computed ones that hold clauses' numbers and need no Spark.
    """

    own: Mapping[str, int]
    updates: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    matched: str | None = None
    inserts: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    clause: str | None = None
    computed: Mapping[str, Column] = field(default_factory=dict)
    chosen: Mapping[str, ClauseChoice] = field(default_factory=dict)
    derivations: tuple[Derivation, ...] = ()
    updates_hold: Mapping[int, str] = field(default_factory=dict)
    inserts_hold: Mapping[int, str] = field(default_factory=dict)

    @property
    def needs_spark(self) -> bool:
        """Whether Spark must compute something of a row that is in a file."""
        return bool(self.computed.keys() - self.chosen.keys())

    @property
    def asked(self) -> list[int]:
        """The positions of the source's columns that decide which clause takes a row."""
        return sorted(frozenset[int]().union(*(choice.columns for choice in self.chosen.values())))


def columns_to_stage(execution: Execution, recipe: LookupRecipe) -> StagedColumns:
    """Return what is staged of each source row: all of it where Spark writes the rows."""
    if recipe.by_spark:
        names = execution.merge.names
        return StagedColumns({names.source(index): index for index in range(len(execution.merge.source_schema))})
    return _written_columns(execution, recipe)


def _written_columns(execution: Execution, recipe: LookupRecipe) -> StagedColumns:
    merge, references, names = execution.merge, execution.references, execution.merge.names
    columns, clauses = _Columns(execution), recipe.clauses
    for index in recipe.keys.source:
        columns.of_source(index)
    updated = {
        code_of(clause): columns.of_clause(clause, recipe.pair_values.columns.get(code_of(clause), {}))
        for clause in clauses.updates
    }
    updates_hold = recipe.pair_values.holds if recipe.reads_pairs else columns.derive(clauses.updates)
    for index in (*sorted(recipe.pair_values.source), *recipe.choices.source_columns):
        columns.of_source(index)
    matched = None
    if clauses.matched and not clauses.take_all and recipe.choices.pair is None and not recipe.reads_pairs:
        taken, numbers = F.col(names.clause("matched")), [n for kind, n in clauses.numbers if kind == "matched"]
        matched = columns.compute(names.clause("matched"), F.when(taken.isin(*numbers), taken))
        columns.choose(matched, references.source_choice(merge.matched, numbers))
    inserting = merge.inserting
    inserted = {clause.number: columns.of_clause(clause) for clause in inserting}
    inserts_hold = columns.derive(inserting)
    clause = None
    if inserting and any(c.clause.condition is not None or c.action != "insert" for c in merge.not_matched):
        clause = columns.compute(names.clause("not_matched"), F.col(names.clause("not_matched")))
        numbers = [c.number for c in merge.not_matched]
        columns.choose(clause, references.source_choice(merge.not_matched, numbers))
    return StagedColumns(
        own=columns.own,
        updates=updated,
        matched=matched,
        inserts=inserted,
        clause=clause,
        computed=columns.computed,
        chosen=columns.chosen,
        derivations=tuple(columns.derivations),
        updates_hold=updates_hold,
        inserts_hold=inserts_hold,
    )


class _Columns:
    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self.own: dict[str, int] = {}
        self.computed: dict[str, Column] = {}
        self.chosen: dict[str, ClauseChoice] = {}
        self.derivations: list[Derivation] = []

    def compute(self, name: str, column: Column) -> str:
        self.computed.setdefault(name, column)
        return name

    def derive(self, clauses: Sequence[ResolvedClause]) -> dict[int, str]:
        """Compute what the clauses' rows need besides.

        Returns:
            By their numbers the columns that say whether constraints hold.
        """
        found = {}
        for clause in clauses:
            derivation = derivation_of(self._execution, clause)
            if derivation is not None:
                self.derivations.append(derivation)
                if derivation.checks:
                    found[clause.number] = self.compute(derivation.holds, F.col(derivation.holds))
        return found

    def choose(self, name: str, choice: ClauseChoice | None) -> None:
        if choice is not None:
            self.chosen[name] = choice

    def of_source(self, index: int) -> str:
        name = self._execution.merge.names.source(index)
        self.own[name] = index
        return name

    def of_clause(self, clause: ResolvedClause, of_pairs: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
        """Return the columns of what an UPDATE or INSERT sets, by the table's columns.

        Args:
            of_pairs: Those that are computed of pairs.
        """
        merge = self._execution.merge
        references = self._execution.references.of(clause)
        found = {}
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
            if taken is not None:
                found[column.name] = self.of_source(taken)
            else:
                name = merge.names.stored(clause.clause.kind, clause.number, index)
                value = F.col(name)
                if not isinstance(output, TakeGenerated):
                    value = stored_value(self._execution, clause, index)
                found[column.name] = self.compute(name, value)
        return found
