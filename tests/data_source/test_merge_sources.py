"""A merge whose source reads the table that it changes must not run again: its rows are of the version before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import CONNECT
from deltamerge import DeltaMergeBuilder, DeltaTable, write_delta
from deltamerge.exceptions import DeltaConcurrentModificationException
from deltamerge.merge.outcome import LostCommit
from deltamerge.scan.paths import may_be_below
from merge.test_transactions import Once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.sessions

SCHEMA = "id BIGINT, v BIGINT"

Source = Callable[["SparkSession", Path], "DataFrame"]


def by_format(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("delta").load(str(path))


def by_catalog(spark: SparkSession, path: Path) -> DataFrame:
    spark.sql(f"CREATE TABLE IF NOT EXISTS reads_{path.name} USING delta LOCATION '{path}'")
    return spark.table(f"reads_{path.name}")


def by_query(spark: SparkSession, path: Path) -> DataFrame:
    by_format(spark, path).createOrReplaceTempView("reads_target")
    return spark.sql("SELECT id, (SELECT max(v) FROM reads_target) AS v FROM VALUES (1L) AS s(id)")


def plain(spark: SparkSession, path: Path) -> DataFrame:
    return DeltaTable.forPath(spark, str(path)).toDF()


SOURCES: dict[str, Source] = {
    "format": by_format,
    "catalog": by_catalog,
    "subquery": by_query,
    "format, cached": lambda spark, path: by_format(spark, path).cache(),
    "checkpointed": lambda spark, path: plain(spark, path).localCheckpoint(),
    "checkpointed later": lambda spark, path: plain(spark, path).localCheckpoint(eager=False),
}

ELSEWHERE: dict[str, Source] = {
    "rows": lambda spark, _: spark.createDataFrame([(1, 10)], SCHEMA),
    "many rows": lambda spark, _: spark.createDataFrame([(i, 10) for i in range(1, 20_000, 3)], SCHEMA),
    "query": lambda spark, _: spark.sql("SELECT 1L AS id, 10L AS v UNION ALL SELECT id, id FROM range(7, 9)"),
    "table": plain,
    "parquet": lambda spark, path: spark.read.parquet(str(next(path.rglob("*.parquet")))),
    "common table expression": lambda spark, _: spark.sql(
        "WITH s AS (SELECT 1L AS id, 10L AS v) SELECT a.* FROM s AS a JOIN s AS b ON a.id = b.id"
    ),
}
OF_THE_DATA_SOURCE: dict[str, Source] = {"format": by_format, "catalog": by_catalog}


def table(spark: SparkSession, path: Path) -> Path:
    write_delta(spark.createDataFrame([(1, 0), (2, 0)], SCHEMA), str(path))
    return path


def changed_meanwhile(spark: SparkSession, path: Path) -> Once:
    return Once("commit", lambda: DeltaTable.forPath(spark, str(path)).update(set={"v": "v + 100"}))


def merge(spark: SparkSession, path: Path, source: DataFrame) -> DeltaMergeBuilder:
    merged = DeltaTable.forPath(spark, str(path)).alias("t").merge(source.alias("s"), "t.id = s.id")
    return merged.whenMatchedUpdateAll()


@pytest.mark.parametrize("kind", SOURCES)
def test_it_does_not_run_again(registered: SparkSession, spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = table(spark, tmp_path / f"own_{list(SOURCES).index(kind)}")
    source = SOURCES[kind](spark, path).where("id = 1").selectExpr("id", "v + 1 AS v")
    with pytest.raises(DeltaConcurrentModificationException):
        merge(spark, path, source).run(progress=changed_meanwhile(spark, path))
    assert sorted(row.v for row in plain(spark, path).collect()) == [100, 100]


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_a_source_elsewhere_runs_again(
    registered: SparkSession, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    check_runs_again(spark, tmp_path, ELSEWHERE[kind])


def check_runs_again(spark: SparkSession, tmp_path: Path, of: Source) -> None:
    path, other = table(spark, tmp_path / "t"), table(spark, tmp_path / "t_other")
    found = merge(spark, path, of(spark, other)).run(progress=changed_meanwhile(spark, path))
    assert found.outcome.lost_to == (LostCommit(1, "UPDATE", "DELTA_CONCURRENT_APPEND"),)


if not CONNECT:
    # Connect does not show which table the data source reads, nor what a batch of a stream does.

    @pytest.mark.parametrize("kind", OF_THE_DATA_SOURCE)
    def test_another_table_of_the_data_source(
        registered: SparkSession, spark: SparkSession, tmp_path: Path, kind: str
    ) -> None:
        check_runs_again(spark, tmp_path, OF_THE_DATA_SOURCE[kind])

    def test_what_was_read_before_another_commit(registered: SparkSession, spark: SparkSession, tmp_path: Path) -> None:
        """On classic Spark the data source's frames stay at their version."""
        path = table(spark, tmp_path / "t")
        rows, asked = by_format(spark, path), spark.read.format("delta").option("versionAsOf", 0).load(str(path))
        merge(spark, path, rows.where("id = 1").selectExpr("id", "v + 1 AS v")).execute()
        with pytest.raises(DeltaConcurrentModificationException, match="Read the table again"):
            merge(spark, path, rows).execute()
        with pytest.raises(DeltaConcurrentModificationException, match="Read the table again"):
            write_delta(rows.where("id > 1"), str(path), mode="overwrite")
        assert sorted(row.v for row in plain(spark, path).collect()) == [0, 1]
        merge(spark, path, asked).execute()
        assert sorted(row.v for row in plain(spark, path).collect()) == [0, 0]

    @pytest.mark.parametrize("joined", [False, True])
    def test_a_batch_of_a_stream(registered: SparkSession, spark: SparkSession, tmp_path: Path, joined: bool) -> None:
        path, other = table(spark, tmp_path / "t"), table(spark, tmp_path / "other")
        stream = spark.readStream.format("delta").load(str(other))
        if joined:
            stream = stream.join(plain(spark, path).hint("broadcast"), "id").select("id", stream["v"])

        def merged(batch: DataFrame, _: int) -> None:
            found = merge(spark, path, batch.where("id = 1")).run(progress=changed_meanwhile(spark, path))
            assert found.outcome.lost_to

        query = stream.writeStream.foreachBatch(merged).option("checkpointLocation", str(tmp_path / "c"))
        started = query.trigger(availableNow=True).start()
        if joined:
            with pytest.raises(Exception, match="DELTA_CONCURRENT_APPEND"):
                started.awaitTermination()
        else:
            started.awaitTermination()
        assert sorted(row.v for row in plain(spark, path).collect()) == [100 if joined else 0, 100]

    def test_what_the_static_side_of_a_stream_read_before(
        registered: SparkSession, spark: SparkSession, tmp_path: Path
    ) -> None:
        """The second batch is joined with the version before the first one's merge."""
        path, other = table(spark, tmp_path / "t"), table(spark, tmp_path / "other")
        write_delta(spark.createDataFrame([(2, 7)], SCHEMA), str(other), mode="append")
        stream = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(other))
        stream = stream.join(plain(spark, path).hint("broadcast"), "id").select("id", stream["v"])

        def merged(batch: DataFrame, _: int) -> None:
            merge(spark, path, batch).execute()

        query = stream.writeStream.foreachBatch(merged).option("checkpointLocation", str(tmp_path / "c"))
        started = query.start()
        with pytest.raises(Exception, match="Read the table again"):
            started.awaitTermination()
        assert sorted(row.v for row in plain(spark, path).collect()) == [0, 0]


