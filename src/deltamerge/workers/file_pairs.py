"""Which rows of Parquet files have one of the source's keys, and which clause takes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.workers.answers import answer
from deltamerge.workers.file_columns import check_columns, check_holds_any, read_columns, read_row_groups
from deltamerge.workers.file_systems import is_of_machine
from deltamerge.workers.files import Files
from deltamerge.workers.row_blocks import NO_BLOCKS, Blocks, mask_of, read_blocks
from deltamerge.workers.row_pairs import (
    NO_CLAUSE,
    NO_SOURCE,
    RowPairs,
    by_source_number,
    counts_by_clause,
    distinct,
    write_pairs,
)
from deltamerge.workers.source_keys import KeyLookup, OpenedKeys, RowChoice, comparable, open_keys
from deltamerge.workers.source_parts import rows_opened
from deltamerge.workers.staged_rows import taken

_ROWS_AT_ONCE = 4_000_000
# Of a store, which takes long to answer; each file in work has all its keys in memory.
_BYTES_AT_ONCE, _FEWEST_AT_ONCE, _FILES_AT_ONCE = 512 << 20, 4, 16
_BY_SOURCE = "by_source"
_NOT_KEYS = ("row", "file", _BY_SOURCE)
_Numbers: TypeAlias = np.ndarray[Any, Any]
_Answer: TypeAlias = dict[str, Any]

PAIRS_SCHEMA = (
    "file STRING, path STRING, pairs BIGINT, opened BIGINT, taken BIGINT, taken_rows BIGINT, rows_by_clause STRING, "
    "reason STRING"
)
"""A file by its path in the log, the file of its pairs, how many these are, how many rows of a source are opened to
take theirs, how many of them a clause takes, how many rows of the file those name, and how many each clause takes, by
its number, as JSON. Or a file, an empty path for all, and the reason why it cannot be read in this way."""


def pairing(
    files: Files, lookup: KeyLookup, folder: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that finds the pairs of target and source rows with equal keys, for ``mapInArrow``.

    Returns:
        A function over batches of ``path``, ``file``, ``values`` (its partition values, JSON), ``size`` (its bytes),
        ``joined`` (FALSE where no row can have one of the keys, so that the file's are not read) and the columns of
        `block_columns` (the rows that a deletion vector deletes), a row a file. It returns a row of `PAIRS_SCHEMA` for
        each file with pairs, or with rows that a BY SOURCE clause takes; for the first file that cannot be read in this
        way it is the last one.
    """

    def pair(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given: dict[bool, list[_File]] = {True: [], False: []}
        for batch in batches:
            for row in range(batch.num_rows):
                path, name, values, size, is_joined = (column[row].as_py() for column in batch.columns[:5])
                given[is_joined].append(_File(files, name, path, json.loads(values), size, read_blocks(batch, row)))
        try:
            for found in _answers(files, given, lookup, folder):
                yield answer(PAIRS_SCHEMA, *found)
        except _UnfitError as unfit:
            yield answer(PAIRS_SCHEMA, {"file": unfit.file, "reason": unfit.reason})

    return pair


class _UnfitError(Exception):
    """A file, or without one all files, cannot be read in this way."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(reason)
        self.file, self.reason = file, reason


@contextmanager
def _unfit_where_it_fails(file: str = "") -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError, pa.ArrowException) as error:
        if is_of_machine(error):
            raise
        raise _UnfitError(file, str(error)) from error


@dataclass(frozen=True)
class _File:
    """A file of the target, and the rows that its deletion vector deletes."""

    files: Files
    name: str
    path: str
    values: Mapping[str, str | None]
    size: int
    deleted: Blocks = NO_BLOCKS

    def live(self, rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return ~mask_of(self.deleted, rows) if len(self.deleted[0]) else np.ones(rows, np.bool_)


def _answers(
    files: Files, given: Mapping[bool, list[_File]], lookup: KeyLookup, folder: str
) -> Iterator[list[_Answer]]:
    for file in given[False]:
        with _unfit_where_it_fails(file.name):
            yield _unmatched_rows(file, lookup, folder)
    joined = given[True]
    if not joined:
        return
    with _unfit_where_it_fails():
        keys = open_keys(files, lookup)
    read: list[pa.Table] = []
    mean = sum(file.size for file in joined) // len(joined)
    at_once = max(_FEWEST_AT_ONCE, min(_FILES_AT_ONCE, _BYTES_AT_ONCE // max(1, mean)))
    found = files.ahead(lambda file: _rows_of(file, lookup), joined, [file.path for file in joined], at_once)
    for number, rows in enumerate(found):
        read.append(rows.append_column("file", pa.array(np.full(len(rows), number, np.int32))))
        # One join for many files: each puts the keys into a hash table.
        if sum(map(len, read)) >= _ROWS_AT_ONCE:
            yield _pairs(read, joined, keys, folder)
            read = []
    if read:
        yield _pairs(read, joined, keys, folder)


def _rows_of(file: _File, lookup: KeyLookup) -> pa.Table:
    """Read a file's keys and, for each row, which BY SOURCE clause takes it if nothing matches it."""
    keys, on_target, by_source = lookup.keys, lookup.on_target, lookup.by_source
    asked = {f"k{index}": key.asked for index, key in enumerate(keys)}
    with _unfit_where_it_fails(file.name):
        of_on = {} if on_target is None else on_target.target
        read = read_columns(file.files, file.path, file.values, {**asked, **of_on})
        of_keys = pa.table({name: key.values_of(read.column(name)) for name, key in zip(asked, keys, strict=True)})
        if len(read) and all(column.null_count == len(read) for column in of_keys.columns):
            check_holds_any(file.files, file.path, [key.column for key in keys if key.column not in file.values])
        admitted = None if on_target is None else on_target.choice.of(read, len(read)).is_valid()
        rows = comparable(of_keys, list(asked), keys, admitted).append_column("row", pa.array(np.arange(len(read))))
        if by_source is not None:
            rows = rows.append_column(_BY_SOURCE, _by_source_clauses(file, by_source))
        return rows.filter(pa.array(file.live(len(rows)))) if len(file.deleted[0]) else rows


def _by_source_clauses(file: _File, by_source: RowChoice) -> pa.ChunkedArray:
    groups = read_row_groups(file.files, file.path, file.values, by_source.target, lambda first, end: first < end)
    numbers = pa.chunked_array([by_source.choice.of(table, len(table)) for _, table in groups], pa.int32())
    return pc.fill_null(pc.subtract(by_source_number(0), numbers), NO_CLAUSE).cast(pa.int32())


def _unmatched_rows(file: _File, lookup: KeyLookup, folder: str) -> list[_Answer]:
    """Find the rows that a BY SOURCE clause takes of a file in which nothing can match."""
    if lookup.by_source is None:
        return []
    clauses = _by_source_clauses(file, lookup.by_source).to_numpy()
    rows = np.flatnonzero((clauses != NO_CLAUSE) & file.live(len(clauses)))
    if not len(rows):
        return []
    check_columns(file.files, file.path, file.values, lookup.rest)
    return [_written(file, RowPairs(rows, np.full(len(rows), NO_SOURCE), clauses[rows]), folder, unique=True)]


def _written(file: _File, pairs: RowPairs, folder: str, *, unique: bool) -> _Answer:
    changing = pairs.changing
    if unique:
        numbers, times = np.unique(pairs.clauses[pairs.clauses != NO_CLAUSE], return_counts=True)
        rows_taken = dict(zip(numbers.tolist(), times.tolist(), strict=True))
    else:
        rows_taken = counts_by_clause(pairs)
    return {
        "file": file.name,
        "path": write_pairs(file.files, folder, pairs),
        "pairs": len(pairs.rows),
        "opened": rows_opened(pairs.matched_sources),
        "taken": len(changing.rows),
        "taken_rows": len(changing.rows) if unique else len(distinct(changing.rows)),
        "rows_by_clause": json.dumps(rows_taken),
    }


def _pairs(read: list[pa.Table], files: list[_File], keys: OpenedKeys, folder: str) -> list[_Answer]:
    target, lookup = pa.concat_tables(read), keys.lookup
    with _unfit_where_it_fails():
        at, sources = keys.find(target.select([name for name in target.column_names if name not in _NOT_KEYS]))
    clauses = keys.clauses_of(sources)
    if _BY_SOURCE in target.column_names:
        by_source = target[_BY_SOURCE].to_numpy()
        unmatched = _unmatched(by_source, at)
        at, clauses = np.concatenate((at, unmatched)), np.concatenate((clauses, by_source[unmatched]))
        sources = np.concatenate((sources, np.full(len(unmatched), NO_SOURCE)))
    order = np.lexsort((sources, at))
    at = at[order]
    places = target["file"].to_numpy()[at]
    ordered = RowPairs(target["row"].to_numpy()[at], sources[order], clauses[order])

    def of_file(place: int) -> _Answer:
        begin, end = np.searchsorted(places, [place, place + 1])
        file, pairs = files[place], ordered.among(slice(begin, end))
        with _unfit_where_it_fails(file.name):
            check_columns(file.files, file.path, file.values, lookup.rest)
            return _written(file, _with_choice(file, pairs, keys), folder, unique=lookup.unique)

    with_pairs = [int(place) for place in distinct(places)]
    return list(files[0].files.ahead(of_file, with_pairs, [files[place].path for place in with_pairs]))


def _with_choice(file: _File, pairs: RowPairs, keys: OpenedKeys) -> RowPairs:
    """Choose the clause of each pair, where that depends on the target's row."""
    choice = keys.lookup.clause
    if not isinstance(choice, RowChoice) or not len(pairs.matched_sources):
        return pairs
    clauses, source = pairs.clauses.copy(), keys.asked.part_with(pairs.matched_sources)

    def place(first: int, end: int) -> slice:
        return slice(*np.searchsorted(pairs.rows, [first, end]))

    def has_pairs(first: int, end: int) -> bool:
        return bool((pairs.sources[place(first, end)] != NO_SOURCE).any())

    for first, table in read_row_groups(file.files, file.path, file.values, choice.target, has_pairs):
        of_group = place(first, first + len(table))
        rows, sources = pairs.rows[of_group], pairs.sources[of_group]
        matched = np.flatnonzero(sources != NO_SOURCE)
        places = source.places(sources[matched])
        both = {name: taken(table[name], rows[matched] - first) for name in choice.target}
        both |= {name: taken(source.rows[column], places) for name, column in choice.source.items()}
        numbers = choice.choice.of(pa.table(both), len(matched))
        clauses[of_group.start + matched] = numbers.fill_null(NO_CLAUSE).to_numpy()
    return RowPairs(pairs.rows, pairs.sources, clauses)


def _unmatched(by_source: _Numbers, matched: _Numbers) -> _Numbers:
    free = by_source != NO_CLAUSE
    free[matched] = False
    return np.flatnonzero(free)
