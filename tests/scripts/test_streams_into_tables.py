"""Streams into tables whose rows Spark must compute or convert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.errors import AnalysisException, StreamingQueryException

from deltamerge.tables import DeltaTable
from merge.tables import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Over Connect the source in Python writes streams, which refuses such tables.
pytestmark = pytest.mark.slow


def stream_of(spark: SparkSession, folder: Path, sql: str) -> DataFrame:
    spark.sql(sql).write.mode("append").parquet(str(folder / "source"))
    return spark.readStream.schema(spark.sql(sql).schema).parquet(str(folder / "source"))


def write(stream: DataFrame, folder: Path, **options: str) -> None:
    writer = stream.writeStream.format("delta").trigger(availableNow=True).options(**options)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "t"))
    assert query.awaitTermination(120)


def test_columns_that_the_table_computes(installed: SparkSession, tmp_path: Path) -> None:
    installed.sql(
        f"CREATE TABLE delta.`{tmp_path / 't'}` (n BIGINT GENERATED ALWAYS AS IDENTITY, at TIMESTAMP, v INT, "
        "day DATE GENERATED ALWAYS AS (CAST(at AS DATE)), kind STRING DEFAULT 'new') PARTITIONED BY (day) "
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    given = "SELECT TIMESTAMP'2024-01-02 03:04:05' + INTERVAL 1 DAY * id AS at, id AS v FROM range(2)"
    write(stream_of(installed, tmp_path, given), tmp_path)
    found = DeltaTable.forPath(installed, str(tmp_path / "t"))
    assert rows(found.toDF().selectExpr("n > 0", "v", "string(day)", "kind")) == [
        (True, 0, "2024-01-02", "new"),
        (True, 1, "2024-01-03", "new"),
    ]
    last = found.history(1).collect()[0]
    assert last.operation == "STREAMING UPDATE"
    assert last.operationParameters["outputMode"] == "Append"
    counted = {name: last.operationMetrics[name] for name in last.operationMetrics if name != "numOutputBytes"}
    assert counted == {"numAddedFiles": "2", "numRemovedFiles": "0", "numOutputRows": "2"}
    assert last.isBlindAppend


def test_a_batch_is_written_once(installed: SparkSession, tmp_path: Path) -> None:
    stream = stream_of(installed, tmp_path, "SELECT id, 'a' AS p FROM range(3)")
    query = stream.writeStream.format("delta").partitionBy("p").outputMode("append").queryName("of_batches")
    query = query.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
    started = query.start(str(tmp_path / "t"))
    assert started.name == "of_batches"
    assert started.awaitTermination(120)
    # As if the process had died before Spark noted that the batch was done.
    for note in (tmp_path / "checkpoint" / "commits").glob("*0*"):
        note.unlink()
    stream_of(installed, tmp_path, "SELECT id, 'b' AS p FROM range(3, 5)")
    write(stream, tmp_path)
    found = DeltaRs(str(tmp_path / "t"))
    assert sorted(found.to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2, 3, 4]
    assert found.metadata().partition_columns == ["p"]


def test_modes_and_types(installed: SparkSession, tmp_path: Path) -> None:
    installed.sql(f"CREATE TABLE delta.`{tmp_path / 't'}` (p INT, n DECIMAL(10,2))")
    totals = stream_of(installed, tmp_path, "SELECT id % 2 AS p, double(id) AS n FROM range(5)")
    totals = totals.groupBy("p").sum("n").withColumnRenamed("sum(n)", "n")
    for _ in range(2):
        query = totals.writeStream.format("delta").outputMode("complete").trigger(availableNow=True)
        started = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "t"))
        assert started.awaitTermination(120)
        stream_of(installed, tmp_path, "SELECT id % 2 AS p, double(id) AS n FROM range(5)")
    assert rows(DeltaTable.forPath(installed, str(tmp_path / "t")).toDF().selectExpr("p", "int(n)")) == [
        (0, 12),
        (1, 8),
    ]
    # The first batch of a table that the stream makes.
    query = totals.writeStream.format("delta").outputMode("complete").trigger(availableNow=True)
    assert query.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "new")).awaitTermination(120)
    (first,) = DeltaTable.forPath(installed, str(tmp_path / "new")).history().collect()
    assert (first.isBlindAppend, first.operationMetrics["numRemovedFiles"]) == (False, "0")
    update = totals.writeStream.format("delta").outputMode("update").option("checkpointLocation", str(tmp_path / "u"))
    with pytest.raises(AnalysisException, match="does not support Update output mode"):
        update.start(str(tmp_path / "t"))
    other = tmp_path / "other"
    DeltaTable.create(installed).location(str(other / "t")).addColumn("p", "INT").execute()
    stream = stream_of(installed, other, "SELECT 1 AS p, 2 AS further")
    with pytest.raises(StreamingQueryException, match="further"):
        write(stream, other)
    write(stream, other, mergeSchema="true")
    assert rows(DeltaTable.forPath(installed, str(other / "t")).toDF()) == [(1, 2)]


def test_options_of_start_that_say_nothing(installed: SparkSession, tmp_path: Path) -> None:
    stream = stream_of(installed, tmp_path, "SELECT id FROM range(3)")
    writer = stream.writeStream.format("delta").trigger(availableNow=True)
    target, checkpoint = str(tmp_path / "t"), str(tmp_path / "checkpoint")
    assert writer.start(target, mergeSchema=None, checkpointLocation=checkpoint).awaitTermination(120)
    assert rows(DeltaTable.forPath(installed, target).toDF()) == [(0,), (1,), (2,)]


def test_streams_that_spark_itself_starts(installed: SparkSession, tmp_path: Path) -> None:
    stream = stream_of(installed, tmp_path, "SELECT id FROM range(3)")
    target = str(tmp_path / "t")
    with pytest.raises(AnalysisException, match="checkpointLocation must be specified"):
        stream.writeStream.format("delta").trigger(availableNow=True).start(target)
    found: list[int] = []
    writer = stream.writeStream.format("delta").option("path", target).trigger(availableNow=True)
    query = writer.foreachBatch(lambda frame, _: found.append(frame.count())).outputMode(outputMode="update").start()
    assert query.awaitTermination(120)
    assert found == [3]
    assert not (tmp_path / "t").exists()
    DeltaTable.create(installed).location(target).addColumn("id", "BIGINT").execute()
    for _ in range(2):
        known = installed.read.format("delta").load(target)
        new = stream.join(known, "id", "left_anti").writeStream.format("delta").outputMode(outputMode="append")
        started = new.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start(target)
        assert started.awaitTermination(120)
        stream_of(installed, tmp_path, "SELECT id FROM range(5)")
    assert rows(DeltaTable.forPath(installed, target).toDF()) == [(i,) for i in range(5)]
