"""The partitions of changed and new rows, found in the staged rows of the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from deltamerge.log.actions import AddFile
from deltamerge.merge.executors.key_matching import Pairs
from deltamerge.merge.executors.partitions import moved_rows, partitions_of
from deltamerge.merge.limits import LIMITS
from deltamerge.merge.plan import Declined
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.new_rows import InsertedRows
from deltamerge.workers.row_pairs import MOVED, NO_CLAUSE, RowPairs, counts_by_clause, read_numbers, write_pairs
from deltamerge.workers.row_values import ClauseRows
from deltamerge.workers.staged_rows import STAGED_SUFFIX, StagedFile, StagedRows

DAY = date(2024, 2, 29)


class Lookup:
    """A lookup in a table that is partitioned by ``p`` and ``day``, which its files name ``pp`` and ``day``."""

    def __init__(self, folder: Path, rows: Mapping[str, Sequence[Any]], **staged: Any) -> None:
        self.folder = folder
        self.staged: Any = SimpleNamespace(
            rows=self.stage("rows", rows),
            row_count=len(next(iter(rows.values()))),
            bytes=1,
            columns=SimpleNamespace(**staged),
        )
        self.execution: Any = SimpleNamespace(
            files=LOCAL_FILES,
            scratch=str(folder),
            limits=LIMITS,
            snapshot=SimpleNamespace(metadata=SimpleNamespace(partition_columns=("p", "day"))),
            write_target=SimpleNamespace(physical_partition_columns=("pp", "day"), records_per_file=2),
            plan=SimpleNamespace(changed_rows=SimpleNamespace(choice="arrow")),
        )
        self.recipe: Any = SimpleNamespace(
            clauses=SimpleNamespace(moving={}),
            pair_values=SimpleNamespace(names=frozenset()),
            table=SimpleNamespace(
                not_null=frozenset({("day",)}),
                columns={"p": pa.field("pp", pa.string()), "day": pa.field("day", pa.date32())},
            ),
        )

    def stage(self, name: str, rows: Mapping[str, Sequence[Any]]) -> StagedRows:
        path = str(self.folder / f"{name}{STAGED_SUFFIX}")
        LOCAL_FILES.write_arrow(path, [pa.table(dict(rows))])
        return StagedRows((StagedFile(path, len(next(iter(rows.values())))),))

    def pairs(self, p: str | None, rows: RowPairs) -> Pairs:
        values = {"pp": p, "day": "2024-02-29"}
        file = cast(AddFile, SimpleNamespace(partition_values=values))
        path = write_pairs(LOCAL_FILES, str(self.folder), rows)
        return Pairs(file, LOCAL_FILES, path, *4 * (len(rows.rows),), counts_by_clause(rows))


def row_pairs(rows: Sequence[int], sources: Sequence[int], clauses: Sequence[int]) -> RowPairs:
    return RowPairs(*(np.array(numbers, np.int64) for numbers in (rows, sources, clauses)))


def found(pairs: Pairs) -> list[tuple[int, int, int]]:
    of_file = pairs.read()
    return list(zip(of_file.rows.tolist(), of_file.sources.tolist(), of_file.clauses.tolist(), strict=True))


def test_rows_that_go_to_another_partition(tmp_path: Path) -> None:
    lookup = Lookup(tmp_path, {"sp": ["a", "b", "", None]}, updates={0: ClauseRows({"p": "sp"}), 1: ClauseRows({})})
    lookup.recipe.clauses.moving = {0: ("p",)}
    of_a = lookup.pairs("a", row_pairs([1, 3, 4, 6, 7], [0, 1, 2, 3, 0], [0, 0, 0, 1, NO_CLAUSE]))
    of_b = lookup.pairs("b", row_pairs([5], [1], [0]))
    (stay, same), moved = moved_rows(cast(Any, lookup), [of_a, of_b], None)
    assert found(stay) == [(1, 0, 0), (3, 1, MOVED), (4, 2, MOVED), (6, 3, 1)]
    assert stay.rows_by_clause == {0: 1, 1: 1, MOVED: 2}
    assert same is of_b
    null = "pp=__HIVE_DEFAULT_PARTITION__/day=2024-02-29/"
    assert {at: [found(pairs) for pairs in there] for at, there in moved.items()} == {
        "pp=b/day=2024-02-29/": [[(3, 1, 0)]],
        null: [[(4, 2, 0)]],
    }


def test_values_that_were_computed_of_pairs(tmp_path: Path) -> None:
    lookup = Lookup(tmp_path, {"sp": ["x"]}, updates={-2: ClauseRows({"p": "computed", "day": "then"})})
    lookup.recipe.clauses.moving = {-2: ("p", "day")}
    lookup.recipe.pair_values.names = frozenset({"computed", "then"})
    values = lookup.stage("values", {"computed": ["b", "a"], "then": [DAY, date(1, 1, 1)]})
    rows = replace(row_pairs([0, 1], [-1, -1], [-2, -2]), values=np.array([1, 0]))
    (stay,), moved = moved_rows(cast(Any, lookup), [lookup.pairs("b", rows)], values)
    assert found(stay) == [(0, -1, MOVED), (1, -1, -2)]
    ((there,),) = moved.values()
    assert list(moved) == ["pp=a/day=0001-01-01/"]
    assert there.read().values is not None
    assert found(there) == [(0, -1, -2)]


@pytest.mark.parametrize("day", [None, 4_000_000])
def test_days_that_a_partition_never_has_and_that_python_lacks(tmp_path: Path, day: int | None) -> None:
    days = pa.array([day], pa.int32()).cast(pa.date32())
    lookup = Lookup(tmp_path, {"then": cast(Any, days)}, updates={0: ClauseRows({"day": "then"})})
    lookup.recipe.clauses.moving = {0: ("day",)}
    pairs = [lookup.pairs("a", row_pairs([0], [0], [0]))]
    if day is None:
        with pytest.raises(Declined, match="would be NULL"):
            moved_rows(cast(Any, lookup), pairs, None)
    else:
        assert list(moved_rows(cast(Any, lookup), pairs, None)[1]) == ["pp=a/day=+12921-08-18/"]


def test_strings_that_are_not_utf_8_are_left_to_spark(tmp_path: Path) -> None:
    strings = pa.array([b"\xff"], pa.binary()).cast(pa.string(), safe=False)
    lookup = Lookup(tmp_path, {"sp": cast(Any, strings)}, updates={0: ClauseRows({"p": "sp"})})
    lookup.recipe.clauses.moving = {0: ("p",)}
    with pytest.raises(Declined, match="not UTF-8"):
        moved_rows(cast(Any, lookup), [lookup.pairs("a", row_pairs([0], [0], [0]))], None)


def test_new_rows_are_listed_by_partition(tmp_path: Path) -> None:
    source: dict[str, list[Any]] = {
        "sp": ["a", "b", "a", "a", "c", "a"],
        "other": ["d"] * 6,
        "then": [DAY] * 6,
        "by": [0, 0, 0, 0, 1, 2],
    }
    inserts = {0: ClauseRows({"p": "sp", "day": "then"}), 1: ClauseRows({"p": "other", "day": "then"})}
    lookup = Lookup(tmp_path, source, inserts=inserts, clause="by")
    matched = lookup.pairs("a", row_pairs([9], [2], [NO_CLAUSE]))
    moved = lookup.pairs("x", row_pairs([1], [2], [0]))
    folders = {name: f"pp={name}/day=2024-02-29/" for name in "abd"}
    partitions = partitions_of(cast(Any, lookup), [matched], [matched], {folders["b"]: [moved]})
    order = read_numbers(LOCAL_FILES, partitions.order).tolist()
    rows = {p.folders: [order[rows.first : rows.end] for rows in p.inserted] for p in partitions.each}
    assert rows == {folders["a"]: [[0, 3]], folders["b"]: [[1]], folders["d"]: [[4]]}
    assert {p.folders: (p.pairs, p.moved, p.rows) for p in partitions.each} == {
        folders["a"]: ((matched,), (), 2),
        folders["b"]: ((), (moved,), 1),
        folders["d"]: ((), (), 1),
    }


def test_so_many_rows_are_several_files(tmp_path: Path) -> None:
    source: dict[str, list[Any]] = {"sp": ["a"] * 5, "then": [DAY] * 5}
    lookup = Lookup(tmp_path, source, inserts={0: ClauseRows({"p": "sp", "day": "then"})}, clause=None)
    (partition,) = partitions_of(cast(Any, lookup), [], [], {}).each
    assert partition.inserted == (InsertedRows(0, 1), InsertedRows(1, 3), InsertedRows(3, 5))
    lookup.execution.limits = replace(LIMITS, partitions=0)
    with pytest.raises(Declined, match="rows go to more than 0 partitions"):
        partitions_of(cast(Any, lookup), [], [], {})
