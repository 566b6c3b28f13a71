from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.store import MemoryStore
from pyarrow import table as arrow_table

from deltamerge.exceptions import DeltaLogCorruptException, DeltaTableNotFoundException
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.history import read_history
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.object_store import counted
from deltamerge.storage.store import LocalStore, ObjectStore, open_store
from log.logs import PROTOCOL, Log, add, info, metadata, simple_log


def test_newest_first(tmp_path: Path) -> None:
    log = Log(tmp_path)
    parameters = {"mode": "Append", "partitionBy": "[]", "description": None, "n": 1, "list": ["é"]}
    log.commit(PROTOCOL, metadata(), info(operation="CREATE TABLE"), time_ms=1_000)
    log.commit(
        info(
            operation="WRITE",
            operationParameters=parameters,
            operationMetrics={"numFiles": "1"},
            readVersion=0,
        ),
        add('a"commitInfo"'),
        time_ms=2_500,
    )
    log.commit(add("b", tags={"x": '{"commitInfo":{}}'}), time_ms=3_000)
    rows = read_history(log.store)
    assert [row["version"] for row in rows] == [2, 1, 0]
    assert [row["operation"] for row in rows] == [None, "WRITE", "CREATE TABLE"]
    assert rows[1]["timestamp"] == datetime(1970, 1, 1, 0, 0, 2, 500_000, tzinfo=timezone.utc)
    assert rows[1]["operationParameters"] == {
        "mode": "Append",
        "partitionBy": "[]",
        "description": None,
        "n": "1",
        "list": '["é"]',
    }
    assert rows[1]["operationMetrics"] == {"numFiles": "1"}
    assert rows[1]["readVersion"] == 0
    assert len({tuple(row) for row in rows}) == 1
    assert read_history(log.store, 2) == rows[:2]
    assert read_history(log.store, 0) == []


def test_times_grow_with_versions(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.commit(PROTOCOL, metadata(), time_ms=5_000)
    log.commit(info(), time_ms=4_000)
    log.commit(info(inCommitTimestamp=9_000), time_ms=1_000)
    assert [row["timestamp"].timestamp() for row in read_history(log.store)] == [9.0, 5.001, 5.0]


def test_commits_that_are_gone_are_left_out(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 5)
    write_checkpoint(load_snapshot(log.store, 3), now_ms=0)
    for version in range(3):
        log.path(version).unlink()
    assert [row["version"] for row in read_history(log.store)] == [4, 3]
    log.path(3).unlink()
    log.path(4).unlink()
    assert read_history(log.store) == []


def test_same_as_delta_rs(tmp_path: Path) -> None:
    for number in range(3):
        write_deltalake(tmp_path, arrow_table({"a": [number]}), mode="append")
    DeltaTable(tmp_path).delete("a = 1")
    ours = read_history(open_store(str(tmp_path)))
    theirs = DeltaTable(tmp_path).history()
    assert [row["version"] for row in ours] == [row["version"] for row in theirs]
    assert [row["operation"] for row in ours] == [row["operation"] for row in theirs]
    assert ours[0]["operationParameters"]["predicate"] == theirs[0]["operationParameters"]["predicate"]


def test_no_table(tmp_path: Path) -> None:
    with pytest.raises(DeltaTableNotFoundException):
        read_history(open_store(str(tmp_path)))


def test_damaged_info_is_named(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 2)
    log.path(1).write_text('{"commitInfo":{\n')
    with pytest.raises(DeltaLogCorruptException, match="line 1"):
        read_history(log.store)


def test_values_of_other_types_are_none(tmp_path: Path) -> None:
    """A commit info may have anything."""
    log = Log(tmp_path)
    log.commit(PROTOCOL, metadata(), time_ms=1_000)
    odd = {"operation": 5, "operationMetrics": [1], "operationParameters": "x", "readVersion": "1", "job": 7}
    log.commit(info(**odd, isBlindAppend="true", userName={"a": 1}, inCommitTimestamp=10**18), time_ms=2_000)
    row = read_history(log.store)[0]
    assert (row["operation"], row["userName"], row["timestamp"]) == ("5", '{"a":1}', None)
    assert {row[name] for name in ("operationMetrics", "operationParameters", "readVersion", "job")} == {None}
    assert row["isBlindAppend"] is None


def test_a_log_that_is_cleaned_up_while_it_is_read(tmp_path: Path) -> None:
    log = simple_log(tmp_path)
    first = tmp_path / "_delta_log" / f"{0:020d}.json"

    class Cleaned(LocalStore):
        def get(self, path: str) -> bytes:
            first.unlink(missing_ok=True)
            return super().get(path)

    versions = [row["version"] for row in read_history(log.store)]
    assert [row["version"] for row in read_history(Cleaned(str(tmp_path)))] == versions[:-1]


@pytest.mark.parametrize("first", [True, False])
def test_of_a_large_commit_the_first_line_is_read(tmp_path: Path, first: bool) -> None:
    log = Log(tmp_path)
    log.commit(PROTOCOL, metadata(), time_ms=1_000)
    lines = [info(operation="WRITE"), *(add(f"f{number}" + "x" * 1000) for number in range(4000))]
    log.commit(*(lines if first else lines[::-1]), time_ms=2_000)
    bucket = MemoryStore()
    for version in range(2):
        bucket.put(f"t/_delta_log/{version:020d}.json", log.path(version).read_bytes())
    store = ObjectStore("s3://bucket/t", bucket, "t").counting()
    assert [row["operation"] for row in read_history(store)] == ["WRITE", None]
    counts = counted(store)
    assert counts is not None
    assert (counts.bytes_read < 2 << 20) is first
