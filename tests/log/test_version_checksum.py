"""Version checksums: what is written after a commit, and logs that read well but do not add up to theirs."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from deltamerge.exceptions import DeltaLogCorruptException
from deltamerge.log.actions import DomainMetadata, Json, Protocol, SetTransaction
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.log.version_checksum import checksum_content
from deltamerge.storage.local_store import LocalStore
from deltamerge.storage.store import open_store
from deltamerge.txn.prepared import CommitSettings
from deltamerge.txn.transaction import commit
from foreign.tables import OWN
from txn.tables import append, clock, create, metadata, prepare, write_file

RECORDED = sorted({(file.parent.parent.name, int(file.stem)) for file in OWN.glob("*/_delta_log/[0-9]*.crc")})
FEATURES = frozenset({"deletionVectors", "domainMetadata"})


def checksum(snapshot: Snapshot) -> Path:
    return Path(snapshot.store.root, "_delta_log", f"{snapshot.version:020d}.crc")


def commit_file(snapshot: Snapshot) -> Path:
    return checksum(snapshot).with_suffix(".json")


def recorded(snapshot: Snapshot) -> Json:
    content: Json = json.loads(checksum(snapshot).read_bytes())
    return content


def made(root: Path) -> Snapshot:
    """A table with everything that a checksum has."""
    protocol = Protocol(3, 7, frozenset({"deletionVectors"}), FEATURES)
    before = create(root, protocol=protocol, enableDeletionVectors="true")
    actions = (write_file(before, [1, 2]), SetTransaction("app", 3), DomainMetadata("mine", "{}"))
    return commit(prepare(before, *actions), clock).snapshot


def edited(file: Path, old: str, new: str) -> None:
    content = file.read_text()
    assert old in content
    file.write_text(content.replace(old, new))


@pytest.mark.parametrize(("name", "version"), RECORDED)
def test_checksums_of_delta_spark(name: str, version: int) -> None:
    """delta-spark's are accepted, and would have been written with the same values."""
    snapshot = load_snapshot(open_store(str(OWN / name)), version)
    assert snapshot.segment.checksum is not None
    theirs, ours = recorded(snapshot), json.loads(checksum_content(snapshot.state, "t"))
    for each in (theirs, ours):
        for action in (each["protocol"], *(each.get("allFiles") or ())):
            # The order of features and of keys, and what only tells where a file came from.
            action.update({key: sorted(value) for key, value in action.items() if isinstance(value, list)})
            for key in ("dataChange", "stats", "tags", "clusteringProvider"):
                action.pop(key, None)
        each["allFiles"] = sorted(each.get("allFiles") or (), key=lambda file: str(file["path"]))
    same = ours.keys() & theirs.keys() - {"txnId"} - ({"allFiles"} if not theirs["allFiles"] else set())
    assert {"tableSizeBytes", "numFiles", "metadata", "protocol", "domainMetadata", "setTransactions"} <= same
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}


def test_what_is_written(tmp_path: Path) -> None:
    snapshot = made(tmp_path)
    found = recorded(snapshot)
    (file,) = snapshot.files.add_files()
    assert found["txnId"] == json.loads(commit_file(snapshot).read_text().splitlines()[0])["commitInfo"]["txnId"]
    assert (found["tableSizeBytes"], found["numFiles"]) == (file.size, 1)
    assert (found["numMetadata"], found["numProtocol"]) == (1, 1)
    assert (found["numDeletedRecordsOpt"], found["numDeletionVectorsOpt"]) == (0, 0)
    assert found["setTransactions"] == [{"appId": "app", "version": 3}]
    assert found["domainMetadata"] == [{"domain": "mine", "configuration": "{}", "removed": False}]
    assert found["metadata"]["id"] == snapshot.metadata.id
    assert found["protocol"]["readerFeatures"] == ["deletionVectors"]
    assert [each["path"] for each in found["allFiles"]] == [file.path]
    assert "inCommitTimestampOpt" not in found
    assert load_snapshot(snapshot.store).segment.checksum is not None


