"""What depends on both rows of a pair: Spark evaluates it over only the pairs, and it is staged in an Arrow file.

One job reads the few columns that the expressions refer to. PyArrow then writes its values as it writes values of the
source's rows, so that no other job of Spark writes a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pyspark.sql import DataFrame

from deltamerge.log.add_file_stats import record_count
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge, TakeGenerated
from deltamerge.merge.executors.execution import derivation_of, stored_value
from deltamerge.merge.executors.job_errors import assigning_values
from deltamerge.merge.executors.key_matching import Pairs
from deltamerge.merge.executors.lookup_recipe import LookupRecipe
from deltamerge.merge.executors.pair_frames import PairFrames, check_visible
from deltamerge.merge.executors.spark_staging import check_there, comes_to_driver, stage_rows, staged_files
from deltamerge.merge.output.clause_expressions import (
    generate_clause_values,
    generate_precomputed_conditions,
)
from deltamerge.merge.output.derived_columns import with_derived
from deltamerge.merge.output.frames import Rows, own_columns, seeing_target
from deltamerge.merge.plan import Declined
from deltamerge.spark import columns as F
from deltamerge.spark.tasks import collected
from deltamerge.sql.merge_ast import ClauseKind
from deltamerge.workers.row_pairs import (
    NO_CLAUSE,
    NO_SOURCE,
    NO_VALUES,
    by_source_number,
    distinct,
    write_pairs,
)
from deltamerge.workers.staged_rows import STAGED_SUFFIX, StagedFile, StagedRows, open_staged
from deltamerge.workers.table_columns import in_plain_types

_Numbers = np.ndarray[Any, Any]
_KINDS: tuple[ClauseKind, ...] = ("matched", "not_matched_by_source")


def evaluate_pairs(frames: PairFrames) -> tuple[tuple[Pairs, ...], StagedRows | None]:
    """Let Spark evaluate the clauses; return the pairs that they take, and what they set in their rows.

    The values are by the columns of `PairValues`; none where there is nothing to evaluate.

    Raises:
        Declined: There are very many values, or Spark does not resolve an expression here.
    """
    execution, recipe, merge = frames.lookup.execution, frames.lookup.recipe, frames.lookup.execution.merge
    numbered, count = _numbered(frames)
    if not count:
        return numbered, None
    check_visible(merge, lambda: _evaluated(frames, numbered[:1]))
    with assigning_values(merge):
        staged = _staged(frames, _evaluated(frames, numbered), count)
    if not recipe.undecided:
        return numbered, staged
    codes = open_staged(execution.files, staged, [merge.names.pair_clause]).column(0)
    return _taken(numbered, codes.fill_null(NO_CLAUSE).to_numpy()), staged


def _staged(frames: PairFrames, evaluated: DataFrame, count: int) -> StagedRows:
    """Stage the values in the order of their rows: few come to the driver, which is faster than tasks for them.

    Raises:
        Declined: They are more than may be staged.
    """
    execution, limits = frames.lookup.execution, frames.lookup.execution.limits
    if comes_to_driver(execution, evaluated, count, _read_bytes(frames, count)):
        table = collected(evaluated)
        table = in_plain_types(table).combine_chunks()
        file = StagedFile(f"{execution.scratch}/values{STAGED_SUFFIX}", len(table))
        execution.files.write_arrow(file.path, [table])
        files: tuple[StagedFile, ...] = (file,)
    else:
        found = stage_rows(evaluated, execution, limits.pairs, limits.source_bytes)
        if found is None:
            reason = f"the values of matched rows are more than {limits.source_bytes >> 20:,} MiB"
            raise Declined("changed_rows", "pair_values", reason)
        files = staged_files(found)
        check_there(execution, files)
    return StagedRows((), computed=files, position=execution.merge.names.pair_values)


def _read_bytes(frames: PairFrames, count: int) -> float:
    """Return about how many bytes of files the values of so many rows are computed from."""
    wanted, staged, size = frames.lookup.recipe.pair_values, frames.lookup.staged, 0.0
    if wanted.source and staged.row_count:
        size += staged.bytes / staged.row_count * count
    if wanted.target:
        size += sum(pairs.file.size * min(1, pairs.count / (record_count(pairs.file) or 1)) for pairs in frames.found)
    return size


def _numbered(frames: PairFrames) -> tuple[tuple[Pairs, ...], int]:
    """Give a row of values to each pair of which something is to be evaluated; one to all whose values are the same."""
    execution, recipe = frames.lookup.execution, frames.lookup.recipe
    wanted = recipe.pair_values
    computing = [code for code, columns in wanted.columns.items() if columns or code in wanted.holds]
    found, count = [], 0
    for pairs in frames.found:
        of_file = pairs.read()
        asked = np.isin(of_file.clauses, computing)
        if recipe.undecided:
            asked |= of_file.sources != NO_SOURCE
        values = np.full(len(asked), NO_VALUES)
        rows = _first_of_each(of_file.clauses[asked]) if wanted.are_literals else np.arange(int(asked.sum()))
        values[asked] = rows + count
        count += int(rows.max(initial=-1)) + 1
        path = write_pairs(execution.files, execution.scratch, replace(of_file, values=values))
        found.append(replace(pairs, path=path))
    return tuple(found), count


def _first_of_each(clauses: _Numbers) -> _Numbers:
    """Number clauses in the order in which they first take a pair; return each pair's number."""
    found = np.zeros(len(clauses), np.int64)
    of_clauses = [clauses == clause for clause in distinct(clauses)]
    for number, of_clause in enumerate(sorted(of_clauses, key=np.argmax)):
        found[of_clause] = number
    return found


