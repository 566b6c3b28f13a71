"""Columns whose values are the table's own affair: a clause leaves generated columns to it.

The rules are those of Delta's PreprocessTableMerge.
"""

from __future__ import annotations

from pyspark.sql.types import StructType

from deltamerge.merge.resolved import Output, TakeDefault, TakeGenerated, TakeTarget
from deltamerge.statement import MergeClause
from deltamerge.write.generated import generation_expression


def outputs_of_table(
    clause: MergeClause, outputs: tuple[Output, ...], schema: StructType
) -> tuple[Output, ...]:
    """Lets the table fill the columns of its own that a clause leaves alone.

    Args:
        clause: The UPDATE or INSERT clause.
        outputs: What it makes of each column.
        schema: The output schema.

    Returns:
        The same, but generated columns that the clause does not assign are computed anew.
    """
    return tuple(
        TakeGenerated()
        if generation_expression(field) is not None and isinstance(output, (TakeTarget, TakeDefault))
        else output
        for output, field in zip(outputs, schema.fields, strict=True)
    )
