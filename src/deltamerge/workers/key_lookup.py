"""Which rows of Parquet files have one of some keys, and which clause takes them: what tells is joined in Arrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.workers.file_columns import Asked, read_columns, read_row_groups
from deltamerge.workers.row_pairs import NO_CLAUSE, NO_SOURCE, RowPairs, distinct, of_by_source, write_pairs
from deltamerge.workers.staged_rows import KeptRows, open_staged, taken

PAIRS_SCHEMA = "file STRING, path STRING, found BIGINT, pairs BIGINT, rows BIGINT, told STRING"
FOUND_SCHEMA = "code INT, file STRING, piece BIGINT, n BIGINT, bits BINARY"
# What stands in the place of a code where a file's columns are not of the table's types.
UNFIT = -1

_PIECE_ROWS = 1 << 15
_ROWS_AT_ONCE = 4_000_000
# Where source rows have a key in common; else each row of the target is in one pair at most.
_MOST_PAIRS = 10_000_000
# What is told of a file: its name, where its pairs lie, how many they are and change, how many rows these name, and,
# as JSON, how many each clause takes.
_Found: TypeAlias = "tuple[str, str, int, int, int, str]"
# The column with what takes a row that nothing matches.
_LEAVES = "leaves"


@dataclass(frozen=True)
class Leaving:
    """Which rows of the target leave it where nothing matches them.

    Args:
        columns: The columns that this depends on, by the names that `choose` has for them.
        choose: Gives, for rows of these columns, the number of the BY SOURCE clause that takes each, NULL for none.
    """

    columns: Asked
    choose: Callable[[pa.Table], pa.Array]


@dataclass(frozen=True)
class PairChoice:
    """Which MATCHED clause takes a pair of rows, where that depends on the target's row.

    Args:
        target: The target's columns that this depends on, by the names that `choose` has for them.
        source: The source's: by the name that `choose` has for one, its name in the kept rows.
        choose: Gives, for pairs of these columns, the number of the clause that takes each, NULL for none.
    """

    target: Asked
    source: Mapping[str, str]
    choose: Callable[[pa.Table], pa.Array]


def looking_up(
    keys: bytes, columns: Sequence[str], of_target: int | None, of_source: int | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes the function that looks keys up in files, for ``mapInArrow``.

    Args:
        keys: An Arrow stream: the key columns, then the source row's number (BIGINT); no NULLs.
        columns: The target's columns that are the keys.
        of_target: The code under which found rows of the target are told; None where they are not.
        of_source: The same for rows of the source.

    Returns:
        A function over batches of ``path``, ``file`` and ``values`` (its partition values, JSON), a row a file.
    """

    def look_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = pa.ipc.open_stream(keys).read_all()
        read: list[pa.Table] = []
        files: list[str] = []
        for batch in batches:
            for path, file, values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                try:
                    rows = read_columns(path, json.loads(values), _named(wanted.schema, columns))
                except (ValueError, pa.ArrowException):
                    yield _batch([(UNFIT, file, 0, 0, b"")])
                    continue
                read.append(rows.append_column("file", pa.array(np.full(len(rows), len(files), np.int32))))
                files.append(file)
                # One join for many files: each puts the keys into a hash table.
                if sum(map(len, read)) >= _ROWS_AT_ONCE:
                    yield _found(read, files, wanted, of_target, of_source)
                    read = []
        if read:
            yield _found(read, files, wanted, of_target, of_source)

    return look_up


def _found(
    read: list[pa.Table],
    files: list[str],
    wanted: pa.Table,
    of_target: int | None,
    of_source: int | None,
) -> pa.RecordBatch:
    *names, number = wanted.column_names
    pairs = _joined(pa.concat_tables(read), wanted, names, unique=False)
    if pairs is None:
        return _batch([(UNFIT, None, 0, 0, b"")])
    found: list[tuple[int, str | None, int, int, bytes]] = []
    if of_target is not None:
        places, rows = pairs["file"].to_numpy(), pairs["row"].to_numpy()
        for place in distinct(places):
            found += [(of_target, files[place], *piece) for piece in _pieces(rows[places == place])]
    if of_source is not None:
        found += [(of_source, None, *piece) for piece in _pieces(pairs[number].to_numpy())]
    return _batch(found)


