from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamerge.log.actions import (
    Action,
    AddFile,
    DeletionVectorDescriptor,
    RemoveFile,
    from_json,
    to_json_line,
)
from deltamerge.log.arrays import from_numpy, mask_from_numpy, strings, to_numpy
from deltamerge.log.file_actions import (
    ADD_SCHEMA,
    REMOVE_KEY_SCHEMA,
    REMOVE_SCHEMA,
    file_keys,
    from_parquet,
    parse_file_actions,
)
from deltamerge.log.file_table import FileTable
from deltamerge.log.paths import decode_path

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=6)
# Values that Arrow's reader would take for times or numbers, were it left to guess.
VALUES = TEXT | st.sampled_from(["2020-01-01", "2021-09-08 11:11:11", "1", "null", "", "true"])
MAPS = st.dictionaries(st.sampled_from(["a", "b", "c d", "é", "x.y"]), st.none() | VALUES, max_size=3)
LONGS = st.integers(-(2**63), 2**63 - 1)
VECTORS = st.builds(
    DeletionVectorDescriptor,
    st.sampled_from(["u", "p", "i"]),
    TEXT,
    st.none() | st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
)
ADDS = st.builds(
    AddFile,
    TEXT,
    MAPS,
    LONGS,
    LONGS,
    st.booleans(),
    st.none() | TEXT,
    st.none() | MAPS,
    st.none() | VECTORS,
    st.none() | LONGS,
    st.none() | LONGS,
    st.none() | TEXT,
)
REMOVES = st.builds(
    RemoveFile,
    TEXT,
    st.none() | LONGS,
    st.booleans(),
    st.none() | st.booleans(),
    st.none() | MAPS,
    st.none() | LONGS,
    st.none() | MAPS,
    st.none() | VECTORS,
    st.none() | LONGS,
    st.none() | LONGS,
    st.none() | TEXT,
)


def lines_of(actions: Sequence[Action]) -> list[bytes]:
    return [to_json_line(action).encode() for action in actions]


@settings(deadline=None)
@given(st.lists(ADDS, max_size=5))
def test_adds_from_json(files: list[AddFile]) -> None:
    table = parse_file_actions(lines_of(files), "add", ADD_SCHEMA)
    assert table.schema == ADD_SCHEMA
    assert FileTable(table).add_files() == files
    assert FileTable.from_add_files(files).add_files() == files


@settings(deadline=None)
@given(st.lists(REMOVES, max_size=5))
def test_removes_from_json(files: list[RemoveFile]) -> None:
    table = parse_file_actions(lines_of(files), "remove", REMOVE_SCHEMA)
    assert table.schema == REMOVE_SCHEMA
    rows = table.to_pylist()
    for row, file in zip(rows, files, strict=True):
        for name in ("partition_values", "tags"):
            row[name] = None if row[name] is None else dict(row[name])
        vector = row.pop("deletion_vector")
        assert file.deletion_vector == (None if vector is None else DeletionVectorDescriptor(**vector))
        assert row == {name: getattr(file, name) for name in row}
    keys = parse_file_actions(lines_of(files), "remove", REMOVE_KEY_SCHEMA)
    assert keys.to_pylist() == table.select(REMOVE_KEY_SCHEMA.names).to_pylist()


@settings(deadline=None)
@given(st.lists(ADDS, min_size=1, max_size=5))
def test_keys(files: list[AddFile]) -> None:
    table = FileTable.from_add_files(files).arrow
    keys = file_keys(table.column("path"), table.column("deletion_vector"), "/t").to_pylist()
    ids = [None if file.deletion_vector is None else file.deletion_vector.unique_id for file in files]
    plain = FileTable.from_add_files([AddFile(file.path, {}, 0, 0) for file in files]).arrow
    paths = file_keys(plain.column("path"), plain.column("deletion_vector"), "/t").to_pylist()
    assert keys == [path if vector is None else f"{path}\n{vector}" for path, vector in zip(paths, ids, strict=True)]


@pytest.mark.parametrize(
    "line",
    [
        '{"add": {"path": "p", "partitionValues": {}, "size": 1.0, "modificationTime": 2e0}}',
        '{"add":{"path":"p","path":"p","partitionValues":{},"size":1,"modificationTime":2}}',
        '  {"add":{"path":"p","size":1,"new":{"a":[1,{"b":null}]},"modificationTime":2,"tags":null}}',
        '{"add":{"path":"p","partitionValues":null,"size":1,"modificationTime":2,"stats":null},"more":1}',
    ],
)
def test_unusual_spellings(line: str) -> None:
    other = to_json_line(AddFile("q", {"a": "1"}, 3, 4)).encode()
    files = FileTable(parse_file_actions([other, line.encode()], "add", ADD_SCHEMA)).add_files()
    assert files == [AddFile("q", {"a": "1"}, 3, 4), AddFile("p", {}, 1, 2)]


