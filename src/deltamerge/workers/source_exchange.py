"""Source rows brought together by the file for which they are taken, as a shuffle does.

Without it each task would read nearly all of a source whose rows are in another order than the table's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from deltamerge.workers.answers import answer
from deltamerge.workers.files import Files
from deltamerge.workers.left_to_spark import leaving_to_spark
from deltamerge.workers.row_pairs import NO_SOURCE, distinct
from deltamerge.workers.source_parts import ROW_NUMBER, SourceOpener
from deltamerge.workers.staged_rows import REMOTE_SUFFIX, StagedRows, taken

_Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

EXCHANGED_SCHEMA = "destination BIGINT, first BIGINT, path STRING, row_group BIGINT"
"""A destination by its place, the first row of the range that was read, and a row group with rows for it."""


@dataclass(frozen=True)
class Destination:
    """For what source rows are taken.

    Args:
        path: A file of Arrow whose column ``source`` has their numbers.
        first: The first of the column's values that count.
        end: The one after the last.
    """

    path: str
    first: int
    end: int


def exchanging(
    files: Files, staged: StagedRows, columns: Sequence[str], destinations: Sequence[Destination], folder: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that writes row groups of source rows by destination, for ``mapInArrow``.

    Args:
        columns: The columns of the source that are written.

    Returns:
        A function over batches of ``first`` and ``end``, a row a range of source rows. It returns a row of
        `EXCHANGED_SCHEMA` for each row group; its rows are in the source's order, with `ROW_NUMBER`.
    """

    def exchange(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ranges = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        if not ranges:
            return
        paths = list(dict.fromkeys(destination.path for destination in destinations))
        numbers = files.ahead(lambda path: files.arrow(path)["source"].to_numpy(), paths, paths)
        read = dict(zip(paths, numbers, strict=True))
        wanted = [_rows_for(destination, read[destination.path]) for destination in destinations]
        for first, end in ranges:
            with leaving_to_spark("the source"):
                found = _exchanged(files, staged, columns, wanted, folder, first, end)
            yield answer(EXCHANGED_SCHEMA, *found)

    return exchange


def _rows_for(destination: Destination, numbers: _Numbers) -> _Numbers:
    numbers = numbers[destination.first : destination.end]
    return distinct(numbers[numbers != NO_SOURCE])


def _exchanged(
    files: Files,
    staged: StagedRows,
    columns: Sequence[str],
    wanted: Sequence[_Numbers],
    folder: str,
    first: int,
    end: int,
) -> list[dict[str, Any]]:
    """Write those of a range's rows that some destination takes."""
    in_range = (rows[slice(*np.searchsorted(rows, [first, end]))] for rows in wanted)
    some = {number: rows for number, rows in enumerate(in_range) if len(rows)}
    if not some:
        return []
    part = SourceOpener(files, staged, columns).part_with(np.concatenate(list(some.values())))

    def groups() -> Iterator[pa.Table]:
        for numbers in some.values():
            places = part.places(numbers)
            table = pa.table({name: taken(part.rows.column(name), places) for name in columns})
            yield table.append_column(ROW_NUMBER, pa.array(numbers))

    path = f"{folder}/exchanged-{uuid.uuid4().hex}{REMOTE_SUFFIX}"
    files.write_row_groups(path, groups())
    return [
        {"destination": number, "first": first, "path": path, "row_group": group} for group, number in enumerate(some)
    ]
