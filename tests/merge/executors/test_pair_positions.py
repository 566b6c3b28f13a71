"""What the driver finds in the pairs of a key lookup, one file's at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyroaring import BitMap64

from deltamerge.log.actions import AddFile
from deltamerge.merge.executors.key_matching import Pairs, fires_twice
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.row_pairs import (
    NO_CLAUSE,
    NO_SOURCE,
    NO_VALUES,
    SKIPPED,
    RowPairs,
    by_source_number,
    write_pairs,
)


def pairs_of(folder: Path, name: str, *found: tuple[int, int, int]) -> Pairs:
    """Keeps the pairs of a file: its row, the source's, and the clause."""
    rows, sources, clauses = (np.array(column, np.int64) for column in zip(*found, strict=True))
    path = write_pairs(LOCAL_FILES, str(folder), RowPairs(rows, sources, clauses.astype(np.int32)))
    file = AddFile(path=name, partition_values={}, size=1, modification_time=0, data_change=True, stats=None)
    return Pairs(file, LOCAL_FILES, path, *4 * (len(rows),), {})


@pytest.fixture
def found(tmp_path: Path) -> list[Pairs]:
    return [
        pairs_of(tmp_path, "a", (0, 3, 0), (2, 1, NO_CLAUSE), (5, 0, 1), (6, NO_SOURCE, by_source_number(0))),
        pairs_of(tmp_path, "b", (1, 4, 0), (3, 2, SKIPPED), (4, NO_SOURCE, by_source_number(SKIPPED))),
    ]


def test_positions(found: list[Pairs]) -> None:
    assert [pairs.changed for pairs in found] == [BitMap64([0, 5, 6]), BitMap64([1])]


def test_source_rows_in_several_pairs(found: list[Pairs], tmp_path: Path) -> None:
    assert not fires_twice(found, 5)
    assert not fires_twice([], 0)
    assert fires_twice([*found, pairs_of(tmp_path, "c", (0, 3, 0))], 5)
    assert fires_twice([pairs_of(tmp_path, "d", (0, 1, 0), (1, 1, 0))], 2)


@pytest.mark.parametrize(
    ("values", "first"),
    [
        (None, []),
        ([NO_VALUES, NO_VALUES], []),
        ([4, NO_VALUES, 5, 6], [0, 2, 3]),
        ([NO_VALUES, 7, 7, 8, 7, NO_VALUES, 8, 9, 7], [1, 3, 7]),
    ],
)
def test_first_pair_of_each_row_of_values(values: list[int] | None, first: list[int]) -> None:
    rows = np.arange(0 if values is None else len(values))
    pairs = RowPairs(rows, rows, rows, None if values is None else np.array(values))
    assert pairs.valued.rows.tolist() == first
