"""What Spark has written must be what this process finds, whatever disk and committer Spark has."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRsTable
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType, StructField, StructType

from deltamerge import DeltaTable, write_delta
from deltamerge.exceptions import ConcurrentAppendException, DeltaTableException
from deltamerge.log.schema import parse_schema
from deltamerge.skipping.indexed import IndexedColumns
from deltamerge.storage.local_store import LocalStore
from deltamerge.storage.store import open_store
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.table_writer import TableWriter
from deltamerge.write.data_files import WriteTarget, files_of_tasks, removing_leftovers, statistics_of
from deltamerge.write.data_files import _data_files as data_files
from storage.s3 import with_settings


def test_a_store_that_keeps_files_does_not_hide_why_a_write_ended(tmp_path: Path) -> None:
    class Keeps(LocalStore):
        def delete_folder(self, path: str) -> None:
            raise PermissionError(f"s3:DeleteObject {path}")

    with pytest.raises(ConcurrentAppendException), removing_leftovers(Keeps(str(tmp_path)), "new"):
        raise ConcurrentAppendException("DELTA_CONCURRENT_APPEND", "another writer was first")


def test_files_of_tasks(tmp_path: Path) -> None:
    """Only they tell of NaN: elsewhere the footer may have been carried on by whoever wrote other rows."""
    schema = StructType([StructField("x", DoubleType())])
    store, folder = open_store(str(tmp_path)), tmp_path / "new"
    folder.mkdir()
    rows = pa.table({"x": [1.0, 2.0]})
    with TableWriter(LOCAL_FILES, str(folder / "a.parquet"), rows.schema, {"store_schema": False}, {}) as writer:
        writer.write(rows)
    done = {"path": str(folder / "a.parquet"), "rows": 2, "size": writer.size, "footer": writer.footer}
    (added,) = files_of_tasks(WriteTarget(store, schema, (), {}, "new"), [done]).files
    assert json.loads(added.stats or "")["maxValues"] == {"x": 2.0}
    # A task on a machine with a disk of its own wrote it there.
    with pytest.raises(DeltaTableException, match="disks of their own"):
        files_of_tasks(WriteTarget(store, schema, (), {}, "new"), [{**done, "path": f"{folder}/c.parquet"}])
    kept = pq.read_table(folder / "a.parquet").schema.metadata
    assert kept
    pq.write_table(pa.table({"x": [1.0, math.nan]}).replace_schema_metadata(kept), folder / "b.parquet")
    (stored,) = (file for file in store.list("new") if file.path.endswith("b.parquet"))
    log_schema = parse_schema(schema.json())
    indexed = IndexedColumns.of(log_schema, (), {})
    footer = pq.read_metadata(folder / "b.parquet")
    assert json.loads(statistics_of(store, stored, footer, log_schema, indexed))["maxValues"] == {}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lets Spark write to another disk: that of a server or of executors, which this process does not see."""
    monkeypatch.setattr("deltamerge.write.data_files.runs_in_local_mode", lambda _: False)
    monkeypatch.setattr("deltamerge.write.data_files.uri_of", lambda path: f"file:{tmp_path}/elsewhere{path}")
    return tmp_path / "elsewhere"


@pytest.mark.quick
@pytest.mark.parametrize(("partition_by", "properties"), [(None, {}), ("p", {"delta.enableChangeDataFeed": "true"})])
def test_another_disk(
    spark: SparkSession, tmp_path: Path, elsewhere: Path, partition_by: str | None, properties: dict[str, str]
) -> None:
    path, rows = str(tmp_path / "t"), spark.range(3).selectExpr("id", "1 AS p")
    with pytest.raises(DeltaTableException, match="disks of their own") as raised:
        write_delta(rows, path, partition_by=partition_by, properties=properties)
    assert raised.value.getCondition() == "DELTAMERGE_WRITTEN_FILES_NOT_FOUND"
    assert not (tmp_path / "t" / "_delta_log").exists()
    assert list(elsewhere.rglob("*.parquet"))


def test_another_disk_in_a_merge(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(100).selectExpr("id", "id % 3 AS p"), path, partition_by="p")
    monkeypatch.setattr("deltamerge.write.data_files.runs_in_local_mode", lambda _: False)
    source = spark.range(50, 150).selectExpr("id", "id % 3 AS p")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate(set={"id": "t.id"}).whenNotMatchedInsertAll()
    with with_settings(spark, {"spark.deltamerge.merge.executor": "classic"}):
        merge.execute()
        assert sorted(row["id"] for row in DeltaRsTable(path).to_pyarrow_table().to_pylist()) == list(range(150))
        monkeypatch.setattr("deltamerge.write.data_files.uri_of", lambda path: f"file:{tmp_path}/elsewhere{path}")
        source = spark.range(120, 200).selectExpr("id", "id % 3 AS p")
        merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
        with pytest.raises(DeltaTableException, match="disks of their own"):
            merge.whenMatchedUpdate(set={"id": "t.id"}).whenNotMatchedInsertAll().execute()
    assert DeltaTable.forPath(spark, path).history().count() == 2
    assert sorted(row["id"] for row in DeltaRsTable(path).to_pyarrow_table().to_pylist()) == list(range(150))


@pytest.mark.quick
def test_files_of_tasks_that_failed(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Databricks' committer tells them by files of its own, so that Spark's is used in its place, and rows counted."""
    found = "com.databricks.sql.transaction.directory.DirectoryAtomicCommitProtocol"
    monkeypatch.setattr("deltamerge.write.data_files.effective_value", lambda *_: found)
    write_delta(spark.range(3), str(tmp_path / "t"))
    assert DeltaRsTable(tmp_path / "t").to_pyarrow_table().num_rows == 3
    monkeypatch.setattr(
        "deltamerge.write.data_files._data_files", lambda store, folder: [*data_files(store, folder)[:1]] * 2
    )
    with pytest.raises(DeltaTableException, match="DELTAMERGE_WRITTEN_FILES_NOT_FOUND"):
        write_delta(spark.range(3).coalesce(1), str(tmp_path / "t"), mode="append")
