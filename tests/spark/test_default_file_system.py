"""Paths without a scheme where Hadoop's default file system is not this machine's disk, as on most clusters."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable as DeltaRsTable
from pyspark.sql import SparkSession

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.data_source.request import Request
from deltamerge.exceptions import DeltaTableNotFoundException
from deltamerge.spark.data_source import source_settings
from deltamerge.spark.default_file_system import in_default_file_system
from storage.s3 import with_settings


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The folder behind ``/data`` of a file system that is the session's default."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    host = tmp_path.name.replace("_", "-")
    settings = {
        "fs.defaultFS": f"viewfs://{host}/",
        f"fs.viewfs.mounttable.{host}.link./data": f"file://{folder}",
        f"fs.viewfs.mounttable.{host}.link./user": f"file://{folder}/user",
    }
    with with_settings(spark, settings):
        yield folder


def ids(folder: Path) -> list[int]:
    return sorted(row["id"] for row in DeltaRsTable(folder).to_pyarrow_table().to_pylist())


@pytest.mark.parametrize("partition_by", [None, pytest.param("p", marks=pytest.mark.quick)])
def test_a_local_table(spark: SparkSession, mounted: Path, tmp_path: Path, partition_by: str | None) -> None:
    """What names the local disk is on it, log and data."""
    rows, path = spark.range(3).selectExpr("id", "'A' AS p"), f"file://{tmp_path}/t"
    write_delta(rows, path, partition_by=partition_by)
    write_delta(rows.selectExpr("id + 3 AS id", "p"), path, mode="append")
    table = DeltaTable.forPath(spark, path)
    source = spark.range(4, 8).selectExpr("id", "'B' AS p")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    table.delete("id = 0")
    table.update("id = 1", {"p": "'C'"})
    assert table.toDF().count() == 7
    assert ids(tmp_path / "t") == [1, 2, 3, 4, 5, 6, 7]
    table.optimize().executeCompaction()
    assert ids(tmp_path / "t") == [1, 2, 3, 4, 5, 6, 7]
    assert not list(mounted.iterdir())


@pytest.mark.parametrize("path", ["/data/t", "t"])
def test_a_path_without_a_scheme(spark: SparkSession, mounted: Path, tmp_path: Path, path: str) -> None:
    """As in delta-spark, it is one of the default file system, a relative one of the user's folder there."""
    folder = mounted / "t" if path.startswith("/") else mounted / "user" / getpass.getuser() / "t"
    write_delta(spark.range(3).toDF("id"), path)
    assert ids(folder) == [0, 1, 2]
    assert DeltaTable.isDeltaTable(spark, path)
    source = spark.range(2, 5)
    source.createOrReplaceTempView("added")
    merge_sql(spark, f"MERGE INTO delta.`{path}` t USING added s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
    assert ids(folder) == [0, 1, 2, 3, 4]
    DeltaTable.replace(spark).location(path).addColumn("id", "BIGINT").execute()
    assert ids(folder) == []
    with pytest.raises(DeltaTableNotFoundException):
        DeltaTable.forPath(spark, str(tmp_path / "elsewhere" / "t")).toDF()


@pytest.mark.quick
def test_the_data_source(spark: SparkSession, mounted: Path) -> None:
    """It has no session where it opens tables."""
    settings = source_settings(spark)
    for path in ("/data/t", "t", "file:/data/t", "s3://b/t"):
        assert Request({"path": path}, settings).path == in_default_file_system(spark, path)
