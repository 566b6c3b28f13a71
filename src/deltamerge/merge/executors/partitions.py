"""The partitions to which a key lookup's changed and new rows belong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.key_matching import Pairs
from deltamerge.merge.executors.lookup import Lookup, StagedSource, opened_source
from deltamerge.merge.plan import Declined
from deltamerge.workers.new_rows import InsertedRows
from deltamerge.workers.partition_names import partition_strings, without_empty
from deltamerge.workers.row_pairs import (
    MOVED,
    unmatched,
    write_numbers,
)
from deltamerge.workers.row_values import ClauseRows
from deltamerge.workers.source_parts import rows_opened
from deltamerge.workers.staged_rows import StagedRows, in_plain_numbers, open_staged, taken
from deltamerge.write.layout import partition_folders

_Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Partition:
    """A partition; a table without partition columns has one.

    Args:
        folders: Where its files are below the merge's folder, with a slash at the end; empty without partition columns.
        pairs: Of its files those with rows that change or leave for another partition.
        moved: Of files of other partitions the pairs whose updated rows come here.
        inserted: For each file of new rows the staged rows that may go there.
    """

    folders: str
    pairs: tuple[Pairs, ...] = ()
    moved: tuple[Pairs, ...] = ()
    inserted: tuple[InsertedRows, ...] = ()
    rows: int = 0


@dataclass(frozen=True)
class Partitions:
    """The partitions that get files.

    Args:
        order: The file with the numbers of the staged rows that are inserted, by partition; empty where they are all
            that match nothing.
        opened: For each file of new rows how many rows of a source in parts are opened to take them.
    """

    each: tuple[Partition, ...]
    order: str
    opened: tuple[int, ...] = ()


def moved_rows(
    lookup: Lookup, found: Sequence[Pairs], values: StagedRows | None
) -> tuple[tuple[Pairs, ...], dict[str, tuple[Pairs, ...]]]:
    """Find the updated rows that go to another partition.

    Returns:
        The pairs of all files, in which rows that leave their partition are `MOVED`; and the pairs of these rows by the
        folders of the partition to which they go.

    Raises:
        Declined: A row goes to a partition that must not be NULL.
    """
    execution, recipe, staged = lookup.execution, lookup.recipe, lookup.staged
    moving = {
        code: columns for code, columns in recipe.clauses.moving.items() if any(code in p.rows_by_clause for p in found)
    }
    if not moving:
        return tuple(found), {}
    wanted = {name for code, columns in moving.items() for name in _setting(staged, code, columns)}
    of_pairs = sorted(wanted & recipe.pair_values.names) if values is not None else []
    of_source = sorted(wanted.difference(of_pairs))
    rows = opened_source(execution, staged.rows, of_source) if of_source else pa.table({})
    computed = open_staged(execution.files, values, of_pairs) if values is not None and of_pairs else pa.table({})
    stay, moved = [], defaultdict[str, list[Pairs]](list)
    for pairs in found:
        of_file = pairs.read()
        going = defaultdict[str, list[_Numbers]](list)
        for code, columns in moving.items():
            places = np.flatnonzero(of_file.clauses == code)
            updated = of_file.among(places)
            setting = [
                taken(rows.column(name), updated.sources)
                if name not in of_pairs or updated.values is None
                else taken(computed.column(name), updated.values)
                for name in _setting(staged, code, columns)
            ]
            for folders, rows_there in _by_folders(lookup, columns, setting, pairs.file.partition_values):
                going[folders].append(places[rows_there])
        going.pop(_folders_of(execution, pairs.file.partition_values), None)
        clauses = of_file.clauses.copy()
        for folders, each in going.items():
            places = np.sort(np.concatenate(each))
            clauses[places] = MOVED
            moved[folders].append(pairs.taking(of_file.among(places).changing))
        stay.append(pairs.taking(replace(of_file, clauses=clauses).changing) if going else pairs)
    return tuple(stay), {folders: tuple(pairs) for folders, pairs in moved.items()}


def _setting(staged: StagedSource, code: int, columns: Sequence[str]) -> list[str]:
    return [_staged_name(staged.columns.updates[code], column) for column in columns]


def _staged_name(clause: ClauseRows, column: str) -> str:
    how = clause.settings[column]
    # Of new rows the partition has to be known before they are written.
    assert isinstance(how, str)
    return how


def partitions_of(
    lookup: Lookup,
    found: Sequence[Pairs],
    changed: Sequence[Pairs],
    moved: Mapping[str, Sequence[Pairs]],
) -> Partitions:
    """Find the partitions that get files.

    Args:
        found: All pairs: their source rows are not new.
        changed: Those of files that are written again, or whose updated rows are.
        moved: Those of rows that come from other partitions, by the folders to which they go.

    Raises:
        Declined: Rows go to very many partitions, or to one that must not be NULL.
    """
    execution, staged = lookup.execution, lookup.staged
    if not execution.write_target.physical_partition_columns:
        count = staged.row_count if staged.columns.inserts else 0
        return Partitions((Partition("", tuple(changed), (), _ranges(execution, 0, count, staged), count),), "")
    by_folders = defaultdict[str, list[Pairs]](list)
    for pairs in changed:
        by_folders[_folders_of(execution, pairs.file.partition_values)].append(pairs)
    new = _new_rows(lookup, found) if staged.columns.inserts and staged.row_count else {}
    folders = dict.fromkeys([*by_folders, *moved, *new])
    if len(moved.keys() | new.keys()) > execution.limits.partitions:
        raise _declined(execution, f"rows go to more than {execution.limits.partitions:,} partitions")
    order = write_numbers(execution.files, execution.scratch, list(new.values())) if new else ""
    first = dict(zip(new, accumulate(map(len, new.values()), initial=0), strict=False))
    each = (
        Partition(
            at,
            tuple(by_folders.get(at, ())),
            tuple(moved.get(at, ())),
            _ranges(execution, first.get(at, 0), len(new.get(at, ())), staged),
            len(new.get(at, ())),
        )
        for at in folders
    )
    partitions = tuple(each)
    numbers = np.concatenate([*new.values(), np.zeros(0, np.int64)])
    opened = (rows_opened(numbers[rows.first : rows.end]) for one in partitions for rows in one.inserted)
    return Partitions(partitions, order, tuple(opened) if staged.rows.in_parts else ())


def _new_rows(lookup: Lookup, found: Sequence[Pairs]) -> dict[str, _Numbers]:
    """Return the staged rows that are inserted by their partition's folders, in order."""
    execution, staged = lookup.execution, lookup.staged
    columns, clause = execution.snapshot.metadata.partition_columns, staged.columns.clause
    inserts, clauses = staged.columns.inserts, [] if clause is None else [clause]
    wanted = [*clauses, *(_staged_name(clause_rows, column) for clause_rows in inserts.values() for column in columns)]
    rows = opened_source(execution, staged.rows, list(dict.fromkeys(wanted)))
    is_new = unmatched(execution.files, [pairs.path for pairs in found], staged.row_count)
    taken_by = None if clause is None else rows.column(clause).cast(pa.int32())
    by_folders = defaultdict[str, list[_Numbers]](list)
    for number, clause_rows in inserts.items():
        new = is_new if taken_by is None else is_new & pc.equal(taken_by, number).fill_null(False).to_numpy()
        places = np.flatnonzero(new)
        values = [taken(rows.column(_staged_name(clause_rows, column)), places) for column in columns]
        for folders, rows_there in _by_folders(lookup, columns, values, {}):
            by_folders[folders].append(places[rows_there])
    return {folders: np.sort(np.concatenate(each)) for folders, each in by_folders.items()}