def _evaluated(frames: PairFrames, found: Sequence[Pairs]) -> DataFrame:
    """Return the row of values of each pair, the code of the clause that takes it, and what this sets."""
    execution, recipe, merge = frames.lookup.execution, frames.lookup.recipe, frames.lookup.execution.merge
    names, number, code = merge.names, merge.names.pair_values, merge.names.pair_clause
    rows = _with_clauses(frames.valued(found, number, code), recipe, merge, code)
    values = [F.col(name) for name in recipe.pair_values.holds.values()]
    for update in recipe.clauses.updates:
        derivation, set_by = derivation_of(execution, update), recipe.pair_values.columns[update.code]
        rows = rows if derivation is None else with_derived(rows, merge, derivation)
        is_taken = F.col(names.clause(update.kind)) == F.lit(update.number)
        for index, field in enumerate(merge.output_schema.fields):
            name = set_by.get(field.name)
            if name is not None and isinstance(update.outputs[index], TakeGenerated):
                values.append(F.col(name))
            elif name is not None:
                value = stored_value(execution, update, index)
                values.append(F.when(is_taken, value).alias(name))
    if not recipe.undecided:
        return rows.frame.select(number, *values)
    # What was known before stays: rows that a BY SOURCE clause takes.
    matched = F.col(names.clause("matched"))
    taken = F.when(matched.isin(*(number for kind, number in recipe.clauses.numbers if kind == "matched")), matched)
    known = F.when(F.col(code) != F.lit(NO_CLAUSE), F.col(code))
    return rows.frame.select(number, F.coalesce(taken, known).alias(code), *values)


def _with_clauses(rows: Rows, recipe: LookupRecipe, merge: ResolvedMerge, code: str) -> Rows:
    """Add which clause of each kind takes a row, and the values that it sets; the users' names end.

    Args:
        code: The column with the code of the clause, as far as that is known.
    """
    names, known = merge.names, F.col(code)
    by_kind = {kind: [u for u in recipe.clauses.updates if u.kind == kind] for kind in _KINDS}
    if recipe.undecided:
        unknown = known == F.lit(NO_CLAUSE)
        rows = generate_precomputed_conditions(rows, merge.matched, "matched", unknown, names)
    else:
        rows = rows.adding([(names.clause("matched"), F.when(known > F.lit(NO_CLAUSE), known))])
    rows = generate_clause_values(rows, by_kind["matched"], "matched", names, recipe.pair_values.values).renamed()
    by_source = by_kind["not_matched_by_source"]
    if not by_source:
        return rows
    number = F.when(known < F.lit(NO_CLAUSE), F.lit(by_source_number(0)) - known)
    rows = rows.adding([(names.clause("not_matched_by_source"), number)])
    wanted = {clause.number: recipe.pair_values.values[clause.code] for clause in by_source}
    seeing = seeing_target(rows, merge)
    return own_columns(generate_clause_values(seeing, by_source, "not_matched_by_source", names, wanted))


def _taken(found: Sequence[Pairs], codes: _Numbers) -> tuple[Pairs, ...]:
    """Return the pairs that a clause takes.

    Args:
        codes: By the row of values of a pair the code of the clause.
    """
    taken = []
    for pairs in found:
        before = pairs.read()
        assert before.values is not None
        clauses, asked = before.clauses.copy(), before.values != NO_VALUES
        clauses[asked] = codes[before.values[asked]]
        if (clauses != NO_CLAUSE).any():
            taken.append(pairs.taking(replace(before, clauses=clauses)))
    return tuple(taken)
