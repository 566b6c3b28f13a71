"""Rows of the source and of the target side by side, for Spark to evaluate clauses over them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.workers.file_columns import Asked, read_row_groups
from deltamerge.workers.files import Files
from deltamerge.workers.row_pairs import NO_SOURCE, RowPairs, read_pairs
from deltamerge.workers.staged_rows import KeptRows, open_staged, taken

_ROWS_AT_ONCE = 100_000
_ROW_ID = "row_id"


def pairing_rows(
    files: Files,
    staged: KeptRows,
    source: Sequence[str],
    target: Asked,
    rest: Sequence[str],
    *,
    changing: bool,
    row_id: str | None = None,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that reads the rows of pairs, for ``mapInArrow``.

    Args:
        rest: The names of the columns after those of both sides.
        row_id: The hidden column of files with rows' ids; None without row tracking.

    Returns:
        A function over batches of ``path``, ``file``, ``values`` (its partition values, JSON), ``pairs`` and, with row
        tracking, ``row_id`` (the id of the first row), a row a file. For each pair it returns the source's columns
        (NULL where nothing matches the row), the target's, the file, the row's position in it, the source row's number
        and, with row tracking, the row's id.
    """

    def pair(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: pa.Table | None = None
        for batch in batches:
            first_ids = [None] * batch.num_rows if row_id is None else batch.column("row_id").to_pylist()
            given = zip(*(column.to_pylist() for column in batch.columns[:4]), first_ids, strict=True)
            for path, file, values, pairs_path, first_id in given:
                rows = open_staged(files, staged, source).combine_chunks() if rows is None else rows
                pairs = read_pairs(files, pairs_path)
                pairs = pairs.changing if changing else pairs
                asked = target if row_id is None else {**target, _ROW_ID: (row_id, pa.int64())}
                for table in _rows_of(files, path, json.loads(values), pairs, rows, asked):
                    names = pa.repeat(pa.scalar(file, pa.string()), len(table))
                    places = {"file": names, "row": table["row"], "source": table["source"]}
                    if row_id is not None:
                        places[_ROW_ID] = _ids(table, first_id)
                    both = {name: table[name] for name in (*source, *target)}
                    whole = pa.table({**both, **dict(zip(rest, places.values(), strict=True))})
                    yield from whole.to_batches(_ROWS_AT_ONCE)

    return pair


def _ids(table: pa.Table, first_id: int | None) -> Any:  # noqa: ANN401
    return table[_ROW_ID] if first_id is None else pc.coalesce(table[_ROW_ID], pc.add(table["row"], first_id))


def _rows_of(
    files: Files, path: str, values: dict[str, str | None], pairs: RowPairs, rows: pa.Table, target: Asked
) -> Iterator[pa.Table]:
    def needed(first: int, end: int) -> bool:
        begin, stop = np.searchsorted(pairs.rows, [first, end])
        return bool(begin < stop)

    for table in read_row_groups(files, path, values, target, needed):
        first = table["row"][0].as_py()
        of_group = pairs.among(slice(*np.searchsorted(pairs.rows, [first, first + len(table)])))
        # A row that nothing matches takes the place behind the last row, which is NULL.
        places = pa.array(of_group.sources, pa.int64(), mask=of_group.sources == NO_SOURCE)
        columns = {name: rows.column(name).take(places) for name in rows.column_names}
        columns |= {name: taken(table[name], of_group.rows - first) for name in target}
        yield pa.table({**columns, "row": of_group.rows, "source": places})


def reading_staged(
    files: Files, staged: KeptRows, source: Sequence[str], number: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that reads rows of the source, for ``mapInArrow``.

    Returns:
        A function over batches of ``first`` and ``end``, a row a range of rows.
    """

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for first, end in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                rows = open_staged(files, staged, source).slice(first, end - first)
                numbered = rows.append_column(number, pa.array(np.arange(first, end)))
                yield from numbered.combine_chunks().to_batches(_ROWS_AT_ONCE)

    return read
