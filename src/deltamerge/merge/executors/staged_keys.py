"""The keys of a staged source: sorted where they are very many, and looked at for NULLs, repetitions and gaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.merge.executors.lookup import Lookup, StagedSource, opened_source
from deltamerge.merge.executors.lookup_recipe import LookupRecipe
from deltamerge.merge.plan import Declined
from deltamerge.merge.planning.target_files import may_match_mask
from deltamerge.skipping.key_ranges import key_ranges, may_have_key_ranges
from deltamerge.skipping.keys import Mask
from deltamerge.skipping.predicates import And, InRanges, Predicate
from deltamerge.workers.key_index import write_index
from deltamerge.workers.source_keys import parts_of_keys


def with_keys(lookup: Lookup) -> tuple[Lookup, Mask]:
    """Look at the keys for NULLs, repetitions and gaps, and return which files their ranges leave."""
    execution, recipe, predicate = lookup.execution, lookup.recipe, lookup.staged.summary.predicate
    predicate = execution.references.to_read(predicate)
    files = may_match_mask(execution.snapshot, predicate, execution.conf.session_time_zone)
    if not lookup.staged.row_count:
        return lookup, files
    staged = with_index(lookup).staged
    names = list(dict.fromkeys(recipe.key_names))
    # Of very many rows no more than one column is in memory at a time.
    whole = opened_source(execution, staged.rows, names) if staged.index is None else None
    staged = _with_keys_counted(staged, recipe, whole)

    def column(name: str) -> pa.ChunkedArray:
        return (opened_source(execution, staged.rows, [name]) if whole is None else whole).column(name)

    staged = _with_gaps(staged, recipe, column) if files.sum() > 1 else staged
    return replace(lookup, staged=staged), files


def with_index(lookup: Lookup) -> Lookup:
    """Sort the keys of a source with very many rows, which tasks then search."""
    execution, recipe, source = lookup.execution, lookup.recipe, lookup.staged
    if source.row_count <= execution.limits.source_rows:
        return lookup
    path = f"{execution.scratch}/keys.arrow"
    try:
        parts = partial(parts_of_keys, execution.files, source.rows, recipe.compared, recipe.choices.on_source)
        index = write_index(execution.files, path, source.row_count, parts)
    except (ValueError, pa.ArrowException) as error:
        raise Declined("match", "key_lookup", str(error)) from error
    if source.rows.in_parts and not index.codes.are_exact and source.summary.key_bytes > execution.limits.source_bytes:
        raise Declined("match", "key_lookup", "the source's keys are too large for each task to compare them")
    return replace(lookup, staged=replace(source, index=index))


def _with_keys_counted(source: StagedSource, recipe: LookupRecipe, keys: pa.Table | None) -> StagedSource:
    """Count the rows that have NULL in a key, and those whose keys another row has; not where rows are left out.

    Args:
        keys: The keys; None where the index has counted them.
    """
    if source.row_count < source.summary.row_count:
        return source
    if source.index is not None:
        nulls, repeated = source.index.without_key, source.index.repeated
    else:
        assert keys is not None
        nulls, repeated = _nulls_and_repeated(recipe, keys)
    counted = replace(source, has_unique_keys=repeated == 0)
    if recipe.choices.on_source is not None or recipe.choices.on_target is not None:
        # What else ON requires may be why keys repeat.
        return counted
    return replace(counted, summary=replace(source.summary, null_keys=nulls, repeated_keys=repeated))


def _nulls_and_repeated(recipe: LookupRecipe, keys: pa.Table) -> tuple[int, int]:
    whole = keys
    # NULL is a value of a key that equals others in it.
    for name in {key.source for key in recipe.compared if not key.null_safe}:
        whole = whole.filter(pc.is_valid(whole.column(name))) if whole.column(name).null_count else whole
    different = whole.group_by(keys.column_names).aggregate([])
    return len(keys) - len(whole), len(whole) - len(different)


def _with_gaps(source: StagedSource, recipe: LookupRecipe, column: Callable[[str], pa.ChunkedArray]) -> StagedSource:
    """Narrow what the source's keys require of a target row by the gaps between them."""
    predicate = source.summary.predicate
    names = [name for name, _ in recipe.ranged]
    if not isinstance(predicate, And) or len(predicate.parts) != len(names):
        return source
    parts: list[Predicate] = []
    for part, name in zip(predicate.parts, names, strict=True):
        if isinstance(part, InRanges) and may_have_key_ranges(part.type_name, source.row_count):
            found = key_ranges(column(name))
            parts.append(part if found is None else replace(part, ranges=found))
        else:
            parts.append(part)
    return replace(source, summary=replace(source.summary, predicate=And(tuple(parts))))
