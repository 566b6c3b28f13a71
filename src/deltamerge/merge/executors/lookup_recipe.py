"""How a key lookup runs: what is compared, which clause takes a pair, what is kept of a source row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from deltamerge.merge.analysis.join_keys import PlainKeys
from deltamerge.merge.analysis.resolved_merge import ResolvedClause, TakeValue
from deltamerge.merge.planning.changed_rows import reached, takes_all
from deltamerge.merge.planning.context import PlanningContext
from deltamerge.merge.planning.fit import plain_columns
from deltamerge.workers.conditions import ClauseChoice
from deltamerge.workers.key_lookup import PairChoice, TargetChoice
from deltamerge.write.constraints import NotNull, constraints_of


@dataclass(frozen=True)
class LookupRecipe:
    """How a key lookup runs.

    Args:
        matched: The MATCHED clauses that update or delete.
        takes_all: Whether the first of all MATCHED clauses has no condition, so that no other takes a row.
        pairs: Which clause takes a pair, where Arrow finds out from both rows; else None.
        undecided: Whether only Spark finds out which clause takes a pair.
        asked_of_source: The positions of the source's columns in `pairs`.
        unmatched: Which of them takes a row that nothing matches; None where there is none.
        computes: Whether a clause sets a value, or has a condition, that may be another one for each pair.
        not_null: The table's columns that are never NULL.
    """

    keys: PlainKeys
    by_spark: bool
    matched: tuple[ResolvedClause, ...]
    takes_all: bool
    pairs: PairChoice | None
    undecided: bool
    asked_of_source: tuple[int, ...]
    by_source: tuple[ResolvedClause, ...]
    unmatched: TargetChoice | None
    computes: bool
    types: Mapping[str, pa.DataType]
    not_null: frozenset[str]

    @property
    def updates(self) -> tuple[ResolvedClause, ...]:
        return tuple(clause for clause in self.matched if clause.action == "update")


def lookup_recipe(context: PlanningContext, *, by_spark: bool) -> LookupRecipe:
    """Return how a merge runs by key lookup, which must fit it."""
    merge, references, keys = context.merge, context.references, context.plain_keys
    types = plain_columns(merge.target_schema if by_spark else merge.output_schema)
    assert not isinstance(keys, str)
    clauses = reached(context)
    matched = tuple(clause for clause in clauses if clause.action in ("update", "delete"))
    from_source = all(references.of(clause).condition_from_source for clause in clauses)
    of_pairs = None
    if not takes_all(context) and (by_spark or not from_source):
        of_pairs = references.pair_choice([clause.number for clause in matched])
    by_source = tuple(merge.changing_by_source)
    unmatched = references.by_source_choice([clause.number for clause in by_source]) if by_source else None
    constraints = constraints_of(merge.output_schema, context.snapshot.metadata.configuration)
    return LookupRecipe(
        keys=keys,
        by_spark=by_spark,
        matched=matched,
        takes_all=takes_all(context),
        pairs=None if of_pairs is None else _pair_choice(context, of_pairs, types),
        undecided=by_spark and not takes_all(context) and of_pairs is None,
        asked_of_source=() if of_pairs is None else _source_places(context, of_pairs),
        by_source=by_source,
        unmatched=None if unmatched is None else TargetChoice(_of_target(context, unmatched, types), unmatched),
        computes=not by_spark and _computes(context, clauses),
        types=types,
        not_null=frozenset(c.path[0] for c in constraints if isinstance(c, NotNull)),
    )


def _of_target(
    context: PlanningContext, choice: ClauseChoice, types: Mapping[str, pa.DataType]
) -> dict[str, tuple[str, pa.DataType]]:
    """Return the target's columns in a choice, by the names that it has for them."""
    names = context.merge.target_schema.names
    found = {str(place): names[place] for place in sorted(choice.columns) if place < len(names)}
    return {place: (name, types[name]) for place, name in found.items()}


def _source_places(context: PlanningContext, choice: ClauseChoice) -> tuple[int, ...]:
    before = len(context.merge.target_schema)
    return tuple(place - before for place in sorted(choice.columns) if place >= before)


def _pair_choice(context: PlanningContext, choice: ClauseChoice, types: Mapping[str, pa.DataType]) -> PairChoice:
    merge = context.merge
    places = _source_places(context, choice)
    source = {str(len(merge.target_schema) + place): merge.names.source(place) for place in places}
    return PairChoice(_of_target(context, choice, types), source, choice)


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
