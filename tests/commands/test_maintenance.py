"""VACUUM, RESTORE, OPTIMIZE, manifests and the protocol: what is left, what is committed, what is refused."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.errors import IllegalArgumentException

import deltamerge
from deltamerge import DeltaTable, sql, write_delta
from deltamerge.exceptions import (
    ConcurrentDeleteReadException,
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaRuntimeException,
    DeltaTableException,
)
from deltamerge.log.segment import commit_path
from merge.tables import VECTORS, actions, commit_info, delete_checksums, files_below, latest_version

from .test_delete_update import table, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


def aged(path: str, days: int = 8) -> None:
    """Makes all data files of a table look older."""
    then = time.time() - days * 86_400
    for file in Path(path).rglob("*"):
        if file.is_file() and "_delta_log" not in file.parts:
            os.utime(file, (then, then))


def test_vacuum_stays_in_the_tables_folder(spark: SparkSession, tmp_path: Path) -> None:
    """A link in the folder of a table, and paths of its log, may name what is somebody else's."""
    path, elsewhere = table(spark, tmp_path / "t"), tmp_path / "elsewhere"
    (elsewhere / "deep").mkdir(parents=True)
    others = [elsewhere / "letter.txt", elsewhere / "deep" / "x.parquet"]
    for file in others:
        file.write_bytes(b"somebody's")
    (Path(path) / "more").symlink_to(elsewhere)
    removed = [f"../elsewhere/{others[0].name}", str(others[1])]
    remove = {"deletionTimestamp": 1, "dataChange": True, "size": 10}
    lines = [json.dumps({"remove": {**remove, "path": name}}) for name in removed]
    (Path(path) / commit_path(1)).write_text("\n".join(lines) + "\n")
    delete_checksums(path)
    then = time.time() - 8 * 86_400
    for file in others:
        os.utime(file, (then, then))
    assert DeltaTable.forPath(spark, path).vacuum(dry_run=True).count() == 0
    DeltaTable.forPath(spark, path).vacuum()
    assert all(file.exists() for file in others)


def test_vacuum(spark: SparkSession, tmp_path: Path) -> None:
    """Files that no kept version refers to go; live ones, vectors and hidden files stay."""
    path = table(spark, tmp_path, VECTORS, partition_by=("p",))
    opened = DeltaTable.forPath(spark, path)
    opened.delete("id % 5 = 1")
    opened.delete("id % 5 = 2")
    (Path(path) / "p=a").mkdir()
    (Path(path) / "p=a" / "stray.parquet").write_bytes(b"stray")
    (Path(path) / "_hidden").mkdir()
    (Path(path) / "_hidden" / "file").write_bytes(b"")
    aged(path)
    before, rows = files_below(path), values(spark, path)
    # Tombstones are new, so only what was never in the log goes.
    (would_go,) = opened.vacuum(dry_run=True).collect()
    assert would_go["path"] == f"file:{path}/p=a/stray.parquet"
    frame = opened.vacuum()
    assert (frame.columns, frame.count()) == ([], 0)
    gone = before - files_below(path)
    assert {Path(name).name for name in gone} == {"stray.parquet"}
    start, end = commit_info(path, 4), commit_info(path, 5)
    assert (start["operation"], end["operation"]) == ("VACUUM START", "VACUUM END")
    assert start["operationMetrics"] == {"numFilesToDelete": "1", "sizeOfDataToDelete": "5"}
    assert end["operationParameters"] == {"status": "COMPLETED"}
    assert end["operationMetrics"]["numDeletedFiles"] == "1"
    with pytest.raises(DeltaIllegalArgumentException, match="DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT"):
        opened.vacuum(0)
    spark.conf.set(CHECK, "false")
    try:
        opened.vacuum(0)
    finally:
        spark.conf.unset(CHECK)
    assert commit_info(path, 6)["operationParameters"]["specifiedRetentionMillis"] == 0
    assert any(name.endswith(".bin") for name in before - files_below(path))
    assert "_hidden/file" in files_below(path)
    assert values(spark, path) == rows
    with pytest.raises(DeltaIllegalArgumentException, match="DELTA_CANNOT_RESTORE_MISSING_FILES"):
        opened.restoreToVersion(2)


