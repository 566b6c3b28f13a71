"""How a key lookup runs: what is compared, which clause takes a pair, what is kept of a source row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from deltamerge.merge.analysis.join_keys import PlainKeys
from deltamerge.merge.analysis.resolved_merge import ResolvedClause, TakeTarget, TakeValue, values_of
from deltamerge.merge.planning.changed_rows import moving_columns, reached, takes_all
from deltamerge.merge.planning.context import PlanningContext
from deltamerge.merge.planning.derived_columns import checks_in_arrow, derived_of
from deltamerge.merge.planning.fit import arrow_type, stored_columns
from deltamerge.workers.conditions import ClauseChoice, RowCheck
from deltamerge.workers.key_lookup import ComparedKey, PairChoice, SourceChoice, TargetChoice
from deltamerge.workers.row_pairs import by_source_number
from deltamerge.write.constraints import NotNull, constraints_of


@dataclass(frozen=True)
class LookupRecipe:
    """How a key lookup runs.

    Args:
        changed: Who makes the changed rows, as in the plan: ``arrow``, ``pair_values`` or ``spark``.
        matched: The MATCHED clauses that update or delete.
        skipped: The clauses whose rows are only counted; see `SKIPPED`.
        takes_all: Whether the first of all MATCHED clauses has no condition, so that no other takes a row.
        pairs: Which clause takes a pair, where Arrow finds out from both rows; else None.
        undecided: Whether only Spark finds out which clause takes a pair.
        asked_of_source: The positions of the source's columns in `pairs` and `on_source`.
        on_target: What ON requires of a target row besides its keys; None where it is nothing.
        on_source: The same of a source row.
        unmatched: Which of them takes a row that nothing matches; None where there is none.
        pair_columns: By the code of an UPDATE clause, for each of the table's columns whose value Spark computes of a
            pair the column with it; empty unless Spark does.
        pair_values: By the same code the positions of the clause's values that are evaluated for that.
        pair_holds: By the same code the column that says whether constraints hold, where Spark evaluates them.
        moving: By the same code the partition columns that the clause may set to another value.
        pair_target: The positions of the target's columns that Spark reads of a pair; None for all.
        pair_source: The same of the source's columns.
        sets_literals: Whether all that Spark computes of pairs is the same for all pairs of a clause.
        computes: Whether a clause sets a value, or has a condition, that may be another one for each pair.
        before: The table's columns as its data files have them, by their names in the table.
        stored: The same of the files that are written.
        not_null: The paths of the table's columns and fields that are never NULL.
        checks: The constraints that PyArrow evaluates, by the columns' names in data files.
    """

    keys: PlainKeys
    changed: str
    matched: tuple[ResolvedClause, ...]
    skipped: tuple[ResolvedClause, ...]
    takes_all: bool
    pairs: PairChoice | None
    undecided: bool
    asked_of_source: tuple[int, ...]
    on_target: TargetChoice | None
    on_source: SourceChoice | None
    by_source: tuple[ResolvedClause, ...]
    unmatched: TargetChoice | None
    pair_columns: Mapping[int, Mapping[str, str]]
    pair_values: Mapping[int, frozenset[int]]
    pair_holds: Mapping[int, str]
    moving: Mapping[int, tuple[str, ...]]
    pair_target: frozenset[int] | None
    pair_source: frozenset[int] | None
    sets_literals: bool
    computes: bool
    before: Mapping[str, pa.Field]
    stored: Mapping[str, pa.Field]
    not_null: frozenset[tuple[str, ...]]
    checks: tuple[RowCheck, ...]

    @property
    def by_spark(self) -> bool:
        return self.changed == "spark"

    @property
    def reads_pairs(self) -> bool:
        """Whether Spark evaluates clauses over both rows of a pair."""
        return self.changed != "arrow"

    @property
    def of_pairs(self) -> frozenset[str]:
        """The columns with what Spark computes of pairs."""
        values = (name for each in self.pair_columns.values() for name in each.values())
        return frozenset((*values, *self.pair_holds.values()))

    def compared(self, staged: Sequence[str]) -> tuple[ComparedKey, ...]:
        """Return the keys as tasks compare them.

        Args:
            staged: The names of the source's keys in the staged rows.
        """
        keys = self.keys
        kinds = (arrow_type(kind) for kind in keys.compared)
        return tuple(
            ComparedKey(of_source, self.before[name].name, kind, null_safe)
            for of_source, name, kind, null_safe in zip(staged, keys.target, kinds, keys.null_safe, strict=True)
        )

    @property
    def numbers(self) -> dict[tuple[str, int], int]:
        """By the clauses whose rows are counted the number that pairs have for each."""
        return {clause.key: code_of(clause) for clause in (*self.matched, *self.by_source, *self.skipped)}

    @property
    def updates(self) -> tuple[ResolvedClause, ...]:
        """The MATCHED and the BY SOURCE clauses that update."""
        return tuple(clause for clause in (*self.matched, *self.by_source) if clause.action == "update")


def lookup_recipe(context: PlanningContext, changed: str) -> LookupRecipe:
    """Return how a merge runs by key lookup, which must fit it."""
    merge, references, keys = context.merge, context.references, context.plain_keys
    reads_pairs = changed != "arrow"
    before = stored_columns(merge.target_schema, context.mapping_mode)
    assert isinstance(keys, PlainKeys)
    clauses = reached(context)
    matched = tuple(clause for clause in clauses if clause.action in ("update", "delete"))
    skipped = tuple(clause for clause in merge.skipping if clause in clauses or clause.clause.kind != "matched")
    counted = [clause.number for clause in (*matched, *skipped) if clause.clause.kind == "matched"]
    from_source = all(references.of(clause).condition_from_source for clause in clauses)
    of_pairs = None
    if not takes_all(context) and (reads_pairs or not from_source):
        of_pairs = references.pair_choice(counted)
    by_source = tuple(merge.changing_by_source)
    kept_unmatched = [c.number for c in (*by_source, *skipped) if c.clause.kind == "not_matched_by_source"]
    unmatched = references.by_source_choice(kept_unmatched) if by_source else None
    on_target, on_source = references.on_filters or (None, None)
    of_pairs_places = () if of_pairs is None else _source_places(context, of_pairs)
    on_source_places = () if on_source is None else on_source.columns
    updates = [c for c in (*matched, *by_source) if c.action == "update"] if changed == "pair_values" else []
    computed = {clause.key: _computed_of_pairs(context, clause) for clause in updates}
    evaluated = {c.key: (*computed[c.key], *derived_of(context, c).inputs) for c in updates}
    undecided = reads_pairs and not takes_all(context) and of_pairs is None
    read = references.read_by_updates(evaluated, conditions=undecided) if changed == "pair_values" else None
    constraints = constraints_of(merge.output_schema, context.snapshot.metadata.configuration)
    return LookupRecipe(
        keys=keys,
        changed=changed,
        matched=matched,
        skipped=skipped,
        takes_all=takes_all(context),
        pairs=None if of_pairs is None else _pair_choice(context, of_pairs, before),
        undecided=undecided,
        asked_of_source=tuple(sorted({*of_pairs_places, *on_source_places})),
        on_target=None if on_target is None else TargetChoice(_of_target(context, on_target, before), on_target),
        on_source=None if on_source is None else _source_choice(context, on_source),
        by_source=by_source,
        unmatched=None if unmatched is None else TargetChoice(_of_target(context, unmatched, before), unmatched),
        pair_columns={code_of(clause): _pair_columns(context, clause, computed[clause.key]) for clause in updates},
        pair_values={
            code_of(clause): frozenset(v for index in evaluated[clause.key] for v in values_of(clause.outputs[index]))
            for clause in updates
        },
        pair_holds={
            code_of(clause): merge.names.holds(*clause.key) for clause in updates if derived_of(context, clause).checks
        },
        moving={} if changed == "spark" else _moving(context, (*matched, *by_source)),
        pair_target=None if read is None else read[0],
        pair_source=None if read is None else read[1],
        sets_literals=changed == "pair_values" and not undecided and references.are_literals(evaluated),
        computes=not reads_pairs and _computes(context, clauses),
        before=before,
        stored=stored_columns(merge.output_schema, context.mapping_mode),
        not_null=frozenset(c.path for c in constraints if isinstance(c, NotNull)),
        checks=() if changed == "spark" else _checks(context),
    )


def _of_target(
    context: PlanningContext, choice: ClauseChoice, stored: Mapping[str, pa.Field]
) -> dict[str, tuple[str, pa.DataType]]:
    """Return the target's columns in a choice, by the names that it has for them."""
    names = context.merge.target_schema.names
    found = {str(place): names[place] for place in sorted(choice.columns) if place < len(names)}
    return {place: (stored[name].name, stored[name].type) for place, name in found.items()}


