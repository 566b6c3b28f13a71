"""Statistics are read once: what a table is asked later is answered as if it were asked first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest

from deltamerge.log.actions import AddFile
from deltamerge.log.file_table import FileTable
from deltamerge.log.schema import PrimitiveType, StructField, StructType
from deltamerge.skipping import pruning
from deltamerge.skipping.columns import TargetColumn
from deltamerge.skipping.predicates import And, ColumnRef, Comparison, IsNull, Or, Predicate
from deltamerge.skipping.pruning import extents, files_that_may_match
from deltamerge.skipping.statistics import FileStatistics, read_statistics

SCHEMA = StructType(
    (
        StructField("day", PrimitiveType("integer"), True, {}),
        StructField("number", PrimitiveType("long"), True, {}),
        StructField("name", PrimitiveType("string"), True, {}),
        StructField("price", PrimitiveType("decimal(38,2)"), True, {}),
    )
)


def file(number: int) -> AddFile:
    low, high = {"number": number, "name": f"n{number}"}, {"number": number + 5, "name": f"n{number}x"}
    document = {
        "numRecords": 10,
        "minValues": {**low, "price": number / 4},
        "maxValues": {**high, "price": number},
        "nullCount": {"number": number % 2, "name": 0, "price": 0},
    }
    # Some have no statistics, so that they may match anything.
    stats = None if number % 7 == 3 else json.dumps(document)
    return AddFile(f"f{number}", {"day": str(number % 4)}, 1, 1, stats=stats)


def column(name: str) -> ColumnRef:
    return ColumnRef((name,))


def is_day(day: int) -> Comparison:
    return Comparison("=", column("day"), day, "int")


NUMBER = Comparison("<", column("number"), 12, "bigint")
NAME = Comparison(">=", column("name"), "n3", "string")
PRICE = Comparison(">", column("price"), 30, "int")
PREDICATES: dict[str, Predicate] = {
    "of one day": And((is_day(1), NUMBER)),
    "of another": And((is_day(2), NUMBER, NAME)),
    "of all": Or((NUMBER, PRICE)),
    "of texts": Or((And((is_day(3), NAME)), IsNull(column("number")))),
}


def kept(files: FileTable, name: str) -> list[int]:
    return np.flatnonzero(files_that_may_match(PREDICATES[name], files, SCHEMA, ["day"], "UTC")).tolist()


@pytest.mark.parametrize("order", permutations(PREDICATES), ids=" - ".join)
def test_answers_do_not_depend_on_what_was_asked_before(order: tuple[str, ...]) -> None:
    files = [file(number) for number in range(40)]
    table = FileTable.from_add_files(files)
    answers = {name: kept(table, name) for name in order}
    assert answers == {name: kept(FileTable.from_add_files(files), name) for name in order}
    assert all(0 < len(answer) < 40 for answer in answers.values())


def test_extents_of_some_files_after_others() -> None:
    files = [file(number) for number in range(40)]
    table = FileTable.from_add_files(files)
    paths = [("number",), ("name",)]
    for day in range(4):
        among = np.array([number % 4 == day for number in range(40)])
        last = max(number for number in range(day, 40, 4) if number % 7 != 3)
        found = extents(paths, table, SCHEMA, ["day"], "UTC", among)
        assert found["number",] == (min(n for n in range(day, 40, 4) if n % 7 != 3), last + 5)
        assert found == extents(paths, FileTable.from_add_files(files), SCHEMA, ["day"], "UTC", among)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tells how many texts were parsed each time."""
    sizes: list[int] = []

    def counted(stats: pa.ChunkedArray, columns: Sequence[TargetColumn]) -> FileStatistics:
        sizes.append(len(stats))
        return read_statistics(stats, columns)

    monkeypatch.setattr(pruning, "read_statistics", counted)
    return sizes


def test_texts_are_parsed_once(read: list[int]) -> None:
    table = FileTable.from_add_files([file(number) for number in range(40)])
    for name in ("of one day", "of one day", "of another", "of all", "of another"):
        kept(table, name)
    # A day each, of the second day two columns; then what is left of all, once.
    assert read == [10, 10, 40]


@pytest.mark.parametrize("asked", [[], ["of one day"], ["of one day", "of another"], ["of all", "of texts"]])
def test_the_next_versions_start_with_what_was_read(read: list[int], asked: list[str]) -> None:
    """Files 3 to 12 leave the table, others come, and at last some of these leave it."""
    table = FileTable.from_add_files([file(number) for number in range(40)])
    for name in asked:
        kept(table, name)
    more = FileTable.from_add_files([file(number) for number in range(40, 60)])
    table = table.at_next_version(np.array([not 3 <= n <= 12 for n in range(40)]), more.arrow)
    numbers = [n for n in range(60) if not 3 <= n <= 12]
    assert table.paths() == [f"f{n}" for n in numbers]
    for left in (numbers, [n for n in numbers if n % 3]):
        table = table.at_next_version(np.isin(numbers, left), more.arrow[:0])
        del read[:]
        answers = {name: kept(table, name) for name in PREDICATES}
        read_for_them = sum(read)
        fresh = FileTable.from_add_files([file(n) for n in left])
        assert answers == {name: kept(fresh, name) for name in PREDICATES}
        numbers = left
    # The last version had all of it from the one before.
    assert read_for_them == 0


def test_only_new_files_are_read(read: list[int]) -> None:
    table = FileTable.from_add_files([file(number) for number in range(40)])
    kept(table, "of all")
    more = FileTable.from_add_files([file(number) for number in range(40, 43)])
    kept(table.at_next_version(np.ones(40, np.bool_), more.arrow), "of all")
    assert read == [40, 3]
