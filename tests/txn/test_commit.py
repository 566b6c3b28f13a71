"""What a commit writes, and what becomes of it when processes race, die, or the store fails."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import multiprocessing
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from obstore.exceptions import BaseError, NotSupportedError, PermissionDeniedError, UnauthenticatedError

from deltamerge.exceptions import (
    CommitStateUnknownException,
    ConcurrentDeleteReadException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    DeltaLogCorruptException,
    DeltaTableException,
)
from deltamerge.log.actions import Protocol, SetTransaction, to_json_lines
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.cleanup import PROTECTED_BEFORE
from deltamerge.log.features.type_widening import with_type_changes
from deltamerge.log.schema import PrimitiveType, StructType, parse_schema, schema_to_json
from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.storage.calls import described, raise_error
from deltamerge.storage.local_store import LocalStore
from deltamerge.storage.store import open_store
from deltamerge.storage.stored_file import not_atomic
from deltamerge.txn.application import ApplicationTransaction
from deltamerge.txn.prepared import CommitSettings
from deltamerge.txn.transaction import ReadSet, commit
from deltamerge.version import ENGINE_INFO
from txn.tables import SCHEMA, append, clock, create, metadata, prepare, write_file

PROCESSES = multiprocessing.get_context("spawn")


def commit_info(snapshot: Snapshot, version: int) -> dict[str, Any]:
    content = snapshot.store.get(f"_delta_log/{version:020d}.json")
    return json.loads(content.split(b"\n")[0])["commitInfo"]


def test_a_commit_says_who_did_what(tmp_path: Path) -> None:
    read = create(tmp_path)
    prepared = prepare(read, write_file(read, [1]), settings=CommitSettings("why"), isolation_level="WriteSerializable")
    committed = commit(prepared, lambda: 1_700_000_000_123)
    assert committed.version == 1
    assert commit_info(read, 1) == {
        "timestamp": 1_700_000_000_123,
        "operation": "MERGE",
        "operationParameters": {"predicate": '["(id = id)"]'},
        "readVersion": 0,
        "isolationLevel": "WriteSerializable",
        "isBlindAppend": True,
        "operationMetrics": {"numOutputRows": "1"},
        "userMetadata": "why",
        "engineInfo": ENGINE_INFO,
        "txnId": prepared.txn_id,
    }
    info = commit_info(read, 0)
    assert "readVersion" not in info
    assert info["operation"] == "CREATE TABLE"
    assert committed.snapshot.schema == SCHEMA
    table = DeltaTable(str(tmp_path))
    assert table.version() == 1
    assert table.history(1)[0]["userMetadata"] == "why"


def test_in_commit_timestamps_grow(tmp_path: Path) -> None:
    features = frozenset({"inCommitTimestamp"})
    times = iter([1_000_000, 999_000, 998_000])
    store = open_store(str(tmp_path))
    actions = (Protocol(1, 7, None, features), metadata(enableInCommitTimestamps="true"))
    committed = commit(prepare(store, *actions), lambda: next(times))
    read = committed.snapshot
    assert read.timestamp_ms == 1_000_000
    # The clock goes back, and another writer comes first: still each commit is later than the one before.
    commit(prepare(read, write_file(read, [1])), lambda: next(times))
    commit(prepare(read, write_file(read, [2])), lambda: 998_000)
    stamps = [commit_info(read, version)["inCommitTimestamp"] for version in range(3)]
    assert stamps == [1_000_000, 1_000_001, 1_000_002]


@pytest.mark.parametrize(("interval", "expected"), [(None, [10]), ("3", [3, 6, 9]), ("nonsense", [10])])
def test_checkpoints_come_at_their_interval(tmp_path: Path, interval: str | None, expected: list[int]) -> None:
    configuration: dict[str, Any] = {} if interval is None else {"checkpointInterval": interval}
    read = create(tmp_path, **configuration)
    for number in range(1, 12):
        _, read = append(read, [number])
    written = sorted(path.name for path in (tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    assert written == [f"{version:020d}.checkpoint.parquet" for version in expected]
    assert load_snapshot(read.store).files.num_files == 11
    assert sorted(DeltaTable(str(tmp_path)).to_pyarrow_table()["id"].to_pylist()) == list(range(1, 12))


class NoCheckpoints(LocalStore):
    """A disk that takes commits and nothing else."""

    def put(self, path: str, content: bytes) -> None:
        if "checkpoint" in path:
            raise OSError("no space left for checkpoints")
        super().put(path, content)


def test_a_failing_checkpoint_only_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    create(tmp_path, checkpointInterval="1")
    read = load_snapshot(NoCheckpoints(str(tmp_path)))
    with caplog.at_level(logging.WARNING):
        committed = commit(prepare(read, write_file(read, [1])), clock)
    assert committed.version == 1
    assert "no space left for checkpoints" in caplog.text
    assert load_snapshot(read.store).version == 1


class Forgetful(LocalStore):
    """A store that writes the commit, or lets another do so, and then loses the answer."""

    is_local = False

    def __init__(
        self,
        root: str,
        failures: int = 1,
        writes: bool = True,
        rival: bytes | None = None,
        unreadable: bool = False,
    ) -> None:
        super().__init__(root)
        self.failures = failures
        self.writes = writes
        self.rival = rival
        self.unreadable = unreadable
        self.offers = 0

    def put_if_absent(self, path: str, content: bytes) -> None:
        if not path.endswith(".json"):
            super().put_if_absent(path, content)
            return
        self.offers += 1
        if self.offers > self.failures:
            super().put_if_absent(path, content)
            return
        if self.rival is not None:
            super().put_if_absent(path, self.rival)
        elif self.writes:
            super().put_if_absent(path, content)
        raise TimeoutError("the answer got lost")

    def get(self, path: str) -> bytes:
        if self.unreadable and self.offers and path.endswith("1.json"):
            raise ConnectionError("unreachable")
        return super().get(path)


def forgetful(tmp_path: Path, **behaviour: Any) -> tuple[Snapshot, Forgetful]:
    create(tmp_path)
    store = Forgetful(str(tmp_path), **behaviour)
    return load_snapshot(store), store


def test_a_commit_whose_answer_is_lost_is_recognized(tmp_path: Path) -> None:
    read, store = forgetful(tmp_path)
    committed = commit(prepare(read, write_file(read, [1])), clock)
    assert committed.version == 1
    assert store.offers == 1
    assert load_snapshot(read.store).version == 1


def test_a_commit_that_was_not_written_is_written_again(tmp_path: Path) -> None:
    read, store = forgetful(tmp_path, writes=False, failures=2)
    committed = commit(prepare(read, write_file(read, [1])), clock)
    assert committed.version == 1
    assert store.offers == 3


def test_a_version_that_another_got_meanwhile_is_a_lost_race(tmp_path: Path) -> None:
    rival = b'{"commitInfo":{"operation":"WRITE","txnId":"other","isBlindAppend":true}}\n'
    read, _ = forgetful(tmp_path, rival=rival)
    committed = commit(prepare(read, write_file(read, [1])), clock)
    assert committed.version == 2


def test_a_store_that_never_answers_leaves_the_state_unknown(tmp_path: Path) -> None:
    read, _ = forgetful(tmp_path, writes=False, failures=99)
    prepared = prepare(read, write_file(read, [1]))
    with pytest.raises(CommitStateUnknownException) as caught:
        commit(prepared, clock)
    message = str(caught.value)
    assert caught.value.error_class == "DELTA_COMMIT_STATE_UNKNOWN"
    assert prepared.txn_id in message
    assert "00000000000000000001.json" in message
    assert "do not delete" in message


def test_a_commit_that_cannot_be_read_back_is_unknown(tmp_path: Path) -> None:
    read, store = forgetful(tmp_path, failures=99, unreadable=True)
    with pytest.raises(CommitStateUnknownException):
        commit(prepare(read, write_file(read, [1])), clock)
    store.unreadable = False
    assert load_snapshot(read.store).version == 1


class Failing(LocalStore):
    """A local disk that fails, after it has written or before."""

    def __init__(self, root: str, error: OSError, *, writes: bool, unreadable: OSError | None = None) -> None:
        super().__init__(root)
        self.error = error
        self.writes = writes
        self.unreadable = unreadable

    def put_if_absent(self, path: str, content: bytes) -> None:
        if self.writes:
            super().put_if_absent(path, content)
        raise self.error

    def get(self, path: str) -> bytes:
        if self.unreadable is not None and path.endswith("1.json"):
            raise self.unreadable
        return super().get(path)


TOO_MANY_FILES = OSError(errno.EMFILE, "too many open files")


def test_a_local_commit_that_cannot_be_read_back_is_unknown(tmp_path: Path) -> None:
    create(tmp_path)
    store = Failing(str(tmp_path), TOO_MANY_FILES, writes=True)
    read = load_snapshot(store)
    store.unreadable = TOO_MANY_FILES
    with pytest.raises(CommitStateUnknownException):
        commit(prepare(read, write_file(read, [1])), clock)
    store.unreadable = None
    assert load_snapshot(store).version == 1


def test_a_disk_that_does_not_answer_leaves_the_state_unknown(tmp_path: Path) -> None:
    create(tmp_path)
    read = load_snapshot(Failing(str(tmp_path), OSError(errno.ETIMEDOUT, "timed out"), writes=False))
    with pytest.raises(CommitStateUnknownException):
        commit(prepare(read, write_file(read, [1])), clock)


def test_a_full_disk_is_its_own_error(tmp_path: Path) -> None:
    create(tmp_path)
    read = load_snapshot(Failing(str(tmp_path), OSError(errno.ENOSPC, "no space left"), writes=False))
    with pytest.raises(OSError, match="no space left"):
        commit(prepare(read, write_file(read, [1])), clock)


def test_a_full_disk_after_an_offer_that_may_land_later(tmp_path: Path) -> None:
    """A network disk may still do what was asked for first."""
    create(tmp_path)
    store = Failing(str(tmp_path), OSError(errno.EIO, "no answer"), writes=False)
    errors = iter([store.error, *[OSError(errno.ENOSPC, "no space left")] * 9])
    read = load_snapshot(store)

    def put(path: str, content: bytes) -> None:
        raise next(errors)

    store.put_if_absent = put  # type: ignore[method-assign]
    with pytest.raises(CommitStateUnknownException):
        commit(prepare(read, write_file(read, [1])), clock)


@pytest.mark.parametrize("kind", [PermissionDeniedError, UnauthenticatedError, NotSupportedError])
def test_a_refusal_in_a_task_is_the_stores_own_error(tmp_path: Path, kind: type[BaseError]) -> None:
    create(tmp_path)

    class InTasks(LocalStore):
        def put_if_absent(self, path: str, content: bytes) -> None:
            raise_error(described(kind(path)))

    read = load_snapshot(InTasks(str(tmp_path)))
    with pytest.raises(kind):
        commit(prepare(read, write_file(read, [1])), clock)


class NotAtomic(LocalStore):
    """A file system that two writers could both commit to."""

    is_local = False

    def put_if_absent(self, path: str, content: bytes) -> None:
        raise not_atomic("oss", self.root)


def test_a_store_that_is_not_atomic_has_not_written(tmp_path: Path) -> None:
    create(tmp_path)
    read = load_snapshot(NotAtomic(str(tmp_path)))
    with pytest.raises(DeltaTableException, match="Nothing was written"):
        commit(prepare(read, write_file(read, [1])), clock)


class Refusing(Forgetful):
    """A store that denies access."""

    def put_if_absent(self, path: str, content: bytes) -> None:
        raise PermissionError(path)


def test_a_refusal_is_the_stores_own_error(tmp_path: Path) -> None:
    create(tmp_path)
    read = load_snapshot(Refusing(str(tmp_path)))
    with pytest.raises(PermissionError):
        commit(prepare(read, write_file(read, [1])), clock)


class RefusingLater(Forgetful):
    """An object store that wrote the commit as it failed, and refuses when it is asked again."""

    def put_if_absent(self, path: str, content: bytes) -> None:
        with contextlib.suppress(TimeoutError):
            super().put_if_absent(path, content)
        raise PermissionDeniedError("the token has expired")


def test_a_refusal_of_what_was_written_before(tmp_path: Path) -> None:
    create(tmp_path)
    store = RefusingLater(str(tmp_path))
    read = load_snapshot(store)
    assert commit(prepare(read, write_file(read, [1])), clock).version == 1
    store.unreadable, store.offers = True, 0
    with pytest.raises(CommitStateUnknownException):
        commit(prepare(load_snapshot(store, 0), write_file(read, [1])), clock)


def test_a_version_that_exists_and_is_not_there(tmp_path: Path) -> None:
    """As S3 answers a write that met the deletion of what was there."""

    class Conflicting(LocalStore):
        offers = 0

        def put_if_absent(self, path: str, content: bytes) -> None:
            self.offers += 1
            if self.offers == 1:
                raise FileExistsError(path)
            super().put_if_absent(path, content)

    create(tmp_path)
    read = load_snapshot(Conflicting(str(tmp_path)))
    assert commit(prepare(read, write_file(read, [1])), clock).version == 1


class FullDisk(LocalStore):
    """A local disk that is full."""

    def put_if_absent(self, path: str, content: bytes) -> None:
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_no_mystery(tmp_path: Path) -> None:
    create(tmp_path)
    read = load_snapshot(FullDisk(str(tmp_path)))
    with pytest.raises(OSError, match="No space left"):
        commit(prepare(read, write_file(read, [1])), clock)


def test_a_transaction_gives_up_after_its_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = create(tmp_path)

    class Busy(LocalStore):
        """A table on which another writer is always first."""

        def put_if_absent(self, path: str, content: bytes) -> None:
            super().put_if_absent(path, b'{"commitInfo":{"operation":"WRITE","txnId":"x"}}\n')
            super().put_if_absent(path, content)

    monkeypatch.setattr("deltamerge.txn.transaction.MAX_ATTEMPTS", 5)
    read = load_snapshot(Busy(str(tmp_path)))
    with pytest.raises(ConcurrentWriteException) as caught:
        commit(prepare(read, write_file(read, [1])), clock)
    assert caught.value.error_class == "DELTA_CONCURRENT_WRITE"
    assert load_snapshot(open_store(str(tmp_path))).version == 5


def append_many(root: Any, count: Any, base: Any) -> None:
    read = load_snapshot(open_store(root))
    for number in range(count):
        # A stale snapshot on purpose: every second commit meets the other process's.
        committed = commit(prepare(read, write_file(read, [base + number])), clock)
        if number % 2:
            read = committed.snapshot


def append_forever(root: Any, started: Any) -> None:
    read = load_snapshot(open_store(root))
    number = 0
    while True:
        commit(prepare(read, write_file(read, [number])), clock)
        number += 1
        if number == 3:
            started.set()


@pytest.mark.slow
def test_two_processes_race_and_no_commit_is_lost(tmp_path: Path) -> None:
    create(tmp_path)
    racers = [PROCESSES.Process(target=append_many, args=(str(tmp_path), 20, base)) for base in (0, 1000)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(120)
    assert [racer.exitcode for racer in racers] == [0, 0]
    snapshot = load_snapshot(open_store(str(tmp_path)))
    assert snapshot.version == 40
    assert snapshot.files.num_files == 40
    expected = [*range(20), *range(1000, 1020)]
    table = DeltaTable(str(tmp_path))
    assert table.version() == 40
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == expected
    ids = {commit_info(snapshot, version)["txnId"] for version in range(41)}
    assert len(ids) == 41


@pytest.mark.slow
def test_a_killed_process_leaves_a_readable_table(tmp_path: Path) -> None:
    create(tmp_path, checkpointInterval="2")
    for _ in range(3):
        started = PROCESSES.Event()
        victim = PROCESSES.Process(target=append_forever, args=(str(tmp_path), started))
        victim.start()
        assert started.wait(60)
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        victim.join(30)
        snapshot = load_snapshot(open_store(str(tmp_path)))
        assert snapshot.files.num_files == snapshot.version
        _, after = append(snapshot, [1])
        assert after.version == snapshot.version + 1
    assert DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == after.version


def test_what_a_process_keeps_of_a_table_does_not_grow(tmp_path: Path) -> None:
    """Each version adds a file and removes another; the snapshot is that of the whole log, and no larger."""
    snapshot = create(tmp_path)
    for number in range(90):
        files = snapshot.files.add_files()
        removed = [files[0].remove(clock())] if len(files) > 40 else []
        committed = commit(prepare(snapshot, write_file(snapshot, [number]), *removed, read=ReadSet()), clock)
        snapshot = load_snapshot(snapshot.store, previous=snapshot)
        assert snapshot.version == committed.version
    whole = load_snapshot(snapshot.store)
    assert sorted(snapshot.files.paths()) == sorted(whole.files.paths())
    assert len(snapshot.files.paths()) == 41
    assert snapshot.segment == whole.segment
    assert snapshot.files.arrow.column("path").num_chunks <= 33
    assert snapshot.tombstones().num_rows == 49


def test_a_checkpoint_that_is_damaged_later(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    for number in range(12):
        snapshot = append(snapshot, [number])[1]
        snapshot = load_snapshot(snapshot.store, previous=snapshot)
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    assert snapshot.tombstones().num_rows == 0
    assert load_snapshot(snapshot.store).files.num_files == 12


def test_a_folder_that_lets_nobody_delete_keeps_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was linked into place cannot be removed under its first name."""
    create(tmp_path)
    read = load_snapshot(open_store(str(tmp_path)))
    prepared = prepare(read, write_file(read, [1]))

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if missing_ok and not self.exists():
            return
        raise PermissionError(errno.EPERM, "Operation not permitted", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert commit(prepared, clock).version == 1


def test_half_a_commit_is_not_left_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path)
    read = load_snapshot(open_store(str(tmp_path)))
    prepared = prepare(read, write_file(read, [1]))
    synced = os.fsync

    def no_links(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links")

    def full(file: int) -> None:
        if Path(f"/proc/self/fd/{file}").readlink().name.endswith("1.json"):
            raise OSError(errno.ENOSPC, "no space left")
        synced(file)

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(DeltaTableException, match=r"without hard links.*single_writer=true"):
        commit(prepared, clock)
    monkeypatch.setattr(os, "fsync", full)
    alone = load_snapshot(open_store(str(tmp_path), {"single_writer": "true"}))
    with pytest.raises(OSError, match="no space left"):
        commit(prepare(alone, write_file(alone, [1])), clock)
    monkeypatch.setattr(os, "fsync", synced)
    assert load_snapshot(read.store).version == 0
    assert commit(prepare(alone, write_file(alone, [1])), clock).version == 1


def test_the_newest_version_is_still_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader waits for it; who writes after it has read nothing of it, loses."""
    create(tmp_path)
    before = load_snapshot(open_store(str(tmp_path)))
    content = to_json_lines([write_file(before, [1])])
    newest = tmp_path / "_delta_log" / f"{1:020}.json"
    newest.touch()
    monkeypatch.setattr(time, "sleep", lambda _: None)
    empty = load_snapshot(open_store(str(tmp_path)))
    assert (empty.version, empty.files.num_files) == (1, 0)
    newest.write_bytes(content)
    with pytest.raises(DeltaConcurrentModificationException):
        commit(prepare(empty, write_file(empty, [2])), clock)
    newest.write_bytes(b"")
    monkeypatch.setattr(time, "sleep", lambda _: newest.write_bytes(content))
    assert load_snapshot(open_store(str(tmp_path))).files.num_files == 1


def test_a_commit_that_is_still_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another engine's file, where it is not created atomically: what it changes is waited for, and never guessed."""
    create(tmp_path)
    read = load_snapshot(open_store(str(tmp_path)))
    file = write_file(read, [1])
    read = commit(prepare(read, file), clock).snapshot
    prepared = prepare(read, file.remove(clock()), read=ReadSet(whole_table=True))
    winner = tmp_path / "_delta_log" / f"{2:020}.json"
    winner.touch()
    with pytest.raises(DeltaLogCorruptException, match="is empty"):
        commit(prepared, clock)
    content = to_json_lines([file.remove(clock())])
    monkeypatch.setattr(time, "sleep", lambda _: winner.write_bytes(content))
    winner.write_bytes(b"")
    with pytest.raises(ConcurrentDeleteReadException):
        commit(prepared, clock)


def test_a_version_that_was_cleaned_up_while_a_long_transaction_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing that it read says that the log is kept only for a short time."""
    read = create(tmp_path)
    prepared = prepare(read, write_file(read, [1]))
    snapshot = read
    for number in range(12):
        snapshot = append(snapshot, [number])[1]
    for version in range(10):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    with pytest.raises(ConcurrentWriteException, match="cleaned up"):
        commit(prepared, clock)


def test_a_type_is_widened_in_the_version_that_lands(tmp_path: Path) -> None:
    """The preview of type widening records the version."""
    feature = frozenset({"typeWidening-preview"})
    protocol = Protocol(3, 7, feature, feature | {"appendOnly", "invariants"})
    read = create(tmp_path, protocol=protocol, enableTypeWidening="true")
    before = parse_schema(read.metadata.schema_string or "")
    wider = StructType((replace(before.fields[0], data_type=PrimitiveType("decimal(20,0)")), *before.fields[1:]))
    schema = with_type_changes(before, wider, table_version=read.version + 1)
    prepared = prepare(read, replace(read.metadata, schema_string=schema_to_json(schema)))
    append(read, [1])
    landed = commit(prepared, clock)
    assert landed.version == 2
    (change,) = parse_schema(landed.snapshot.metadata.schema_string or "").fields[0].metadata["delta.typeChanges"]
    assert change["tableVersion"] == 2


class Tearing(Forgetful):
    """A store that writes the beginning of a commit, and then loses the answer."""

    def put_if_absent(self, path: str, content: bytes) -> None:
        super().put_if_absent(path, content[: content.index(b"\n") + 1] if path.endswith("1.json") else content)


def test_a_part_of_a_commit_is_no_commit(tmp_path: Path) -> None:
    create(tmp_path)
    read = load_snapshot(Tearing(str(tmp_path)))
    with pytest.raises(CommitStateUnknownException):
        commit(prepare(read, write_file(read, [1])), clock)


def test_a_version_that_was_cleaned_up_meanwhile(tmp_path: Path) -> None:
    """Nobody would find a commit that took the place of a version below the log's first."""
    create(tmp_path, logRetentionDuration="interval 1 day")
    read = load_snapshot(open_store(str(tmp_path)))
    prepared = prepare(read, write_file(read, [1]))
    for _ in range(2):
        latest = load_snapshot(read.store)
        commit(prepare(latest, write_file(latest, [2])), clock)
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(ConcurrentWriteException, match="version 1 was cleaned up meanwhile"):
        commit(prepared, clock)


def test_a_table_that_was_dropped_and_made_anew_while_a_long_transaction_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version far above the new table's last would make it unreadable."""
    for versions in (0, 2):
        read = append(append(create(tmp_path / "t"), [1])[1], [2])[1]
        prepared = prepare(read, write_file(read, [1]))
        shutil.rmtree(tmp_path / "t")
        made = create(tmp_path / "t", partitioned=True)
        for number in range(versions):
            made = append(made, [number], "a")[1]
        with monkeypatch.context() as patched:
            later = time.monotonic() + 60
            patched.setattr(time, "monotonic", lambda at=later: at)
            with pytest.raises(ConcurrentWriteException, match="dropped, or made anew"):
                commit(prepared, clock)
        assert load_snapshot(open_store(str(tmp_path / "t"))).version == versions
        shutil.rmtree(tmp_path / "t")


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_transactions_expire(tmp_path: Path, policy: str) -> None:
    """Delta: delta.setTransactionRetentionDuration; the protocol leaves it to writers."""
    protocol = Protocol(3, 7, frozenset({"v2Checkpoint"}), frozenset({"v2Checkpoint"}))
    made = create(
        tmp_path, protocol=protocol, setTransactionRetentionDuration="interval 1 hour", checkpointPolicy=policy
    )
    now = clock()
    old, new = SetTransaction("old", 5, now - 2 * 3_600_000), SetTransaction("new", 5, now)
    snapshot = commit(prepare(made, old, new, SetTransaction("timeless", 5)), clock).snapshot
    for seen in (snapshot, load_snapshot(snapshot.store)):
        assert [ApplicationTransaction(name, 5).is_in(seen) for name in ("old", "new", "timeless")] == [
            False,
            True,
            False,
        ]
        write_checkpoint(seen, now)
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    assert list(load_snapshot(snapshot.store).set_transactions) == ["new"]
    kept = prepare(snapshot, replace(snapshot.metadata, configuration={}))
    assert ApplicationTransaction("old", 5).is_in(commit(kept, clock).snapshot)


def test_the_version_that_drops_a_feature_protects_checkpoints_before_it(tmp_path: Path) -> None:
    read = create(tmp_path, protocol=Protocol(1, 7, None, frozenset({"checkpointProtection"})))
    commit(prepare(read), clock)
    protecting = {**read.metadata.configuration, PROTECTED_BEFORE: "1"}
    dropped = commit(prepare(read, replace(read.metadata, configuration=protecting)), clock).snapshot
    assert (dropped.version, dropped.metadata.configuration[PROTECTED_BEFORE]) == (2, "2")
    again = commit(prepare(dropped, replace(dropped.metadata, description="other")), clock).snapshot
    assert (again.version, again.metadata.configuration[PROTECTED_BEFORE]) == (3, "2")


def test_manifests_are_written_of_what_is_known_of_the_table(tmp_path: Path) -> None:
    read = create(tmp_path)
    asking = {"delta.compatibility.symlinkFormatManifest.enabled": "true"}
    read = commit(prepare(read, replace(read.metadata, configuration=asking)), clock).snapshot
    # Who reads the whole log needs it.
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    file, _ = append(read, [2])
    assert file.path in (tmp_path / "_symlink_format_manifest" / "manifest").read_text()
