"""Where the batches of a stream begin and end, and what they read, without a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltamerge.data_source.reading import schema_of
from deltamerge.data_source.stream_reading import TableStream, open_stream
from deltamerge.exceptions import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaUnsupportedOperationException,
)
from deltamerge.log.change_feed import ENABLED
from deltamerge.log.commits import read_commit
from deltamerge.log.snapshot import Snapshot
from deltamerge.spark.table import SnapshotCache
from deltamerge.storage.store import Store
from log.logs import PROTOCOL, Log, add, info, metadata, remove

FEED = metadata(configuration={ENABLED: "true"})


def stream_of(log: Log, **options: str) -> TableStream:
    given = {"path": str(log.root), **{name.lower(): value for name, value in options.items()}}
    return open_stream(given, {}, schema_of(given, {})[0])


def batches(stream: TableStream) -> list[list[str]]:
    """The files of each batch until nothing is new."""
    found, start = [], stream.initial_offset()
    while (end := stream.latest_offset(start)) != start:
        files = [Path(part.path).name for parts in stream.parts(start, end) for part in parts]
        if not files:
            break
        found.append(sorted(files))
        start = end
    return found


@pytest.fixture
def updated(tmp_path: Path) -> Log:
    """Two files, both written again by the second commit, and a third one after it."""
    log = Log(tmp_path)
    log.commit(PROTOCOL, FEED, info(), add("a0"), add("b0"))
    removed = (remove(name, partitionValues={}, size=10, extendedFileMetadata=True) for name in ("a0", "b0"))
    log.commit(info(operation="UPDATE"), add("a1"), add("b1"), *removed)
    log.commit(info(), add("c2"))
    return log


def test_the_changes_of_a_commit_are_in_one_batch(updated: Log) -> None:
    stream = stream_of(updated, readChangeFeed="true", startingVersion="0", maxFilesPerTrigger="1")
    assert batches(stream) == [["a0", "b0"], ["a0", "a1", "b0", "b1"], ["c2"]]


def test_added_files_and_the_first_version_are_divided(updated: Log) -> None:
    stream = stream_of(updated, startingVersion="0", ignoreChanges="true", maxFilesPerTrigger="1")
    assert batches(stream) == [["a0"], ["b0"], ["a1"], ["b1"], ["c2"]]
    assert batches(stream_of(updated, readChangeFeed="true", maxFilesPerTrigger="2")) == [["a1", "b1"], ["c2"]]


def test_the_changes_of_many_commits_are_read_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path)
    log.commit(PROTOCOL, FEED, info(), add("f0"))
    for version in range(1, 20):
        log.commit(info(), add(f"f{version}"))
    stream = stream_of(log, readChangeFeed="true", startingVersion="0")
    start = stream.initial_offset()
    end = stream.latest_offset(start)
    calls = Counter[str]()
    kind = type(stream.request.store)

    def counted(name: str) -> Callable[..., Any]:
        original = getattr(kind, name)

        def call(*args: Any) -> Any:
            calls[name] += 1
            return original(*args)

        return call

    for name in ("list_folder", "get"):
        monkeypatch.setattr(kind, name, counted(name))
    assert len([part for parts in stream.parts(start, end) for part in parts]) == 20
    assert calls["list_folder"] < 10
    assert calls["get"] < 40


@pytest.mark.parametrize("feed", ["true", "false"])
def test_a_version_that_many_batches_read_is_loaded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feed: str
) -> None:
    log = Log(tmp_path)
    log.commit(PROTOCOL, FEED, info(), *(add(f"f{number}") for number in range(10)))
    stream = stream_of(log, readChangeFeed=feed, maxFilesPerTrigger="1")
    stream.initial_offset()
    for number in range(10, 20):
        log.commit(info(), add(f"f{number}"))
    asked: list[int | None] = []
    load = SnapshotCache.load

    def recorded(cache: SnapshotCache, store: Store, version: int | None = None) -> Snapshot:
        asked.append(version)
        return load(cache, store, version)

    monkeypatch.setattr(SnapshotCache, "load", recorded)
    assert batches(stream) == [[f"f{number}"] for number in range(20)]
    # What is new is asked for once to find a batch's end, and once to read it.
    assert asked.count(None) == 2 * 20 + 2
    assert asked.count(0) <= 2
    assert set(asked) == {0, None}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxFilesPerTrigger": "0"}, "maxFilesPerTrigger.*must be positive"),
        ({"maxFilesPerTrigger": "x"}, "maxFilesPerTrigger.*non-negative integer"),
        ({"maxFilesPerTrigger": "²"}, "maxFilesPerTrigger.*non-negative integer"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger.*must be positive"),
        ({"maxBytesPerTrigger": "x"}, "maxBytesPerTrigger.*size in bytes"),
        ({"endingVersion": "1"}, "endingVersion.*stream"),
        ({"endingTimestamp": "2024-01-01"}, "endingTimestamp.*stream"),
        ({"excludeRegex": "a.*"}, "excludeRegex.*where"),
        ({"withEventTimeOrder": "true"}, "withEventTimeOrder"),
    ],
)
def test_options_that_a_stream_does_not_take(updated: Log, options: dict[str, str], message: str) -> None:
    with pytest.raises(DeltaIllegalArgumentException, match=message):
        stream_of(updated, **options)


@pytest.mark.parametrize("options", [{"versionAsOf": "1"}, {"timestampAsOf": "2024-01-01"}])
def test_streams_do_not_travel_in_time(updated: Log, options: dict[str, str]) -> None:
    given = {"path": str(updated.root), **{name.lower(): value for name, value in options.items()}}
    with pytest.raises(DeltaAnalysisException, match="startingVersion") as raised:
        open_stream(given, {}, schema_of({"path": given["path"]}, {})[0])
    assert raised.value.getErrorClass() == "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"


def test_a_stream_has_one_start(updated: Log) -> None:
    stream = stream_of(updated, startingVersion="1", startingTimestamp="2020-01-01 00:00:00+00:00")
    with pytest.raises(DeltaIllegalArgumentException, match="either") as raised:
        stream.initial_offset()
    assert raised.value.getErrorClass() == "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET"


def test_a_delete_whose_operation_is_not_known(updated: Log) -> None:
    updated.commit(remove("c2", partitionValues={}, size=10))
    stream = stream_of(updated, startingVersion="3")
    with pytest.raises(DeltaUnsupportedOperationException, match="Detected a delete in the source table at version 3"):
        stream.latest_offset(stream.initial_offset())


def test_the_latest_version_is_named_in_any_case(updated: Log) -> None:
    stream = stream_of(updated, startingVersion="LATEST", withEventTimeOrder="false")
    assert stream.initial_offset()["reservoirVersion"] == read_commit(updated.store, 2).version + 1