def test_in_commit_timestamps(tmp_path: Path) -> None:
    protocol = Protocol(1, 7, None, frozenset({"inCommitTimestamp"}))
    _, snapshot = append(create(tmp_path, protocol=protocol, enableInCommitTimestamps="true"), [1])
    assert recorded(snapshot)["inCommitTimestampOpt"] == snapshot.timestamp_ms


def test_after_another_writers_commit(tmp_path: Path) -> None:
    first = create(tmp_path)
    ours = prepare(first, write_file(first, [1]))
    append(first, [2])
    snapshot = commit(ours, clock).snapshot
    assert snapshot.version == 2
    assert recorded(snapshot)["numFiles"] == 2
    assert load_snapshot(snapshot.store).files.num_files == 2


def test_large_states_are_left_out(tmp_path: Path) -> None:
    first = create(tmp_path)
    many = [SetTransaction(f"app-{i}", 1) for i in range(101)]
    files = [write_file(first, [i]) for i in range(51)]
    found = recorded(commit(prepare(first, *many, *files), clock).snapshot)
    assert found["numFiles"] == 51
    assert "setTransactions" not in found
    assert "allFiles" not in found


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [
        ("tableSizeBytes", '"size":', '"size":1'),
        ("tableSizeBytes", '{"add":', '{"cdc":'),
        ("setTransactions", '"version":3', '"version":4'),
        ("domainMetadata", '"configuration":"{}"', '"configuration":"[]"'),
        ("allFiles", '"path":"', '"path":"other-'),
        ("allFiles", r"\"minValues\":{\"id\":1", r"\"minValues\":{\"id\":2"),
    ],
)
def test_a_commit_that_was_changed(tmp_path: Path, field: str, old: str, new: str) -> None:
    snapshot = made(tmp_path)
    edited(commit_file(snapshot), old, new)
    with pytest.raises(DeltaLogCorruptException, match=f"the {field} of version 1 is .*1.crc") as caught:
        load_snapshot(snapshot.store)
    assert caught.value.error_class == "DELTA_TXN_LOG_FAILED_INTEGRITY"
    assert caught.value.parameters["field"] == field
    checksum(snapshot).unlink()
    assert load_snapshot(snapshot.store).version == 1


def test_times_that_writers_spell_in_several_ways(tmp_path: Path) -> None:
    """Those of a checkpoint's columns have six digits, in UTC; those of delta-spark's JSON three, in some zone."""
    first = create(tmp_path)
    stats = '{"numRecords":1,"minValues":{"at":"2024-01-01T00:00:00.120000Z"}}'
    file = replace(write_file(first, [1]), stats=stats)
    snapshot = commit(prepare(first, file), clock).snapshot
    content = checksum(snapshot).read_text()
    assert "00.120000Z" in content
    for spelled in ("2024-01-01T00:00:00.120Z", "2023-12-31T16:00:00.120-08:00"):
        checksum(snapshot).write_text(content.replace("2024-01-01T00:00:00.120000Z", spelled))
        assert load_snapshot(snapshot.store).version == 1
    checksum(snapshot).write_text(content.replace("00.120000Z", "00.121Z"))
    with pytest.raises(DeltaLogCorruptException, match="the allFiles of version 1"):
        load_snapshot(snapshot.store)


def test_files_are_recorded_as_they_are_replayed(tmp_path: Path) -> None:
    first = create(tmp_path)
    found = recorded(commit(prepare(first, write_file(first, [1])), clock).snapshot)
    assert [file["dataChange"] for file in found["allFiles"]] == [False]


@pytest.mark.parametrize("field", ["numFiles", "numDeletedRecordsOpt", "numDeletionVectorsOpt", "numMetadata"])
def test_a_count_that_is_another(tmp_path: Path, field: str) -> None:
    snapshot = made(tmp_path)
    checksum(snapshot).write_text(json.dumps({**recorded(snapshot), field: 7}))
    with pytest.raises(DeltaLogCorruptException, match=f"the {field} of version 1 is 7 by"):
        load_snapshot(snapshot.store)


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [
        ("metadata", r"\"name\":\"part\"", r"\"name\":\"parr\""),
        ("protocol", '"minReaderVersion":3', '"minReaderVersion":1'),
    ],
)
def test_an_older_commit_that_was_changed(tmp_path: Path, field: str, old: str, new: str) -> None:
    snapshot = made(tmp_path)
    edited(commit_file(load_snapshot(snapshot.store, 0)), old, new)
    for version in (0, None):
        with pytest.raises(DeltaLogCorruptException, match=f"the {field} of version"):
            load_snapshot(snapshot.store, version)


