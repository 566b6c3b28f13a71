"""The logs of tables of many writers are read as delta-spark reads them; broken ones are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from deltamerge.exceptions import (
    DeltaLogCorruptException,
    DeltaTableException,
    DeltaTableNotFoundException,
    DeltaUnsupportedFeatureException,
)
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.features.deletion_vectors import parse_vector, read_deletion_vectors
from deltamerge.log.history import read_history
from deltamerge.log.paths import decode_path
from deltamerge.log.protocol import SUPPORTED_READER_FEATURES, reader_features
from deltamerge.log.schema import schema_to_json, simple_string
from deltamerge.log.snapshot import Snapshot, load_snapshot, table_exists
from deltamerge.storage.store import Store, open_store
from deltamerge.workers.vector_format import serialize

from .tables import FOLDER, MANIFEST, OWN

WITH_VECTORS = [name for name, recorded in MANIFEST.items() if recorded.get("files", {}).get("deletionVectors")]

BROKEN = {
    "DELTA_STATE_RECOVER_ERROR": DeltaLogCorruptException,
    "DELTA_VERSIONS_NOT_CONTIGUOUS": DeltaLogCorruptException,
    "DELTA_MISSING_DELTA_TABLE": DeltaTableNotFoundException,
    "DELTA_INVALID_PROTOCOL_VERSION": DeltaUnsupportedFeatureException,
    "DELTA_UNSUPPORTED_FEATURES_FOR_READ": DeltaUnsupportedFeatureException,
    # delta-spark first sees that a feature is missing; that the table is catalog-managed is reason enough.
    "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH": DeltaUnsupportedFeatureException,
}


def store(name: str) -> Store:
    return open_store(str(FOLDER / name))


def own(name: str) -> Store:
    return open_store(str(OWN / name))


def load_or_unsupported(name: str) -> Snapshot | None:
    """Loads a table; gives None where it needs a feature that is not implemented."""
    try:
        return load_snapshot(store(name))
    except DeltaUnsupportedFeatureException as error:
        needed = set(MANIFEST[name]["protocol"].get("readerFeatures", ()))
        if MANIFEST[name]["protocol"]["minReaderVersion"] == 2:
            needed.add("columnMapping")
        missing = needed - SUPPORTED_READER_FEATURES
        assert missing
        assert error.getErrorClass() == "DELTA_UNSUPPORTED_FEATURES_FOR_READ"
        assert error.getSqlState() == "56038"
        named = set(error.getMessageParameters()["unsupported"].split(", "))
        assert named
        assert named <= missing
        assert all(feature in str(error) for feature in named)
        return None


@pytest.mark.parametrize("name", [name for name, recorded in MANIFEST.items() if "files" in recorded])
def test_snapshot_is_what_delta_spark_says(name: str) -> None:
    recorded = MANIFEST[name]
    snapshot = load_or_unsupported(name)
    if snapshot is None:
        return
    assert reader_features(snapshot.protocol) - {"columnMapping"} <= SUPPORTED_READER_FEATURES
    protocol = recorded["protocol"]
    assert snapshot.version == recorded["version"]
    assert snapshot.protocol.min_reader_version == protocol["minReaderVersion"]
    assert snapshot.protocol.min_writer_version == protocol["minWriterVersion"]
    for key, features in (
        ("readerFeatures", snapshot.protocol.reader_features),
        ("writerFeatures", snapshot.protocol.writer_features),
    ):
        assert features == (frozenset(protocol[key]) if key in protocol else None)
    assert list(snapshot.metadata.partition_columns) == recorded["partitionColumns"]
    assert dict(snapshot.metadata.configuration) == recorded["configuration"]
    assert json.loads(schema_to_json(snapshot.schema)) == recorded["schema"]
    if snapshot.metadata.schema_string:
        assert schema_to_json(snapshot.schema) == snapshot.metadata.schema_string
    if "ddl" in recorded and "collations" not in recorded["features"]:
        assert simple_string(snapshot.schema) == recorded["ddl"]

    files = recorded["files"]
    assert snapshot.files.num_files == files["count"]
    assert snapshot.files.size_in_bytes == files["bytes"]
    assert snapshot.files.arrow.column("stats").null_count == files["withoutStatistics"]
    assert len(snapshot.files.paths()) == files["count"]
    assert set(files["paths"]) <= set(snapshot.files.paths())
    assert [file.path for file in snapshot.files.add_files()] == snapshot.files.paths()


@pytest.mark.parametrize("name", [name for name, recorded in MANIFEST.items() if "files" in recorded])
def test_real_paths_are_the_files_on_disk(name: str) -> None:
    if "no-data-files" in MANIFEST[name]["features"] or "error" in MANIFEST[name]:
        return
    snapshot = load_or_unsupported(name)
    if snapshot is None:
        return
    sizes = snapshot.files.arrow.column("size").to_pylist()
    for path, size in zip(map(decode_path, snapshot.files.paths()), sizes, strict=True):
        assert Path(snapshot.store.absolute(path)).is_file()
        with snapshot.store.open_input(path) as file:
            assert len(file.read()) == size


@pytest.mark.parametrize("name", [name for name, recorded in MANIFEST.items() if "files" not in recorded])
def test_broken_table_is_refused(name: str) -> None:
    recorded = MANIFEST[name]["error"]
    with pytest.raises(DeltaTableException) as raised:
        load_snapshot(store(name))
    assert type(raised.value) is BROKEN[recorded["class"]]
    if recorded["class"] != "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH":
        assert raised.value.getErrorClass() == recorded["class"]


def test_messages_of_broken_tables_name_what_is_wrong() -> None:
    with pytest.raises(DeltaLogCorruptException, match=r"version 1, .*00001\.json, is missing"):
        load_snapshot(own("broken-no-commit"))
    with pytest.raises(DeltaUnsupportedFeatureException, match="catalogManaged"):
        load_snapshot(own("broken-catalog-managed"))
    with pytest.raises(DeltaUnsupportedFeatureException, match="reader version 99"):
        load_snapshot(own("broken-reader-version"))


@pytest.mark.parametrize("name", [name for name, recorded in MANIFEST.items() if "history" in recorded])
def test_newest_commit_of_history(name: str) -> None:
    rows = read_history(store(name), 1)
    if rows:
        assert rows[0]["version"] == MANIFEST[name]["history"]
    assert table_exists(store(name))


@pytest.mark.parametrize("name", [name for name, recorded in MANIFEST.items() if "files" in recorded])
def test_checkpoint_written_over_it_says_the_same(name: str, tmp_path: Path) -> None:
    before = load_or_unsupported(name)
    if before is None:
        return
    shutil.copytree(FOLDER / name / "_delta_log", tmp_path / "_delta_log")
    (tmp_path / "_delta_log").chmod(0o755)
    copied = open_store(str(tmp_path))
    path = write_checkpoint(load_snapshot(copied), now_ms=0)
    for file in copied.list_folder("_delta_log"):
        if file.path not in (path, "_delta_log/_last_checkpoint"):
            copied.delete([file.path])
    after = load_snapshot(copied)
    assert (after.version, after.protocol, after.metadata) == (
        before.version,
        before.protocol,
        before.metadata,
    )
    assert after.set_transactions == before.set_transactions
    assert after.domain_metadata == before.domain_metadata
    rows = sorted(before.files.arrow.drop_columns(["data_change"]).to_pylist(), key=str)
    assert sorted(after.files.arrow.drop_columns(["data_change"]).to_pylist(), key=str) == rows
    paths = [snapshot.tombstones().column("path").to_pylist() for snapshot in (before, after)]
    assert sorted(paths[0]) == sorted(paths[1])


@pytest.mark.parametrize("name", WITH_VECTORS)
def test_deletion_vectors(name: str) -> None:
    opened = store(name)
    files = load_snapshot(opened).files.add_files()
    vectors = [file.deletion_vector for file in files if file.deletion_vector is not None]
    recorded = MANIFEST[name]["files"]
    found = read_deletion_vectors(opened, vectors)
    assert (len(vectors), sum(map(len, found.values()))) == (
        recorded["deletionVectors"],
        recorded["deletedRows"],
    )
    for vector in vectors:
        assert parse_vector(serialize(found[vector.unique_id]), vector) == found[vector.unique_id]


def test_statistics_that_are_structs_only_become_json() -> None:
    snapshot = load_snapshot(own("checkpoint-statistics-as-structs"))
    stats = snapshot.files.arrow.column("stats").to_pylist()
    assert all(isinstance(json.loads(text)["numRecords"], int) for text in stats)
    assert len(stats) == 2
    assert all("k" in json.loads(text)["minValues"] for text in stats)
