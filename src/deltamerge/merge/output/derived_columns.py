"""Generated columns and constraints over what a clause's rows become, beside the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql.types import StructField

from deltamerge.merge.analysis.resolved_merge import ResolvedClause, ResolvedMerge
from deltamerge.merge.output.frames import Rows
from deltamerge.spark import columns as F
from deltamerge.sql.names import quote
from deltamerge.write.constraints import Check, holds
from deltamerge.write.data_files import stored_column
from deltamerge.write.generated_columns import generated_value


@dataclass(frozen=True)
class Derivation:
    """What is computed of the columns of a clause's rows.

    Args:
        inputs: By the positions of output columns what they become.
        generated: By the position of a generated column the name under which it is added.
        holds: The name under which it is added whether they hold.
    """

    clause: ResolvedClause
    inputs: Mapping[int, Column]
    generated: Mapping[int, str]
    checks: tuple[Check, ...]
    holds: str


def with_derived(rows: Rows, merge: ResolvedMerge, derivation: Derivation) -> Rows:
    """Add the columns of a derivation to evaluated rows; they are NULL where the clause does not take the row."""
    clause, fields = derivation.clause, merge.output_schema.fields
    is_taken = F.col(merge.names.clause(clause.kind)) == F.lit(clause.number)

    def stored(value: Column, field: StructField) -> Column:
        return stored_column(value, field, merge.partition_columns)

    inputs = (stored(column, fields[index]) for index, column in derivation.inputs.items())
    seeing = rows.frame.select(*rows.names, *inputs)
    generated = (fields[index] for index in derivation.generated)
    seeing = seeing.select("*", *(stored(F.when(is_taken, generated_value(field)), field) for field in generated))
    added = [(name, F.col(quote(fields[index].name))) for index, name in derivation.generated.items()]
    if derivation.checks:
        held = holds(derivation.checks, merge.partition_columns)
        added.append((derivation.holds, F.when(is_taken, held)))
    frame = seeing.select(*rows.names, *(column.alias(name) for name, column in added))
    return Rows(frame, (*rows.names, *(name for name, _ in added)))
