"""Damaged logs, checkpoints, sidecars, vectors and footers: an error of our own that says what, or the right rows."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from deltamerge.exceptions import DeltaError
from deltamerge.log.actions import AddFile
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.features.deletion_vectors import read_deletion_vectors
from deltamerge.log.history import read_history
from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.storage.store import open_store
from faults.mutations import damaged
from foreign.tables import OWN

MUTATIONS = int(os.environ.get("DELTAMERGE_MUTATIONS", "400"))
TABLES = [
    "plain", "checkpoint", "checkpoint-multipart", "checkpoint-v2-parquet", "v2-checkpoints", "deletion-vectors",
    "column-mapping-name", "partitions", "in-commit-timestamps", "row-tracking", "types", "log-compaction-by-delta-rs",
    "checkpoint-statistics-as-structs", "clustered-tables", "change-data-feed", "identity-columns", "type-widening",
]  # fmt: skip
SLOW_SECONDS = 20.0


def read_all(path: Path) -> Snapshot:
    """Reads all of a table but the columns of its data files."""
    snapshot = load_snapshot(open_store(str(path)))
    assert snapshot.schema is not None
    files = snapshot.files.add_files()
    read_deletion_vectors(snapshot.store, [f.deletion_vector for f in files if f.deletion_vector is not None])
    snapshot.tombstones()
    read_history(snapshot.store, 20)
    snapshot.check_writable()
    return snapshot


def targets(table: Path) -> list[Path]:
    return sorted(
        file
        for file in table.rglob("*")
        if file.is_file() and not file.name.endswith(".crc") and ("_delta_log" in file.parts or file.suffix == ".bin")
    )


@pytest.mark.slow
def test_mutations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each mutation is read through: another exception than ours, or a long time, is a failure."""
    caplog.set_level(logging.CRITICAL)
    tables = {name: targets(OWN / name) for name in TABLES if (OWN / name).exists()}
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    for seed in range(MUTATIONS):
        name = list(tables)[seed % len(tables)]
        file = tables[name][(seed // len(tables)) % len(tables[name])].relative_to(OWN / name)
        copy = tmp_path / "table"
        shutil.copytree(OWN / name, copy)
        is_json = file.suffix == ".json" or file.name == "_last_checkpoint"
        (copy / file).write_bytes(damaged((copy / file).read_bytes(), seed, is_json))
        began = time.monotonic()
        try:
            read_all(copy)
            outcomes["read"] += 1
        except DeltaError as error:
            outcomes[error.error_class] += 1
        except Exception as error:
            failures.append(f"seed {seed}, {name}/{file}: {error!r}")
        if time.monotonic() - began > SLOW_SECONDS:
            failures.append(f"seed {seed}, {name}/{file}: took {time.monotonic() - began:.0f} s")
        shutil.rmtree(copy)
    print(f"{MUTATIONS} mutations: {dict(outcomes)}")
    assert not failures, "\n".join([f"{len(failures)} failures", *failures[:40]])


def with_line(folder: Path, line: object, name: str = "plain") -> Path:
    """A table with one more commit of one line."""
    copy = folder / "table"
    shutil.copytree(OWN / name, copy)
    version = load_snapshot(open_store(str(copy))).version + 1
    (copy / "_delta_log" / f"{version:020d}.json").write_text(line if isinstance(line, str) else json.dumps(line))
    return copy


ADD = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "line",
    [
        {"add": {**ADD, "size": 1 << 70}},
        {"add": {**ADD, "size": "many"}},
        {"add": {**ADD, "partitionValues": "p=1"}},
        {"add": {**ADD, "partitionValues": {"p": {"q": 1}}}},
        {"add": {**ADD, "deletionVector": "all"}},
        {"add": {**ADD, "path": None}},
        {"add": "x.parquet"},
        {"remove": {"path": 7}},
        {"txn": {"appId": "a", "version": "1"}},
        {"txn": {"appId": 5, "version": 1}},
        {"domainMetadata": {"domain": ["d"], "configuration": "", "removed": False}},
        {"protocol": {"minReaderVersion": "1", "minWriterVersion": 2}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": "all", "writerFeatures": []}},
        {"metaData": {"id": "i", "schemaString": "{}", "partitionColumns": "p", "configuration": {}}},
        {"metaData": {"id": "i", "schemaString": "{}", "partitionColumns": [], "configuration": {"delta.x": True}}},
        {"metaData": {"id": "i", "schemaString": DEEP, "partitionColumns": [], "configuration": {}}},
        {"metaData": {"id": "i", "schemaString": 5, "partitionColumns": [], "configuration": {}}},
        {"commitInfo": "who knows"},
        '{"add":' + DEEP + "}",
        '{"metaData":' + DEEP + "}",
        "\x00",
        "no JSON",
    ],
    ids=lambda line: str(line)[:60],
)
def test_lines_that_are_no_actions(tmp_path: Path, line: object) -> None:
    copy = with_line(tmp_path, line)
    with pytest.raises(DeltaError) as caught:
        read_all(copy)
    assert caught.value.error_class in (
        "DELTA_STATE_RECOVER_ERROR",
        "DELTA_SCHEMA_NOT_PROVIDED",
        "DELTA_CORRUPT_SCHEMA",
    )
    assert len(str(caught.value)) < 2000


def test_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    copy = with_line(tmp_path, {"add": ADD})
    (file,) = [f for f in (copy / "_delta_log").glob("*.json") if b"x.parquet" in f.read_bytes()]
    file.write_bytes(file.read_bytes().replace(b"x.parquet", b"\xe9.parquet"))
    with pytest.raises(DeltaError, match=file.name):
        read_all(copy)


def test_a_damaged_checkpoint_of_ours_does_not_hide_the_commits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its pages have checksums, so that a byte that changed in a value is found, too."""
    caplog.set_level(logging.CRITICAL)
    copy = tmp_path / "table"
    shutil.copytree(OWN / "partitions", copy)
    before = load_snapshot(open_store(str(copy)))
    write_checkpoint(before, 0)
    (written,) = (copy / "_delta_log").glob(f"{before.version:020d}.checkpoint*.parquet")
    content = written.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")

    def live() -> list[AddFile]:
        snapshot = load_snapshot(open_store(str(copy)))
        assert (snapshot.metadata, snapshot.protocol) == (before.metadata, before.protocol)
        # Of commits a file is new; of checkpoints it is not.
        files = (replace(file, data_change=False) for file in snapshot.files.add_files())
        return sorted(files, key=lambda file: file.path)

    expected = live()
    for seed in range(400):
        rng = random.Random(seed)
        at = rng.randrange(4, footer)
        written.write_bytes(content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :])
        assert live() == expected, at
