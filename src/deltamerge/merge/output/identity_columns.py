"""Identity columns of a merge: which clauses leave them to the table, and what values its rows get."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column

from deltamerge.merge.analysis.resolved_merge import ResolvedMerge, TakeDefault
from deltamerge.spark import columns as F
from deltamerge.write.identity_columns import RowNumbers, identity_column


def generated_identities(merge: ResolvedMerge) -> frozenset[str]:
    """Return the names of the identity columns that some INSERT clause leaves to the table."""
    return frozenset(
        field.name
        for clause in merge.not_matched
        for output, field in zip(clause.outputs, merge.output_schema.fields, strict=False)
        if isinstance(output, TakeDefault) and identity_column(field) is not None
    )


def with_identities(
    default: Callable[[int], Column], merge: ResolvedMerge, numbers: RowNumbers | None
) -> Callable[[int], Column]:
    """Return the defaults of columns by position, for identity columns their values.

    A value follows only from the source row's number, so a row gets the same one in every attempt of a task.

    Args:
        numbers: The numbers of the source's rows; None where no clause leaves an identity column to the table.
    """
    names = merge.names

    def value(index: int) -> Column:
        column = identity_column(merge.output_schema.fields[index])
        if column is None:
            return default(index)
        assert numbers is not None, f"rows get values of {column.name}, but were not numbered"
        return numbers.identity_value(column, F.col(names.source_row_index))

    return value
