"""Merges into tables in HDFS: the log through the session's JVM or by hdfs-native, data files by tasks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from pyspark.sql import SparkSession

from deltamerge import merge_sql, write_delta
from deltamerge.exceptions import DeltaTableException
from deltamerge.log.snapshot import load_snapshot
from deltamerge.merge.limits import Limits
from deltamerge.spark.hadoop_files import JvmFiles
from deltamerge.storage.hadoop_store import HadoopFiles, HadoopStore
from deltamerge.storage.hdfs import NativeHdfs
from deltamerge.storage.store import open_store
from deltamerge.storage.task_files import NotOpened
from deltamerge.tables import DeltaTable
from deltamerge.workers.files import Files

from .hdfs import Hdfs, cluster
from .s3 import with_settings

pytestmark = pytest.mark.oracle
DRIVER_BYTES = "spark.deltamerge.merge.driverBytes"


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with cluster(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture(params=["jvm", "native"])
def system(request: pytest.FixtureRequest, hdfs: Hdfs) -> HadoopFiles:
    if request.param == "native":
        return NativeHdfs(hdfs.url, {})
    return JvmFiles(request.getfixturevalue("spark"), hdfs.url)


def rows(spark: SparkSession, first: int, end: int) -> Any:
    return spark.range(first, end).selectExpr("id", f"id * {first + 1} AS v", "concat('p ', id % 3, '%') AS p")


def upsert(spark: SparkSession, path: str, first: int, end: int) -> Any:
    merge = DeltaTable.forPath(spark, path).alias("t").merge(rows(spark, first, end).alias("s"), "t.id = s.id")
    return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()


def check_clean(hdfs: Hdfs, folder: str) -> None:
    """Looks for files that no version names."""
    found = hdfs.files(folder)
    named = set()
    for log in (each for each in found if each.startswith("_delta_log/") and each.endswith(".json")):
        actions = map(json.loads, hdfs.client.read(f"{folder}/{log}").read().splitlines())
        named |= {unquote(action["add"]["path"]) for action in actions if "add" in action}
    assert {each for each in found if not each.startswith("_delta_log/")} == named


def test_tasks_that_do_not_open_the_store(spark: SparkSession, hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = {"url": "hdfs://localhost:9", "config": {"dfs.client.failover.max.attempts": "1"}}
    monkeypatch.setattr("deltamerge.storage.store.Files", lambda kind, _, put: Files(kind, nowhere, put=put))
    path = f"{hdfs.url}/warehouse/spark's own"
    write_delta(rows(spark, 0, 100), path)
    table = DeltaTable.forPath(spark, path).alias("t")
    merge = table.merge(rows(spark, 50, 150).alias("s"), "t.id = s.id")
    with with_settings(spark, {DRIVER_BYTES: "0"}):
        report = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert report.outcome.plan is not None
    reasons = {each.choice: each.reason for each in report.outcome.plan.match.declined}
    assert "tasks do not open the table's store" in reasons["key_lookup"]
    assert table.toDF().count() == 150
    check_clean(hdfs, "/warehouse/spark's own")


@pytest.mark.parametrize("driver_bytes", [None, "0"])
def test_upsert(driver_bytes: str | None, spark: SparkSession, hdfs: Hdfs) -> None:
    path = f"{hdfs.url}/warehouse/a b%20{driver_bytes}"
    write_delta(rows(spark, 0, 100), path, partition_by=["p"])
    with with_settings(spark, {} if driver_bytes is None else {DRIVER_BYTES: driver_bytes}):
        report = upsert(spark, path, 50, 150)
    assert report.outcome.executor == "key_lookup"
    assert (report.metrics["numTargetRowsUpdated"], report.metrics["numTargetRowsInserted"]) == (50, 50)
    table = DeltaTable.forPath(spark, path)
    expected = [(i, i if i < 50 else i * 51, f"p {i % 3}%") for i in range(150)]
    assert sorted(map(tuple, table.toDF().select("id", "v", "p").collect())) == expected
    check_clean(hdfs, f"/warehouse/a b%20{driver_bytes}")
    table.delete("id < 10")
    assert table.toDF().count() == 140
    assert [row["operation"] for row in table.history().select("operation").collect()] == ["DELETE", "MERGE", "WRITE"]


@pytest.mark.parametrize("read_at_most", [1 << 20, 0])
@pytest.mark.parametrize("choice", ["in_place", "staged"])
def test_sources_too_large_for_each_task(
    choice: str, read_at_most: int, spark: SparkSession, hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a cluster: tasks open parts of the source, or its rows are brought together by file first."""
    large = Limits(source_bytes=1, source_rows=0, exchanged_bytes=1)
    monkeypatch.setattr("deltamerge.merge.preparation.LIMITS", large)
    monkeypatch.setattr("deltamerge.merge.executors.execution.Execution.maps_source", False)
    monkeypatch.setattr("deltamerge.merge.executors.source_exchange._READ_AT_MOST", read_at_most)
    name = f"large {choice} {read_at_most}"
    path, source = f"{hdfs.url}/warehouse/{name}", f"{hdfs.url}/sources/{name}"
    write_delta(rows(spark, 0, 100), path, partition_by=["p"])
    rows(spark, 50, 150).repartition(3).write.mode("overwrite").parquet(source)
    using = f"parquet.`{source}`" if choice == "in_place" else f"(SELECT * FROM parquet.`{source}` WHERE id < 1000)"
    sql = f"MERGE INTO delta.`{path}` t USING {using} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    with with_settings(spark, {DRIVER_BYTES: "0"}):
        report = merge_sql(spark, f"{sql} WHEN NOT MATCHED THEN INSERT *")
    assert report.plan is not None
    assert (report.plan.name, report.plan.source.choice) == ("key_lookup", choice)
    steps = [step.name for step in report.outcome.steps]
    assert ("exchange_source" in steps) == (read_at_most == 0)
    table = DeltaTable.forPath(spark, path)
    expected = [(i, i if i < 50 else i * 51, f"p {i % 3}%") for i in range(150)]
    assert sorted(map(tuple, table.toDF().select("id", "v", "p").collect())) == expected
    check_clean(hdfs, f"/warehouse/{name}")


