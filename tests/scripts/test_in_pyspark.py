"""PySpark's own calls after `install_in_pyspark`: nothing of a script changes but its beginning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable as DeltaRs

import deltamerge
from deltamerge import as_jar
from deltamerge.exceptions import DeltaAnalysisException, DeltaIllegalArgumentException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.sessions, pytest.mark.slow]


@pytest.fixture
def installed(spark: SparkSession) -> Iterator[SparkSession]:
    classes = [each for pair in as_jar._classes() for each in pair]
    before = [dict(vars(each)) for each in classes]
    deltamerge.register(spark)
    deltamerge.install_in_pyspark()
    deltamerge.install_in_pyspark()
    yield spark
    for each, names in zip(classes, before, strict=True):
        for name in [name for name in vars(each) if name not in names]:
            delattr(each, name)
        for name, value in names.items():
            if vars(each).get(name) is not value:
                setattr(each, name, value)


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()))


def test_frames_are_written_as_with_a_jar(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    frame = spark.range(4).selectExpr("id", "id % 2 AS p")
    frame.write.format("delta").partitionBy("p").option("delta.appendOnly", False).save(path)
    with pytest.raises(DeltaAnalysisException, match="DELTA_PATH_EXISTS"):
        frame.write.format("delta").save(path)
    frame.write.format("delta").mode("ignore").save(path)
    spark.sql("SELECT 9L AS id, 1L AS p").write.format("delta").mode("append").save(path)
    assert DeltaRs(path).metadata().partition_columns == ["p"]
    only = spark.sql("SELECT 7L AS id, 1L AS p")
    only.write.format("delta").mode("overwrite").option("replaceWhere", "p = 1").save(path)
    assert rows(spark.read.format("delta").load(path)) == [(0, 0), (2, 0), (7, 1)]
    evolved = spark.sql("SELECT 8L AS id, 1L AS p, 'x' AS n").write.format("delta").mode("append")
    evolved.option("mergeSchema", "true").save(path)
    assert rows(spark.read.format("delta").load(path).where("id = 8")) == [(8, 1, "x")]
    only.write.save(path, format="delta", mode="overwrite", overwriteSchema=True, partitionBy="id")
    assert DeltaRs(path).metadata().partition_columns == ["id"]


def test_the_session_says_how_partitions_are_overwritten(installed: SparkSession, tmp_path: Path) -> None:
    spark, path, plain = installed, str(tmp_path / "t"), str(tmp_path / "plain")
    frame = spark.range(4).selectExpr("id", "id % 2 AS p")
    frame.write.format("delta").partitionBy("p").save(path)
    frame.write.format("delta").save(plain)
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        only = spark.sql("SELECT 7L AS id, 1L AS p").write.format("delta").mode("overwrite")
        only.save(path)
        only.save(plain)
        assert rows(spark.read.format("delta").load(path)) == [(0, 0), (2, 0), (7, 1)]
        assert rows(spark.read.format("delta").load(plain)) == [(7, 1)]
        only.option("partitionOverwriteMode", "static").save(path)
        assert rows(spark.read.format("delta").load(path)) == [(7, 1)]
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


def test_options_of_files_and_how_names_are_spelled(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    writer = spark.range(10, numPartitions=1).selectExpr("id", "0 AS p").write.format("delta").partitionBy("P")
    writer.option("compression", "gzip").option("maxRecordsPerFile", 4).save(path)
    assert DeltaRs(path).metadata().partition_columns == ["p"]
    files = DeltaRs(path).file_uris()
    assert len(files) == 3
    assert all(".gz." in file for file in files)
    writer.mode("append").save(path)
    with pytest.raises(DeltaIllegalArgumentException, match="DELTA_ILLEGAL_OPTION"):
        writer.option("mergeSchema", "yes").save(path)
    assert len(rows(spark.read.format("delta").load(path))) == 20


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"replaceWhere": "p = 1"}, [(0, 0, None), (2, 0, None), (7, 1, "x")]),
        ({"partitionOverwriteMode": "dynamic"}, [(0, 0, None), (2, 0, None), (7, 1, "x")]),
        ({}, [(7, 1, "x")]),
    ],
)
def test_the_options_of_a_write_hold_for_every_overwrite(
    installed: SparkSession, tmp_path: Path, options: dict[str, str], kept: list[tuple[Any, ...]]
) -> None:
    spark, path = installed, str(tmp_path / "t")
    spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save(path)
    wider = spark.sql("SELECT 7L AS id, 1L AS p, 'x' AS n").write.format("delta").mode("overwrite").options(**options)
    with pytest.raises(DeltaAnalysisException, match="lacks: n"):
        wider.save(path)
    noted = wider.option("mergeSchema", True).option("userMetadata", "by hand")
    for _ in range(2):
        noted.option("txnAppId", "nightly").option("txnVersion", 3).save(path)
    assert rows(spark.read.format("delta").load(path)) == kept
    (last, _) = DeltaRs(path).history()
    assert (last["version"], last["userMetadata"]) == (1, "by hand")
    assert last.get("operationParameters", {}).get("predicate") == options.get("replaceWhere")


def test_sql_and_tables_of_the_catalog(installed: SparkSession, tmp_path: Path) -> None:
    spark = installed
    for mode in ("error", "append"):
        once = spark.range(3).write.format("delta").option("txnAppId", "a").option("txnVersion", 1)
        once.mode(mode).saveAsTable("in_pyspark")
    try:
        spark.range(3, 4).write.format("delta").mode("append").saveAsTable("in_pyspark")
        assert [tuple(row) for row in spark.sql("DELETE FROM in_pyspark WHERE id = 0").collect()] == [(1,)]
        assert rows(spark.sql("SELECT * FROM in_pyspark")) == [(1,), (2,), (3,)]
        assert rows(spark.table("in_pyspark")) == [(1,), (2,), (3,)]
        assert rows(spark.sql("SELECT {x} AS y", x=1)) == [(1,)]
        assert "in_pyspark" in [row["tableName"] for row in spark.sql("SHOW TABLES").collect()]
    finally:
        spark.sql("DROP TABLE in_pyspark")
    spark.range(1).write.format("parquet").save(str(tmp_path / "parquet"))
    assert rows(spark.read.parquet(str(tmp_path / "parquet"))) == [(0,)]
