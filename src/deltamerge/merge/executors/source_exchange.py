"""Rows of a large source brought together by the file for which they are taken.

A task opens of a source that is too large for each task only the row groups with the rows that it takes. Where these
are all over the source, in another order than the table's, that would be nearly all of it for each file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa

from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.key_matching import Pairs
from deltamerge.merge.executors.lookup import Lookup
from deltamerge.merge.executors.partitions import Partitions
from deltamerge.merge.plan import Declined
from deltamerge.spark import tasks
from deltamerge.workers.source_exchange import EXCHANGED_SCHEMA, Destination, exchanging
from deltamerge.workers.source_parts import RowGroup
from deltamerge.workers.staged_rows import StagedFile

_READ_AT_MOST = 2


def with_exchanged(lookup: Lookup, found: Sequence[Pairs]) -> tuple[Pairs, ...]:
    """Return pairs with where their source rows are, where these are brought together."""
    if not _takes_of_pairs(lookup):
        return tuple(found)
    destinations = [Destination(pairs.path, 0, pairs.count) for pairs in found]
    exchanged = exchange(lookup, destinations, [pairs.opened for pairs in found])
    return tuple(replace(pairs, exchanged=groups) for pairs, groups in zip(found, exchanged, strict=True))


def _takes_of_pairs(lookup: Lookup) -> bool:
    """Return whether anything is taken of the source rows that match: by a DELETE nothing is."""
    recipe, updates = lookup.recipe, lookup.staged.columns.updates.values()
    return bool(recipe.pair_values.source) or any(clause.names for clause in updates)


def with_exchanged_inserts(lookup: Lookup, partitions: Partitions) -> Partitions:
    """Return partitions with where their new rows are, where these are brought together."""
    if not partitions.order:
        return partitions
    inserted = [rows for each in partitions.each for rows in each.inserted]
    destinations = [Destination(partitions.order, rows.first, rows.end) for rows in inserted]
    exchanged = iter(exchange(lookup, destinations, partitions.opened))
    return replace(
        partitions,
        each=tuple(
            replace(each, inserted=tuple(replace(rows, exchanged=next(exchanged)) for rows in each.inserted))
            for each in partitions.each
        ),
    )


def exchange(lookup: Lookup, destinations: Sequence[Destination], opened: Sequence[int]) -> list[tuple[RowGroup, ...]]:
    """Bring source rows together by destination, where tasks would read many rows for the few that they take.

    Args:
        opened: How many rows of the source are opened for each destination as it is.

    Returns:
        For each destination where its rows are; empty where the source stays as it is.

    Raises:
        Declined: There are very many destinations.
    """
    execution, staged = lookup.execution, lookup.staged
    if not staged.rows.in_parts or not _is_spread(lookup, destinations, opened):
        return [() for _ in destinations]
    ranges = _ranges(lookup, len(destinations))
    if len(ranges) * len(destinations) > execution.limits.exchanged_groups:
        reason = f"the rows of a source larger than {execution.limits.source_bytes >> 20:,} MiB go to very many files"
        raise Declined("match", "key_lookup", reason)
    columns = [*staged.columns.own, *staged.columns.computed]
    work = exchanging(execution.files, staged.rows, columns, destinations, execution.scratch)
    rows = pa.table({"first": [first for first, _ in ranges], "end": [end for _, end in ranges]})
    with execution.steps.step("exchange_source", "bringing source rows together by file"):
        done = tasks.run(execution.table.spark, work, rows, EXCHANGED_SCHEMA, in_driver=False)
    found = defaultdict[int, list[RowGroup]](list)
    for row in sorted(done, key=lambda row: row["first"]):
        found[row["destination"]].append(RowGroup(row["path"], row["row_group"]))
    return [tuple(found[number]) for number in range(len(destinations))]


def _is_spread(lookup: Lookup, destinations: Sequence[Destination], opened: Sequence[int]) -> bool:
    """Return whether the source would be read several times, or one destination's rows are among very many others."""
    staged, limits = lookup.staged, lookup.execution.limits
    if sum(opened) > _READ_AT_MOST * staged.row_count:
        return True
    most = limits.source_bytes * staged.row_count // staged.bytes_in_memory
    takes = (to.end - to.first for to in destinations)
    return any(rows > max(most, _READ_AT_MOST * taken) for rows, taken in zip(opened, takes, strict=True))


def _ranges(lookup: Lookup, destinations: int) -> list[tuple[int, int]]:
    """Return ranges of rows for a task to read at a time, each of whole row groups."""
    execution, staged, limits = lookup.execution, lookup.staged, lookup.execution.limits
    files, size = staged.rows.files, staged.bytes_in_memory
    # Of many destinations fewer and larger ranges.
    wanted = max(1, limits.exchanged_groups // max(1, destinations))
    bytes_of_a_range = min(max(limits.exchanged_bytes, -(-size // wanted)), limits.source_bytes)
    sizes = execution.files.ahead(lambda file: _row_groups(execution, file), files, [file.path for file in files])
    ends = np.cumsum(list(chain.from_iterable(sizes)))
    ranges, first = [], 0
    most = max(1, int(ends[-1]) * bytes_of_a_range // max(1, size))
    while first < ends[-1]:
        # One row group where it alone has more.
        end = max(ends[ends <= first + most][-1:].max(initial=0), ends[ends > first][0])
        ranges.append((first, int(end)))
        first = int(end)
    return ranges


def _row_groups(execution: Execution, file: StagedFile) -> list[int]:
    if file.is_arrow:
        return [file.rows]
    with execution.files.parquet(file.path, memory_map=file.is_staged) as opened:
        return [opened.metadata.row_group(number).num_rows for number in range(opened.num_row_groups)]