def test_files(system: HadoopFiles, hdfs: Hdfs) -> None:
    folder = f"/store-{type(system).__name__}"
    store = HadoopStore(hdfs.url + folder, system, NotOpened("not here"))
    assert store.list() == []
    store.put_if_absent("_delta_log/1.json", b"one")
    with pytest.raises(FileExistsError):
        store.put_if_absent("_delta_log/1.json", b"two")
    assert store.get("_delta_log/1.json") == b"one"
    store.put("_delta_log/1.json", b"three")
    store.put("a b/c%20d#?.txt", b"0123456789")
    assert [(file.path, file.size) for file in store.list()] == [("_delta_log/1.json", 5), ("a b/c%20d#?.txt", 10)]
    assert [file.path for file in store.list_folder("_delta_log", "_delta_log/0")] == ["_delta_log/1.json"]
    assert store.list_folder("_delta_log", "_delta_log/1.json") == []
    assert [file.path for file in store.list_folder("a b")] == ["a b/c%20d#?.txt"]
    assert store.list_folder("") == []
    with store.open_input("a b/c%20d#?.txt") as file:
        file.seek(-3, 2)
        assert file.read() == b"789"
    store.rename("a b/c%20d#?.txt", "e/f")
    assert store.exists("e/f")
    assert not store.exists("e")
    assert store.get(f"{hdfs.url}{folder}/e/f") == b"0123456789"
    store.delete(["e/f", "nowhere"])
    with pytest.raises(FileNotFoundError):
        store.get("e/f")
    large = bytes(range(256)) * (9 << 10)
    system.create(f"{folder}/large %20", large)
    assert store.get("large %20") == large
    with pytest.raises(FileExistsError):
        system.create(f"{folder}/large %20", large[::-1])
    assert store.get("large %20") == large
    store.delete(["large %20"])
    store.delete_folder("_delta_log")
    assert store.list() == []