def _named(schema: pa.Schema, columns: Sequence[str]) -> Asked:
    """Says under which names the columns of keys are read, the first of a schema."""
    return {field.name: (name, field.type) for field, name in zip(schema, columns, strict=False)}


def _pieces(rows: np.ndarray[Any, Any]) -> Iterator[tuple[int, int, bytes]]:
    """Gives, for each 32,768 rows in which there are some, their number, how often they were named, and their bits."""
    numbers = rows >> 15
    for number in distinct(numbers):
        of_piece = rows[numbers == number]
        bits = np.zeros(_PIECE_ROWS, np.uint8)
        bits[of_piece & (_PIECE_ROWS - 1)] = 1
        yield int(number), len(of_piece), np.packbits(bits, bitorder="little").tobytes()


def _batch(found: list[tuple[int, str | None, int, int, bytes]]) -> pa.RecordBatch:
    columns = list(zip(*found, strict=True)) if found else [(), (), (), (), ()]
    types = (pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.binary())
    arrays = [pa.array(column, data_type) for column, data_type in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, ["code", "file", "piece", "n", "bits"])


def pairing(
    staged: KeptRows,
    keys: Sequence[str],
    clause: str | int | PairChoice,
    columns: Sequence[str],
    leaving: Leaving | None,
    folder: str,
    *,
    unique: bool,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes the function that finds the pairs of target and source rows with equal keys, for ``mapInArrow``.

    Args:
        staged: The source's rows.
        keys: The source's columns that are the keys.
        clause: The source's column with the number of the MATCHED clause that takes a pair, NULL where none does; or
            the number of the one that takes all, `NO_CLAUSE` where there is none; or what tells it of each pair.
        columns: The target's columns that equal them.
        leaving: Which rows without a match leave the target; None where all stay.
        folder: Where the pairs are written.
        unique: Whether no two source rows have the same keys, so that a row of the target is in one pair at most.

    Returns:
        A function over batches of ``path``, ``file``, ``values`` (its partition values, JSON), ``gone`` (a bitmap of
        rows that the file no longer has, the lowest bit first, or NULL) and ``joined`` (FALSE where no row can have one
        of the keys, so that the file's are not read), a row a file. For each file with pairs, or
        rows that leave without one, it gives where they lie; how many they are; how many of them a clause takes; how
        many rows of the target these name; as JSON, how many of these rows each clause takes. For a file whose columns
        are not of the table's types, and where there are too many pairs, `UNFIT` in the place of those that a clause
        takes, and why instead of the JSON.
    """

    def pair(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted: _Wanted | None = None
        read: list[pa.Table] = []
        files: list[_File] = []
        for batch in batches:
            for path, file, values, gone, is_joined in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            ):
                lying = _File(file, path, json.loads(values), gone)
                try:
                    if not is_joined:
                        yield _paired(_leaving_pairs(lying, leaving, folder))
                        continue
                    wanted = _wanted(staged, keys, clause) if wanted is None else wanted
                    rows = _looked_at(lying, wanted, columns, leaving)
                except (ValueError, pa.ArrowException) as error:
                    yield _paired([(file, "", 0, UNFIT, 0, str(error))])
                    return
                read.append(rows.append_column("file", pa.array(np.full(len(rows), len(files), np.int32))))
                files.append(lying)
                if sum(map(len, read)) >= _ROWS_AT_ONCE:
                    yield _paired(_pairs(read, files, wanted, folder, unique=unique))
                    read = []
        if read and wanted is not None:
            yield _paired(_pairs(read, files, wanted, folder, unique=unique))

    return pair


@dataclass(frozen=True)
class _File:
    """A file of the target.

    Args:
        name: Its path in the log.
        path: Its path on this machine.
        values: Its partition values.
        gone: A bitmap of rows that it no longer has, the lowest bit first, or None.
    """

    name: str
    path: str
    values: Mapping[str, str | None]
    gone: bytes | None

    def there(self, rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Tells of each of its rows whether it still has it."""
        there = np.ones(rows, np.bool_)
        if self.gone is not None:
            bits = np.unpackbits(np.frombuffer(self.gone, np.uint8), bitorder="little")[:rows]
            there[: len(bits)] = bits == 0
        return there


@dataclass(frozen=True)
class _Wanted:
    """What is looked for.

    Args:
        keys: The source's keys without NULLs, each with its row's number and the clause that takes its pairs, or
            `NO_CLAUSE` where a choice tells it.
        choice: What tells the clause of each pair.
        asked: The source's columns that this depends on, all rows, in one piece each.
    """

    keys: pa.Table
    choice: PairChoice | None = None
    asked: pa.Table | None = None

    @property
    def names(self) -> list[str]:
        """The names of the keys."""
        names: list[str] = self.keys.column_names
        return names[:-2]


def _wanted(staged: KeptRows, keys: Sequence[str], clause: str | int | PairChoice) -> _Wanted:
    choice = clause if isinstance(clause, PairChoice) else None
    asked = [*choice.source.values()] if choice is not None else [clause] if isinstance(clause, str) else []
    rows = open_staged(staged, list(dict.fromkeys([*keys, *asked])))
    if isinstance(clause, str):
        clauses = rows.column(clause).fill_null(NO_CLAUSE)
    else:
        clauses = pa.array(np.full(len(rows), clause if isinstance(clause, int) else NO_CLAUSE, np.int32))
    names = [*(f"k{index}" for index in range(len(keys))), "source", "clause"]
    table = pa.table([*map(rows.column, keys), pa.array(np.arange(len(rows))), clauses], names)
    whole = table.drop_null() if any(column.null_count for column in table.columns) else table
    # To take rows of texts in several pieces puts these together each time.
    return _Wanted(whole, choice, None if choice is None else rows.select(asked).combine_chunks())


def _looked_at(file: _File, wanted: _Wanted, columns: Sequence[str], leaving: Leaving | None) -> pa.Table:
    """Reads a file's keys, and finds out what takes each row if nothing matches it."""
    rows = read_columns(file.path, file.values, _named(wanted.keys.schema, columns))
    if leaving is not None:
        rows = rows.append_column(_LEAVES, _leaves(file, leaving))
    return rows if file.gone is None else rows.filter(pa.array(file.there(len(rows))))


def _leaves(file: _File, leaving: Leaving) -> pa.ChunkedArray:
    """Gives, for each row of a file, what takes it if nothing matches it."""
    groups = read_row_groups(file.path, file.values, leaving.columns, lambda first, end: first < end)
    numbers = pa.chunked_array([leaving.choose(table) for table in groups], pa.int32())
    return pc.fill_null(pc.subtract(of_by_source(0), numbers), NO_CLAUSE).cast(pa.int32())


def _leaving_pairs(file: _File, leaving: Leaving | None, folder: str) -> list[_Found]:
    """Finds the rows that leave a file in which nothing can match."""
    if leaving is None:
        return []
    leaves = _leaves(file, leaving).to_numpy()
    rows = np.flatnonzero((leaves != NO_CLAUSE) & file.there(len(leaves)))
    pairs = RowPairs(rows, np.full(len(rows), NO_SOURCE), leaves[rows])
    return [_kept(file, pairs, folder, unique=True)] if len(rows) else []


def _kept(file: _File, pairs: RowPairs, folder: str, *, unique: bool) -> _Found:
    """Keeps the pairs of a file, and tells of them."""
    changing = pairs.changing
    rows_taken = {
        int(number): _count(changing.of_clause(number), unique=unique)
        for number in distinct(changing.clauses)
    }
    path = write_pairs(folder, pairs)
    numbers = len(pairs.rows), len(changing.rows), _count(changing, unique=unique)
    return (file.name, path, *numbers, json.dumps(rows_taken))


def _pairs(
    read: list[pa.Table], files: list[_File], wanted: _Wanted, folder: str, *, unique: bool
) -> list[_Found]:
    target = pa.concat_tables(read)
    keys = target.select(wanted.names).append_column("at", pa.array(np.arange(len(target))))
    joined = _joined(keys, wanted.keys, wanted.names, unique=unique)
    if joined is None:
        return [("", "", 0, UNFIT, 0, "few keys of many rows make very many pairs")]
    at, sources, clauses = (joined[name].to_numpy() for name in ("at", "source", "clause"))
    if _LEAVES in target.column_names:
        leaves = target[_LEAVES].to_numpy()
        left = _leaving_rows(leaves, at)
        at, clauses = np.concatenate((at, left)), np.concatenate((clauses, leaves[left]))
        sources = np.concatenate((sources, np.full(len(left), NO_SOURCE)))
    order = np.lexsort((sources, at))
    at = at[order]
    places = target["file"].to_numpy()[at]
    ordered = RowPairs(target["row"].to_numpy()[at], sources[order], clauses[order])
    found = []
    for place in distinct(places):
        begin, end = np.searchsorted(places, [place, place + 1])
        file, of_file = files[place], ordered.among(slice(begin, end))
        try:
            of_file = _with_choice(file, of_file, wanted)
        except (ValueError, pa.ArrowException) as error:
            return [(file.name, "", 0, UNFIT, 0, str(error))]
        found.append(_kept(file, of_file, folder, unique=unique))
    return found


def _with_choice(file: _File, pairs: RowPairs, wanted: _Wanted) -> RowPairs:
    """Asks of each pair which clause takes it, where that depends on the target's row."""
    choice, source = wanted.choice, wanted.asked
    if choice is None or source is None or not len(pairs.matched_sources):
        return pairs
    clauses = pairs.clauses.copy()

    def place(first: int, end: int) -> slice:
        return slice(*np.searchsorted(pairs.rows, [first, end]))

    def has_pairs(first: int, end: int) -> bool:
        return bool((pairs.sources[place(first, end)] != NO_SOURCE).any())

    for table in read_row_groups(file.path, file.values, choice.target, has_pairs):
        first = table["row"][0].as_py()
        of_group = place(first, first + len(table))
        rows, sources = pairs.rows[of_group], pairs.sources[of_group]
        matched = np.flatnonzero(sources != NO_SOURCE)
        both = {name: taken(table[name], rows[matched] - first) for name in choice.target}
        both |= {name: taken(source[column], sources[matched]) for name, column in choice.source.items()}
        clauses[of_group.start + matched] = choice.choose(pa.table(both)).fill_null(NO_CLAUSE).to_numpy()
    return RowPairs(pairs.rows, pairs.sources, clauses)


def _leaving_rows(leaves: np.ndarray[Any, Any], matched: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Gives the places of the rows that a BY SOURCE clause takes and that are none of the matched ones."""
    free = leaves != NO_CLAUSE
    free[matched] = False
    return np.flatnonzero(free)


def _count(pairs: RowPairs, *, unique: bool) -> int:
    """Counts the rows of the target in pairs."""
    return len(pairs.rows) if unique else len(distinct(pairs.rows))


def _joined(target: pa.Table, source: pa.Table, keys: Sequence[str], *, unique: bool) -> pa.Table | None:
    """Joins rows by their keys; None where few keys of many rows would make very many pairs."""
    if not unique and _makes_many_pairs(target, source, keys):
        return None
    return target.join(source, keys, join_type="inner", use_threads=False)


def _makes_many_pairs(target: pa.Table, source: pa.Table, keys: Sequence[str]) -> bool:
    times = source.group_by(keys).aggregate([([], "count_all")])
    most = pc.max(times["count_all"]).as_py() or 0
    if most <= 1 or most * len(target) <= _MOST_PAIRS:
        return False
    both = target.group_by(keys).aggregate([([], "count_all")]).join(times, keys, right_suffix="_of_source")
    pairs = [both[name].to_numpy().astype(np.float64) for name in ("count_all", "count_all_of_source")]
    return bool(np.nansum(pairs[0] * pairs[1]) > _MOST_PAIRS)


def _paired(found: list[_Found]) -> pa.RecordBatch:
    columns = list(zip(*found, strict=True)) if found else [()] * 6
    types = (pa.string(), pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.string())
    arrays = [pa.array(column, data_type) for column, data_type in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, ["file", "path", "found", "pairs", "rows", "told"])
