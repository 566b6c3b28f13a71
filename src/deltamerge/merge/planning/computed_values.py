"""Who computes what a clause's rows are made of: Spark, or PyArrow as it writes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deltamerge.merge.analysis.resolved_merge import ResolvedClause, TakeGenerated
from deltamerge.merge.planning.context import PlanningContext
from deltamerge.workers.conditions import RowCheck
from deltamerge.workers.row_values import Value, positions_in
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
    return tuple(check for check in (_in_arrow(context, check) for check in _checks(context)) if check is not None)


def value_in_arrow(context: PlanningContext, clause: ResolvedClause, index: int) -> Value | None:
    """Return what PyArrow computes of a row for an output column; None where the value is taken, or Spark computes it.

    Of a generated column, the value is over the output columns; else over both sides, see `ArrowClauses`.
    """
    if not context.computes_in_arrow:
        return None
    schema, target = context.merge.output_schema, context.merge.target_schema
    if isinstance(clause.outputs[index], TakeGenerated):
        value = None if _checks_of_spark(context, clause) else context.arrow.generated(index)
        read = [] if value is None else [schema.fields[place] for place in positions_in(value)]
    else:
        value = context.arrow.value(clause, index)
        read = [] if value is None else [target.fields[i] for i in positions_in(value) if i < len(target)]
    # A partition's value is not in its files, and that of a new row says where the row goes.
    partitions = context.snapshot.metadata.partition_columns
    return None if any(field.name in partitions for field in (*read, schema.fields[index])) else value


def _checks_of_spark(context: PlanningContext, clause: ResolvedClause) -> tuple[Check, ...]:
    fields = context.merge.output_schema.fields
    generated = {f.name for f, output in zip(fields, clause.outputs, strict=False) if isinstance(output, TakeGenerated)}
    return tuple(
        check
        for check in _checks(context)
        if clause.outputs
        and _in_arrow(context, check) is None
        and not (check.generated is not None and check.generated.name in generated)
    )


def derived_of(context: PlanningContext, clause: ResolvedClause) -> Derived:
    schema = context.merge.output_schema
    generated = tuple(
        index
        for index, output in enumerate(clause.outputs)
        if isinstance(output, TakeGenerated) and value_in_arrow(context, clause, index) is None
    )
    checks = _checks_of_spark(context, clause)
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
    found = context.arrow.row_check(check)
    # A partition's value is not in its files.
    partitions = context.snapshot.metadata.partition_columns
    return found if found is not None and set(found.columns.values()).isdisjoint(partitions) else None
