"""Rows that were read from the table which they replace: what others have committed since is a conflict."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from deltamerge import DeltaTable, write_delta
from deltamerge.api.write_delta import write_frame
from deltamerge.exceptions import DeltaConcurrentModificationException
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.spark.table import open_table
from deltamerge.sql.merge_ast import Expression
from deltamerge.write.table_writer import FrameWrite

KINDS = {
    "overwrite": FrameWrite("overwrite"),
    "dynamic": FrameWrite("dynamic"),
    "where": FrameWrite("replace_where", Expression("id >= 0")),
    "schema": FrameWrite("overwrite_schema", partition_columns=("p",)),
}


def write(rows: DataFrame, path: Path, kind: str) -> None:
    write_frame(open_table(rows.sparkSession, str(path)), rows, KINDS[kind])


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> DeltaTable:
    write_delta(spark.range(3).selectExpr("id", "0 AS p", "'a' AS v"), str(tmp_path), partition_by="p")
    return DeltaTable.forPath(spark, str(tmp_path))


def append(spark: SparkSession, path: Path) -> None:
    write_delta(spark.range(7, 8).selectExpr("id", "0 AS p", "'b' AS v"), str(path), mode="append")


@pytest.mark.quick
def test_another_writers_rows(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    for kind in KINDS:
        rows = table.toDF().where("id < 9")
        append(spark, tmp_path)
        before = table.toDF().count()
        with pytest.raises(DeltaConcurrentModificationException, match="Read the table again"):
            write(rows, tmp_path, kind)
        assert table.toDF().count() == before


@pytest.mark.quick
def test_merges_and_appends_of_what_was_read_before(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    """The rows of another writer are not seen by what was read before them."""
    rows, path = table.toDF(), str(tmp_path)
    new = spark.range(8).selectExpr("id", "0 AS p", "'c' AS v").join(rows.select("id"), "id", "left_anti")
    append(spark, tmp_path)
    expected = sorted(table.toDF().collect())
    merge = table.alias("t").merge(rows.where("id < 9").alias("s"), "t.id = s.id")
    with pytest.raises(DeltaConcurrentModificationException, match="Read the table again"):
        merge.whenNotMatchedBySourceDelete().execute()
    with pytest.raises(DeltaConcurrentModificationException, match="Read the table again"):
        write_delta(new, path, mode="append")
    assert sorted(table.toDF().collect()) == expected
    again = spark.range(8).selectExpr("id", "0 AS p", "'c' AS v").join(table.toDF().select("id"), "id", "left_anti")
    write_delta(again, path, mode="append")
    assert sorted(row["id"] for row in table.toDF().collect()) == list(range(8))


def test_commits_that_were_cleaned_up(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    """What nothing tells any more may have changed rows."""
    rows = table.toDF()
    append(spark, tmp_path)
    snapshot = open_table(spark, str(tmp_path)).snapshot()
    write_checkpoint(snapshot, snapshot.timestamp_ms)
    for version in range(2):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(DeltaConcurrentModificationException, match="Read the table again"):
        write(rows, tmp_path, "overwrite")


def test_rows_of_the_newest_version(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    for kind in KINDS:
        write(table.toDF().where("id <> 1"), tmp_path, kind)
        assert sorted(row["id"] for row in table.toDF().collect()) == [0, 2]


def test_an_earlier_version_is_put_back(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    rows = table.at(version=0)
    append(spark, tmp_path)
    write_delta(rows, str(tmp_path), mode="overwrite")
    assert sorted(row["id"] for row in table.toDF().collect()) == [0, 1, 2]


def test_partitions_that_others_have_not_changed(spark: SparkSession, tmp_path: Path) -> None:
    """One frame may replace one partition after the other."""
    write_delta(spark.range(6).selectExpr("id", "id % 3 AS p"), str(tmp_path), partition_by="p")
    table = DeltaTable.forPath(spark, str(tmp_path))
    rows = table.toDF()
    for p in range(3):
        asked = FrameWrite("replace_where", Expression(f"p = {p}"))
        of_partition = rows.where(f"p = {p}").selectExpr("id + 10 AS id", "p")
        write_frame(open_table(spark, str(tmp_path)), of_partition, asked)
    assert sorted(row["id"] for row in table.toDF().collect()) == list(range(10, 16))
    with pytest.raises(DeltaConcurrentModificationException, match="Read the table again"):
        write_frame(open_table(spark, str(tmp_path)), rows.where("p = 0"), FrameWrite("dynamic"))
