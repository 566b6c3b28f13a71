"""Settings and table properties that say how a merge reads and writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltamerge import DeltaTable, write_delta
from deltamerge.exceptions import DeltaAnalysisException, DeltaRuntimeException
from deltamerge.log.actions import AddFile
from deltamerge.write.layout import data_folder, records_per_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "spark.databricks.delta."


def test_source_that_changes_fails_the_merge_where_that_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    path, runs = str(tmp_path / "t"), tmp_path / "runs"
    write_delta(spark.range(20).selectExpr("id", "0 AS v"), path)

    def one_more_each_time(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with runs.open("a") as file:
            file.write("x")
        ids = [100 + number for number in range(runs.stat().st_size)]
        yield pa.record_batch({"id": pa.array(ids, pa.int64()), "v": pa.array(ids, pa.int32())})

    changing = spark.range(0, 1, 1, 1).mapInArrow(one_more_each_time, "id BIGINT, v INT")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(changing.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate("t.id = -1", {"v": "s.v"}).whenNotMatchedInsertAll()
    spark.conf.set(KEY + "merge.materializeSource", "none")
    spark.conf.set(KEY + "merge.failIfSourceChanged", "true")
    with pytest.raises(DeltaRuntimeException, match="failIfSourceChanged") as raised:
        merge.run()
    assert raised.value.getErrorClass() == "DELTA_MERGE_SOURCE_CHANGED"
    assert DeltaTable.forPath(spark, path).toDF().count() == 20
    assert len([p for p in Path(path).iterdir() if p.name.startswith("deltamerge-")]) == 1
    spark.conf.set(KEY + "merge.materializeSource", "auto")
    assert merge.run().version == 1


@pytest.mark.sessions
@pytest.mark.parametrize(("key", "is_new"), [(7, False), (99, True)])
def test_source_that_is_read_once_cannot_have_changed(
    spark: SparkSession, tmp_path: Path, key: int, is_new: bool
) -> None:
    """Nothing is written that would read it again: no row matches, or vectors delete those that do."""
    path = str(tmp_path / "t")
    write_delta(spark.range(20), path, properties={"delta.enableDeletionVectors": "true"})
    spark.conf.set(KEY + "merge.materializeSource", "none")
    spark.conf.set(KEY + "merge.failIfSourceChanged", "true")
    spark.conf.set("spark.deltamerge.merge.executor", "classic")
    source = spark.range(key, key + 1)
    report = (
        DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id").whenMatchedDelete().run()
    )
    assert report.metrics["numTargetRowsDeleted"] == int(not is_new)


def test_columns_that_are_gone_since_the_table_was_opened(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS id, 2 AS v"), path)
    opened = DeltaTable.forPath(spark, path)
    source = spark.sql("SELECT 1 AS id, 3 AS w")
    merge = opened.alias("t").merge(source.alias("s"), "t.id = s.id").whenMatchedDelete()
    write_delta(spark.sql("SELECT 1 AS id, 2 AS v, 3 AS w"), path, mode="overwrite", overwrite_schema=True)
    assert merge.run().version == 2
    write_delta(spark.sql("SELECT 1 AS id, 3 AS w"), path, mode="overwrite", overwrite_schema=True)
    with pytest.raises(DeltaAnalysisException, match=r"it was struct<id:int,v:int>") as raised:
        merge.run()
    with pytest.raises(DeltaAnalysisException, match="DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"):
        merge.plan()
    assert raised.value.getErrorClass() == "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"
    spark.conf.set(KEY + "checkLatestSchemaOnRead", "false")
    assert merge.run().version == 4


def test_size_and_place_of_files_by_properties(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = spark.range(4000).selectExpr("id", "uuid() AS v").coalesce(1)
    properties = {
        "delta.targetFileSize": "40kb",
        "delta.randomizeFilePrefixes": "true",
        "delta.enableChangeDataFeed": "true",
    }
    write_delta(rows, path, properties=properties)
    spark.conf.set("spark.deltamerge.merge.executor", "classic")
    source = spark.range(10).selectExpr("id * 400 AS id", "'new' AS v")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    assert merge.whenMatchedUpdateAll().run().metrics["numTargetRowsUpdated"] == 10
    table = DeltaTable.forPath(spark, path)
    files = table.table.snapshot().files.add_files()
    assert len(files) >= 4
    assert all(re.match(r"[0-9a-f]{2}/deltamerge-", file.path) for file in files)
    assert max(file.size for file in files) < 60 << 10
    assert table.toDF().where("v = 'new'").count() == 10
    assert table.changes(1).count() == 20


def test_rows_of_a_file_are_estimated_from_the_files_there_are() -> None:
    files = [AddFile("a", {}, 1000, 1, stats='{"numRecords":10}'), AddFile("b", {}, 9000, 1)]
    assert records_per_file({}, files) is None
    assert records_per_file({"delta.targetFileSize": "5000"}, files) == 50
    assert records_per_file({"delta.targetFileSize": "5 kB"}, files) == 51
    assert records_per_file({"delta.targetFileSize": "1"}, files) == 1
    assert records_per_file({"delta.targetFileSize": "1g"}, files[1:]) is None
    for wrong in ("large", "0", "-5", "1.5m"):
        with pytest.raises(DeltaAnalysisException, match=r"delta\.targetFileSize"):
            records_per_file({"delta.targetFileSize": wrong}, files)


def test_folders_begin_at_random_where_that_is_asked_for() -> None:
    name = r"deltamerge-[0-9a-f-]{36}"
    asked = {"delta.randomizeFilePrefixes": "true"}
    assert re.fullmatch(name, data_folder({}))
    assert re.fullmatch(rf"[0-9a-f]{{2}}/{name}", data_folder(asked))
    assert re.fullmatch(rf"[0-9a-f]{{3}}/{name}", data_folder({**asked, "delta.randomPrefixLength": "3"}))
