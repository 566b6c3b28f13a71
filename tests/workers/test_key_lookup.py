"""Keys looked up in files by Arrow: the same pairs as a join finds, and a reason where the types are not the keys'."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.workers.conditions import ClauseChoice, Column, Condition, Constant, Operation
from deltamerge.workers.file_columns import Asked
from deltamerge.workers.file_pairs import pairing
from deltamerge.workers.files import LOCAL_FILES, Files
from deltamerge.workers.key_index import KeyIndex, write_index
from deltamerge.workers.row_blocks import NO_BLOCKS, Blocks, block_columns, blocks_of_rows
from deltamerge.workers.row_pairs import NO_CLAUSE, NO_SOURCE, by_source_number, read_pairs
from deltamerge.workers.source_keys import ComparedKey, KeyLookup, RowChoice, comparable_keys, parts_of_keys
from deltamerge.workers.staged_rows import STAGED_SUFFIX, StagedFile, StagedRows

ID_AND_NAME = (ComparedKey("k0", "id", pa.int64()), ComparedKey("k1", "name", pa.string()))
KEYS = pa.schema([("k0", pa.int64()), ("k1", pa.string()), ("clause", pa.int32())])


@dataclass
class Found:
    """What a lookup found.

    Args:
        pairs: For each file its pairs of a row and a source row.
        clauses: For each file the clauses that take these pairs.
        counts: For each file how many pairs it has, how many a clause takes, how many rows these name.
        rows_by_clause: For each file how many rows each clause takes.
        unfit: The files, or "" for all, that cannot be read in this way, each with the reason.
    """

    pairs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    clauses: dict[str, list[int]] = field(default_factory=dict)
    counts: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    rows_by_clause: dict[str, dict[int, int]] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)


def stage(folder: Path, table: pa.Table) -> StagedRows:
    path = folder / f"source{STAGED_SUFFIX}"
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    return StagedRows((StagedFile(str(path), len(table)),))


def keys_of(rows: Sequence[tuple[int | None, str | None]], clauses: Sequence[int | None] | None = None) -> pa.Table:
    numbers = [0] * len(rows) if clauses is None else clauses
    columns = ([row[0] for row in rows], [row[1] for row in rows], numbers)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, KEYS.types, strict=True)]
    return pa.table(arrays, schema=KEYS)


def look_up(
    source: pa.Table,
    paths: Sequence[Path],
    values: Mapping[str, str | None] | None = None,
    *,
    clause: int | str | RowChoice = 0,
    by_source: RowChoice | None = None,
    unmatchable: Sequence[str] = (),
    deleted: Mapping[str, Blocks] | None = None,
    rest: Asked | None = None,
    unique: bool = False,
    keys: Sequence[ComparedKey] = ID_AND_NAME,
    on_target: RowChoice | None = None,
    on_source: RowChoice | None = None,
) -> Found:
    folder = paths[0].parent
    files = {
        "path": list(map(str, paths)),
        "file": [path.name for path in paths],
        "values": [json.dumps(values or {})] * len(paths),
        "size": [path.stat().st_size for path in paths],
        "joined": [path.name not in unmatchable for path in paths],
        **block_columns((deleted or {}).get(path.name, NO_BLOCKS) for path in paths),
    }
    staged = stage(folder, source)
    lookup = KeyLookup(staged, tuple(keys), clause, by_source, rest or {}, unique, 1_000, on_target, on_source)
    found, by_index = (
        _found(pairing(LOCAL_FILES, replace(lookup, index=index), str(folder))(pa.table(files).to_batches()))
        for index in (None, _index(folder, staged, keys, on_source))
    )
    assert by_index == found
    return found


def _index(
    folder: Path, staged: StagedRows, keys: Sequence[ComparedKey], on_source: RowChoice | None
) -> KeyIndex | None:
    try:
        parts = partial(parts_of_keys, LOCAL_FILES, staged, keys, on_source)
        rows = len(comparable_keys(LOCAL_FILES, staged, keys, on_source))
        return write_index(LOCAL_FILES, f"{folder}/keys", rows, parts)
    except (ValueError, OSError):
        return None


def _found(answers: Iterable[pa.RecordBatch]) -> Found:
    found = Found()
    for answer in answers:
        for row in answer.to_pylist():
            name = row["file"]
            if row["reason"] is not None:
                found.unfit[name] = row["reason"]
                continue
            pairs = read_pairs(LOCAL_FILES, row["path"])
            found.pairs[name] = list(zip(pairs.rows.tolist(), pairs.sources.tolist(), strict=True))
            found.clauses[name] = pairs.clauses.tolist()
            found.counts[name] = (row["pairs"], row["taken"], row["taken_rows"])
            found.rows_by_clause[name] = {int(k): n for k, n in json.loads(row["rows_by_clause"]).items()}
    return found


def write(path: Path, rows: int, start: int = 0, **options: Any) -> Path:
    ids = [None if i % 10 == 0 else i for i in range(start, start + rows)]
    names = [None if i % 7 == 0 else f"n{i}" for i in range(start, start + rows)]
    table = pa.table({"other": pa.array(range(rows), pa.int64()), "name": names, "id": pa.array(ids, pa.int64())})
    pq.write_table(table, path, **options)
    return path


def compare(op: str, column: int, value: int) -> Condition:
    return Operation(op, (Column(column, "whole"), Constant(value, "whole")))


@pytest.mark.slow
def test_positions_over_row_groups_and_files(tmp_path: Path) -> None:
    files = [write(tmp_path / "a", 70_000, row_group_size=999), write(tmp_path / "b", 50, start=70_000)]
    keys = keys_of([(3, "n3"), (33, "other"), (66_662, "n66662"), (70_001, "n70001"), (7, "n7")])
    found = look_up(keys, files)
    assert found.pairs == {"a": [(3, 0), (66_662, 2)], "b": [(1, 3)]}
    assert found.counts == {"a": (2, 2, 2), "b": (1, 1, 1)}
    assert found.rows_by_clause == {"a": {0: 2}, "b": {0: 1}}


def test_few_large_files_of_a_store_are_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, found = write(tmp_path / "a", 20), list[int]()

    def ahead(files: Files, work: Any, items: Iterable[Any], paths: object, at_once: int = 0) -> Iterator[Any]:
        found.append(at_once)
        yield from map(work, items)

    monkeypatch.setattr(Files, "ahead", ahead)
    for size, at_once in ((1, 4), (path.stat().st_size * 9, 9), (1 << 40, 16)):
        monkeypatch.setattr("deltamerge.workers.file_pairs._BYTES_AT_ONCE", size)
        found.clear()
        assert look_up(keys_of([(3, "n3")]), [path]).pairs == {"a": [(3, 0)]}
        assert at_once in found


def test_null_matches_nothing(tmp_path: Path) -> None:
    keys = keys_of([(10, "n10"), (14, "n14"), (None, "n10"), (14, None), (None, None)])
    found = look_up(keys, [write(tmp_path / "a", 20)])
    assert found == Found()


def test_source_rows_keep_their_numbers_beside_rows_with_null(tmp_path: Path) -> None:
    keys = keys_of([(None, "n3"), (3, "n3"), (4, None), (4, "n4")])
    assert look_up(keys, [write(tmp_path / "a", 20)]).pairs == {"a": [(3, 1), (4, 3)]}


def test_several_pairs_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a"
    pq.write_table(pa.table({"id": pa.array([1, 1, 2], pa.int64()), "name": ["x", "x", "x"]}), path)
    found = look_up(keys_of([(1, "x"), (1, "x")]), [path])
    assert found.counts["a"] == (4, 4, 2)
    assert found.pairs["a"] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert found.rows_by_clause["a"] == {0: 2}


def test_a_column_that_a_file_lacks_is_null(tmp_path: Path) -> None:
    path, fit = tmp_path / "a", write(tmp_path / "b", 20)
    pq.write_table(pa.table({"id": pa.array([3], pa.int64())}), path)
    assert look_up(keys_of([(3, "n3")]), [path, fit]).pairs == {"b": [(3, 0)]}


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (
            pa.table({"id": pa.array([1], pa.float64()), "name": ["x"]}),
            "column id is not int64, or its partition value is not spelled as usual",
        ),
        (
            pa.table({"id": pa.array([1], pa.int64()), "NAME": ["x"]}),
            "the file spells a column in another case",
        ),
        (
            pa.table({"id": pa.array([1], pa.int64()), "name": [b"x"]}),
            "column name is not string, or its partition value is not spelled as usual",
        ),
    ],
)
def test_other_types_are_reported(tmp_path: Path, table: pa.Table, reason: str) -> None:
    path, fit = tmp_path / "a", write(tmp_path / "b", 20)
    pq.write_table(table, path)
    assert look_up(keys_of([(3, "n3")]), [fit, path]) == Found(unfit={"a": reason})


def test_file_that_is_no_parquet_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"PAR1 or not")
    assert list(look_up(keys_of([(3, "n3")]), [path]).unfit) == ["a"]


def test_no_keys(tmp_path: Path) -> None:
    assert look_up(keys_of([]), [write(tmp_path / "a", 20)]) == Found()


UNUSUAL = "column id is not int64, or its partition value is not spelled as usual"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"id": "3"}, Found(pairs={"a": [(3, 0)]})),
        ({"id": "03"}, Found(pairs={"a": [(3, 0)]})),
        ({"id": "4"}, Found()),
        ({"id": None}, Found()),
        ({"id": ""}, Found(unfit={"a": UNUSUAL})),
        ({"id": "three"}, Found(unfit={"a": UNUSUAL})),
        ({"id": str(1 << 63)}, Found(unfit={"a": UNUSUAL})),
        ({"id": "3", "name": "n3"}, Found(pairs={"a": [(row, 0) for row in range(20)]})),
    ],
)
def test_keys_that_are_partition_columns(tmp_path: Path, values: dict[str, str | None], expected: Found) -> None:
    found = look_up(keys_of([(3, "n3")]), [write(tmp_path / "a", 20)], values)
    assert (found.pairs, found.unfit) == (expected.pairs, expected.unfit)


def test_keys_that_very_many_rows_have_in_common(tmp_path: Path) -> None:
    path, values = write(tmp_path / "a", 20), {"id": "3", "name": "n3"}
    few = look_up(keys_of([(3, "n3")] * 40), [path], values)
    assert few.counts["a"] == (800, 800, 20)
    many = keys_of([(3, "n3")] * 60)
    assert look_up(many, [path], values).unfit == {"": "few keys of many rows make very many pairs"}
    others = keys_of([*[(3, "n3")] * 60, (4, "n4")])
    found = look_up(others, [path], {"id": "4", "name": "n4"})
    assert found.counts["a"] == (20, 20, 20)
    assert found.pairs["a"][:2] == [(0, 60), (1, 60)]


def test_the_source_decides_which_clause_takes_a_pair(tmp_path: Path) -> None:
    keys = keys_of([(1, "n1"), (2, "n2"), (3, "n3"), (4, "n4")], [1, None, 0, 1])
    found = look_up(keys, [write(tmp_path / "a", 20)], clause="clause", unique=True)
    assert found.pairs["a"] == [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert found.clauses["a"] == [1, NO_CLAUSE, 0, 1]
    assert found.counts["a"] == (4, 3, 3)
    assert found.rows_by_clause["a"] == {0: 1, 1: 2}


def test_without_clauses_that_change_rows_pairs_are_found_all_the_same(tmp_path: Path) -> None:
    found = look_up(keys_of([(1, "n1"), (2, "n2")]), [write(tmp_path / "a", 20)], clause=NO_CLAUSE)
    assert found.pairs["a"] == [(1, 0), (2, 1)]
    assert (found.counts["a"], found.rows_by_clause["a"]) == ((2, 0, 0), {})


@pytest.mark.parametrize("row_group_size", [1 << 20, 3])
def test_both_rows_decide_which_clause_takes_a_pair(tmp_path: Path, row_group_size: int) -> None:
    path = write(tmp_path / "a", 20, row_group_size=row_group_size)
    source = keys_of([(1, "n1"), (2, "n2"), (9, "n9"), (19, "n19")])
    source = source.append_column("limit", pa.array([1, 1, 100, None], pa.int64()))
    newer = Operation("<=", (Column(0, "whole"), Column(5, "whole")))
    choice = RowChoice(
        ClauseChoice(((0, compare("=", 0, 2)), (1, newer)), frozenset({0, 1})),
        {"0": ("other", pa.int64())},
        {"5": "limit"},
    )
    found = look_up(source, [path], clause=choice)
    assert found.pairs["a"] == [(1, 0), (2, 1), (9, 2), (19, 3)]
    assert found.clauses["a"] == [1, 0, 1, NO_CLAUSE]
    assert found.rows_by_clause["a"] == {0: 1, 1: 2}


def test_column_of_a_condition_that_has_another_type_is_reported(tmp_path: Path) -> None:
    choice = RowChoice(ClauseChoice(((0, compare("=", 0, 2)),), frozenset({0})), {"0": ("name", pa.int64())})
    found = look_up(keys_of([(1, "n1")]), [write(tmp_path / "a", 20)], clause=choice)
    assert list(found.unfit) == ["a"]


@pytest.mark.parametrize("row_group_size", [1 << 20, 3])
def test_by_source_clauses_take_rows_without_a_match(tmp_path: Path, row_group_size: int) -> None:
    path = write(tmp_path / "a", 8, row_group_size=row_group_size)
    choice = ClauseChoice(
        ((0, compare("=", 2, 0)), (1, compare("<", 2, 3)), (2, compare(">=", 2, 6))), frozenset({1, 2})
    )
    found = look_up(keys_of([(2, "n2"), (3, "n3")]), [path], by_source=RowChoice(choice, {"2": ("other", pa.int64())}))
    assert found.pairs["a"] == [(1, NO_SOURCE), (2, 0), (3, 1), (6, NO_SOURCE), (7, NO_SOURCE)]
    second, third = by_source_number(1), by_source_number(2)
    assert found.clauses["a"] == [second, 0, 0, third, third]
    assert found.counts["a"] == (5, 5, 5)
    assert found.rows_by_clause["a"] == {second: 1, 0: 2, third: 2}


def test_both_rows_decide_beside_by_source_clauses(tmp_path: Path) -> None:
    path = write(tmp_path / "a", 4)
    target = {"0": ("other", pa.int64())}
    pairs = RowChoice(ClauseChoice(((0, compare("=", 0, 1)),), frozenset({0})), target)
    rest = RowChoice(ClauseChoice(((0, None),), frozenset({0})), target)
    found = look_up(keys_of([(1, "n1"), (2, "n2")]), [path], clause=pairs, by_source=rest)
    assert found.pairs["a"] == [(0, NO_SOURCE), (1, 0), (2, 1), (3, NO_SOURCE)]
    assert found.clauses["a"] == [by_source_number(0), 0, NO_CLAUSE, by_source_number(0)]


def test_keys_of_unmatchable_files_are_not_looked_up(tmp_path: Path) -> None:
    files = [write(tmp_path / "a", 4), write(tmp_path / "b", 4)]
    keys = keys_of([(1, "n1")])
    assert look_up(keys, files, unmatchable="a").pairs == {"b": [(1, 0)]}
    rest = RowChoice(ClauseChoice(((0, compare(">", 0, 1)),), frozenset({0})), {"0": ("other", pa.int64())})
    found = look_up(keys, files, unmatchable="a", by_source=rest)
    assert found.pairs == {"a": [(2, -1), (3, -1)], "b": [(1, 0), (2, -1), (3, -1)]}
    none = RowChoice(ClauseChoice(((0, compare(">", 0, 9)),), frozenset({0})), {"0": ("other", pa.int64())})
    assert look_up(keys, files, unmatchable="ab", by_source=none) == Found()


@pytest.mark.parametrize("unmatchable", ["", "a"])
def test_rows_of_deletion_vectors_are_not_there(tmp_path: Path, unmatchable: str) -> None:
    path = write(tmp_path / "a", 5_000)
    deleted = {"a": blocks_of_rows(np.array([*range(1, 4_998)], np.uint64))}
    rest = RowChoice(ClauseChoice(((0, None),), frozenset({0})), {"0": ("other", pa.int64())})
    keys = keys_of([(3, "n3"), (4_999, "n4999")])
    found = look_up(keys, [path], by_source=rest, deleted=deleted, unmatchable=unmatchable)
    matched = NO_SOURCE if unmatchable else 1
    assert found.pairs["a"] == [(0, NO_SOURCE), (4_998, NO_SOURCE), (4_999, matched)]
    assert look_up(keys, [path], deleted=deleted).pairs == {"a": [(4_999, 1)]}


def test_deletion_vector_of_another_file_is_reported(tmp_path: Path) -> None:
    deleted = {"a": blocks_of_rows(np.array([5_000], np.uint64))}
    found = look_up(keys_of([(3, "n3")]), [write(tmp_path / "a", 20)], deleted=deleted)
    assert found.unfit == {"a": "row 5000 is not in a file of 20 rows"}


def test_partition_values_in_conditions(tmp_path: Path) -> None:
    path = write(tmp_path / "a", 4)
    part = {"0": ("part", pa.int64())}
    rest = RowChoice(ClauseChoice(((0, compare("=", 0, 7)),), frozenset({0})), part)
    for value, rows in (("7", [0, 2, 3]), ("8", []), (None, [])):
        found = look_up(keys_of([(1, "n1")]), [path], {"part": value}, by_source=rest)
        assert [row for row, source in found.pairs["a"] if source == NO_SOURCE] == rows
    found = look_up(keys_of([(1, "n1")]), [path], {"part": "x"}, by_source=rest)
    assert list(found.unfit) == ["a"]


SOME_VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [1, None, 0, -(1 << 40)],
    pa.string(): ["a", None, "", "b"],
    pa.binary(): [b"a", None, b"", b"b"],
    pa.bool_(): [True, None, False, None],
    pa.date32(): [date(2024, 1, 1), None, date(1970, 1, 1), date(1969, 1, 1)],
    pa.timestamp("us", "UTC"): [datetime(2024, 1, 1), None, datetime(1970, 1, 1), datetime(1600, 1, 1)],
    pa.timestamp("us"): [datetime(2024, 1, 1), None, datetime(1970, 1, 1), datetime(1600, 1, 1)],
    pa.decimal128(10, 2): [Decimal("1.25"), None, Decimal(0), Decimal(-1)],
}


@pytest.mark.parametrize("null_safe", [False, True])
@pytest.mark.parametrize("kind", SOME_VALUES, ids=str)
def test_types_of_keys(tmp_path: Path, kind: pa.DataType, null_safe: bool) -> None:
    values = SOME_VALUES[kind]
    pq.write_table(pa.table({"k": pa.array(values, kind)}), tmp_path / "a")
    source = pa.table({"k0": pa.array(values[::-1], kind), "clause": pa.array([0] * 4, pa.int32())})
    found = look_up(source, [tmp_path / "a"], keys=(ComparedKey("k0", "k", kind, null_safe),))
    expected = [
        (row, number)
        for row, value in enumerate(values)
        for number, other in enumerate(values[::-1])
        if value == other and (null_safe or value is not None)
    ]
    assert found.pairs == {"a": expected}


@pytest.mark.parametrize(
    ("of_file", "of_source", "compared"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int16(), pa.int64()),
        (pa.int8(), pa.int8(), pa.int64()),
        (pa.decimal128(5, 0), pa.decimal128(12, 2), pa.decimal128(14, 2)),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "America/New_York"), pa.timestamp("us", "UTC")),
    ],
    ids=str,
)
def test_keys_of_different_width(
    tmp_path: Path, of_file: pa.DataType, of_source: pa.DataType, compared: pa.DataType
) -> None:
    def typed(kind: pa.DataType) -> pa.Array:
        return pa.array([1, 2, None, 3], pa.decimal128(20, 0) if pa.types.is_decimal(kind) else pa.int64()).cast(kind)

    pq.write_table(pa.table({"k": typed(of_file)}), tmp_path / "a")
    source = pa.table({"k0": typed(of_source), "clause": pa.array([0] * 4, pa.int32())})
    found = look_up(source, [tmp_path / "a"], keys=(ComparedKey("k0", "k", compared),))
    assert found.pairs == {"a": [(0, 0), (1, 1), (3, 3)]}


def test_keys_that_are_fields(tmp_path: Path) -> None:
    """Where a struct is NULL its fields are, and a file may lack a field or have a narrower one."""
    kind = pa.struct([("s", pa.struct([("other", pa.string()), ("id", pa.int32())])), ("n", pa.int8())])
    files = {
        "a": pa.array([{"s": {"id": 1}}, {"s": None}, None, {"s": {"id": 3}}], kind),
        "b": pa.array([{"n": 1}, None], pa.struct([("n", pa.int8())])),
    }
    for name, column in files.items():
        pq.write_table(pa.table({"k": column}), tmp_path / name)
    source = pa.table({"k0": [1, 2, None, 3], "clause": pa.array([0] * 4, pa.int32())})
    keys = (ComparedKey("k0", "k", pa.int64(), fields=("s", "id")),)
    paths = [tmp_path / name for name in files]
    assert look_up(source, paths, keys=keys).pairs == {"a": [(0, 0), (3, 3)]}
    found = look_up(source, paths, keys=(replace(keys[0], null_safe=True),))
    assert found.pairs == {"a": [(0, 0), (1, 2), (2, 2), (3, 3)], "b": [(0, 2), (1, 2)]}


def test_what_on_requires_of_one_side(tmp_path: Path) -> None:
    path = tmp_path / "a"
    pq.write_table(pa.table({"id": [1, 2, 3, None, 5], "v": [10, 20, None, 40, 50]}), path)
    source = pa.table({"k0": [1, 2, 3, None, 5], "w": [1, 0, 1, 1, 1], "clause": pa.array([0] * 5, pa.int32())})
    keys = (ComparedKey("k0", "id", pa.int64(), null_safe=True),)

    def choice(op: str, column: int, value: int) -> ClauseChoice:
        return ClauseChoice(((0, compare(op, column, value)),), frozenset({0}))

    of_target = RowChoice(choice("<", 7, 50), {"7": ("v", pa.int64())})
    of_source = RowChoice(choice("=", 0, 1), source={"0": "w"})
    assert look_up(source, [path], keys=keys, on_target=of_target).pairs == {"a": [(0, 0), (1, 1), (3, 3)]}
    assert look_up(source, [path], keys=keys, on_source=of_source).pairs == {"a": [(0, 0), (2, 2), (3, 3), (4, 4)]}
    # A row that ON does not admit matches nothing, so that a BY SOURCE clause takes it.
    by_source = RowChoice(ClauseChoice(((0, None),), frozenset({0})), {"7": ("v", pa.int64())})
    found = look_up(source, [path], keys=keys, on_target=of_target, on_source=of_source, by_source=by_source)
    gone = by_source_number(0)
    assert found.pairs == {"a": [(0, 0), (1, NO_SOURCE), (2, NO_SOURCE), (3, 3), (4, NO_SOURCE)]}
    assert found.clauses == {"a": [0, gone, gone, 0, gone]}
