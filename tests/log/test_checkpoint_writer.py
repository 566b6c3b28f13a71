from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from deltamerge.log.actions import AddFile, DeletionVectorDescriptor
from deltamerge.log.checkpoint.reading import read_checkpoint_actions, read_checkpoint_files
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.file_table import FileTable
from deltamerge.log.segment import find_segment
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import Store, open_store
from log.logs import PROTOCOL, Log, add, live_at, metadata, remove, simple_log

DAY = 24 * 3_600_000


def delta_rs_table(root: Path, commits: int = 4) -> Path:
    """A table with real data, written by delta-rs."""
    for number in range(commits):
        rows = {"id": [number, number + 100], "part": [f"a b{number}", None], "v": [1.5, float(number)]}
        write_deltalake(root, pa.table(rows), mode="append", partition_by=["part"])
    return root


def rows_of(table: DeltaTable) -> list[dict[str, Any]]:
    return sorted(table.to_pyarrow_table().to_pylist(), key=str)


def drop_commits(store: Store, up_to: int) -> None:
    store.delete([f"_delta_log/{version:020d}.json" for version in range(up_to)])


def test_delta_rs_reads_the_table_after_older_commits_are_gone(tmp_path: Path) -> None:
    root = str(delta_rs_table(tmp_path / "a bé"))
    DeltaTable(root).delete("id = 1")
    before = DeltaTable(root)
    store = open_store(root)
    snapshot = load_snapshot(store)
    path = write_checkpoint(snapshot, now_ms=snapshot.timestamp_ms)
    assert path == "_delta_log/00000000000000000004.checkpoint.parquet"
    drop_commits(store, 4)

    after = DeltaTable(root)
    assert after.version() == before.version() == 4
    assert rows_of(after) == rows_of(before)
    assert after.schema() == before.schema()
    assert sorted(after.file_uris()) == sorted(before.file_uris())
    assert sorted(after.get_add_actions(flatten=True).column("num_records").to_pylist()) == sorted(
        before.get_add_actions(flatten=True).column("num_records").to_pylist()
    )
    write_deltalake(root, pa.table({"id": [7], "part": ["z"], "v": [0.0]}), mode="append")
    assert load_snapshot(store, previous=snapshot).version == 5
    assert load_snapshot(store).files.num_files == snapshot.files.num_files + 1


def test_checkpoint_of_delta_rs_is_read(tmp_path: Path) -> None:
    root = str(delta_rs_table(tmp_path))
    expected = load_snapshot(open_store(root))
    DeltaTable(root).create_checkpoint()
    drop_commits(open_store(root), 3)
    found = load_snapshot(open_store(root))
    assert found.segment.checkpoint is not None
    assert sorted(found.files.paths()) == sorted(expected.files.paths())
    assert found.schema == expected.schema
    numbers = [json.loads(text)["numRecords"] for text in found.files.arrow.column("stats").to_pylist()]
    assert sum(numbers) == 8


def test_pointer(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 6)
    pointer = log.folder / "_last_checkpoint"
    (log.folder / "._last_checkpoint.crc").write_bytes(b"of what was there before")
    path = log.root / write_checkpoint(load_snapshot(log.store, 4), now_ms=0)
    assert json.loads(pointer.read_text()) == {
        "version": 4,
        "size": 7,
        "sizeInBytes": path.stat().st_size,
        "numOfAddFiles": 2,
    }
    assert pq.read_metadata(path).num_rows == 7
    assert not (log.folder / "._last_checkpoint.crc").exists()

    write_checkpoint(load_snapshot(log.store, 2), now_ms=0)
    assert json.loads(pointer.read_text())["version"] == 4
    # A pointer to nowhere is no newer one.
    pointer.write_text('{"version":99,"size":1}')
    write_checkpoint(load_snapshot(log.store, 5), now_ms=0)
    assert json.loads(pointer.read_text())["version"] == 5
    assert set(load_snapshot(log.store).files.paths()) == live_at(5)


