"""Streams from and into Delta tables by ``format("delta")``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructField, StructType

from deltamerge import DeltaTable, sql, write_delta
from deltamerge.workers.data_source import limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.slow


def read(spark: SparkSession, path: object, **options: Any) -> DataFrame:
    return spark.readStream.format("delta").options(**options).load(str(path))


def run(frame: DataFrame, path: Path, **options: Any) -> StreamingQuery:
    """Streams what there is now into a table; the checkpoint is beside it."""
    checkpoint = {"checkpointLocation": str(path) + ".checkpoint", **options}
    query = frame.writeStream.format("delta").options(**checkpoint).trigger(availableNow=True).start(str(path))
    query.awaitTermination()
    return query


def ids(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row.id for row in spark.read.format("delta").load(str(path)).select("id").collect())


@pytest.mark.sessions
def test_what_is_new_is_read_once(registered: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_delta(registered.range(3), str(source))
    write_delta(registered.range(3, 5), str(source), mode="append")
    query = run(read(registered, source), target)
    assert ids(registered, target) == [0, 1, 2, 3, 4]
    run(read(registered, source), target)
    write_delta(registered.range(5, 8), str(source), mode="append")
    run(read(registered, source), target)
    assert ids(registered, target) == list(range(8))
    rows = DeltaTable.forPath(registered, str(target)).history().collect()
    assert {row.operation for row in rows} == {"STREAMING UPDATE"}
    assert {row.operationParameters["queryId"] for row in rows} == {query.id}
    assert [folder for folder in target.rglob("*") if folder.is_dir() and not list(folder.iterdir())] == []


def test_columns_of_user_defined_types(registered: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    vectors = StructType([StructField("v", VectorUDT()), StructField("a", ArrayType(VectorUDT()))])
    written = [(Vectors.dense([1.0, 2.0]), [Vectors.sparse(3, [1], [5.0])]), (None, None)]
    registered.createDataFrame(written, vectors).write.format("delta").mode("append").save(str(source))
    run(read(registered, source), target)
    for frame in (
        registered.read.format("delta").load(str(target)),
        DeltaTable.forPath(registered, str(target)).toDF(),
    ):
        assert sorted(map(tuple, frame.collect()), key=str, reverse=True) == [(None, None), written[0]]


@pytest.mark.skipif(limits is None, reason="Spark has no limits for batches before 4.2")
def test_batches_have_limits(registered: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for number in range(4):
        write_delta(registered.range(number, number + 1, 1, 1), str(source), mode="append")
    write_delta(registered.range(4, 8, 1, 4), str(source), mode="append")
    run(read(registered, source, maxFilesPerTrigger=3), target)
    assert ids(registered, target) == list(range(8))
    history = DeltaTable.forPath(registered, str(target)).history().collect()
    assert [row.operationMetrics["numOutputRows"] for row in history] == ["2", "3", "3"]


@pytest.mark.sessions
def test_a_batch_that_is_written_again_is_there_once(registered: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_delta(registered.range(3), str(source))
    run(read(registered, source), target)
    # As if Spark had ended after the commit of the table and before its own.
    shutil.rmtree(str(target) + ".checkpoint/commits")
    write_delta(registered.range(3, 4), str(source), mode="append")
    run(read(registered, source), target)
    run(read(registered, source), target)
    assert ids(registered, target) == [0, 1, 2, 3]


def test_where_streams_start(registered: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for number in range(3):
        write_delta(registered.range(number, number + 1), str(source), mode="append")
    run(read(registered, source, startingVersion=1), tmp_path / "from-1")
    assert ids(registered, tmp_path / "from-1") == [1, 2]
    run(read(registered, source, startingVersion="latest"), tmp_path / "latest")
    write_delta(registered.range(9, 10), str(source), mode="append")
    run(read(registered, source, startingVersion="latest"), tmp_path / "latest")
    assert ids(registered, tmp_path / "latest") == [9]


def test_changes(registered: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_delta(registered.range(3), str(source), properties={"delta.enableChangeDataFeed": "true"})
    changes = read(registered, source, readChangeFeed="true").drop("_commit_timestamp")
    run(changes, target)
    DeltaTable.forPath(registered, str(source)).update("id = 1", {"id": "11"})
    run(changes, target)
    found = registered.read.format("delta").load(str(target)).orderBy("_commit_version", "_change_type", "id")
    assert [tuple(row) for row in found.collect()] == [
        (0, "insert", 0),
        (1, "insert", 0),
        (2, "insert", 0),
        (11, "update_postimage", 1),
        (1, "update_preimage", 1),
    ]


def test_commits_that_change_rows(registered: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_delta(registered.range(3, numPartitions=1), str(source))
    DeltaTable.forPath(registered, str(source)).delete("id = 1")
    write_delta(registered.range(5, 6), str(source), mode="append")
    with pytest.raises(Exception, match="DELTA_SOURCE_TABLE_IGNORE_CHANGES"):
        run(read(registered, source, startingVersion=0), tmp_path / "refused")
    run(read(registered, source, startingVersion=0, skipChangeCommits="true"), tmp_path / "skipped")
    assert ids(registered, tmp_path / "skipped") == [0, 1, 2, 5]


def test_complete_mode_overwrites(registered: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for _ in range(2):
        write_delta(registered.range(3), str(source), mode="append")
        counted = read(registered, source).groupBy((F.col("id") % 2).alias("id")).count()
        writer = counted.writeStream.format("delta").outputMode("complete")
        options = {"checkpointLocation": str(target) + ".checkpoint"}
        writer.options(**options).trigger(availableNow=True).start(str(target)).awaitTermination()
    found = registered.read.format("delta").load(str(target)).orderBy("id").collect()
    assert [tuple(row) for row in found] == [(0, 4), (1, 2)]
    history = DeltaTable.forPath(registered, str(target)).history().orderBy("version").collect()
    assert [row.isBlindAppend for row in history] == [False, False]
    names = {"numAddedFiles", "numRemovedFiles", "numOutputRows", "numOutputBytes"}
    assert all(row.operationMetrics.keys() == names for row in history)
    assert history[0].operationMetrics["numRemovedFiles"] == "0"


def test_columns_that_only_look_the_same(registered: SparkSession, tmp_path: Path) -> None:
    """A column that is dropped, or dropped and added anew, is another one: its rows would be NULL."""
    source = tmp_path / "source"
    mapped = {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"}
    write_delta(registered.range(2).selectExpr("id", "id AS v"), str(source), properties=mapped)
    name = f"delta.`{source}`"
    sql(registered, f"ALTER TABLE {name} DROP COLUMN v")
    sql(registered, f"ALTER TABLE {name} ADD COLUMN (v BIGINT)")
    with pytest.raises(Exception, match="DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE"):
        DeltaTable.forPath(registered, str(source)).changes(0).collect()
    with pytest.raises(Exception, match="DELTA_SCHEMA_CHANGED_WITH_VERSION"):
        run(read(registered, source, startingVersion=0), tmp_path / "target")


def test_a_frame_that_is_older_than_a_column(registered: SparkSession, tmp_path: Path) -> None:
    """The same frame started again would pass over the column's values for good."""
    source, target = tmp_path / "source", tmp_path / "target"
    write_delta(registered.range(1), str(source))
    frame = read(registered, source)
    run(frame, target)
    wider = registered.range(1, 2).selectExpr("id", "id AS v")
    wider.write.format("delta").mode("append").option("mergeSchema", "true").save(str(source))
    for _ in range(2):
        with pytest.raises(Exception, match="DELTA_SCHEMA_CHANGED_WITH_VERSION"):
            run(frame, target)
    assert ids(registered, target) == [0]
    run(read(registered, source), target, mergeSchema="true")
    found = registered.read.format("delta").load(str(target)).orderBy("id").collect()
    assert [tuple(row) for row in found] == [(0, None), (1, 1)]


def test_a_column_that_is_dropped_while_a_stream_runs(registered: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    properties = {"delta.columnMapping.mode": "name"}
    write_delta(registered.range(2).selectExpr("id", "id AS v"), str(source), properties=properties)
    writer = read(registered, source).writeStream.format("delta")
    query = writer.options(checkpointLocation=str(target) + ".checkpoint").start(str(target))
    try:
        query.processAllAvailable()
        sql(registered, f"ALTER TABLE delta.`{source}` DROP COLUMN v")
        write_delta(registered.range(5, 6), str(source), mode="append")
        with pytest.raises(Exception, match="DELTA_SCHEMA_CHANGED_WITH_VERSION"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert ids(registered, target) == [0, 1]
