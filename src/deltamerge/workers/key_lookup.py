"""Which rows of Parquet files have one of the source's keys, and which clause takes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.workers.conditions import ClauseChoice
from deltamerge.workers.file_columns import Asked, check_columns, check_holds_any, read_columns, read_row_groups
from deltamerge.workers.file_systems import is_of_machine
from deltamerge.workers.files import Files
from deltamerge.workers.key_index import KeyIndex, OpenedIndex
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
from deltamerge.workers.staged_rows import KeptRows, open_staged, taken
from deltamerge.workers.widening import widened

_ROWS_AT_ONCE = 4_000_000
_BY_SOURCE = "by_source"
_NOT_KEYS = frozenset({"row", "file", _BY_SOURCE})
_T = TypeVar("_T")


@dataclass(frozen=True)
class FilePairs:
    """Where the pairs of a file are, and how many there are.

    Args:
        file: Its path in the log.
        path: The file of its pairs.
        taken: How many of its pairs a clause takes.
        taken_rows: How many rows of the file these name.
        rows_by_clause: How many rows each clause takes, by its number, as JSON.
    """

    file: str
    path: str
    pairs: int
    taken: int
    taken_rows: int
    rows_by_clause: str


@dataclass(frozen=True)
class Unfit:
    """Why a file, or without one all files, cannot be read in this way."""

    file: str
    reason: str


_TYPES = {
    "file": "STRING",
    "path": "STRING",
    "pairs": "BIGINT",
    "taken": "BIGINT",
    "taken_rows": "BIGINT",
    "rows_by_clause": "STRING",
    "reason": "STRING",
}
PAIRS_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
"""Of rows that have the fields of `FilePairs`, or those of `Unfit`; the others are NULL."""


@dataclass(frozen=True)
class ComparedKey:
    """A key of both sides.

    Args:
        source: Its name in the staged rows.
        column: Its name in the target's data files.
        kind: The type in which both sides are compared.
        null_safe: Whether NULL equals NULL.
    """

    source: str
    column: str
    kind: pa.DataType
    null_safe: bool = False


@dataclass(frozen=True)
class SourceChoice:
    """What chooses by a source row alone.

    Args:
        columns: By the name that `choice` has for a column, its name in the staged rows.
    """

    columns: Mapping[str, str]
    choice: ClauseChoice


@dataclass(frozen=True)
class TargetChoice:
    """What chooses by a target row alone: the BY SOURCE clause that takes it, or whether ON admits it.

    Args:
        columns: The columns in the conditions, by the names that `choice` has for them.
    """

    columns: Asked
    choice: ClauseChoice


@dataclass(frozen=True)
class PairChoice:
    """Which MATCHED clause takes a pair of rows, where that depends on the target's row.

    Args:
        target: The target's columns in the conditions, by the names that `choice` has for them.
        source: The source's: by the name that `choice` has for one, its name in the staged rows.
    """

    target: Asked
    source: Mapping[str, str]
    choice: ClauseChoice


@dataclass(frozen=True)
class OneClause:
    """The number of the MATCHED clause that takes all pairs, or `NO_CLAUSE`."""

    number: int


@dataclass(frozen=True)
class ClauseColumn:
    """The column of the staged rows with the number of the MATCHED clause that takes a pair; NULL where none does."""

    name: str


@dataclass(frozen=True)
class OnFilters:
    """What ON requires of only one side besides equal keys; a row that is given no number has no match."""

    target: TargetChoice | None = None
    source: SourceChoice | None = None


NO_FILTERS = OnFilters()


@dataclass(frozen=True)
class KeyLookup:
    """What is looked up in files, and which clause takes what is found.

    Args:
        staged: The source's rows.
        clause: What chooses the MATCHED clause that takes a pair.
        by_source: What takes rows without a match; None where all stay.
        rest: The target's columns that are read once the pairs are known.
        unique: Whether no two source rows have the same keys, so that a row of the target is in one pair at most.
        most_pairs: How many pairs a task makes at once where they may; more are declined.
        index: The source's keys, sorted; None where each task puts them into a hash table.
    """

    staged: KeptRows
    keys: tuple[ComparedKey, ...]
    clause: OneClause | ClauseColumn | PairChoice
    by_source: TargetChoice | None
    rest: Asked
    unique: bool
    most_pairs: int
    on: OnFilters = NO_FILTERS
    index: KeyIndex | None = None


def pairing(
    files: Files, lookup: KeyLookup, folder: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that finds the pairs of target and source rows with equal keys, for ``mapInArrow``.

    Args:
        folder: Where the pairs are written.

    Returns:
        A function over batches of ``path``, ``file``, ``values`` (its partition values, JSON), ``joined`` (FALSE where
        no row can have one of the keys, so that the file's are not read) and the columns of `block_columns` (the rows
        that a deletion vector deletes), a row a file. It returns a row of `PAIRS_SCHEMA` for each file with pairs, or
        with rows that a BY SOURCE clause takes.
    """

    def pair(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given: dict[bool, list[_File]] = {True: [], False: []}
        for batch in batches:
            for row in range(batch.num_rows):
                path, name, values, is_joined = (column[row].as_py() for column in batch.columns[:4])
                given[is_joined].append(_File(files, name, path, json.loads(values), read_blocks(batch, row)))
        for file in given[False]:
            found = _tried(file.name, partial(_unmatched_rows, file, lookup, folder))
            yield _answer([found] if isinstance(found, Unfit) else found)
        if not given[True]:
            return
        wanted = _tried("", partial(_wanted, files, lookup))
        if isinstance(wanted, Unfit):
            yield _answer([wanted])
            return
        read: list[pa.Table] = []
        rows_of = partial(_read, lookup=lookup)
        paths = [file.path for file in given[True]]
        for number, rows in enumerate(files.ahead(rows_of, given[True], paths)):
            if isinstance(rows, Unfit):
                yield _answer([rows])
                return
            read.append(rows.append_column("file", pa.array(np.full(len(rows), number, np.int32))))
            # One join for many files: each puts the keys into a hash table.
            if sum(map(len, read)) >= _ROWS_AT_ONCE:
                yield _answer(_pairs(read, given[True], lookup, wanted, folder))
                read = []
        if read:
            yield _answer(_pairs(read, given[True], lookup, wanted, folder))

    return pair


def _tried(name: str, work: Callable[[], _T]) -> _T | Unfit:
    """Return what work returns, or why it cannot be done to a file in this way."""
    try:
        return work()
    except (ValueError, OSError, pa.ArrowException) as error:
        if is_of_machine(error):
            raise
        return Unfit(name, str(error))


@dataclass(frozen=True)
class _File:
    """A file of the target, and the rows that its deletion vector deletes."""

    files: Files
    name: str
    path: str
    values: Mapping[str, str | None]
    deleted: Blocks = NO_BLOCKS

    def live(self, rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return ~mask_of(self.deleted, rows) if len(self.deleted[0]) else np.ones(rows, np.bool_)


@dataclass(frozen=True)
class _Wanted:
    """What is looked up.

    Args:
        keys: The source's keys that may equal others, by `_comparable`, each with its row's number; or what finds them.
        clauses: The clause that takes the pairs of each source row, or `NO_CLAUSE` where a choice returns it; one for
            all.
        asked: The source's columns in the choice or with the clauses, all rows.
    """

    keys: pa.Table | OpenedIndex
    clauses: Any
    choice: PairChoice | None
    asked: pa.Table

    def clauses_of(self, sources: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if isinstance(self.clauses, int):
            return np.full(len(sources), self.clauses, np.int32)
        found: np.ndarray[Any, Any] = taken(self.clauses, sources).fill_null(NO_CLAUSE).to_numpy()
        return found


def _comparable(columns: Sequence[Any], keys: Sequence[ComparedKey], admitted: Any = None) -> dict[str, Any]:  # noqa: ANN401
    """Return keys so that a join finds the equal ones: of null-safe ones the values and whether they are NULL.

    Args:
        admitted: For each row whether it may match anything; None where all may.
    """
    found: dict[str, Any] = {}
    for index, (column, key) in enumerate(zip(columns, keys, strict=True)):
        values = widened(column, key.kind)
        values = values if values.type == key.kind else values.cast(key.kind)
        if key.null_safe:
            found[f"n{index}"] = pc.is_null(values)
            values = pc.fill_null(values, _some_value(key.kind))
        found[f"k{index}"] = values
    if admitted is not None:
        # No NULL equals another in a join.
        name = "k0"
        found[name] = pc.if_else(admitted, found[name], pa.scalar(None, found[name].type))
    return found


def _some_value(kind: pa.DataType) -> pa.Scalar:
    """Return a value for the place of NULL, beside which another column says so."""
    if pa.types.is_string(kind):
        return pa.scalar("", kind)
    if pa.types.is_binary(kind):
        return pa.scalar(b"", kind)
    return pa.scalar(False, kind) if pa.types.is_boolean(kind) else pa.scalar(0, kind)


def comparable_keys(
    files: Files, staged: KeptRows, keys: Sequence[ComparedKey], on_source: SourceChoice | None
) -> pa.Table:
    """Return the source's keys, all rows, so that a join finds the equal ones; NULL equals nothing."""
    of_on = [] if on_source is None else [*on_source.columns.values()]
    names = [key.source for key in keys]
    rows = open_staged(files, staged, list(dict.fromkeys([*names, *of_on])))
    admitted = None
    if on_source is not None:
        seen = pa.table({name: rows.column(column) for name, column in on_source.columns.items()})
        admitted = on_source.choice.of(seen).is_valid()
    return pa.table(_comparable([*map(rows.column, names)], keys, admitted))


def _wanted(files: Files, lookup: KeyLookup) -> _Wanted:
    clause, staged, index = lookup.clause, lookup.staged, lookup.index
    choice = clause if isinstance(clause, PairChoice) else None
    asked = [*choice.source.values()] if choice is not None else []
    asked += [clause.name] if isinstance(clause, ClauseColumn) else []
    rows = open_staged(files, staged, asked)
    clauses: Any = rows.column(clause.name) if isinstance(clause, ClauseColumn) else NO_CLAUSE
    if isinstance(clause, OneClause):
        clauses = clause.number
    if index is not None and index.codes.are_exact:
        return _Wanted(OpenedIndex(files, index, None), clauses, choice, rows)
    table = comparable_keys(files, staged, lookup.keys, lookup.on.source)
    if index is not None:
        return _Wanted(OpenedIndex(files, index, table), clauses, choice, rows)
    table = table.append_column("source", pa.array(np.arange(len(table))))
    whole = table.drop_null() if any(column.null_count for column in table.columns) else table
    return _Wanted(whole, clauses, choice, rows)


def _read(file: _File, lookup: KeyLookup) -> pa.Table | Unfit:
    return _tried(file.name, partial(_rows_of, file, lookup))


def _rows_of(file: _File, lookup: KeyLookup) -> pa.Table:
    """Read a file's keys and, for each row, which BY SOURCE clause takes it if nothing matches it."""
    keys, on_target, by_source = lookup.keys, lookup.on.target, lookup.by_source
    asked = {f"k{index}": (key.column, key.kind) for index, key in enumerate(keys)}
    read = read_columns(
        file.files, file.path, file.values, asked if on_target is None else {**asked, **on_target.columns}
    )
    if len(read) and all(read.column(name).null_count == len(read) for name in asked):
        check_holds_any(file.files, file.path, [key.column for key in keys if key.column not in file.values])
    admitted = None if on_target is None else on_target.choice.of(read).is_valid()
    rows = pa.table({**_comparable([*map(read.column, asked)], keys, admitted), "row": read["row"]})
    if by_source is not None:
        rows = rows.append_column(_BY_SOURCE, _by_source_clauses(file, by_source))
    return rows.filter(pa.array(file.live(len(rows)))) if len(file.deleted[0]) else rows


def _by_source_clauses(file: _File, by_source: TargetChoice) -> pa.ChunkedArray:
    groups = read_row_groups(file.files, file.path, file.values, by_source.columns, lambda first, end: first < end)
    numbers = pa.chunked_array([by_source.choice.of(table) for table in groups], pa.int32())
    return pc.fill_null(pc.subtract(by_source_number(0), numbers), NO_CLAUSE).cast(pa.int32())


def _unmatched_rows(file: _File, lookup: KeyLookup, folder: str) -> list[FilePairs | Unfit]:
    """Find the rows that a BY SOURCE clause takes of a file in which nothing can match."""
    if lookup.by_source is None:
        return []
    clauses = _by_source_clauses(file, lookup.by_source).to_numpy()
    rows = np.flatnonzero((clauses != NO_CLAUSE) & file.live(len(clauses)))
    if not len(rows):
        return []
    check_columns(file.files, file.path, file.values, lookup.rest)
    return [_written(file, RowPairs(rows, np.full(len(rows), NO_SOURCE), clauses[rows]), folder, unique=True)]


def _written(file: _File, pairs: RowPairs, folder: str, *, unique: bool) -> FilePairs:
    changing = pairs.changing
    if unique:
        numbers, times = np.unique(pairs.clauses[pairs.clauses != NO_CLAUSE], return_counts=True)
        rows_taken = dict(zip(numbers.tolist(), times.tolist(), strict=True))
    else:
        rows_taken = counts_by_clause(pairs)
    path = write_pairs(file.files, folder, pairs)
    taken_rows = len(changing.rows) if unique else len(distinct(changing.rows))
    return FilePairs(file.name, path, len(pairs.rows), len(changing.rows), taken_rows, json.dumps(rows_taken))


def _pairs(
    read: list[pa.Table], files: list[_File], lookup: KeyLookup, wanted: _Wanted, folder: str
) -> list[FilePairs | Unfit]:
    target = pa.concat_tables(read)
    found = _tried("", partial(_equal_rows, target, wanted.keys, None if lookup.unique else lookup.most_pairs))
    if isinstance(found, Unfit):
        return [found]
    at, sources = (found[name].to_numpy() for name in ("at", "source"))
    clauses = wanted.clauses_of(sources)
    if _BY_SOURCE in target.column_names:
        by_source = target[_BY_SOURCE].to_numpy()
        unmatched = _unmatched(by_source, at)
        at, clauses = np.concatenate((at, unmatched)), np.concatenate((clauses, by_source[unmatched]))
        sources = np.concatenate((sources, np.full(len(unmatched), NO_SOURCE)))
    order = np.lexsort((sources, at))
    at = at[order]
    places = target["file"].to_numpy()[at]
    ordered = RowPairs(target["row"].to_numpy()[at], sources[order], clauses[order])

    def of_file(place: int) -> FilePairs | Unfit:
        begin, end = np.searchsorted(places, [place, place + 1])
        file, pairs = files[place], ordered.among(slice(begin, end))
        return _tried(file.name, partial(_written_with_choice, file, pairs, lookup, wanted, folder))

    with_pairs = [int(place) for place in distinct(places)]
    return list(files[0].files.ahead(of_file, with_pairs, [files[place].path for place in with_pairs]))


def _equal_rows(target: pa.Table, wanted: pa.Table | OpenedIndex, most_pairs: int | None) -> pa.Table:
    """Return the rows of the target that equal one of the source, as ``at``, with that as ``source``."""
    names = [name for name in target.column_names if name not in _NOT_KEYS]
    keys = target.select(names)
    if isinstance(wanted, OpenedIndex):
        at, sources = wanted.find(keys, most_pairs)
        return pa.table({"at": at, "source": sources})
    if most_pairs is not None and _makes_more_pairs(most_pairs, keys, wanted, names):
        raise ValueError("few keys of many rows make very many pairs")
    keys = keys.append_column("at", pa.array(np.arange(len(target))))
    return keys.join(wanted, names, join_type="inner", use_threads=False)


def _written_with_choice(file: _File, pairs: RowPairs, lookup: KeyLookup, wanted: _Wanted, folder: str) -> FilePairs:
    check_columns(file.files, file.path, file.values, lookup.rest)
    return _written(file, _with_choice(file, pairs, wanted), folder, unique=lookup.unique)


def _with_choice(file: _File, pairs: RowPairs, wanted: _Wanted) -> RowPairs:
    """Choose the clause of each pair, where that depends on the target's row."""
    choice, source = wanted.choice, wanted.asked
    if choice is None or not len(pairs.matched_sources):
        return pairs
    clauses = pairs.clauses.copy()

    def place(first: int, end: int) -> slice:
        return slice(*np.searchsorted(pairs.rows, [first, end]))

    def has_pairs(first: int, end: int) -> bool:
        return bool((pairs.sources[place(first, end)] != NO_SOURCE).any())

    for table in read_row_groups(file.files, file.path, file.values, choice.target, has_pairs):
        first = table["row"][0].as_py()
        of_group = place(first, first + len(table))
        rows, sources = pairs.rows[of_group], pairs.sources[of_group]
        matched = np.flatnonzero(sources != NO_SOURCE)
        both = {name: taken(table[name], rows[matched] - first) for name in choice.target}
        both |= {name: taken(source[column], sources[matched]) for name, column in choice.source.items()}
        clauses[of_group.start + matched] = choice.choice.of(pa.table(both)).fill_null(NO_CLAUSE).to_numpy()
    return RowPairs(pairs.rows, pairs.sources, clauses)


def _unmatched(by_source: np.ndarray[Any, Any], matched: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    free = by_source != NO_CLAUSE
    free[matched] = False
    return np.flatnonzero(free)


def _makes_more_pairs(most_pairs: int, target: pa.Table, source: pa.Table, keys: Sequence[str]) -> bool:
    times = source.group_by(keys).aggregate([([], "count_all")])
    most = pc.max(times["count_all"]).as_py() or 0
    if most <= 1 or most * len(target) <= most_pairs:
        return False
    both = target.group_by(keys).aggregate([([], "count_all")]).join(times, keys, right_suffix="_of_source")
    pairs = [both[name].to_numpy().astype(np.float64) for name in ("count_all", "count_all_of_source")]
    return bool(np.nansum(pairs[0] * pairs[1]) > most_pairs)


def _answer(found: Sequence[FilePairs | Unfit]) -> pa.RecordBatch:
    kinds = {"STRING": pa.string(), "BIGINT": pa.int64()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in _TYPES.items()])
    return pa.RecordBatch.from_pylist([vars(each) for each in found], schema)
