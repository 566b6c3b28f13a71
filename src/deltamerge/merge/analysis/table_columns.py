"""Generated and identity columns: what a clause may set, and what the table fills in.

The rules are those of Delta's PreprocessTableMerge and IdentityColumn.
"""

from __future__ import annotations

from pyspark.sql.types import StructField, StructType

from deltamerge.merge.analysis.resolved_merge import Output, TakeDefault, TakeGenerated, TakeTarget
from deltamerge.sql.merge_ast import MergeClause, Update
from deltamerge.write.generated_columns import generation_expression
from deltamerge.write.identity_columns import explicit_insert, identity_column, identity_update


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