def _source_places(context: PlanningContext, choice: ClauseChoice) -> tuple[int, ...]:
    before = len(context.merge.target_schema)
    return tuple(place - before for place in sorted(choice.columns) if place >= before)


def _source_choice(context: PlanningContext, choice: ClauseChoice) -> SourceChoice:
    return SourceChoice({str(place): context.merge.names.source(place) for place in sorted(choice.columns)}, choice)


def _pair_choice(context: PlanningContext, choice: ClauseChoice, stored: Mapping[str, pa.Field]) -> PairChoice:
    merge = context.merge
    places = _source_places(context, choice)
    source = {str(len(merge.target_schema) + place): merge.names.source(place) for place in places}
    return PairChoice(_of_target(context, choice, stored), source, choice)


def code_of(clause: ResolvedClause) -> int:
    """Return the number that pairs have for a MATCHED or BY SOURCE clause."""
    return clause.number if clause.clause.kind == "matched" else by_source_number(clause.number)


def _computed_of_pairs(context: PlanningContext, clause: ResolvedClause) -> tuple[int, ...]:
    """Return the output columns that an UPDATE sets to what no source row has as it is."""
    return tuple(
        index
        for index, output in enumerate(clause.outputs)
        if not isinstance(output, TakeTarget) and context.references.of(clause).taken_as_is(index) is None
    )


def _pair_columns(context: PlanningContext, clause: ResolvedClause, outputs: Sequence[int]) -> dict[str, str]:
    merge = context.merge
    return {merge.output_schema.names[index]: merge.names.stored(*clause.key, index) for index in outputs}


def _moving(context: PlanningContext, clauses: Sequence[ResolvedClause]) -> dict[int, tuple[str, ...]]:
    updates = (clause for clause in clauses if clause.action == "update")
    found = ((code_of(clause), moving_columns(context, clause)) for clause in updates)
    return {code: columns for code, columns in found if columns}


def _checks(context: PlanningContext) -> tuple[RowCheck, ...]:
    stored = stored_columns(context.merge.output_schema, context.mapping_mode)
    return tuple(
        replace(check, columns={index: stored[name].name for index, name in check.columns.items()})
        for check in checks_in_arrow(context)
    )


def _computes(context: PlanningContext, clauses: tuple[ResolvedClause, ...]) -> bool:
    references = context.references
    if any(clause.clause.condition is not None for clause in clauses) and not references.is_deterministic:
        return True
    return any(
        isinstance(output, TakeValue) and references.of(clause).source_columns[index] is None
        for clause in clauses
        for index, output in enumerate(clause.outputs)
        if clause.action in ("update", "delete")
    )
