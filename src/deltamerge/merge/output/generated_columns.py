"""Generated columns of a merge's output, computed once the row's other columns are known."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column

from deltamerge.merge.analysis.resolved_merge import ResolvedClause, ResolvedMerge, TakeGenerated
from deltamerge.merge.output.frames import Rows
from deltamerge.spark import columns as F
from deltamerge.sql.merge_ast import ClauseKind
from deltamerge.write.data_files import stored_column
from deltamerge.write.generated_columns import generated_value


def generated_flags(merge: ResolvedMerge, kinds: tuple[ClauseKind, ...]) -> list[tuple[str, Column]]:
    """Return, for each generated column that some clause leaves to the table, whether such a clause takes the row.

    The flags (BOOLEAN) belong into the same projection as the output columns.

    Args:
        kinds: The kinds of clauses that are evaluated on the rows.
    """
    names = merge.names
    flags = []
    for index in range(len(merge.output_schema.fields)):
        taken = [
            F.col(names.clause(clause.kind)) == F.lit(clause.number)
            for clause in merge.clauses
            if clause.kind in kinds and _computes(clause, index)
        ]
        if taken:
            flags.append((names.generated(index), F.coalesce(reduce(or_, taken), F.lit(False))))
    return flags


def _computes(clause: ResolvedClause, index: int) -> bool:
    return bool(clause.outputs) and isinstance(clause.outputs[index], TakeGenerated)


def compute_generated_columns(rows: Rows, merge: ResolvedMerge) -> Rows:
    """Compute generated columns from what the row's other columns become as they are stored, and drop the flags.

    Delta: UpdateExpressionsSupport.generateUpdateExprsForGeneratedColumns.

    Args:
        rows: Rows with the output columns, and the flags of `generated_flags`.
    """
    names = merge.names
    flags = {
        names.output(index): (names.generated(index), field)
        for index, field in enumerate(merge.output_schema.fields)
        if names.generated(index) in rows.names
    }
    if not flags:
        return rows
    flag_names = {flag for flag, _ in flags.values()}
    kept = tuple(name for name in rows.names if name not in flag_names)
    seeing = rows.frame.select(
        *rows.names,
        *(
            stored_column(F.col(names.output(i)), field, merge.partition_columns)
            for i, field in enumerate(merge.output_schema.fields)
        ),
    )
    columns = []
    for name in kept:
        own = F.col(name)
        if name in flags:
            flag, field = flags[name]
            own = F.when(F.col(flag), generated_value(field)).otherwise(own).alias(name)
        columns.append(own)
    return Rows(seeing.select(*columns), kept)
