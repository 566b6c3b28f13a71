from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from deltamerge.exceptions import (
    DeltaError,
    DeltaLogCorruptException,
    DeltaTableException,
    DeltaTableNotFoundException,
    DeltaUnsupportedFeatureException,
)
from deltamerge.log.actions import Json
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.snapshot import Snapshot, load_snapshot, table_exists
from deltamerge.storage.local_store import LocalStore
from deltamerge.storage.object_store import ObjectStore
from deltamerge.storage.store import open_store
from deltamerge.storage.stored_file import StoredFiles
from log.logs import PROTOCOL, Log, add, info, live_at, metadata, remove, set_time, simple_log


def paths(snapshot: Snapshot) -> set[str]:
    return set(snapshot.files.paths())


def checkpoint(log: Log, version: int) -> Path:
    path = write_checkpoint(load_snapshot(log.store, version), now_ms=0)
    return log.root / path


def error_of(log: Log, version: int | None = None) -> DeltaError:
    with pytest.raises(DeltaTableException) as raised:
        load_snapshot(log.store, version)
    return raised.value


def test_every_version(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 6)
    for version in range(6):
        snapshot = load_snapshot(log.store, version)
        assert snapshot.version == version
        assert paths(snapshot) == live_at(version)
    assert load_snapshot(log.store).version == 5
    assert table_exists(log.store)


# What is asked for is not there.


def test_no_such_path(tmp_path: Path) -> None:
    with pytest.raises(DeltaTableNotFoundException) as raised:
        load_snapshot(open_store(str(tmp_path / "nowhere")))
    assert raised.value.getErrorClass() == "DELTA_MISSING_DELTA_TABLE"
    assert raised.value.getSqlState() == "42P01"
    assert not table_exists(open_store(str(tmp_path / "nowhere")))


@pytest.mark.parametrize("folder", [".", "_delta_log"])
def test_no_table(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "x.json").write_text("{}")
    error = error_of(Log(tmp_path))
    assert type(error) is DeltaTableNotFoundException
    assert error.getErrorClass() == "DELTA_MISSING_DELTA_TABLE"
    assert str(tmp_path) in str(error)
    assert not table_exists(open_store(str(tmp_path)))


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_version_out_of_range(tmp_path: Path, version: int) -> None:
    log = simple_log(tmp_path, 5)
    checkpoint(log, 3)
    error = error_of(log, version)
    assert error.getErrorClass() == "DELTA_VERSION_NOT_FOUND"
    assert error.getMessageParameters() == {"userVersion": str(version), "earliest": "0", "latest": "4"}


def test_version_that_was_cleaned_up(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 6)
    checkpoint(log, 3)
    for version in range(3):
        log.path(version).unlink()
    assert paths(load_snapshot(log.store, 3)) == live_at(3)
    error = error_of(log, 2)
    assert error.getErrorClass() == "DELTA_VERSION_NOT_FOUND"
    assert error.getMessageParameters()["earliest"] == "3"


# _last_checkpoint is a hint.


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "{",
        "[]",
        "null",
        '{"version":"4"}',
        '{"version":-1}',
        '{"version":2}',
        '{"version":3}',
        '{"version":5}',
        '{"version":99}',
        '{"size":1}',
    ],
)
def test_last_checkpoint_may_be_missing_stale_wrong_or_damaged(tmp_path: Path, content: str | None) -> None:
    log = simple_log(tmp_path, 8)
    checkpoint(log, 2)
    checkpoint(log, 4)
    pointer = log.folder / "_last_checkpoint"
    pointer.unlink()
    if content is not None:
        pointer.write_text(content)
    snapshot = load_snapshot(log.store)
    assert snapshot.version == 7
    assert paths(snapshot) == live_at(7)
    assert snapshot.segment.checkpoint is not None
    assert snapshot.segment.checkpoint.version == 4
    assert paths(load_snapshot(log.store, 3)) == live_at(3)


def test_checkpoint_that_the_hint_names_is_gone_and_commits_too(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 8)
    checkpoint(log, 2)
    later = checkpoint(log, 5)
    for version in (0, 1):
        log.path(version).unlink()
    later.unlink()
    assert paths(load_snapshot(log.store)) == live_at(7)