@pytest.mark.parametrize(
    ("properties", "kept"),
    [
        ({}, {"d", "e"}),
        ({"delta.deletedFileRetentionDuration": "interval 1 day"}, {"e"}),
        ({"delta.deletedFileRetentionDuration": "interval 100 days"}, {"c", "d", "e"}),
    ],
)
def test_tombstones_within_their_retention_are_kept(tmp_path: Path, properties: dict[str, str], kept: set[str]) -> None:
    now = 1_700_000_000_000
    log = Log(tmp_path)
    ages = {"b": 200, "c": 8, "d": 6, "e": 0}
    log.commit(PROTOCOL, metadata(configuration=properties), *(add(name) for name in "abcdef"))
    log.commit(*(remove(name, deletionTimestamp=now - days * DAY) for name, days in ages.items()))
    log.commit({"remove": {"path": "f", "dataChange": True}})
    write_checkpoint(load_snapshot(log.store), now_ms=now)
    for version in range(3):
        log.path(version).unlink()
    snapshot = load_snapshot(log.store)
    assert snapshot.files.paths() == ["a"]
    assert set(snapshot.tombstones().column("path").to_pylist()) == kept


def test_every_field_comes_back(tmp_path: Path) -> None:
    log = Log(tmp_path)
    vector = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1, "sizeInBytes": 2, "cardinality": 3}
    whole = {
        "partitionValues": {"part": None, "other": "é"},
        "tags": {"k": "v"},
        "stats": '{"numRecords":1}',
        "baseRowId": 4,
        "defaultRowCommitVersion": 5,
        "clusteringProvider": "liquid",
    }
    log.commit(
        PROTOCOL,
        metadata(name="n", description="é", configuration={"delta.x": "y"}, format={"provider": "parquet"}),
        {"txn": {"appId": "a", "version": 1, "lastUpdated": 2}},
        {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
        add("a", **whole),
        add("b", deletionVector=vector),
        add("c"),
    )
    before = load_snapshot(log.store)
    write_checkpoint(before, now_ms=0)
    log.path(0).unlink()
    after = load_snapshot(log.store)
    assert after.metadata == before.metadata
    assert after.protocol == before.protocol
    assert after.set_transactions == before.set_transactions
    assert after.domain_metadata == before.domain_metadata
    files = after.files.add_files()
    assert files[0] == AddFile(
        "a",
        {"part": None, "other": "é"},
        10,
        1,
        data_change=False,
        stats='{"numRecords":1}',
        tags={"k": "v"},
        base_row_id=4,
        default_row_commit_version=5,
        clustering_provider="liquid",
    )
    assert files[1].deletion_vector == DeletionVectorDescriptor("u", "ab", 1, 2, 3)
    assert files[2].stats is None
    assert files[2].tags is None


def statistics_of_structs(
    root: Path, stats: dict[str, Any], kind: pa.DataType | None = None, *, int96: bool = False
) -> list[str]:
    """Gives files' statistics by a checkpoint that has them as structs alone."""
    log = simple_log(root, 3)
    path = log.root / write_checkpoint(load_snapshot(log.store), now_ms=0)
    table = pq.read_table(path)
    column = table.column("add").combine_chunks()
    fields = {column.type.field(n).name: column.field(n) for n in range(column.type.num_fields)}
    del fields["stats"]
    fields["stats_parsed"] = pa.array([stats if row is not None else None for row in column.to_pylist()], kind)
    structs = pa.StructArray.from_arrays(list(fields.values()), names=list(fields), mask=column.is_null())
    table = table.set_column(table.schema.get_field_index("add"), "add", structs)
    pq.write_table(table, path, use_deprecated_int96_timestamps=int96)
    found: list[str] = load_snapshot(log.store).files.arrow.column("stats").to_pylist()
    return found


def test_statistics_as_structs_only(tmp_path: Path) -> None:
    """A checkpoint as delta.checkpoint.writeStatsAsJson=false makes it."""
    stats = {"numRecords": 3, "minValues": {"id": 1, "part": 'a"b'}, "nullCount": {"id": None, "part": 0}}
    found = statistics_of_structs(tmp_path, stats)
    expected = {"numRecords": 3, "minValues": {"id": 1, "part": 'a"b'}, "nullCount": {"part": 0}}
    assert [json.loads(text) for text in found] == [expected, expected]


@pytest.mark.parametrize("int96", [True, False])
def test_statistics_of_times_as_spark_stores_them(tmp_path: Path, int96: bool) -> None:
    """Spark writes INT96 by default, which has neither a zone nor, in nanoseconds, the year 9999."""
    at = pa.struct([("at", pa.timestamp("us", "UTC"))])
    kind = pa.struct([("numRecords", pa.int64()), ("minValues", at), ("maxValues", at)])
    first, last = (datetime(year, 12, 31, 23, tzinfo=timezone.utc) for year in (1700, 9999))
    stats = {"numRecords": 3, "minValues": {"at": first}, "maxValues": {"at": last}}
    found = json.loads(statistics_of_structs(tmp_path, stats, kind, int96=int96)[0])
    assert found["minValues"] == {"at": "1700-12-31T23:00:00.000000Z"}
    assert found["maxValues"] == {"at": "9999-12-31T23:00:00.000000Z"}


@pytest.mark.slow
def test_many_files_make_several_row_groups(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.commit(PROTOCOL, metadata(), *(add(f"f{number}") for number in range(70_000)))
    snapshot = load_snapshot(log.store)
    path = log.root / write_checkpoint(snapshot, now_ms=0)
    assert pq.read_metadata(path).num_row_groups == 3
    segment = find_segment(log.store)
    assert segment.checkpoint is not None
    found = read_checkpoint_actions(log.store, segment.checkpoint)
    files = FileTable(read_checkpoint_files(log.store, segment.checkpoint, found, "add"))
    assert files.paths() == snapshot.files.paths()


V2 = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"],
        "writerFeatures": ["v2Checkpoint"],
    }
}


