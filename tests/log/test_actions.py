from __future__ import annotations

import json
from pathlib import Path

import pytest

from deltamerge.exceptions import DeltaLogCorruptException
from deltamerge.log.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Sidecar,
    from_json,
    to_json_line,
    to_json_lines,
)
from deltamerge.log.commits import parse_actions, read_commit
from log.logs import PROTOCOL, Log, add, info, metadata

VECTOR = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)
ADD = AddFile(
    path="part=a%20b/x.parquet",
    partition_values={"part": "a b", "other": None},
    size=1,
    modification_time=2,
    stats='{"numRecords":1}',
    tags={"k": "v"},
    deletion_vector=VECTOR,
    base_row_id=3,
    default_row_commit_version=4,
    clustering_provider="liquid",
)

ACTIONS: list[Action] = [
    Protocol(1, 2),
    Protocol(3, 7, frozenset({"v2Checkpoint"}), frozenset()),
    Metadata("id", "name", "é", Format("parquet", {"o": "p"}), "{}", ("a",), {"delta.x": "y"}, 5),
    Metadata("id"),
    ADD,
    AddFile("p", {}, 0, 0, data_change=False),
    ADD.remove(7),
    RemoveFile("p"),
    RemoveFile("p", deletion_timestamp=0, partition_values={"a": None}),
    AddCDCFile("c", {"a": None}, 9, {"t": "u"}),
    SetTransaction("app", 1, 2),
    SetTransaction("app", 1),
    DomainMetadata("d", "{}", removed=True),
    CommitInfo({"operation": "MERGE", "operationParameters": {"predicate": "[]"}}),
    Sidecar("s.parquet", 1, 2),
]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: type(action).__name__)
def test_json_round_trip(action: Action) -> None:
    assert from_json(json.loads(to_json_line(action))) == action


def test_maps_may_be_pairs_as_arrow_gives_them() -> None:
    content = {"path": "p", "partitionValues": [("a", None)], "size": 1, "modificationTime": 2}
    assert from_json({"protocol": None, "add": content}) == AddFile("p", {"a": None}, 1, 2)


def test_properties_without_a_value_are_none() -> None:
    for configuration in ({"a": "1", "b": None}, [("a", "1"), ("b", None)]):
        metadata = from_json({"metaData": {"id": "i", "configuration": configuration}})
        assert metadata == Metadata("i", configuration={"a": "1"})


def test_unknown_actions_are_passed_over() -> None:
    assert from_json({"somethingNew": {"a": 1}}) is None


def test_json_is_as_delta_spark_writes_it() -> None:
    line = to_json_line(AddFile("p", {"a": None}, 1, 2, stats='{"n":"é"}'))
    assert line == (
        '{"add":{"path":"p","partitionValues":{"a":null},"size":1,"modificationTime":2,"dataChange":true,'
        '"stats":"{\\"n\\":\\"é\\"}"}}'
    )
    assert to_json_line(AddCDCFile("c", {}, 1)).endswith('"dataChange":false}}')
    assert to_json_lines(ACTIONS[:2]).count(b"\n") == 2


def test_remove_keeps_all_that_is_known() -> None:
    removed = ADD.remove(9, data_change=False)
    assert removed.extended_file_metadata is True
    assert removed.data_change is False
    for name in ("path", "partition_values", "size", "tags", "deletion_vector", "base_row_id", "stats"):
        assert getattr(removed, name) == getattr(ADD, name)


def test_unique_id_of_deletion_vectors() -> None:
    assert VECTOR.unique_id == "uab^-aqEH.-t@S}K{vb[*k^@4"
    assert DeletionVectorDescriptor("i", "abc", None, 1, 1).unique_id == "iabc"


def test_read_commit(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.commit(info(operation="CREATE TABLE"), PROTOCOL, metadata(), {"new": {}}, add("a"))
    commit = read_commit(log.store, 0)
    assert [type(action) for action in commit.actions] == [CommitInfo, Protocol, Metadata, AddFile]
    assert commit.info is not None
    assert commit.info.values["operation"] == "CREATE TABLE"
    with pytest.raises(FileNotFoundError):
        read_commit(log.store, 1)


@pytest.mark.parametrize("text", [b'{"add":', b'{"add":{"size":1}}', b"[]", b'{"add":3}', b"\xff\xfe"])
def test_damaged_line_is_named(text: bytes) -> None:
    with pytest.raises(DeltaLogCorruptException, match=r"/t/x\.json.*line 2"):
        list(parse_actions(b"\n" + text + b"\n", "/t/x.json"))