@pytest.mark.parametrize(
    "line",
    [
        '{"add":{',
        '{"add":{"size":1}}',
        '{"add":{"path":null}}',
        '{"add":{"path":"p","size":"big"}}',
        '{"add":{"path":"p","partitionValues":[1]}}',
        '{"remove":{"path":"p"}}',
        "[]",
    ],
)
def test_damaged_lines(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_file_actions([to_json_line(AddFile("q", {}, 3, 4)).encode(), line.encode()], "add", ADD_SCHEMA)


def test_line_longer_than_a_block() -> None:
    files = [AddFile("p", {}, 1, 2, stats="x" * 9_000_000), AddFile("q", {}, 1, 2)]
    assert FileTable(parse_file_actions(lines_of(files), "add", ADD_SCHEMA)).add_files() == files


def test_parquet_of_other_writers(tmp_path: Path) -> None:
    """Large strings, narrower numbers, other names inside maps, fields that are missing or unknown."""
    rows = [
        {"path": "p", "partitionValues": [("a", None)], "size": 1, "extra": 1, "deletionVector": None},
        {
            "path": "q",
            "partitionValues": [("a", "1")],
            "size": 2,
            "extra": 2,
            "deletionVector": {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 2},
        },
    ]
    kind = pa.struct(
        [
            ("path", pa.large_string()),
            ("partitionValues", pa.map_(pa.large_string(), pa.large_string())),
            ("size", pa.int32()),
            ("extra", pa.int32()),
            (
                "deletionVector",
                pa.struct(
                    [
                        ("storageType", pa.string()),
                        ("pathOrInlineDv", pa.string()),
                        ("sizeInBytes", pa.int64()),
                        ("cardinality", pa.int64()),
                    ]
                ),
            ),
        ]
    )
    pq.write_table(pa.table({"add": pa.array(rows, kind)}), tmp_path / "x.parquet")
    column = pq.read_table(tmp_path / "x.parquet").column("add")
    found = from_parquet(column, ADD_SCHEMA)
    assert found.schema == ADD_SCHEMA
    assert found.column("path").to_pylist() == ["p", "q"]
    assert found.column("partition_values").to_pylist() == [[("a", None)], [("a", "1")]]
    assert found.column("deletion_vector").to_pylist()[1]["offset"] is None
    assert found.column("stats").null_count == 2


def test_a_deletion_vector_of_nulls_is_none(tmp_path: Path) -> None:
    """Writers whose structs cannot be NULL spell it so; what names a bitmap without its place is left to be refused."""
    names = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
    vectors = [dict.fromkeys(names), {**dict.fromkeys(names), "pathOrInlineDv": "x"}, None, {}]
    adds = [
        {"path": str(n), "partitionValues": {}, "size": 1, "modificationTime": 2, "deletionVector": vector}
        for n, vector in enumerate(vectors)
    ]
    lines = [json.dumps({"add": add}).encode() for add in adds]
    # What Arrow's reader refuses is read by Python.
    odd = b'{"add":{"path":"p","path":"p","partitionValues":{},"size":1,"modificationTime":2}}'
    parts = pa.struct([*((name, pa.string()) for name in names[:2]), *((name, pa.int64()) for name in names[2:])])
    kind = pa.struct([("path", pa.string()), ("size", pa.int64()), ("deletionVector", parts)])
    stored = pa.chunked_array([pa.array(adds, kind)])
    for table in (
        parse_file_actions(lines, "add", ADD_SCHEMA),
        parse_file_actions([*lines, odd], "add", ADD_SCHEMA),
        from_parquet(stored, ADD_SCHEMA),
    ):
        found = FileTable(table)
        assert [file.deletion_vector is None for file in found.add_files()][:4] == [True, False, True, True]
        keys = file_keys(found.arrow.column("path"), found.arrow.column("deletion_vector"), "/t").to_pylist()
        assert (keys[0], keys[2]) == ("0", "2")


def test_file_table_is_a_view() -> None:
    files = [AddFile(f"a%20{n}", {"p": str(n)}, n, 0) for n in range(5)]
    table = FileTable.from_add_files(files)
    assert (table.num_files, table.size_in_bytes, table.has_deletion_vectors) == (5, 10, False)
    assert [decode_path(path) for path in table.paths()] == [f"a {n}" for n in range(5)]
    mask = to_numpy(table.arrow.column("size").combine_chunks()) > 2
    assert table.filter(mask).add_files() == files[3:]
    assert table.take([4, 0]).add_files() == [files[4], files[0]]
    assert FileTable.from_add_files([]).size_in_bytes == 0
    assert table.take([]).num_files == 0


@settings(deadline=None)
@given(st.lists(TEXT), st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.booleans()))
def test_arrays_made_by_hand(texts: list[str], numbers: list[int], flags: list[bool]) -> None:
    import numpy as np

    assert strings(texts).to_pylist() == texts
    array = np.array(numbers, np.int64)
    assert from_numpy(array).to_pylist() == numbers
    assert to_numpy(from_numpy(array)[len(numbers) // 2 :]).tolist() == numbers[len(numbers) // 2 :]
    assert mask_from_numpy(np.array(flags, bool)).to_pylist() == flags


def test_json_of_another_action_is_no_add() -> None:
    assert from_json(json.loads(to_json_line(RemoveFile("p")))) == RemoveFile("p")