@pytest.mark.parametrize(("protocol", "kind"), [(V2, "v2"), (PROTOCOL, "classic")])
def test_v2_checkpoint_where_table_and_protocol_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: dict[str, dict[str, Any]], kind: str
) -> None:
    monkeypatch.setattr("deltamerge.log.checkpoint.writing._ROWS_IN_SIDECAR", 2)
    log = Log(tmp_path)
    log.commit(protocol, metadata(configuration={"delta.checkpointPolicy": "v2"}))
    log.commit(*(add(f"f{number}") for number in range(5)), {"txn": {"appId": "app", "version": 3}})
    log.commit(
        remove("f4", deletionTimestamp=9_000),
        {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
    )
    before = load_snapshot(log.store)
    path = write_checkpoint(before, now_ms=10_000)
    pointer = json.loads(log.store.get("_delta_log/_last_checkpoint"))
    assert pointer["version"] == 2
    assert pointer["numOfAddFiles"] == 4
    sidecars = log.store.list_folder("_delta_log/_sidecars")
    if kind == "classic":
        assert path.endswith("2.checkpoint.parquet")
        assert not sidecars
        assert "v2Checkpoint" not in pointer
    else:
        assert pointer["v2Checkpoint"]["path"] == path.rpartition("/")[2]
        assert pointer["v2Checkpoint"]["sizeInBytes"] == len(log.store.get(path))
        assert len(sidecars) == 3
        top = pq.read_table(log.store.absolute(path))
        assert top.column("add").null_count == top.num_rows
        assert [row for row in top.column("checkpointMetadata").to_pylist() if row] == [{"version": 2, "tags": None}]
    drop_commits(log.store, 3)
    after = load_snapshot(log.store)
    assert after.files.paths() == ["f0", "f1", "f2", "f3"]
    assert after.tombstones().column("path").to_pylist() == ["f4"]
    assert after.set_transactions == before.set_transactions
    assert after.domain_metadata == before.domain_metadata
    assert (after.protocol, after.metadata) == (before.protocol, before.metadata)
