"""What a clause's rows need besides what it sets: generated columns, and whether constraints hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deltamerge.merge.analysis.resolved_merge import ResolvedClause, TakeGenerated
from deltamerge.merge.planning.context import PlanningContext
from deltamerge.workers.conditions import RowCheck
from deltamerge.write.constraints import Check, columns_in, constraints_of
from deltamerge.write.generated_columns import generation_expression


@dataclass(frozen=True)
class Derived:
    """What Spark computes of what the columns of a clause's rows become.

    Args:
        generated: The positions of the output columns that get their values so.
        checks: The constraints whose expressions it evaluates.
        inputs: The positions of the output columns, besides the generated ones, that these expressions read.
    """

    generated: tuple[int, ...]
    checks: tuple[Check, ...]
    inputs: tuple[int, ...]

    @property
    def is_anything(self) -> bool:
        return bool(self.generated or self.checks)


def checks_in_arrow(context: PlanningContext) -> tuple[RowCheck, ...]:
    """Return the constraints that PyArrow evaluates on rows as it writes them."""
    return tuple(check for check in (_in_arrow(context, check) for check in _checks(context)) if check is not None)


def derived_of(context: PlanningContext, clause: ResolvedClause) -> Derived:
    """Return what Spark computes of the rows that an UPDATE or INSERT writes."""
    schema = context.merge.output_schema
    generated = tuple(i for i, output in enumerate(clause.outputs) if isinstance(output, TakeGenerated))
    names = {schema.fields[index].name for index in generated}
    checks = tuple(
        check
        for check in _checks(context)
        if clause.outputs
        and _in_arrow(context, check) is None
        and not (check.generated is not None and check.generated.name in names)
    )
    read = set[str]()
    expressions = [generation_expression(schema.fields[index]) for index in generated]
    for expression in (*expressions, *(check.expression for check in checks)):
        columns = columns_in(str(expression), schema)
        read.update((path[0] for path in columns.values()) if columns else schema.names)
    read.update(check.generated.name for check in checks if check.generated is not None)
    inputs = tuple(i for i, field in enumerate(schema.fields) if field.name in read and i not in generated)
    return Derived(generated, checks, inputs)


def _checks(context: PlanningContext) -> Iterator[Check]:
    constraints = constraints_of(context.merge.output_schema, context.snapshot.metadata.configuration)
    return (constraint for constraint in constraints if isinstance(constraint, Check))


def _in_arrow(context: PlanningContext, check: Check) -> RowCheck | None:
    found = context.references.row_check(check)
    # A partition's value is not in its files.
    partitions = context.snapshot.metadata.partition_columns
    return found if found is not None and set(found.columns.values()).isdisjoint(partitions) else None