# Gaps.


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_gap(tmp_path: Path, missing: int) -> None:
    log = simple_log(tmp_path, 5)
    log.path(missing).unlink()
    for version in (None, 4):
        error = error_of(log, version)
        assert type(error) is DeltaLogCorruptException
        assert error.getErrorClass() == "DELTA_VERSIONS_NOT_CONTIGUOUS"
        assert f"version {missing}, {log.path(missing)}, is missing" in str(error)
    assert paths(load_snapshot(log.store, missing - 1)) == live_at(missing - 1)


def test_a_folder_listed_as_others_write(tmp_path: Path) -> None:
    """The listing has a commit, and lacks the one before, which was written first."""
    log = simple_log(tmp_path, 4)

    class Busy(LocalStore):
        listed = 0

        def list_folder(self, folder: str, start_after: str | None = None) -> StoredFiles:
            self.listed += 1
            files = super().list_folder(folder, start_after)
            return [file for file in files if self.listed > 1 or not file.path.endswith("2.json")]

    assert set(load_snapshot(Busy(str(tmp_path))).files.paths()) == live_at(3)
    log.path(2).unlink()
    assert error_of(log).getErrorClass() == "DELTA_VERSIONS_NOT_CONTIGUOUS"


def test_strings_as_views(tmp_path: Path) -> None:
    """Arrow writers may store the type of a checkpoint's strings as one that PyArrow does not filter."""
    log = simple_log(tmp_path, 3)
    write_checkpoint(load_snapshot(log.store), now_ms=0)
    path = log.path(2, "checkpoint.parquet")
    table = pq.read_table(path)
    views = pa.schema([(field.name, as_views(field.type)) for field in table.schema])
    pq.write_table(pa.Table.from_pylist(table.to_pylist(), views), path)
    for version in range(3):
        log.path(version).unlink()
    assert set(load_snapshot(log.store).files.paths()) == live_at(2)


