"""How a key lookup runs: what is compared, which clause takes a pair, what Spark computes of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_

import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from deltamerge.merge.analysis.join_keys import JoinKey, PlainKeys
from deltamerge.merge.analysis.resolved_merge import (
    ResolvedClause,
    TakeDefault,
    TakeGenerated,
    TakeValue,
    values_of,
)
from deltamerge.merge.analysis.spark_analysis import is_deterministic
from deltamerge.merge.planning.changed_rows import computed_by_spark, moving_columns, reached, takes_all
from deltamerge.merge.planning.computed_values import checks_in_arrow, derived_of, value_in_arrow
from deltamerge.merge.planning.context import PlanningContext
from deltamerge.merge.planning.fit import arrow_type, stored_columns
from deltamerge.merge.source.key_summary import ranged_keys
from deltamerge.merge.statement import to_column
from deltamerge.sql.merge_ast import Expression
from deltamerge.workers.conditions import ClauseChoice, RowCheck
from deltamerge.workers.row_values import RowValue, positions_in
from deltamerge.workers.source_keys import ComparedKey, RowChoice
from deltamerge.write.constraints import NotNull, constraints_of


@dataclass(frozen=True)
class LookupClauses:
    """The clauses that take pairs, and rows that nothing matches.

    Args:
        matched: The MATCHED clauses that update or delete.
        by_source: The BY SOURCE clauses that do.
        skipped: The clauses whose rows are only counted; see `SKIPPED`.
        take_all: Whether the first of all MATCHED clauses has no condition, so that no other takes a row.
        moving: By the code of an UPDATE clause the partition columns that it may set to another value.
    """

    matched: tuple[ResolvedClause, ...]
    by_source: tuple[ResolvedClause, ...]
    skipped: tuple[ResolvedClause, ...]
    take_all: bool
    moving: Mapping[int, tuple[str, ...]]

    @property
    def numbers(self) -> dict[tuple[str, int], int]:
        return {clause.key: clause.code for clause in (*self.matched, *self.by_source, *self.skipped)}

    @property
    def updates(self) -> tuple[ResolvedClause, ...]:
        return tuple(clause for clause in (*self.matched, *self.by_source) if clause.action == "update")


@dataclass(frozen=True)
class LookupChoices:
    """What Arrow finds out by conditions; each is None where there is nothing to find out, or Spark must.

    Args:
        pair: Which MATCHED clause takes a pair, where that is found out from both rows.
        unmatched: Which BY SOURCE clause takes a row that nothing matches.
        on_target: What ON requires of a target row besides its keys.
        on_source: The same of a source row.
        source_columns: The positions of the source's columns in these.
    """

    pair: RowChoice | None
    unmatched: RowChoice | None
    on_target: RowChoice | None
    on_source: RowChoice | None
    source_columns: tuple[int, ...]


@dataclass(frozen=True)
class PairValues:
    """What Spark computes of pairs for Arrow to write.

    Args:
        columns: By the code of an UPDATE clause, for each of the table's columns whose value is computed the column
            with it.
        values: By the same code the positions of the clause's values that are evaluated for that.
        holds: By the same code the column that says whether constraints hold, where Spark evaluates them.
        target: The positions of the target's columns that Spark reads.
        source: The same of the source's columns.
        are_literals: Whether all that is computed is the same for all pairs of a clause.
    """

    columns: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    values: Mapping[int, frozenset[int]] = field(default_factory=dict)
    holds: Mapping[int, str] = field(default_factory=dict)
    target: frozenset[int] = frozenset()
    source: frozenset[int] = frozenset()
    are_literals: bool = False

    @property
    def names(self) -> frozenset[str]:
        values = (name for each in self.columns.values() for name in each.values())
        return frozenset((*values, *self.holds.values()))


@dataclass(frozen=True)
class StoredTable:
    """The table as its data files have it.

    Args:
        before: The columns of the files that are read, by their names in the table.
        columns: The same of the files that are written.
        not_null: The paths of the table's columns and fields that are never NULL.
        checks: The constraints that PyArrow evaluates, by the columns' names in data files.
    """

    before: Mapping[str, pa.Field]
    columns: Mapping[str, pa.Field]
    not_null: frozenset[tuple[str, ...]]
    checks: tuple[RowCheck, ...]


@dataclass(frozen=True)
class LookupRecipe:
    """How a key lookup runs.

    Args:
        compared: The keys as tasks compare them.
        changed: Who makes the changed rows, as in the plan: ``arrow`` or ``pair_values``.
    """

    keys: PlainKeys
    compared: tuple[ComparedKey, ...]
    changed: str
    clauses: LookupClauses
    choices: LookupChoices
    pair_values: PairValues
    table: StoredTable

    @property
    def reads_pairs(self) -> bool:
        """Whether Spark evaluates clauses over both rows of a pair."""
        return self.changed != "arrow"

    @property
    def undecided(self) -> bool:
        """Whether only Spark finds out which clause takes a pair."""
        return self.reads_pairs and _is_undecided(self.clauses, self.choices)

    @property
    def ranged(self) -> list[tuple[str, JoinKey]]:
        """The keys whose ranges are known, by their names in the staged rows."""
        ranged = ranged_keys(self.keys.keys)
        return [(name, key) for name, key in zip(self.key_names, self.keys.keys, strict=True) if key in ranged]

    @property
    def key_names(self) -> list[str]:
        return [key.source for key in self.compared]

    @property
    def computed_keys(self) -> dict[str, str]:
        """By their names in the staged rows the keys that Spark computes of the source's row, as SQL."""
        keys = zip(self.key_names, self.keys.keys, self.keys.source, strict=True)
        return {name: key.key.source_sql for name, key, index in keys if index is None}