def test_after_a_snapshot_that_is_known(tmp_path: Path) -> None:
    known = made(tmp_path)
    _, latest = append(known, [3])
    edited(commit_file(latest), '"size":', '"size":1')
    with pytest.raises(DeltaLogCorruptException, match="the tableSizeBytes of version 2"):
        load_snapshot(known.store, previous=known)


def test_a_checkpoint_that_says_something_else(tmp_path: Path) -> None:
    snapshot = made(tmp_path / "t")
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "t", other)
    for file in sorted((other / "_delta_log").glob("*.crc")):
        file.unlink()
    edited(other / "_delta_log" / commit_file(snapshot).name, '"version":3', '"version":4')
    write_checkpoint(load_snapshot(open_store(str(other))), clock())
    for file in (other / "_delta_log").glob("*checkpoint*"):
        shutil.copy(file, tmp_path / "t" / "_delta_log")
    with pytest.raises(DeltaLogCorruptException, match="the setTransactions of version 1"):
        load_snapshot(snapshot.store)


def test_transactions_that_a_checkpoint_left_out(tmp_path: Path) -> None:
    """They had expired when it was written; the property by which they did is gone since."""
    first = create(tmp_path, setTransactionRetentionDuration="interval 1 hour")
    snapshot = commit(prepare(first, SetTransaction("app", 3, last_updated=1)), clock).snapshot
    write_checkpoint(snapshot, clock())
    snapshot = commit(prepare(snapshot, metadata()), clock).snapshot
    assert recorded(snapshot)["setTransactions"]
    assert not load_snapshot(snapshot.store).set_transactions


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"tableSizeBytes":"x","numFiles":1}', b'{"numFiles":1}']
)
def test_a_checksum_that_cannot_be_read(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    snapshot = made(tmp_path)
    checksum(snapshot).write_bytes(content)
    assert load_snapshot(snapshot.store).files.num_files == 1
    assert "1.crc cannot be read" in caplog.text


def test_fields_of_later_writers(tmp_path: Path) -> None:
    snapshot = made(tmp_path)
    content = {name: value for name, value in recorded(snapshot).items() if "Opt" not in name and name != "allFiles"}
    checksum(snapshot).write_text(json.dumps({**content, "histogramOpt": {}, "setTransactions": None, "new": [1]}))
    assert load_snapshot(snapshot.store).version == 1


class NoChecksums(LocalStore):
    """A store that fails with every checksum."""

    def get(self, path: str) -> bytes:
        self._fail(path)
        return super().get(path)

    def put_if_absent(self, path: str, content: bytes) -> None:
        self._fail(path)
        super().put_if_absent(path, content)

    def _fail(self, path: str) -> None:
        if path.endswith(".crc"):
            raise OSError("the store fails")


def test_a_store_that_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made(tmp_path)
    read = load_snapshot(NoChecksums(str(tmp_path)))
    caplog.set_level(logging.WARNING)
    committed = commit(prepare(read, write_file(read, [3])), clock)
    assert committed.version == 2
    assert "its version checksum failed" in caplog.text
    assert not checksum(committed.snapshot).exists()
    assert load_snapshot(open_store(str(tmp_path))).files.num_files == 2


def test_one_that_exists_stays(tmp_path: Path) -> None:
    first = create(tmp_path)
    before = checksum(first).with_name(f"{1:020d}.crc")
    before.write_text("another's")
    append(first, [1])
    assert before.read_text() == "another's"


def test_none_is_written_where_it_is_switched_off(tmp_path: Path) -> None:
    first = create(tmp_path)
    prepared = prepare(first, metadata(), settings=CommitSettings(writes_checksum=False))
    assert not checksum(commit(prepared, clock).snapshot).exists()
