"""Which rows of a Parquet file have one of some keys: only the key columns are read, and joined in Arrow.

Spark's Python workers run this module by value (`deltamerge.merge.lookup`), so of this package it imports only what
they run by value, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.scan.staged_rows import KeptRows, open_staged

PAIRS_SCHEMA = "file STRING, path STRING, pairs BIGINT, rows BIGINT"
FOUND_SCHEMA = "code INT, file STRING, piece BIGINT, n BIGINT, bits BINARY"
# What stands in the place of a code where a file's columns are not of the keys' types.
UNFIT = -1

_PIECE_ROWS = 1 << 15
_ROWS_AT_ONCE = 4_000_000
_VIEWS = {pa.string_view(): pa.string(), pa.large_string(): pa.string()}


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
        A function over batches of ``path`` and ``file``, a row a file.
    """

    def look_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = pa.ipc.open_stream(keys).read_all()
        read: list[pa.Table] = []
        files: list[str] = []
        for batch in batches:
            for path, file in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                rows = _key_columns(path, wanted.schema, columns)
                if rows is None:
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
    pairs = pa.concat_tables(read).join(wanted, names, join_type="inner", use_threads=False)
    found: list[tuple[int, str | None, int, int, bytes]] = []
    if of_target is not None:
        places, rows = pairs["file"].to_numpy(), pairs["row"].to_numpy()
        for place in distinct(places):
            found += [(of_target, files[place], *piece) for piece in _pieces(rows[places == place])]
    if of_source is not None:
        found += [(of_source, None, *piece) for piece in _pieces(pairs[number].to_numpy())]
    return _batch(found)


def _key_columns(path: str, schema: pa.Schema, columns: Sequence[str]) -> pa.Table | None:
    """Reads the key columns and each row's position; None where they are of other types than the keys."""
    with pq.ParquetFile(path, memory_map=True) as file:
        if any(file.schema_arrow.get_field_index(name) < 0 for name in columns):
            return None
        table = file.read(list(columns), use_threads=False).select(list(columns))
    arrays = []
    for column, key in zip(table.columns, schema, strict=False):
        plain = _VIEWS.get(column.type)
        array = column if plain is None else column.cast(plain)
        if array.type != key.type:
            return None
        arrays.append(array)
    names = schema.names[: len(columns)]
    return pa.table([*arrays, pa.array(np.arange(table.num_rows))], names=[*names, "row"])


def _pieces(rows: np.ndarray[Any, Any]) -> Iterator[tuple[int, int, bytes]]:
    """Gives, for each 32,768 rows in which there are some, their number, how often they were named, and their bits."""
    numbers = rows >> 15
    for number in distinct(numbers):
        taken = rows[numbers == number]
        bits = np.zeros(_PIECE_ROWS, np.uint8)
        bits[taken & (_PIECE_ROWS - 1)] = 1
        yield int(number), len(taken), np.packbits(bits, bitorder="little").tobytes()


def _batch(found: list[tuple[int, str | None, int, int, bytes]]) -> pa.RecordBatch:
    columns = list(zip(*found, strict=True)) if found else [(), (), (), (), ()]
    types = (pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.binary())
    arrays = [pa.array(column, data_type) for column, data_type in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, ["code", "file", "piece", "n", "bits"])


def pairing(
    staged: KeptRows, keys: Sequence[str], columns: Sequence[str], folder: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes the function that finds the pairs of target and source rows with equal keys, for ``mapInArrow``.

    Args:
        staged: The source's rows.
        keys: The source's columns that are the keys.
        columns: The target's columns that equal them.
        folder: Where the pairs are written.

    Returns:
        A function over batches of ``path``, ``file`` and ``gone`` (a bitmap of rows that the file no longer has, the
        lowest bit first, or NULL), a row a file. For each file with pairs it gives their file, their number and how
        many rows of the target they name; for one whose columns are not of the keys' types, `UNFIT` in their place.
    """

    def pair(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted: pa.Table | None = None
        read: list[pa.Table] = []
        files: list[str] = []
        for batch in batches:
            for path, file, gone in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if wanted is None:
                    wanted = _wanted(staged, keys)
                rows = _key_columns(path, wanted.schema, columns)
                if rows is None:
                    yield _paired([(file, "", UNFIT, 0)])
                    continue
                rows = rows if gone is None else rows.filter(pa.array(_is_there(gone, len(rows))))
                read.append(rows.append_column("file", pa.array(np.full(len(rows), len(files), np.int32))))
                files.append(file)
                if sum(map(len, read)) >= _ROWS_AT_ONCE:
                    yield _paired(_pairs(read, files, wanted, folder))
                    read = []
        if read and wanted is not None:
            yield _paired(_pairs(read, files, wanted, folder))

    return pair


def _wanted(staged: KeptRows, keys: Sequence[str]) -> pa.Table:
    """Gives the source's keys without NULLs, each with its row's number."""
    rows = open_staged(staged, keys)
    table = rows.rename_columns([f"k{index}" for index in range(len(keys))])
    table = table.append_column("source", pa.array(np.arange(len(rows))))
    return table.drop_null() if any(column.null_count for column in table.columns) else table


def _is_there(gone: bytes, rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    there = np.ones(rows, np.bool_)
    bits = np.unpackbits(np.frombuffer(gone, np.uint8), bitorder="little")[:rows]
    there[: len(bits)] = bits == 0
    return there


def _pairs(
    read: list[pa.Table], files: list[str], wanted: pa.Table, folder: str
) -> list[tuple[str, str, int, int]]:
    names = wanted.column_names[:-1]
    pairs = pa.concat_tables(read).join(wanted, names, join_type="inner", use_threads=False)
    places, rows, sources = (pairs[name].to_numpy() for name in ("file", "row", "source"))
    order = np.lexsort((sources, rows, places))
    places, rows, sources = places[order], rows[order], sources[order]
    found = []
    for place in distinct(places):
        begin, end = np.searchsorted(places, [place, place + 1])
        path = write_pairs(folder, rows[begin:end], sources[begin:end])
        found.append((files[place], path, int(end - begin), len(distinct(rows[begin:end]))))
    return found


def distinct(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Gives the distinct ones of integers, in order."""
    # Since NumPy 2.3 np.unique puts them into a hash table, which takes far longer than to sort them.
    ordered = np.sort(numbers)
    found: np.ndarray[Any, Any] = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
    return found


def write_pairs(folder: str, rows: np.ndarray[Any, Any], sources: np.ndarray[Any, Any]) -> str:
    """Writes the pairs of one file, by the target's row; gives their path."""
    path = f"{folder}/pairs-{uuid.uuid4().hex}.arrow"
    table = pa.table({"row": pa.array(rows), "source": pa.array(sources)})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return path


def read_pairs(path: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Reads the pairs of one file: the target's rows in their order, and the source's."""
    table = pa.ipc.open_file(pa.memory_map(path)).read_all()
    return table["row"].to_numpy(), table["source"].to_numpy()


def _paired(found: list[tuple[str, str, int, int]]) -> pa.RecordBatch:
    columns = list(zip(*found, strict=True)) if found else [(), (), (), ()]
    types = (pa.string(), pa.string(), pa.int64(), pa.int64())
    arrays = [pa.array(column, data_type) for column, data_type in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, ["file", "path", "pairs", "rows"])
