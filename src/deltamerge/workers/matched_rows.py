"""Rows of the source and of the target side by side, for Spark to evaluate clauses over them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.workers.file_columns import Asked, read_row_groups
from deltamerge.workers.files import Files
from deltamerge.workers.row_pairs import NO_SOURCE, RowPairs, read_pairs
from deltamerge.workers.source_parts import RowGroup, SourceOpener, SourcePart
from deltamerge.workers.staged_rows import StagedRows, taken

Among: TypeAlias = Literal["all", "changing", "valued"]
"""Which pairs: all, those that a clause takes, or those of which values are computed."""
Place: TypeAlias = Literal["file", "row", "source", "clause", "values", "row_id"]
"""What a column says of a pair: its file, the position there, the numbers of source row, clause and row of values."""

_ROWS_AT_ONCE = 100_000
# Less than the offsets of a string array address.
_MOST_STRING_BYTES = 1 << 30
_ROW_ID = "row_id"
# Before the names of columns that belong to neither side.
_OF_PAIR = "pair:"
_AMONG: Mapping[Among, Callable[[RowPairs], RowPairs]] = {
    "all": lambda pairs: pairs,
    "changing": lambda pairs: pairs.changing,
    "valued": lambda pairs: pairs.valued,
}


def pairing_rows(
    files: Files,
    staged: StagedRows,
    source: Sequence[str],
    target: Asked,
    rest: Mapping[str, Place],
    *,
    among: Among,
    row_id: str | None = None,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that reads the rows of pairs, for ``mapInArrow``.

    Args:
        rest: By their names the columns after those of both sides.
        row_id: The hidden column of files with rows' ids; None without row tracking.

    Returns:
        A function over batches of ``path``, ``file``, ``values`` (its partition values, JSON), ``pairs``, ``exchanged``
        (where the source's rows of the pairs are, if they were brought together, JSON) and, with row tracking,
        ``row_id`` (the id of the first row), a row a file. For each pair it returns the source's columns
        (NULL where nothing matches the row), the target's and the rest.
    """

    def pair(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opener = SourceOpener(files, staged, source, _combined)
        for batch in batches:
            first_ids = [None] * batch.num_rows if row_id is None else batch.column("row_id").to_pylist()
            given = zip(*(column.to_pylist() for column in batch.columns[:5]), first_ids, strict=True)
            for path, file, values, pairs_path, exchanged, first_id in given:
                pairs = _AMONG[among](read_pairs(files, pairs_path))
                part = opener.part_with(pairs.matched_sources, [RowGroup(*group) for group in json.loads(exchanged)])
                asked = target if row_id is None else {**target, _ROW_ID: (row_id, pa.int64())}
                for table in _rows_of(files, path, json.loads(values), pairs, part, asked):
                    both = {name: table[name] for name in (*source, *target)}
                    places = {name: _place(place, table, file, first_id) for name, place in rest.items()}
                    whole = pa.table({**both, **places})
                    yield from whole.to_batches(_ROWS_AT_ONCE)

    return pair


def _place(place: Place, table: pa.Table, file: str, first_id: int | None) -> Any:  # noqa: ANN401
    if place == "file":
        return pa.repeat(pa.scalar(file, pa.string()), len(table))
    if place != _ROW_ID:
        return table[f"{_OF_PAIR}{place}"]
    ids = table[_ROW_ID]
    return ids if first_id is None else pc.coalesce(ids, pc.add(table[f"{_OF_PAIR}row"], first_id))


def _rows_of(
    files: Files, path: str, values: dict[str, str | None], pairs: RowPairs, part: SourcePart, target: Asked
) -> Iterator[pa.Table]:
    def needed(first: int, end: int) -> bool:
        begin, stop = np.searchsorted(pairs.rows, [first, end])
        return bool(begin < stop)

    for first, table in read_row_groups(files, path, values, target, needed):
        begin, end = np.searchsorted(pairs.rows, [first, first + len(table)])
        # The strings of few source rows, taken for all rows of a group, may be more than an array holds.
        for at in range(begin, end, _ROWS_AT_ONCE):
            some = pairs.among(slice(at, min(at + _ROWS_AT_ONCE, end)))
            # A row that nothing matches takes the place behind the last row, which is NULL.
            is_missing = some.sources == NO_SOURCE
            sources = pa.array(some.sources, pa.int64(), mask=is_missing)
            found = np.zeros(len(is_missing), np.int64)
            found[~is_missing] = part.places(some.sources[~is_missing])
            places = pa.array(found, pa.int64(), mask=is_missing)
            columns = {name: _taken_in_pieces(part.rows.column(name), places) for name in part.rows.column_names}
            columns |= {name: taken(table[name], some.rows - first) for name in target}
            columns |= {f"{_OF_PAIR}row": some.rows, f"{_OF_PAIR}source": sources, f"{_OF_PAIR}clause": some.clauses}
            if some.values is not None:
                columns[f"{_OF_PAIR}values"] = some.values
            yield pa.table(columns)


def _combined(table: pa.Table) -> pa.Table:
    """Return a table with its columns in one piece each, but for nested ones, whose strings one may not hold."""
    flat = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    combined = table.select(flat).combine_chunks()
    return pa.table({name: (combined if name in flat else table).column(name) for name in table.column_names})


def _taken_in_pieces(column: Any, places: pa.Array) -> Any:  # noqa: ANN401
    """Return some rows of a column, in several arrays where one would not hold their strings."""
    kind = column.type
    is_nested = pa.types.is_nested(kind)
    if not len(places) or not (is_nested or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return column.take(places)
    at_once = _rows_of_nested(column, places) if is_nested else _rows_of_strings(column)
    # Arrow would put several pieces together first, which may be more than it addresses.
    take = partial(_taken_of_pieces, column) if is_nested or column.num_chunks > 1 else column.take
    pieces = [take(places.slice(at, at_once)) for at in range(0, len(places), at_once)]
    return (
        pieces[0]
        if len(pieces) == 1
        else pa.chunked_array([chunk for piece in pieces for chunk in getattr(piece, "chunks", [piece])], kind)
    )


def _rows_of_strings(column: Any) -> int:  # noqa: ANN401
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    return max(1, _MOST_STRING_BYTES // max(1, longest))


def _rows_of_nested(column: Any, places: pa.Array) -> int:  # noqa: ANN401
    """Return how many rows an array holds: each is taken as often as the most frequent one at most."""
    most = int(np.bincount(places.drop_null().to_numpy(), minlength=1).max())
    size = max(1, column.nbytes)
    return len(places) if most * size <= _MOST_STRING_BYTES else max(1, _MOST_STRING_BYTES // size)


def _taken_of_pieces(column: Any, places: pa.Array) -> Any:  # noqa: ANN401
    found = taken(column, places.drop_null().to_numpy())
    if not places.null_count:
        return found
    is_valid = places.is_valid().to_numpy(zero_copy_only=False)
    return found.take(pa.array(np.cumsum(is_valid) - 1, mask=~is_valid))


def reading_staged(
    files: Files, staged: StagedRows, source: Sequence[str], number: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that reads rows of the source, for ``mapInArrow``.

    Returns:
        A function over batches of ``first`` and ``end``, a row a range of rows.
    """

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opener = SourceOpener(files, staged, source)
        for batch in batches:
            for first, end in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                part = opener.part_with(np.arange(first, end)).between(first, end)
                numbered = part.rows.append_column(number, pa.array(part.numbers))
                yield from numbered.combine_chunks().to_batches(_ROWS_AT_ONCE)

    return read