def _by_folders(
    lookup: Lookup, columns: Sequence[str], values: Sequence[Any], others: Mapping[str, str | None]
) -> Iterator[tuple[str, _Numbers]]:
    """Group rows by their partition's folders.

    Args:
        values: The rows' values in some partition columns.
        others: The values of the other ones, as the log has them, by physical name.
    """
    execution, stored = lookup.execution, lookup.recipe.table
    by = [f"p{index}" for index in range(len(columns))]
    table = pa.table([in_plain_numbers(column) for column in values], names=by)
    table = table.append_column("row", pa.array(np.arange(len(table))))
    groups = table.group_by(by).aggregate([("row", "list")])
    physical = dict(
        zip(
            execution.snapshot.metadata.partition_columns,
            execution.write_target.physical_partition_columns,
            strict=True,
        )
    )
    found = groups["row_list"].combine_chunks()
    ends = found.offsets.to_numpy()
    numbers = found.values.to_numpy()
    spelled = {}
    for name, column in zip(by, columns, strict=True):
        of_groups = groups[name].combine_chunks().cast(stored.columns[column].type)
        try:
            strings = partition_strings(without_empty(of_groups)).to_pylist()
        except UnicodeDecodeError:
            raise _declined(execution, "a partition would have a value that is not UTF-8") from None
        if None in strings and (column,) in stored.not_null:
            raise _declined(execution, f"partition column {column} would be NULL")
        spelled[physical[column]] = strings
    for number in range(len(groups)):
        where = {**others, **{name: strings[number] for name, strings in spelled.items()}}
        yield _folders_of(execution, where), numbers[ends[number] : ends[number + 1]]


def _folders_of(execution: Execution, values: Mapping[str, str | None]) -> str:
    return partition_folders(execution.write_target.physical_partition_columns, values)


def _declined(execution: Execution, reason: str) -> Declined:
    return Declined("changed_rows", execution.plan.changed_rows.choice, reason)


def _ranges(execution: Execution, first: int, rows: int, staged: StagedSource) -> tuple[InsertedRows, ...]:
    most = rows_of_a_file(execution)
    if most is None:
        most = max(1, staged.row_count * execution.limits.staged_bytes_of_a_file // max(1, staged.bytes))
    files = -(-rows // most)
    ends = [first + rows * number // files for number in range(files + 1)] if files else []
    return tuple(InsertedRows(*ends) for ends in pairwise(ends))


def rows_of_a_file(execution: Execution) -> int | None:
    of_table = execution.write_target.records_per_file
    return execution.context.session.records_per_file if of_table is None else of_table
