from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from deltamerge.exceptions import DeltaLogCorruptException
from deltamerge.log.actions import CommitInfo, DomainMetadata, Metadata, Protocol, SetTransaction
from deltamerge.log.file_actions import REMOVE_SCHEMA
from deltamerge.log.replay import LogLines, TableState, commit_info, live_files, parse_log_files, tombstones
from log.logs import PROTOCOL, add, info, metadata, remove


def text(*actions: dict[str, dict[str, Any]]) -> bytes:
    return "".join(json.dumps(action) + "\n" for action in actions).encode()


def parse(*commits: Sequence[dict[str, dict[str, Any]]], **wanted: pa.Schema | frozenset[str]) -> LogLines:
    return parse_log_files(((f"{n}.json", text(*actions)) for n, actions in enumerate(commits)), "/t", **wanted)


def vector(offset: int) -> dict[str, Any]:
    return {"storageType": "u", "pathOrInlineDv": "abc", "offset": offset, "sizeInBytes": 1, "cardinality": 1}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("split", range(4))
def test_path_and_deletion_vector_identify_a_file(order: int, split: int) -> None:
    commits = [
        [add("a")],
        [remove("a"), add("a", deletionVector=vector(1))][::order],
        [remove("a", deletionVector=vector(1)), add("a", deletionVector=vector(5))][::order],
    ]
    before, after = commits[:split], commits[split:]
    base = live_files(None, parse(*before), "/t")
    files = live_files(base, parse(*after), "/t").arrow.to_pylist()
    assert [(file["path"], file["deletion_vector"]["offset"]) for file in files] == [("a", 5)]

    old = tombstones(None, parse(*before, remove_schema=REMOVE_SCHEMA), "/t")
    dead = tombstones(old, parse(*after, remove_schema=REMOVE_SCHEMA), "/t").to_pylist()
    vectors = [row["deletion_vector"] and row["deletion_vector"]["offset"] for row in dead]
    assert sorted(vectors, key=str) == [1, None]


def test_file_that_came_back_is_no_tombstone() -> None:
    commits = [[add("a"), add("b")], [remove("a"), remove("b")], [add("a", size=3)]]
    assert live_files(None, parse(*commits), "/t").arrow.column("size").to_pylist() == [3]
    dead = tombstones(None, parse(*commits, remove_schema=REMOVE_SCHEMA), "/t")
    assert dead.column("path").to_pylist() == ["b"]


def test_nothing_to_apply() -> None:
    base = live_files(None, parse([add("a")]), "/t")
    assert live_files(base, parse(), "/t") is base
    assert live_files(None, parse([info()]), "/t").num_files == 0


def test_other_actions_in_order() -> None:
    lines = parse(
        [info(operation="A"), PROTOCOL, metadata(), {"txn": {"appId": "a", "version": 1}}],
        [info(operation="B"), {"unknown": {}}, {"cdc": {"path": "c"}}],
        with_commit_info=frozenset({"1.json"}),
    )
    assert [type(action) for action in lines.actions] == [Protocol, Metadata, SetTransaction, CommitInfo]
    found = commit_info(lines)
    assert found is not None
    assert found.values["operation"] == "B"
    assert commit_info(parse([info()])) is None


def test_state_keeps_the_newest() -> None:
    state = TableState().apply([SetTransaction("a", 1), DomainMetadata("d", "1"), DomainMetadata("e", "1")])
    after = state.apply([SetTransaction("a", 2), DomainMetadata("d", "", True), DomainMetadata("e", "2")])
    assert after.set_transactions == {"a": SetTransaction("a", 2)}
    assert after.domain_metadata == {"e": DomainMetadata("e", "2")}
    assert set(state.domain_metadata) == {"d", "e"}


def test_long_text_is_taken_in_pieces() -> None:
    rows = [add(f"f{number}", stats="x" * 50_000) for number in range(500)]
    lines = parse(rows, [remove("f7")], [add("f7")])
    files = live_files(None, lines, "/t").arrow
    assert files.num_rows == 500
    assert files.column("stats").null_count == 1


def test_damaged_line_among_many_files() -> None:
    files = [(f"{n}.json", text(add(f"f{n}"), add(f"g{n}"))) for n in range(5)]
    files[3] = ("3.json", files[3][1] + b'\n{"add":{"size":1}}\n')
    with pytest.raises(DeltaLogCorruptException, match=r"/t/3\.json is damaged: line 4") as raised:
        parse_log_files(files, "/t")
    assert raised.value.getMessageParameters()["path"] == "3.json"