def as_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, as_views(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(as_views(kind.key_type), as_views(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(as_views(kind.value_type))
    return pa.string_view() if pa.types.is_string(kind) else kind


def test_gap_that_a_checkpoint_bridges(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 6)
    checkpoint(log, 3)
    log.path(2).unlink()
    assert paths(load_snapshot(log.store)) == live_at(5)
    assert paths(load_snapshot(log.store, 1)) == live_at(1)
    assert error_of(log, 2).getErrorClass() in ("DELTA_VERSIONS_NOT_CONTIGUOUS", "DELTA_VERSION_NOT_FOUND")


def test_gap_after_the_checkpoint(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 6)
    checkpoint(log, 2)
    log.path(3).unlink()
    assert "version 3" in str(error_of(log))


def test_log_without_its_begin(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 5)
    log.path(0).unlink()
    error = error_of(log)
    assert type(error) is DeltaLogCorruptException
    assert error.getErrorClass() == "DELTA_TRUNCATED_TRANSACTION_LOG"
    assert str(log.path(0)) in str(error)


def test_checkpoint_alone_is_a_table(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 5)
    checkpoint(log, 4)
    for version in range(5):
        log.path(version).unlink()
    snapshot = load_snapshot(log.store)
    assert (snapshot.version, paths(snapshot)) == (4, live_at(4))
    assert snapshot.segment.last_commit is None
    assert snapshot.timestamp_ms > 0
    assert load_snapshot(log.store, previous=snapshot).version == 4


# Damage.


@pytest.mark.parametrize(
    "line",
    ["{", '{"add":{"path":"x"', '{"add":{"size":1}}', '{"remove":{"path":1}}', '{"metaData":{}}', "\x00\x00"],
)
def test_damaged_commit_names_file_and_line(tmp_path: Path, line: str) -> None:
    log = simple_log(tmp_path, 5)
    with log.path(3).open("a") as file:
        file.write(line + "\n")
    error = error_of(log)
    assert type(error) is DeltaLogCorruptException
    assert f"The log file {log.path(3)} is damaged: line 4" in str(error)
    assert paths(load_snapshot(log.store, 2)) == live_at(2)


@pytest.mark.parametrize("what", ["protocol", "metaData"])
def test_log_without_protocol_or_metadata(tmp_path: Path, what: str) -> None:
    log = Log(tmp_path)
    log.commit(*(action for action in (PROTOCOL, metadata()) if what not in action), add("a"))
    error = error_of(log)
    assert type(error) is DeltaLogCorruptException
    assert error.getErrorClass() == "DELTA_STATE_RECOVER_ERROR"
    assert ("protocol" if what == "protocol" else "metadata") in str(error)


@pytest.mark.parametrize("content", [b"not parquet", b"PAR1PAR1", b""])
def test_damaged_checkpoint_where_commits_say_the_same(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    log = simple_log(tmp_path, 6)
    checkpoint(log, 2)
    checkpoint(log, 4).write_bytes(content)
    snapshot = load_snapshot(log.store)
    assert paths(snapshot) == live_at(5)
    assert snapshot.segment.checkpoint is not None
    assert snapshot.segment.checkpoint.version == 2
    assert ("damaged" in caplog.text) == bool(content)


def test_damaged_checkpoint_that_is_needed(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 6)
    path = checkpoint(log, 4)
    path.write_bytes(b"not parquet")
    log.path(1).unlink()
    error = error_of(log)
    assert type(error) is DeltaLogCorruptException
    assert str(path) in str(error)


def test_damaged_latest_checkpoint_never_makes_an_older_version_the_latest(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 6)
    path = checkpoint(log, 5)
    log.path(5).unlink()
    path.write_bytes(b"not parquet")
    assert str(path) in str(error_of(log))


# Kinds of checkpoints.


def split_checkpoint(log: Log, path: Path) -> tuple[str, list[Json], pa.Table]:
    """Makes a V2 checkpoint's files of a classic one; gives the sidecar's name and the JSON lines."""
    table = pq.read_table(path)
    rows = table.to_pylist()
    sidecar = f"{path.name[:20]}.checkpoint.0000000001.0000000001.055454d8-329c-4e0e-864d-7f867075af33.parquet"
    (log.folder / "_sidecars").mkdir(exist_ok=True)
    files = table.filter([row["add"] is not None or row["remove"] is not None for row in rows])
    pq.write_table(files.select(["add", "remove"]), log.folder / "_sidecars" / sidecar)
    size = (log.folder / "_sidecars" / sidecar).stat().st_size
    pointer = {"sidecar": {"path": sidecar, "sizeInBytes": size, "modificationTime": 1}}
    others = table.filter([row["add"] is None and row["remove"] is None for row in rows])
    lines: list[Json] = [{"checkpointMetadata": {"version": int(path.name[:20])}}, pointer]
    for row in others.to_pylist():
        for name in ("protocol", "metaData"):
            if row[name] is not None:
                content = {key: value for key, value in row[name].items() if value is not None}
                if name == "metaData":
                    content["configuration"] = dict(content["configuration"])
                    content["format"] = {"provider": "parquet", "options": {}}
                lines.append({name: content})
    sidecar_type = pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())])
    column = pa.array([pointer["sidecar"]] + [None] * (others.num_rows - 1), sidecar_type)
    return sidecar, lines, others.append_column("sidecar", column)


UNIQUE = "checkpoint.e8fa2696-9728-4e9c-b285-634743fdd4fb"


@pytest.mark.parametrize("kind", ["json", "parquet", "classic name"])
def test_v2_checkpoint(tmp_path: Path, kind: str) -> None:
    log = simple_log(tmp_path, 6)
    path = checkpoint(log, 4)
    sidecar, lines, table = split_checkpoint(log, path)
    path.unlink()
    if kind == "json":
        top = log.path(4, f"{UNIQUE}.json")
        top.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        top = log.path(4, f"{UNIQUE}.parquet") if kind == "parquet" else path
        pq.write_table(table, top)
    expected = load_snapshot(log.store, 3).tombstones().num_rows + 1
    for version in range(4):
        log.path(version).unlink()
    snapshot = load_snapshot(log.store)
    assert paths(snapshot) == live_at(5)
    assert snapshot.tombstones().num_rows == expected + 1

    (log.folder / "_sidecars" / sidecar).unlink()
    error = error_of(log)
    assert type(error) is DeltaLogCorruptException
    assert sidecar in str(error)
    assert "missing" in str(error)


def test_multi_part_checkpoint(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 6)
    path = checkpoint(log, 4)
    table = pq.read_table(path)
    path.unlink()
    parts = [log.path(4, f"checkpoint.{part:010d}.0000000002.parquet") for part in (1, 2)]
    pq.write_table(table.slice(0, 3), parts[0])
    pq.write_table(table.slice(3), parts[1])
    log.path(1).unlink()
    assert paths(load_snapshot(log.store)) == live_at(5)

    parts[1].unlink()
    assert "version 1" in str(error_of(log))
    for version in range(6):
        log.path(version).unlink(missing_ok=True)
    assert error_of(log).getErrorClass() == "DELTA_MISSING_PART_FILES"


# Log compaction.


def test_compacted_commits_are_read_instead(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 8)
    log.compact(2, 5)
    log.compact(2, 3)
    log.compact(6, 9)
    snapshot = load_snapshot(log.store)
    assert paths(snapshot) == live_at(7)
    assert [(item.start, item.end) for item in snapshot.segment.commits] == [
        (0, 0),
        (1, 1),
        (2, 5),
        (6, 6),
        (7, 7),
    ]
    snapshot = load_snapshot(log.store, 4)
    assert paths(snapshot) == live_at(4)
    assert [(item.start, item.end) for item in snapshot.segment.commits] == [(0, 0), (1, 1), (2, 3), (4, 4)]


def test_compacted_commits_before_the_checkpoint_are_of_no_use(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 8)
    log.compact(2, 5)
    checkpoint(log, 4)
    assert [item.start for item in load_snapshot(log.store).segment.commits] == [5, 6, 7]


def test_damaged_compacted_commits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = simple_log(tmp_path, 8)
    for content in ('{"add":{', '{"metaData":{}}'):
        log.path(2, f"{5:020d}.compacted.json").write_text(content)
        assert paths(load_snapshot(log.store)) == live_at(7)
        assert f"{log.root}/_delta_log/{2:020d}.{5:020d}.compacted.json is damaged" in caplog.text
        caplog.clear()


def test_compacted_removes_still_take_back(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.commit(PROTOCOL, metadata(), add("a"), add("b"))
    log.commit(remove("a"))
    log.commit(add("c"))
    log.compact(1, 2)
    assert paths(load_snapshot(log.store)) == {"b", "c"}
    assert load_snapshot(log.store).tombstones().column("path").to_pylist() == ["a"]


# Advancing.


def test_advancing_reads_new_commits_only(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 3)
    first = load_snapshot(log.store)
    assert load_snapshot(log.store, previous=first) is first
    log.path(0).write_text("{ damaged: nobody reads this again")
    log.commit(info(), remove("f1"), add("f3"), {"txn": {"appId": "app", "version": 4}})
    log.commit(info(), remove("f2"), add("f4"), metadata(configuration={"delta.x": "y"}))
    third = load_snapshot(log.store, 3, first)
    assert (third.version, paths(third)) == (3, live_at(3))
    last = load_snapshot(log.store, previous=third)
    assert (last.version, paths(last)) == (4, live_at(4))
    assert last.set_transactions["app"].version == 4
    assert last.metadata.configuration == {"delta.x": "y"}
    assert last.timestamp_ms == log.path(4).stat().st_mtime_ns // 1_000_000
    with pytest.raises(DeltaLogCorruptException):
        load_snapshot(log.store)


def test_advancing_past_a_checkpoint(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 3)
    first = load_snapshot(log.store)
    log.commit(remove("f1"), add("f3"))
    checkpoint(log, 3)
    log.path(0).unlink()
    assert paths(load_snapshot(log.store, previous=first)) == live_at(3)


def test_earlier_version_than_the_previous_snapshot(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 5)
    assert paths(load_snapshot(log.store, 2, load_snapshot(log.store))) == live_at(2)


def test_version_beyond_the_log_of_the_previous_snapshot(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 5)
    with pytest.raises(DeltaTableException, match=r"\[0, 4\]"):
        load_snapshot(log.store, 7, load_snapshot(log.store))


def test_replaced_log_is_noticed(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 3)
    first = load_snapshot(log.store)
    shutil.rmtree(log.folder)
    other = Log(tmp_path)
    other.commit(PROTOCOL, metadata(id="other"), add("z"))
    for _ in range(4):
        other.commit(info())
    second = load_snapshot(other.store, previous=first)
    assert (second.version, second.metadata.id, paths(second)) == (4, "other", {"z"})
    shutil.rmtree(log.folder)
    with pytest.raises(DeltaTableNotFoundException):
        load_snapshot(other.store, previous=second)


def test_commits_that_were_cleaned_up_before_the_next_look(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 3)
    first = load_snapshot(log.store)
    for version in range(3, 6):
        log.commit(remove(f"f{version - 2}"), add(f"f{version}"))
    checkpoint(log, 5)
    for version in range(5):
        log.path(version).unlink()
    assert paths(load_snapshot(log.store, previous=first)) == live_at(5)


def test_advancing_onto_an_unknown_feature_is_refused(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 3)
    first = load_snapshot(log.store)
    upgrade = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]}
    log.commit({"protocol": upgrade})
    with pytest.raises(DeltaUnsupportedFeatureException, match=": x"):
        load_snapshot(log.store, previous=first)


