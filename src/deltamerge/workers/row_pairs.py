"""Pairs of rows of a file of the target and source rows, kept in files."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from deltamerge.workers.files import Files

# In the place of a clause's number: no clause takes the pair.
NO_CLAUSE = -1
# In the place of a source row: nothing matches the row.
NO_SOURCE = -1
# From this number on, and below its negative for BY SOURCE clauses, the number of a clause that only has its rows
# counted: the UPDATE after it would leave them as they are.
SKIPPED = 1 << 20
# In the place of a clause's number: the row is updated, and goes to another partition.
MOVED = SKIPPED - 1
# In the place of a row of values: nothing was computed of the pair.
NO_VALUES = -1


@dataclass(frozen=True)
class RowPairs:
    """Pairs of rows of one file and source rows, by the file's rows, and rows that a BY SOURCE clause takes.

    Args:
        sources: For each the source's row, or `NO_SOURCE`.
        clauses: For each the number of the MATCHED clause that takes the pair, `by_source_number` of the BY SOURCE
            clause that takes the row, `NO_CLAUSE` or `MOVED`.
        values: For each the row of what was computed of it, or `NO_VALUES`; None where that is so for all. Several
            may have the same row, whose number is then higher than those of all rows that come first before it.
    """

    rows: np.ndarray[Any, Any]
    sources: np.ndarray[Any, Any]
    clauses: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any] | None = None

    @property
    def is_changing(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        found: np.ndarray[Any, np.dtype[np.bool_]] = (self.clauses != NO_CLAUSE) & (np.abs(self.clauses) < SKIPPED)
        return found

    @property
    def changing(self) -> RowPairs:
        return self.among(self.is_changing)

    @property
    def valued(self) -> RowPairs:
        """The first pair of each row of values."""
        if self.values is None:
            return self.among(slice(0))
        highest = np.maximum.accumulate(self.values)
        return self.among(np.diff(highest, prepend=NO_VALUES) > 0)

    @property
    def matched_sources(self) -> np.ndarray[Any, Any]:
        """The source's rows that match one of the file, once for each that they match."""
        found: np.ndarray[Any, Any] = self.sources[self.sources != NO_SOURCE]
        return found

    def of_clause(self, number: int) -> RowPairs:
        return self.among(self.clauses == number)

    def among(self, wanted: np.ndarray[Any, Any] | slice) -> RowPairs:
        values = None if self.values is None else self.values[wanted]
        return RowPairs(self.rows[wanted], self.sources[wanted], self.clauses[wanted], values)


def by_source_number(number: int) -> int:
    """Return the number of a BY SOURCE clause among those of MATCHED clauses."""
    return NO_CLAUSE - 1 - number


def distinct(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the distinct ones of integers, in order."""
    # Since NumPy 2.3 np.unique puts them into a hash table, which takes far longer than to sort them.
    ordered = np.sort(numbers)
    found: np.ndarray[Any, Any] = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
    return found


def counts_by_clause(pairs: RowPairs) -> dict[int, int]:
    """Return how many rows each clause takes; of those that are skipped, the ones that no other pair changes."""
    counts, changed = dict[int, int](), pairs.changing.rows
    for number in distinct(pairs.clauses[pairs.clauses != NO_CLAUSE]):
        rows = distinct(pairs.of_clause(number).rows)
        is_skipped = abs(number) >= SKIPPED
        counts[int(number)] = int(np.isin(rows, changed, invert=True).sum()) if is_skipped else len(rows)
    return counts


def write_pairs(files: Files, folder: str, pairs: RowPairs) -> str:
    path = f"{folder}/pairs-{uuid.uuid4().hex}.arrow"
    columns = {"row": pairs.rows, "source": pairs.sources, "clause": pairs.clauses}
    if pairs.values is not None:
        columns["values"] = pairs.values
    files.write_arrow(path, [pa.table(columns)])
    return path


def write_numbers(files: Files, folder: str, numbers: Sequence[np.ndarray[Any, Any]]) -> str:
    path = f"{folder}/rows-{uuid.uuid4().hex}.arrow"
    files.write_arrow(path, [pa.table({"source": np.concatenate(numbers)})])
    return path


def read_numbers(files: Files, path: str) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = files.arrow(path).column(0).to_numpy()
    return found


def read_pairs(files: Files, path: str) -> RowPairs:
    table = files.arrow(path)
    return RowPairs(*(column.to_numpy() for column in table.columns))


def unmatched(files: Files, pairs: Sequence[str], rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return of each source row whether it matches nothing."""
    found = np.ones(rows, np.bool_)
    for of_file in files.ahead(lambda path: read_pairs(files, path), pairs, pairs):
        found[of_file.matched_sources] = False
    return found