@pytest.mark.quick
@pytest.mark.sessions
def test_restore(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    opened = DeltaTable.forPath(spark, path)
    before = values(spark, path)
    opened.update("id < 10", {"v": "0"})
    (row,) = opened.restoreToVersion(1).collect()
    assert (row["num_removed_files"], row["num_restored_files"], row["num_of_files_after_restore"]) == (1, 1, 2)
    assert values(spark, path) == before
    info = commit_info(path, 3)
    assert (info["operation"], info["operationParameters"]) == ("RESTORE", {"version": 1, "timestamp": None})
    assert opened.detail().collect()[0]["clusteringColumns"] == []
    latest = opened.restoreToVersion(3)
    assert (latest.columns[0], latest.collect(), latest_version(path)) == ("table_size_after_restore", [], 3)
    with pytest.raises(DeltaAnalysisException, match="DELTA_CANNOT_RESTORE_TABLE_VERSION"):
        opened.restoreToVersion(4)
    with pytest.raises(DeltaAnalysisException, match="DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER"):
        opened.restoreToTimestamp("1999-01-01")
    with pytest.raises(ValueError, match="version needs to be an int but got"):
        opened.restoreToVersion("1")  # type: ignore[arg-type]


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["plain", "vectors"])
def test_compaction(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    """Each partition becomes one file without deletion vectors; the rows are the same, and no change is read."""
    path = table(spark, tmp_path, properties, partition_by=("p",))
    opened = DeltaTable.forPath(spark, path)
    opened.delete("id = 2")
    rows = values(spark, path)
    builder = opened.optimize()
    assert builder.where("p = 'a'") is builder
    (row,) = builder.executeCompaction().collect()
    metrics = row["metrics"]
    assert (metrics["numFilesAdded"], metrics["numFilesRemoved"], metrics["partitionsOptimized"]) == (1, 2, 1)
    assert metrics["totalConsideredFiles"] == 2
    assert (metrics["deletionVectorStats"] is None) == (not properties)
    assert {a["dataChange"] for kind in ("add", "remove") for a in actions(path, 3, kind)} == {False}
    info = commit_info(path, 3)
    assert (info["operation"], info["isolationLevel"]) == ("OPTIMIZE", "SnapshotIsolation")
    assert info["operationParameters"]["predicate"] == "[\"p = 'a'\"]"
    assert values(spark, path) == rows
    opened.optimize().executeCompaction()
    assert len(DeltaRs(path).file_uris()) == 2 if not properties else True
    version = latest_version(path)
    opened.optimize().executeCompaction()
    assert latest_version(path) == version
    with pytest.raises(DeltaAnalysisException, match="DELTA_NON_PARTITION_COLUMN_REFERENCE"):
        opened.optimize().where("id = 1").executeCompaction()


def test_z_order(spark: SparkSession, tmp_path: Path) -> None:
    """Files of few rows each cover little of both columns; NULLs and strings are ordered too."""
    path = str(tmp_path / "t")
    rows = spark.range(0, 4096).selectExpr(
        "CAST(pmod(hash(id), 64) AS INT) AS x",
        "IF(id % 50 = 0, NULL, CAST(pmod(hash(id, 1), 64) AS STRING)) AS y",
        "id",
    )
    write_delta(rows.repartition(4), path, properties={"delta.targetFileSize": "3kb"})
    (row,) = DeltaTable.forPath(spark, path).optimize().executeZOrderBy("x", "y").collect()
    assert row["metrics"]["numFilesAdded"] > 4
    read = DeltaTable.forPath(spark, path).toDF()
    assert (read.count(), read.where("y IS NULL").count(), read.select("id").distinct().count()) == (4096, 82, 4096)
    spans = [
        json.loads(add["stats"])["maxValues"]["x"] - json.loads(add["stats"])["minValues"]["x"]
        for add in actions(path, 1, "add")
    ]
    assert sum(spans) / len(spans) < 48
    optimized = DeltaTable.forPath(spark, path).optimize()
    with pytest.raises(IllegalArgumentException, match="DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST"):
        optimized.executeZOrderBy("nope")
    with pytest.raises(TypeError, match="Z-order column must be str"):
        optimized.executeZOrderBy(1)  # type: ignore[arg-type]


def test_row_ids_stay(spark: SparkSession, tmp_path: Path) -> None:
    """Compaction and UPDATE keep the rows' ids."""
    path = table(spark, tmp_path, {"delta.enableRowTracking": "true"})
    opened = DeltaTable.forPath(spark, path)

    def ids() -> dict[int, int]:
        return {row["id"]: row["_metadata"]["row_id"] for row in opened.with_row_ids().collect()}

    before = ids()
    opened.update("id = 3", {"v": "0"})
    opened.optimize().executeCompaction()
    assert ids() == before


def test_compaction_conflicts(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that removes a file which was rewritten conflicts; an append does not."""
    from deltamerge.commands.committing import commit_command

    path = table(spark, tmp_path)
    opened = DeltaTable.forPath(spark, path)

    def after(change: Any) -> None:
        def commit(*arguments: Any, **named: Any) -> None:
            monkeypatch.undo()
            change()
            commit_command(*arguments, **named)

        monkeypatch.setattr("deltamerge.commands.rewriting.commit_command", commit)

    after(lambda: write_delta(spark.range(20, 22).selectExpr("id", "id AS v", "'a' AS p"), path, mode="append"))
    opened.optimize().executeCompaction()
    after(lambda: opened.delete("id = 1"))
    with pytest.raises(ConcurrentDeleteReadException):
        opened.optimize().executeCompaction()
    assert sorted(values(spark, path)) == [0, *range(2, 22)]


def test_compaction_loses_no_row(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not all rows are read, the table stays as it was, and no file is left over."""
    path = table(spark, tmp_path)
    opened, rows, before = DeltaTable.forPath(spark, path), values(spark, path), files_below(path)
    with monkeypatch.context() as patched:
        patched.setattr("deltamerge.commands.rewriting.logical_rows", lambda *_: 11)
        with pytest.raises(DeltaRuntimeException, match=r"DELTAMERGE_FILE_CHANGED.* 22 rows .* 20 were read"):
            opened.optimize().executeCompaction()
    assert (values(spark, path), files_below(path)) == (rows, before)
    Path(path, actions(path, 1, "add")[0]["path"]).write_bytes(b"PAR1 damaged PAR1")
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        with pytest.raises(Exception, match=r"FAILED_READ_FILE|not a Parquet file"):
            opened.optimize().executeCompaction()
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
    assert {name for name in files_below(path) if not name.endswith(".crc")} == {
        name for name in before if not name.endswith(".crc")
    }


def test_manifest(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path, partition_by=("p",))
    opened = DeltaTable.forPath(spark, path)
    opened.generate("symlink_format_manifest")
    manifest = Path(path, "_symlink_format_manifest", "p=a", "manifest")
    files = manifest.read_text().splitlines()
    assert sorted(files) == sorted(
        f"file:{path}/{a['path']}" for v in (0, 1) for a in actions(path, v, "add") if "p=a" in a["path"]
    )
    opened.delete("p = 'a'")
    opened.generate("symlink_format_manifest")
    assert not manifest.exists()
    with pytest.raises(DeltaIllegalArgumentException, match="DELTA_MODE_NOT_SUPPORTED"):
        opened.generate("x")


def test_manifests_follow_commits(spark: SparkSession, tmp_path: Path) -> None:
    path, asks = str(tmp_path / "t"), "delta.compatibility.symlinkFormatManifest.enabled"
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "id INT, p STRING").coalesce(1)
    write_delta(rows, path, partition_by="p", properties={asks: "true"})
    opened = DeltaTable.forPath(spark, path)

    def listed() -> list[str]:
        found = Path(path, "_symlink_format_manifest").glob("*/manifest")
        return sorted(line for manifest in found for line in manifest.read_text().splitlines())

    def files() -> list[str]:
        return sorted(f"file:{path}/{file.path}" for file in opened.table.snapshot().files.add_files())

    assert listed() == files()
    write_delta(rows, path, mode="append")
    assert (len(listed()), listed()) == (4, files())
    source = spark.createDataFrame([(2, "b"), (3, "c")], "id INT, p STRING")
    upsert = opened.alias("t").merge(source.alias("s"), "t.id = s.id AND t.p = s.p")
    upsert.whenMatchedDelete().whenNotMatchedInsertAll().execute()
    assert listed() == files()
    opened.delete("p = 'a'")
    assert [line.split("/")[-2] for line in listed()] == ["p=c"]
    vectors = f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    with pytest.raises(DeltaTableException, match="mutually exclusive") as caught:
        deltamerge.sql(spark, vectors)
    assert caught.value.getSqlState() == "0A000"
    deltamerge.sql(spark, f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{asks}' = 'false')")
    deltamerge.sql(spark, vectors)
    before = listed()
    write_delta(rows, path, mode="append")
    opened.delete("id = 1 AND p = 'a'")
    assert listed() == before
    with pytest.raises(DeltaTableException, match="mutually exclusive"):
        deltamerge.sql(spark, f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{asks}' = 'true')")


def test_protocol(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    opened = DeltaTable.forPath(spark, path)
    opened.upgradeTableProtocol(1, 3)
    assert actions(path, 2, "protocol") == [{"minReaderVersion": 1, "minWriterVersion": 3}]
    opened.addFeatureSupport("deletionVectors")
    opened.addFeatureSupport("deletionVectors")
    (protocol,) = actions(path, 3, "protocol")
    assert protocol["writerFeatures"] == ["appendOnly", "checkConstraints", "deletionVectors", "invariants"]
    assert latest_version(path) == 3
    opened.dropFeatureSupport("checkConstraints")
    assert "checkConstraints" not in actions(path, 4, "protocol")[0]["writerFeatures"]
    for name, error in (
        ("checkConstraints", "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"),
        ("nope", "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"),
        ("appendOnly", "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE"),
    ):
        with pytest.raises(DeltaTableException, match=error):
            opened.dropFeatureSupport(name)
    opened.upgradeTableProtocol(1, 2)
    assert latest_version(path) == 4
    assert commit_info(path, 2)["operation"] == "SET TBLPROPERTIES"
    with pytest.raises(ValueError, match="The readerVersion needs to be an integer but got"):
        opened.upgradeTableProtocol("1", 2)  # type: ignore[arg-type]
    assert len(values(spark, path)) == 20


@pytest.mark.parametrize("writer", [2, 5, 6])
def test_reader_version_3_needs_writer_version_7(spark: SparkSession, tmp_path: Path, writer: int) -> None:
    path = table(spark, tmp_path)
    with pytest.raises(DeltaTableException, match="DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE"):
        DeltaTable.forPath(spark, path).upgradeTableProtocol(3, writer)
    properties = f"TBLPROPERTIES ('delta.minReaderVersion' = '3', 'delta.minWriterVersion' = '{writer}')"
    with pytest.raises(DeltaTableException, match="DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE"):
        deltamerge.sql(spark, f"CREATE TABLE delta.`{tmp_path}/new` (id INT) USING delta {properties}")
    assert latest_version(path) == 1
    DeltaTable.forPath(spark, path).upgradeTableProtocol(3, 7)


def test_versions_stand_for_features(spark: SparkSession, tmp_path: Path) -> None:
    """Where a protocol has lists, all that the versions imply is added to them."""
    path = table(spark, tmp_path)
    opened = DeltaTable.forPath(spark, path)
    opened.addFeatureSupport("rowTracking")
    opened.upgradeTableProtocol(1, 3)
    (protocol,) = actions(path, 3, "protocol")
    assert "checkConstraints" in protocol["writerFeatures"]
    opened.upgradeTableProtocol(2, 5)
    (protocol,) = actions(path, 4, "protocol")
    assert protocol["minReaderVersion"] == 2
    assert {"columnMapping", "generatedColumns", "changeDataFeed", "rowTracking"} <= set(protocol["writerFeatures"])
    assert len(values(spark, path)) == 20


def test_what_optimize_says_of_session_and_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(3).selectExpr("id", "id AS a", "struct(id AS x, id AS y) AS b", "id AS c"), path)

    def counted(properties: str) -> tuple[int, int, int]:
        sql(spark, f"ALTER TABLE delta.`{path}` {properties}")
        metrics = DeltaTable.forPath(spark, path).optimize().executeCompaction().collect()[0]["metrics"]
        return metrics["totalClusterParallelism"], metrics["numTableColumns"], metrics["numTableColumnsWithStats"]

    tasks = spark.sparkContext.defaultParallelism
    number, names = "'delta.dataSkippingNumIndexedCols'", "'delta.dataSkippingStatsColumns'"
    assert counted(f"SET TBLPROPERTIES ({number} = '2')") == (tasks, 4, 2)
    assert counted(f"SET TBLPROPERTIES ({number} = '-1')") == (tasks, 4, 4)
    assert counted(f"SET TBLPROPERTIES ({names} = 'a,b.x,b.y')") == (tasks, 4, 2)
    assert counted(f"UNSET TBLPROPERTIES ({number}, {names})") == (tasks, 4, 4)


@pytest.mark.parametrize("is_auto", [False, True])
def test_optimize_of_one_partition_in_two_spellings(spark: SparkSession, tmp_path: Path, is_auto: bool) -> None:
    path, time = str(tmp_path / "t"), "TIMESTAMP'2024-01-01 00:00:00'"
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "3")
    rows = spark.range(3).selectExpr("id", f"{time} AS p").coalesce(1)
    properties = {"delta.autoOptimize.autoCompact": "true"} if is_auto else {}
    write_delta(rows, path, partition_by="p", properties=properties)
    write_delta(rows, path, "append")
    first = Path(path) / commit_path(0)
    (spelled,) = actions(path, 0, "add")[0]["partitionValues"].values()
    other = "2024-01-01 00:00:00" if spelled.endswith("Z") else "2024-01-01T00:00:00.000000Z"
    first.write_text(first.read_text().replace(f'"p":"{spelled}"', f'"p":"{other}"'))
    delete_checksums(path)
    if is_auto:
        write_delta(rows, path, "append")
    else:
        (row,) = DeltaTable.forPath(spark, path).optimize().executeCompaction().collect()
        metrics = row["metrics"]
        assert (metrics["numFilesRemoved"], metrics["numFilesAdded"], metrics["partitionsOptimized"]) == (2, 1, 1)
    opened = DeltaTable.forPath(spark, path)
    assert len(opened.table.snapshot().files.add_files()) == 1
    assert opened.toDF().where(f"p = {time}").count() == (9 if is_auto else 6)


def test_the_kind_of_vacuum_that_the_session_sets(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path)
    stray = Path(path, "stray.parquet")
    stray.write_text("of no commit")
    os.utime(stray, (1, 1))
    spark.conf.set("spark.databricks.delta.vacuum.lite.enabled", "true")
    try:
        DeltaTable.forPath(spark, path).vacuum()
        deltamerge.sql(spark, f"VACUUM delta.`{path}`")
        assert stray.exists()
        deltamerge.sql(spark, f"VACUUM delta.`{path}` FULL")
        assert not stray.exists()
    finally:
        spark.conf.unset("spark.databricks.delta.vacuum.lite.enabled")