def test_one_of_many_writers_commits(system: HadoopFiles, hdfs: Hdfs) -> None:
    store = HadoopStore(f"{hdfs.url}/race-{type(system).__name__}", system, NotOpened("not here"))

    def write(writer: int) -> bool:
        try:
            store.put_if_absent("_delta_log/0.json", b"%d" % writer)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(16)))
    assert won.count(True) == 1
    assert store.get("_delta_log/0.json") == b"%d" % won.index(True)
    assert [file.path for file in store.list()] == ["_delta_log/0.json"]


def test_path_without_a_host(spark: SparkSession, hdfs: Hdfs) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    with with_settings(spark, {"fs.defaultFS": hdfs.url}):
        write_delta(rows(spark, 0, 20), "hdfs:///no host", properties=properties)
        assert upsert(spark, "hdfs:///no host", 10, 30).outcome.executor == "key_lookup"
        table = DeltaTable.forPath(spark, "hdfs:/no host")
        assert sorted(row["v"] for row in table.toDF().collect()) == [i if i < 10 else i * 11 for i in range(30)]
    assert NativeHdfs("hdfs://", {"fs.defaultFS": f"{hdfs.url}/"}).url == hdfs.url
    with pytest.raises(DeltaTableException, match="names no host"):
        NativeHdfs("hdfs://", {})


def test_threads_read_one_file(hdfs: Hdfs) -> None:
    content = bytes(range(256)) * 40_000
    with hdfs.client.create("/shared") as file:
        file.write(content)
    source = Files("hdfs", {"url": hdfs.url, "config": {}})._system.open_input_file("/shared")

    def is_right(start: int) -> bool:
        return bool(source.read_at(1000, start) == content[start : start + 1000] and source.size() == len(content))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(is_right, range(0, len(content), 50_001)))


def test_rename_where_there_is_one_writer(spark: SparkSession, tmp_path: Path) -> None:
    store = HadoopStore(f"file:{tmp_path}", JvmFiles(spark, "file:///"), NotOpened(""), has_single_writer=True)
    store.put_if_absent("a b/1.json", b"one")
    with pytest.raises(FileExistsError):
        store.put_if_absent("a b/1.json", b"two")
    store.put("a b/1.json", b"three")
    assert store.get("a b/1.json") == b"three"
    assert store.absolute("a b/1.json") == f"file:{tmp_path}/a b/1.json"


def test_read_without_a_jvm(spark: SparkSession, hdfs: Hdfs) -> None:
    write_delta(rows(spark, 0, 10), f"{hdfs.url}/native")
    snapshot = load_snapshot(open_store(f"{hdfs.url}/native"))
    assert snapshot.version == 0


def test_two_writers(spark: SparkSession, hdfs: Hdfs) -> None:
    path = f"{hdfs.url}/two"
    write_delta(rows(spark, 0, 10), path)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda first: upsert(spark, path, first, first + 20), (100, 200, 300, 400)))
    assert DeltaTable.forPath(spark, path).toDF().count() == 90
    check_clean(hdfs, "/two")


def test_name_node_that_does_not_answer(spark: SparkSession) -> None:
    began = time.monotonic()
    with pytest.raises(DeltaTableException, match=r"hdfs://localhost:1' was not reached.*fs\.defaultFS"):
        DeltaTable.forPath(spark, "hdfs://localhost:1/t")
    assert time.monotonic() - began < 5


def test_writing_needs_an_atomic_rename(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DeltaTableException, match="single_writer=true"):
        HadoopStore("oss://bucket/t", NativeHdfs("hdfs://localhost:1", {}), NotOpened("")).put_if_absent("x", b"")
