"""Rows of the source and of the target side by side, for Spark to evaluate clauses over them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.workers.file_columns import Asked, read_row_groups
from deltamerge.workers.files import Files
from deltamerge.workers.left_to_spark import leaving_to_spark
from deltamerge.workers.row_pairs import NO_SOURCE, RowPairs, read_pairs
from deltamerge.workers.source_parts import RowGroup, SourceOpener, SourcePart
from deltamerge.workers.staged_rows import StagedRows, taken

_ROWS_AT_ONCE = 100_000
# Less than the offsets of a string array address.
_MOST_STRING_BYTES = 1 << 30
# Of neither side.
_VALUES, _CLAUSE = "pair:values", "pair:clause"


def pairing_rows(
    files: Files, staged: StagedRows, source: Sequence[str], target: Asked, number: str, clause: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that reads the rows of pairs of which values are computed, for ``mapInArrow``.

    Args:
        number: The column with the number of the pair's row of values.
        clause: The column with the code of the clause that takes the pair, as far as that is known.

    Returns:
        A function over batches of ``path``, ``values`` (its partition values, JSON), ``pairs`` and ``exchanged``
        (where the source's rows of the pairs are, if they were brought together, JSON), a row a file. For each pair it
        returns the source's columns (NULL where nothing matches the row), the target's, the number and the clause.
    """

    def pair(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opener = SourceOpener(files, staged, source, _combined)
        for batch in batches:
            given = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            for path, values, pairs_path, exchanged in given:
                pairs = read_pairs(files, pairs_path).valued
                with leaving_to_spark(f"the source and of {path}"):
                    part = opener.part_with(
                        pairs.matched_sources, [RowGroup(*group) for group in json.loads(exchanged)]
                    )
                    for columns in _rows_of(files, path, json.loads(values), pairs, part, target):
                        numbered = {name: columns[name] for name in (*source, *target)}
                        whole = pa.table({**numbered, number: columns[_VALUES], clause: columns[_CLAUSE]})
                        yield from whole.to_batches(_ROWS_AT_ONCE)

    return pair


def _rows_of(
    files: Files, path: str, values: dict[str, str | None], pairs: RowPairs, part: SourcePart, target: Asked
) -> Iterator[dict[str, Any]]:
    def needed(first: int, end: int) -> bool:
        begin, stop = np.searchsorted(pairs.rows, [first, end])
        return bool(begin < stop)

    for first, table in read_row_groups(files, path, values, target, needed):
        begin, end = np.searchsorted(pairs.rows, [first, first + len(table)])
        # The strings of few source rows, taken for all rows of a group, may be more than an array holds.
        for at in range(begin, end, _ROWS_AT_ONCE):
            some = pairs.among(slice(at, min(at + _ROWS_AT_ONCE, end)))
            assert some.values is not None
            # A row that nothing matches takes the place behind the last row, which is NULL.
            is_missing = some.sources == NO_SOURCE
            found = np.zeros(len(is_missing), np.int64)
            found[~is_missing] = part.places(some.sources[~is_missing])
            places = pa.array(found, pa.int64(), mask=is_missing)
            columns = {name: _taken_in_pieces(part.rows.column(name), places) for name in part.rows.column_names}
            columns |= {name: _taken_in_pieces(table[name], pa.array(some.rows - first)) for name in target}
            yield {**columns, _VALUES: some.values, _CLAUSE: some.clauses}


def _combined(table: pa.Table) -> pa.Table:
    """Return a table with its columns in one piece each, but for nested ones, whose strings one may not hold."""
    flat = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    combined = table.select(flat).combine_chunks()
    return pa.table({name: (combined if name in flat else table).column(name) for name in table.column_names})


def _taken_in_pieces(column: Any, places: pa.Array) -> Any:  # noqa: ANN401
    """Return some rows of a column, in several arrays where one would not hold their strings."""
    kind = column.type
    is_nested = pa.types.is_nested(kind)
    if places.null_count == len(places) or not (is_nested or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return column.take(places)
    if is_nested:
        pieces = list(_nested_pieces(column, places, max(1, len(column) * _MOST_STRING_BYTES // max(1, column.nbytes))))
    else:
        # Arrow would put several pieces together first, which may be more than it addresses.
        take, at_once = (
            partial(_taken_of_pieces, column) if column.num_chunks > 1 else column.take,
            _rows_at_once(column),
        )
        pieces = [take(places.slice(at, at_once)) for at in range(0, len(places), at_once)]
    return (
        pieces[0]
        if len(pieces) == 1
        else pa.chunked_array([chunk for piece in pieces for chunk in getattr(piece, "chunks", [piece])], kind)
    )


def _rows_at_once(column: Any) -> int:  # noqa: ANN401
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    return max(1, _MOST_STRING_BYTES // max(1, longest))


def _nested_pieces(column: Any, places: pa.Array, at_once: int) -> Iterator[Any]:  # noqa: ANN401
    """Take rows of a nested column, fewer at once where they are longer than others: only Arrow knows how long."""
    for at in range(0, len(places), at_once):
        some = places.slice(at, at_once)
        try:
            yield _taken_of_pieces(column, some)
        except pa.ArrowInvalid:
            if len(some) == 1:
                raise
            yield from _nested_pieces(column, some, (len(some) + 1) // 2)


def _taken_of_pieces(column: Any, places: pa.Array) -> Any:  # noqa: ANN401
    found = taken(column, places.drop_null().to_numpy())
    if not places.null_count:
        return found
    is_valid = places.is_valid().to_numpy(zero_copy_only=False)
    return found.take(pa.array(np.cumsum(is_valid) - 1, mask=~is_valid))
