"""Sources of another session than the target's, as a stream's batches are: the target's session evaluates them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

from deltamerge import DeltaTable, merge_sql, upsert, write_delta
from deltamerge.exceptions import DeltaRuntimeException

OVERFLOWS = (ArithmeticException, DeltaRuntimeException)
PLANS = ["auto", "key_lookup", "low_shuffle", "classic"]


@pytest.fixture
def other(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "false")
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    return session


def rows(table: DeltaTable) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in table.toDF().collect())


@pytest.mark.parametrize("plan", PLANS)
def test_overflows_are_errors(spark: SparkSession, other: SparkSession, tmp_path: Path, plan: str) -> None:
    write_delta(spark.sql("SELECT 1 AS id, 1 AS v"), str(tmp_path))
    table = DeltaTable.forPath(spark, str(tmp_path))
    source = other.sql("SELECT 1 AS id, 3000000000 AS v")
    spark.conf.set("spark.deltamerge.merge.executor", plan)
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id").whenMatchedUpdateAll()
    with pytest.raises(OVERFLOWS):
        merge.execute()
    with pytest.raises(OVERFLOWS):
        upsert(table, source, "id")
    assert rows(table) == [(1, 1)]


def test_times_are_those_of_the_targets_zone(spark: SparkSession, other: SparkSession, tmp_path: Path) -> None:
    write_delta(spark.sql("SELECT 1 AS id, TIMESTAMP'2024-01-01 00:00:00' AS at"), str(tmp_path))
    table = DeltaTable.forPath(spark, str(tmp_path))
    source = other.sql("SELECT 1 AS id, '2024-01-01 00:00:00' AS text").alias("s")
    merge = table.alias("t").merge(source, "t.at = CAST(s.text AS TIMESTAMP)")
    merge.whenMatchedUpdate(set={"id": source["id"] + 10}).execute()
    assert [row[0] for row in rows(table)] == [11]
    other.sql("SELECT 11 AS id, '2024-01-01 00:00:00' AS text").createOrReplaceTempView("of_other")
    statement = "MERGE INTO t USING of_other s ON t.at = CAST(s.text AS TIMESTAMP) WHEN MATCHED THEN DELETE"
    merge_sql(other, statement, {"t": table})
    assert rows(table) == []
