"""Tables by their names in PySpark's own calls: streams, and what the catalog shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.sql.types import LongType, StructField, StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.tables import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.sessions, pytest.mark.slow]


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()))


@pytest.fixture
def dropped(installed: SparkSession) -> Any:
    yield installed
    for name in ("named_from", "named_into", "named_made"):
        installed.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize("is_there", [True, False])
def test_streams_between_named_tables(dropped: SparkSession, tmp_path: Path, is_there: bool) -> None:
    spark = dropped
    spark.range(6).selectExpr("id", "id % 2 AS p").write.format("delta").saveAsTable("named_from")
    path = str(tmp_path / "into")
    if is_there:
        spark.sql(f"CREATE TABLE named_into (id BIGINT, p BIGINT) USING delta PARTITIONED BY (p) LOCATION '{path}'")
    stream = spark.readStream.table("named_from").writeStream.format("delta").trigger(availableNow=True)
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream = stream.partitionBy("p") if is_there else stream.option("path", path)
    query = stream.toTable("named_into")
    assert query.awaitTermination(120)
    assert rows(spark.table("named_into").select("id")) == [(i,) for i in range(6)]
    assert DeltaRs(path).metadata().partition_columns == (["p"] if is_there else [])


def test_tables_of_the_catalogs_own_call(dropped: SparkSession, tmp_path: Path) -> None:
    spark, path = dropped, str(tmp_path / "t")
    schema = StructType([StructField("id", LongType())])
    spark.catalog.createTable("named_made", source="delta", schema=schema, description="made")
    spark.range(3).write.insertInto("named_made")
    assert rows(spark.table("named_made")) == [(0,), (1,), (2,)]
    spark.range(2).write.format("delta").save(path)
    assert rows(spark.catalog.createTable("named_into", path, "delta")) == [(0,), (1,)]
    assert [c.name for c in spark.catalog.listColumns("named_into")] == ["id"]
    with pytest.raises(DeltaAnalysisException, match="DELTA_TABLE_ALREADY_EXISTS"):
        spark.catalog.createTable("named_made", source="delta", schema=schema)


def test_what_details_call_a_table(dropped: SparkSession, tmp_path: Path) -> None:
    spark, path = dropped, str(tmp_path / "t")
    spark.sql(f"CREATE TABLE named_made USING delta LOCATION '{path}' AS SELECT 1 AS a")
    by_name, by_path = DeltaTable.forName(spark, "named_made"), DeltaTable.forPath(spark, path)
    details = (spark.sql("DESCRIBE DETAIL named_made"), by_name.detail(), by_path.detail())
    name = "spark_catalog.default.named_made"
    assert [rows(each.select("name")) for each in details] == [[(name,)], [(name,)], [(None,)]]


def test_no_partition_columns_are_none_named(installed: SparkSession, tmp_path: Path) -> None:
    path, frame = str(tmp_path / "t"), installed.range(2).selectExpr("id", "id AS p")
    frame.write.format("delta").partitionBy("p").save(path)
    frame.write.format("delta").mode("append").partitionBy().save(path)
    frame.write.format("delta").mode("append").partitionBy([]).save(path)
    assert DeltaRs(path).metadata().partition_columns == ["p"]
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", True).partitionBy([]).save(path)
    assert DeltaRs(path).metadata().partition_columns == []


@pytest.mark.parametrize("options", [{"startingVersion": "2"}, {"startingTimestamp": "2999-01-01"}])
def test_changes_after_the_last_commit(installed: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    spark, path = installed, str(tmp_path / "t")
    key = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"
    spark.range(2).write.format("delta").option("delta.enableChangeDataFeed", "true").save(path)
    spark.range(3).write.format("delta").mode("append").save(path)
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    with pytest.raises(DeltaAnalysisException):
        reader.options(**options).load(path)
    spark.conf.set(key, "true")
    try:
        assert reader.options(**options).load(path).count() == 0
        late = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
        assert late.option("endingTimestamp", "2999-01-01").load(path).count() == 3
    finally:
        spark.conf.unset(key)
