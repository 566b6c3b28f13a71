"""Which rows of a Parquet file have one of some keys: only the key columns are read, and joined in Arrow.

Spark's Python workers run this module by value (`deltamerge.merge.lookup`), so it imports nothing of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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
        for place in np.unique(places):
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
    for number in np.unique(numbers):
        taken = rows[numbers == number]
        bits = np.zeros(_PIECE_ROWS, np.uint8)
        bits[taken & (_PIECE_ROWS - 1)] = 1
        yield int(number), len(taken), np.packbits(bits, bitorder="little").tobytes()


def _batch(found: list[tuple[int, str | None, int, int, bytes]]) -> pa.RecordBatch:
    columns = list(zip(*found, strict=True)) if found else [(), (), (), (), ()]
    types = (pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.binary())
    arrays = [pa.array(column, data_type) for column, data_type in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, ["code", "file", "piece", "n", "bits"])
