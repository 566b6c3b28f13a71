"""Damaged logs, checkpoints, sidecars, vectors and footers: an error of our own that says what, or the right rows."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deltamerge.exceptions import DeltaError, DeltaLogCorruptException
from deltamerge.log.actions import AddFile
from deltamerge.log.change_feed import changed_files
from deltamerge.log.checkpoint.reading import read_checkpoint_actions
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.commits import read_commit
from deltamerge.log.features.deletion_vectors import read_deletion_vectors
from deltamerge.log.history import read_history
from deltamerge.log.schema import parse_schema, schema_to_json
from deltamerge.log.segment import list_log
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
        if file.is_file() and not file.name.startswith(".") and ("_delta_log" in file.parts or file.suffix == ".bin")
    )


def what_counts(snapshot: Snapshot) -> object:
    """What rows the table has, and of which columns."""
    files = {f.path: (f.size, f.stats, f.partition_values, f.deletion_vector) for f in snapshot.files.add_files()}
    return snapshot.version, files, snapshot.protocol, snapshot.metadata


@pytest.mark.slow
def test_mutations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each mutation is read through: another exception than ours, other files, or a long time, is a failure.

    Other files pass only where the table has no version checksum, as delta-rs writes none.
    """
    caplog.set_level(logging.CRITICAL)
    tables = {name: targets(OWN / name) for name in TABLES if (OWN / name).exists()}
    expected = {name: read_all(OWN / name) for name in tables}
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    for seed in range(MUTATIONS):
        name = list(tables)[seed % len(tables)]
        file = tables[name][(seed // len(tables)) % len(tables[name])].relative_to(OWN / name)
        copy = tmp_path / "table"
        shutil.copytree(OWN / name, copy)
        is_json = file.suffix in (".json", ".crc") or file.name == "_last_checkpoint"
        (copy / file).write_bytes(damaged((copy / file).read_bytes(), seed, is_json))
        began = time.monotonic()
        try:
            found = read_all(copy)
            outcomes["read"] += 1
            if expected[name].segment.checksum is not None and what_counts(found) != what_counts(expected[name]):
                outcomes["silent"] += 1
                failures.append(f"seed {seed}, {name}/{file}: reads as something else")
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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "path", ["../beside/x.parquet", "a/%2E%2e/../x", "..%2Fx.parquet", "/tmp/../x.parquet", "s3://b/t/../x", "a%00b"]
)
@pytest.mark.parametrize("action", ["add", "cdc"])
def test_paths_that_leave_the_table(action: str, path: str, tmp_path: Path) -> None:
    copy = with_line(tmp_path, {action: {**ADD, "path": path, "dataChange": action == "add"}})
    with pytest.raises(DeltaLogCorruptException, match=r"(in the table's folder|not the table's)"):
        snapshot = load_snapshot(open_store(str(copy)))
        changed_files(read_commit(snapshot.store, snapshot.version), 0, snapshot.store)


def test_a_path_that_only_looks_like_it_leaves_the_table(tmp_path: Path) -> None:
    path = "p=..%252F../a..b/%2Fx.parquet"
    assert path in load_snapshot(open_store(str(with_line(tmp_path, {"add": {**ADD, "path": path}})))).files.paths()


def test_a_sidecar_that_leaves_the_log(tmp_path: Path) -> None:
    name = "v2-checkpoints"
    version = load_snapshot(open_store(str(OWN / name))).version + 1
    copy = with_line(tmp_path, {"commitInfo": {}}, name)
    line = {"sidecar": {"path": "../../x.parquet", "sizeInBytes": 1, "modificationTime": 1}}
    made = copy / "_delta_log" / f"{version:020d}.checkpoint.{uuid.uuid4()}.json"
    made.write_text(json.dumps({"checkpointMetadata": {"version": version}}) + "\n" + json.dumps(line))
    store = open_store(str(copy))
    with pytest.raises(DeltaLogCorruptException, match=r"sidecar '../../x.parquet' is not in the log's folder"):
        read_checkpoint_actions(store, list_log(store).checkpoints[-1])


def nested(levels: int, kind: str) -> dict[str, object]:
    deep: object = "integer"
    for _ in range(levels):
        if kind == "struct":
            deep = {"type": kind, "fields": [{"name": "a", "type": deep, "nullable": True, "metadata": {}}]}
        else:
            deep = {"type": kind, "elementType": deep, "containsNull": True}
    return {"type": "struct", "fields": [{"name": "a", "type": deep, "nullable": True, "metadata": {}}]}


@pytest.mark.parametrize("kind", ["struct", "array"])
@pytest.mark.parametrize("levels", [99, 101, 200, 300, 10_000])
def test_schemas_that_are_nested_deep(levels: int, kind: str) -> None:
    with recursion_of(100_000):
        schema = json.dumps(nested(levels, kind))
    if levels < 100:
        assert schema_to_json(parse_schema(schema)).count('"type"') > levels
        return
    with pytest.raises(DeltaLogCorruptException, match="cannot be read") as caught:
        parse_schema(schema)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("kind", ["decimal(39,0)", "decimal(999999999,2)", "decimal(5,6)", "decimal(5,-1)"])
def test_decimals_that_do_not_exist(kind: str) -> None:
    field = {"name": "d", "type": kind, "nullable": True, "metadata": {}}
    with pytest.raises(DeltaLogCorruptException, match="there is no type decimal"):
        parse_schema(json.dumps({"type": "struct", "fields": [field]}))


@contextmanager
def recursion_of(calls: int) -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(calls)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