def test_gap_after_the_previous_snapshot(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 3)
    first = load_snapshot(log.store)
    log.commit(add("x"))
    log.commit(add("y"))
    log.path(3).unlink()
    with pytest.raises(DeltaLogCorruptException, match="version 3"):
        load_snapshot(log.store, previous=first)


# What a snapshot says.


def test_timestamp_is_the_commit_files(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 3)
    set_time(log.path(2), 1_600_000_000_123)
    checkpoint(log, 2)
    assert load_snapshot(log.store).timestamp_ms == 1_600_000_000_123


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_in_commit_timestamp(tmp_path: Path, with_checkpoint: bool) -> None:
    log = Log(tmp_path)
    properties = {"delta.enableInCommitTimestamps": "true"}
    log.commit(info(inCommitTimestamp=5), PROTOCOL, metadata(configuration=properties))
    log.commit(info(inCommitTimestamp=7), add("a"))
    if with_checkpoint:
        checkpoint(log, 1)
    assert load_snapshot(log.store).timestamp_ms == 7
    assert load_snapshot(log.store, 0).timestamp_ms == 5


def test_transactions_and_domains(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.commit(
        PROTOCOL,
        metadata(),
        {"txn": {"appId": "a", "version": 1}},
        {"txn": {"appId": "b", "version": 1, "lastUpdated": 9}},
        {"domainMetadata": {"domain": "d", "configuration": "1", "removed": False}},
        {"domainMetadata": {"domain": "e", "configuration": "1", "removed": False}},
    )
    log.commit(
        {"txn": {"appId": "a", "version": 2}},
        {"domainMetadata": {"domain": "d", "configuration": "", "removed": True}},
        {"domainMetadata": {"domain": "e", "configuration": "2", "removed": False}},
    )
    for _ in range(2):
        snapshot = load_snapshot(log.store)
        assert {name: txn.version for name, txn in snapshot.set_transactions.items()} == {"a": 2, "b": 1}
        assert {name: domain.configuration for name, domain in snapshot.domain_metadata.items()} == {"e": "2"}
        checkpoint(log, 1)


def test_two_spellings_of_one_path(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.commit(PROTOCOL, metadata(), add("a%20b"), add("c%2Bd"), add("/abs/x"), add("/abs/y"), add("e"))
    log.commit(remove("c+d"), remove("file:///abs/x"), add("%65", size=99))
    snapshot = load_snapshot(log.store)
    assert paths(snapshot) == {"a%20b", "/abs/y", "%65"}
    assert snapshot.files.size_in_bytes == 119


def test_tombstones_after_the_log_was_cleaned_up(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 6)
    snapshot = load_snapshot(log.store)
    expected = sorted(snapshot.tombstones().column("path").to_pylist())
    checkpoint(log, 5)
    for version in range(5):
        log.path(version).unlink()
    assert sorted(snapshot.tombstones().column("path").to_pylist()) == expected == ["f0", "f1", "f2", "f3"]


@pytest.mark.parametrize("first", ["cdc", "commitInfo", "unknown"])
def test_a_line_may_name_actions_that_it_has_not(tmp_path: Path, first: str) -> None:
    log = Log(tmp_path)
    log.commit(PROTOCOL, metadata(), add("f"))
    txn = {"txn": {"appId": "app", "version": 3}}
    log.commit(*({first: None, **action} for action in (add("g"), remove("f"), txn)))
    log.commit(info())
    snapshot = load_snapshot(log.store)
    assert [file.path for file in snapshot.files.add_files()] == ["g"]
    assert snapshot.set_transactions["app"].version == 3


def test_commits_with_unusual_lines(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 2)
    log.path(2).write_text(
        '\r\n  { "add" : {"path":"x","partitionValues":{},"size":1,"modificationTime":1}}\r\n'
        '{"remove":null,"add":{"path":"y","partitionValues":{},"size":1,"modificationTime":1}}\n'
        '{"cdc":{"path":"c","partitionValues":{},"size":1,"dataChange":false}}\n'
        ' {"cdc":{"path":"c"}}\n{"newAction":{}}\n\n{"add":{"path":"z","partitionValues":{},"size":1,'
        '"modificationTime":1}}'
    )
    log.path(3).write_text("")
    snapshot = load_snapshot(log.store)
    assert snapshot.version == 3
    assert paths(snapshot) == live_at(1) | {"x", "y", "z"}


def test_object_store(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 30)
    checkpoint(log, 5)
    store = ObjectStore("s3://bucket/a table", MemoryStore(), "a table")
    for file in log.store.list():
        store.put(file.path, log.store.get(file.path))
    snapshot = load_snapshot(store)
    assert (snapshot.version, paths(snapshot)) == (29, live_at(29))
    write_checkpoint(snapshot, now_ms=0)
    store.put_if_absent(
        "_delta_log/00000000000000000030.json", b'{"add":' + json.dumps(add("n")["add"]).encode() + b"}"
    )
    assert paths(load_snapshot(store, previous=snapshot)) == live_at(29) | {"n"}
    assert paths(load_snapshot(store)) == live_at(29) | {"n"}
    assert paths(load_snapshot(store, 2)) == live_at(2)


# Random logs against the plain model.

NAMES = st.sampled_from(["a", "b", "b%20c", "b c", "d", "/x/y", "file:/x/y"])
CANONICAL = {"b%20c": "b c", "/x/y": "file:/x/y"}
STEPS = st.lists(
    st.tuples(
        st.dictionaries(NAMES, st.booleans(), max_size=4),
        st.sampled_from(["", "", "checkpoint", "compact", "advance"]),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_random_logs(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[dict[str, bool], str]]) -> None:
    log = Log(tmp_path_factory.mktemp("log"))
    log.commit(PROTOCOL, metadata())
    state: dict[str, tuple[str, int]] = {}
    states: list[dict[str, tuple[str, int]]] = [{}]
    previous = load_snapshot(log.store)
    for files, then in steps:
        chosen = {CANONICAL.get(name, name): (name, added) for name, added in files.items()}
        version = log.commit(
            info(), *(add(name, size=len(states)) if new else remove(name) for name, new in chosen.values())
        )
        for key, (name, new) in chosen.items():
            state.pop(key, None)
            if new:
                state[key] = (name, version)
        states.append(dict(state))
        if then == "checkpoint":
            checkpoint(log, version)
        elif then == "compact" and version >= 2:
            log.compact(1, version)
        elif then == "advance":
            previous = load_snapshot(log.store, previous=previous)
            assert _sizes(previous) == sorted(state.values())
    for version, expected in enumerate(states):
        assert _sizes(load_snapshot(log.store, version)) == sorted(expected.values())
    last = load_snapshot(log.store, previous=previous)
    assert _sizes(last) == sorted(state.values())
    dead = {CANONICAL.get(path, path) for path in last.tombstones().column("path").to_pylist()}
    assert not dead & set(state)


def _sizes(snapshot: Snapshot) -> list[tuple[str, int]]:
    return sorted((file.path, file.size) for file in snapshot.files.add_files())