def lookup_recipe(context: PlanningContext, changed: str) -> LookupRecipe:
    """Return how a merge runs by key lookup, which must fit it."""
    merge, keys = context.merge, context.plain_keys
    assert isinstance(keys, PlainKeys)
    before = stored_columns(merge.target_schema, context.mapping_mode)
    clauses, reads_pairs = _clauses(context), changed != "arrow"
    choices = _choices(context, clauses, before, reads_pairs=reads_pairs)
    undecided = reads_pairs and _is_undecided(clauses, choices)
    return LookupRecipe(
        keys=keys,
        compared=tuple(
            ComparedKey(
                merge.names.source_key(number) if index is None else merge.names.source(index),
                before[path[0]].name,
                arrow_type(kind),
                key.key.null_safe,
                _stored_fields(before[path[0]].type, merge.target_schema[path[0]].dataType, path[1:]),
            )
            for number, (index, path, kind, key) in enumerate(
                zip(keys.source, keys.target, keys.compared, keys.keys, strict=True)
            )
        ),
        changed=changed,
        clauses=clauses,
        choices=choices,
        pair_values=_pair_values(context, changed, clauses, conditions=undecided),
        table=_stored_table(context, before),
    )


def _stored_fields(stored: pa.DataType, data_type: DataType, path: Sequence[str]) -> tuple[str, ...]:
    """Return the names in data files of the fields of a path within a column."""
    if not path:
        return ()
    assert isinstance(data_type, StructType)
    index = data_type.names.index(path[0])
    field = stored.field(index)
    return (field.name, *_stored_fields(field.type, data_type.fields[index].dataType, path[1:]))


def _is_undecided(clauses: LookupClauses, choices: LookupChoices) -> bool:
    return not clauses.take_all and choices.pair is None


def _clauses(context: PlanningContext) -> LookupClauses:
    merge, clauses = context.merge, reached(context)
    matched = tuple(clause for clause in clauses if clause.action in ("update", "delete"))
    by_source = tuple(merge.changing_by_source)
    skipped = tuple(clause for clause in merge.skipping if clause in clauses or clause.kind != "matched")
    updates = [c for c in (*matched, *by_source) if c.action == "update"]
    moving = {clause.code: columns for clause in updates if (columns := moving_columns(context, clause))}
    return LookupClauses(matched, by_source, skipped, takes_all(context), moving)


def _choices(
    context: PlanningContext, clauses: LookupClauses, before: Mapping[str, pa.Field], *, reads_pairs: bool
) -> LookupChoices:
    merge, references = context.merge, context.references
    of_kind = {
        kind: [number for of_kind, number in clauses.numbers if of_kind == kind]
        for kind in ("matched", "not_matched_by_source")
    }
    pair = None
    from_source = all(references.of(clause).condition_from_source for clause in reached(context))
    if not clauses.take_all and (reads_pairs or not from_source):
        pair = context.arrow.pair_choice(of_kind["matched"])
    unmatched = context.arrow.by_source_choice(of_kind["not_matched_by_source"]) if clauses.by_source else None
    on_target, on_source = context.arrow.on_filters or (None, None)
    target = merge.target_schema.names

    def row_choice(choice: ClauseChoice | None) -> RowChoice | None:
        if choice is None:
            return None
        places = sorted(choice.columns)
        stored = {str(place): before[target[place]] for place in places if place < len(target)}
        return RowChoice(
            choice,
            {place: (column.name, column.type) for place, column in stored.items()},
            {str(place): merge.names.source(place - len(target)) for place in places if place >= len(target)},
        )

    read = frozenset[int]().union(*(choice.columns for choice in (pair, on_source) if choice is not None))
    return LookupChoices(
        pair=row_choice(pair),
        unmatched=row_choice(unmatched),
        on_target=row_choice(on_target),
        on_source=row_choice(on_source),
        source_columns=tuple(place - len(target) for place in sorted(read) if place >= len(target)),
    )