@pytest.mark.parametrize(
    ("uri", "root", "expected"),
    [
        ("file:///a/t/x.parquet", "/a/t/", True),
        ("/a/b/../t/x.parquet", "/a/t", True),
        ("/a/t2/x.parquet", "/a/t", False),
        ("s3://b/t/x", "s3a://b/t/", True),
        ("s3://b/t/x", "s3a://other/t/", False),
        ("abfss://c@a.dfs.core.windows.net/t/x", "wasbs://c@a.blob.core.windows.net/t", True),
        ("hdfs://node:8020/t/x", "hdfs:///t", True),
        ("hdfs:/t/x", "hdfs://node/t", True),
        ("hdfs:/t/x%20y/z", "hdfs://node/t/x y", True),
    ],
)
def test_whether_a_file_may_be_the_tables(uri: str, root: str, expected: bool) -> None:
    assert may_be_below(uri, root) is expected


@pytest.mark.parametrize("source", [by_format, by_catalog])
def test_an_append_of_the_tables_own_rows_is_not_blind(
    registered: SparkSession, tmp_path: Path, source: Source
) -> None:
    path, other = tmp_path / f"own_{source.__name__}", tmp_path / f"other_{source.__name__}"
    for each in (path, other):
        write_delta(registered.createDataFrame([(1, 5)], SCHEMA), str(each))
    for rows, is_blind in ((source(registered, path).where("id = 1"), False), (source(registered, other), True)):
        write_delta(rows, str(path), mode="append")
        last = DeltaTable.forPath(registered, str(path)).history(1).collect()[0]
        assert last.isBlindAppend == is_blind
