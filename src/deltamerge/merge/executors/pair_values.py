"""What depends on both rows of a pair: Spark evaluates it over only the pairs, and it is kept in an Arrow file.

The values are few where few rows match. PyArrow then writes them as it writes values of the source's rows, so that no
other job of Spark writes a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.job_errors import assigning_values
from deltamerge.merge.executors.key_matching import Pairs
from deltamerge.merge.executors.lookup_recipe import LookupRecipe
from deltamerge.merge.output.clause_expressions import evaluate_matched, generate_action_expr
from deltamerge.merge.output.frames import Rows
from deltamerge.merge.planning.declined import Declined
from deltamerge.spark import columns as F
from deltamerge.workers.row_pairs import NO_CLAUSE, RowPairs, counts_by_clause, distinct, read_pairs, write_pairs
from deltamerge.workers.staged_rows import STAGED_SUFFIX, KeptFile, KeptRows, plain_types


@dataclass(frozen=True)
class PairValues:
    """The pairs that a clause takes, and what UPDATE clauses set in their rows.

    Args:
        found: The pairs; in the place of a source row each has the number of its values.
        kept: The values, by the columns of `LookupRecipe.pair_columns`.
    """

    found: tuple[Pairs, ...]
    kept: KeptRows


def check_count(execution: Execution, recipe: LookupRecipe, found: Sequence[Pairs]) -> None:
    """Decline more values than come to the driver at once."""
    width = 4 + sum(map(len, recipe.pair_columns.values()))
    rows = sum(pairs.found if recipe.undecided else pairs.pairs for pairs in found)
    if rows * width > execution.limits.collected_values:
        reason = f"more than {execution.limits.collected_values:,} values of matched rows would come to the driver"
        raise Declined("changed_rows", "pair_values", reason)


def evaluate_pairs(execution: Execution, recipe: LookupRecipe, found: Sequence[Pairs], rows: Rows) -> PairValues:
    """Let Spark evaluate the MATCHED clauses.

    Args:
        rows: The rows of the pairs, both sides visible.
    """
    merge, names = execution.merge, execution.merge.names
    places = names.clause("matched"), names.file_name, names.row_index
    evaluated = evaluate_matched(rows, merge, values=True).frame
    clause, set_by = F.col(places[0]), recipe.pair_columns
    values = [
        F.when(clause == F.lit(update.number), generate_action_expr(merge, update, index, execution.defaults)).alias(
            set_by[update.number][field.name]
        )
        for update in recipe.updates
        for index, field in enumerate(merge.output_schema.fields)
        if field.name in set_by[update.number]
    ]
    taken = evaluated.where(clause.isin(*(each.number for each in recipe.matched))) if recipe.matched else None
    with assigning_values(merge):
        table = pa.table({}) if taken is None else taken.select(*places, *values).toArrow()
    table = table.cast(plain_types(table.schema)).combine_chunks()
    path = f"{execution.scratch}/values{STAGED_SUFFIX}"
    execution.files.write_arrow(path, [table])
    return PairValues(_pairs(execution, found, table, places), KeptRows((KeptFile(path, 0, 0),)))


def _pairs(
    execution: Execution, found: Sequence[Pairs], table: pa.Table, places: tuple[str, str, str]
) -> tuple[Pairs, ...]:
    clauses, files, rows = (table.column(name) for name in places) if len(table) else (None, None, None)
    of_file: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
    if clauses is not None and files is not None and rows is not None:
        codes = files.combine_chunks().dictionary_encode() if isinstance(files, pa.ChunkedArray) else files
        numbers = codes.indices.to_numpy()
        clauses, rows = clauses.to_numpy(), rows.to_numpy()
        of_file = {path: np.flatnonzero(numbers == code) for code, path in enumerate(codes.dictionary.to_pylist())}
    kept = []
    for pairs in found:
        at = of_file.get(pairs.file.path, np.empty(0, np.int64))
        before = read_pairs(execution.files, pairs.path)
        by_source = before.among(before.clauses < NO_CLAUSE)
        taken = clauses[at] if clauses is not None else at
        positions = rows[at] if rows is not None else at
        both = RowPairs(
            np.concatenate((positions, by_source.rows)),
            np.concatenate((at, by_source.sources)),
            np.concatenate((taken.astype(np.int32), by_source.clauses)),
        )
        ordered = both.among(np.argsort(both.rows, kind="stable"))
        if len(ordered.rows):
            path = write_pairs(execution.files, execution.scratch, ordered)
            rows_of = len(distinct(ordered.rows))
            kept.append(
                replace(
                    pairs, path=path, pairs=len(ordered.rows), rows=rows_of, rows_by_clause=counts_by_clause(ordered)
                )
            )
    return tuple(kept)
