"""Which way of making new and updated rows fits, for a way of finding the matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltamerge.merge.analysis.join_keys import PlainKeys
from deltamerge.merge.analysis.resolved_merge import ResolvedClause, TakeTarget
from deltamerge.merge.output.identity_columns import generated_identities
from deltamerge.merge.planning.computed_values import derived_of, value_in_arrow
from deltamerge.merge.planning.context import PlanningContext
from deltamerge.merge.planning.fit import (
    PARQUET_CODECS,
    Fits,
    Operator,
    always,
    has_plain_partitions,
    no,
    type_name,
    without_arrow,
    yes,
)


def arrow(context: PlanningContext, _: str) -> Fits:
    """PyArrow takes values of the source's rows, or what Spark computed of these, or computes them of pairs itself."""
    against = _against_table(context) or _against_clauses(context) or _unread_partition(context)
    if against is not None:
        return no(against)
    return yes("clauses write values of the source's rows, or what PyArrow computes of the rows")


def reached(context: PlanningContext) -> tuple[ResolvedClause, ...]:
    """Return the MATCHED clauses up to a first one without a condition; all where the first has one."""
    matched = context.merge.matched
    return matched[:1] if takes_all(context) else matched


def takes_all(context: PlanningContext) -> bool:
    matched = context.merge.matched
    return not matched or matched[0].clause.condition is None


def _against_table(context: PlanningContext) -> str | None:
    merge = context.merge
    identities = generated_identities(merge)
    for clause in merge.inserting:
        read = {merge.output_schema.names[index] for index in derived_of(context, clause).inputs}
        if not identities.isdisjoint(read):
            return "a constraint or a generated column reads an identity column"
    if context.session.compression.lower() not in PARQUET_CODECS:
        return f"PyArrow has no codec {context.session.compression}"
    return without_arrow(merge.output_schema)


def _against_clauses(context: PlanningContext) -> str | None:
    references, clauses = context.references, reached(context)
    updates = [clause for clause in clauses if clause.action == "update"]
    for clause in updates:
        from_source = references.of(clause).from_source
        if not all(from_source[index] for index in computed_by_spark(context, clause)):
            return "Spark computes a value that an UPDATE sets from the target's row"
        if not all(from_source[index] for index in derived_of(context, clause).inputs):
            return "Spark evaluates a generated column or a constraint over the target's row"
    by_source = [clause for clause in context.merge.not_matched_by_source if clause.action == "update"]
    if any(_needs_spark(context, clause) for clause in by_source):
        return "Spark computes a value that a NOT MATCHED BY SOURCE clause sets"
    if all(references.of(clause).condition_from_source for clause in clauses):
        return None
    if context.arrow.pair_choice(()) is None:
        return "a MATCHED condition on the target's row is more than plain comparisons"
    # A value of a source row is computed for the clause that takes it, which here only pairs of rows determine.
    if any(_needs_spark(context, clause) for clause in updates):
        return "MATCHED conditions depend on the target's row, and Spark computes a value that an UPDATE sets"
    return None


def _needs_spark(context: PlanningContext, clause: ResolvedClause) -> bool:
    return derived_of(context, clause).is_anything or bool(computed_by_spark(context, clause))


def computed_by_spark(context: PlanningContext, clause: ResolvedClause) -> tuple[int, ...]:
    """Return the output columns that an UPDATE sets to what neither a source row has nor PyArrow computes."""
    return tuple(
        index
        for index, output in enumerate(clause.outputs)
        if not isinstance(output, TakeTarget)
        and context.references.of(clause).taken_as_is(index) is None
        and value_in_arrow(context, clause, index) is None
    )


def moving_columns(context: PlanningContext, clause: ResolvedClause) -> tuple[str, ...]:
    """Return the partition columns that an UPDATE may set to another value, so that rows go to another partition."""
    merge, references, keys = context.merge, context.references, context.plain_keys
    assert isinstance(keys, PlainKeys)
    of_key = dict(zip(keys.target, keys.source, strict=True)) if clause.kind == "matched" else {}
    partitions = context.snapshot.metadata.partition_columns
    set_to = dict(zip(merge.output_schema.names, references.of(clause).source_columns, strict=True))
    outputs = dict(zip(merge.output_schema.names, clause.outputs, strict=True))
    return tuple(
        name
        for name in partitions
        if not isinstance(outputs[name], TakeTarget) and (of_key.get((name,)) is None or set_to[name] != of_key[name,])
    )


def _unread_partition(context: PlanningContext) -> str | None:
    """Return which partition column has values that Python does not read from the log as Spark does."""
    partitions = context.snapshot.metadata.partition_columns
    for field in context.merge.output_schema.fields:
        if field.name in partitions and not has_plain_partitions(field):
            return f"the partition column {field.name} is of type {type_name(field)}"
    return None


def pair_values(context: PlanningContext, _: str) -> Fits:
    """Spark computes what depends on both rows of a pair, and PyArrow writes it."""
    against = _against_table(context) or _unread_partition(context)
    if against is None and context.changes_target_rows:
        against = without_arrow(context.merge.target_schema)
    if against is not None:
        return no(against)
    of_source = without_arrow(context.merge.source_schema)
    if of_source is not None:
        return no(f"the source's {of_source}")
    return yes("Spark evaluates the clauses over only the rows that they may change; PyArrow writes what comes of it")


spark = always("Spark evaluates the clauses")


OPERATORS: Mapping[str, Sequence[Operator]] = {
    "key_lookup": (("arrow", arrow), ("pair_values", pair_values)),
    "anti_join": (("spark", spark),),
    "whole_files": (("none", always("the statement only deletes rows")),),
    "join": (("spark", spark),),
    "join_files": (("spark", spark),),
}
"""By the way of finding the matches."""