def _pair_values(context: PlanningContext, changed: str, clauses: LookupClauses, *, conditions: bool) -> PairValues:
    merge, references, updates = context.merge, context.references, clauses.updates
    everything = tuple(frozenset(range(len(schema))) for schema in (merge.target_schema, merge.source_schema))
    if changed == "arrow":
        return PairValues()
    computed = {clause.key: computed_by_spark(context, clause) for clause in updates}
    evaluated = {c.key: (*computed[c.key], *derived_of(context, c).inputs) for c in updates}
    target, source = references.read_by_updates(evaluated, conditions=conditions) or everything
    names = merge.output_schema.names
    return PairValues(
        columns={
            c.code: {names[index]: merge.names.stored(*c.key, index) for index in computed[c.key]} for c in updates
        },
        values={
            c.code: frozenset(value for index in evaluated[c.key] for value in values_of(c.outputs[index]))
            for c in updates
        },
        holds={c.code: merge.names.holds(*c.key) for c in updates if derived_of(context, c).checks},
        target=target,
        source=source,
        are_literals=not conditions and references.are_literals(evaluated),
    )


def _stored_table(context: PlanningContext, before: Mapping[str, pa.Field]) -> StoredTable:
    schema = context.merge.output_schema
    columns = stored_columns(schema, context.mapping_mode)
    constraints = constraints_of(schema, context.snapshot.metadata.configuration)
    return StoredTable(
        before=before,
        columns=columns,
        not_null=frozenset(c.path for c in constraints if isinstance(c, NotNull)),
        checks=tuple(
            replace(check, columns={index: columns[name].name for index, name in check.columns.items()})
            for check in checks_in_arrow(context)
        ),
    )


def row_value(context: PlanningContext, table: StoredTable, clause: ResolvedClause, index: int) -> RowValue | None:
    """Return how PyArrow computes an output column of a clause's rows; None where it does not."""
    value, merge = value_in_arrow(context, clause, index), context.merge
    if value is None:
        return None
    places, target = positions_in(value), merge.target_schema.names
    if isinstance(clause.outputs[index], TakeGenerated):
        names = merge.output_schema.names
        return RowValue(value, written={place: table.columns[names[place]].name for place in places})
    return RowValue(
        value,
        target={place: table.before[target[place]] for place in places if place < len(target)},
        source={place: merge.names.source(place - len(target)) for place in places if place >= len(target)},
    )


def may_differ_by_pair(context: PlanningContext) -> bool:
    """Return whether a clause sets a value, or has a condition, that might be another one for each pair."""
    return bool(_evaluated_conditions(context) or _evaluated_outputs(context))


def differs_by_pair(context: PlanningContext) -> bool:
    """Return whether Spark takes one of these for another one each time, such as `uuid()`."""
    outputs = _evaluated_outputs(context)
    if any(isinstance(output, TakeDefault) for _, output in outputs):
        return True
    found = [to_column(condition) for condition in _evaluated_conditions(context)]
    found += [clause.values[output.index] for clause, output in outputs if isinstance(output, TakeValue)]
    statement = context.merge.statement
    other = statement.source.sparkSession.range(1).toDF(context.merge.names.pair_values)
    named = statement.under_source_alias(statement.source)
    return not is_deterministic(named, other, reduce(and_, (column.isNull() for column in found)))


def _evaluated_conditions(context: PlanningContext) -> list[Expression]:
    if context.references.is_deterministic:
        return []
    return [c.clause.condition for c in reached(context) if c.clause.condition is not None]


def _evaluated_outputs(context: PlanningContext) -> list[tuple[ResolvedClause, TakeValue | TakeDefault]]:
    return [
        (clause, output)
        for clause in reached(context)
        for index, output in enumerate(clause.outputs)
        if clause.action in ("update", "delete")
        and isinstance(output, (TakeValue, TakeDefault))
        and context.references.of(clause).source_columns[index] is None
        and value_in_arrow(context, clause, index) is None
    ]
