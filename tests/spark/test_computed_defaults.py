"""Settings whose defaults Spark computes: a session that does not set its time zone has that of Spark's JVM."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRsTable
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from deltamerge import DeltaTable, register
from deltamerge.spark.session import merge_conf

ZONE = "America/Los_Angeles"
TIME_ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def spark_in_los_angeles(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that leaves its zone to a JVM that is far from UTC."""
    context: Any = spark.sparkContext
    zone = context._jvm.java.util.TimeZone
    before = zone.getDefault()
    zone.setDefault(zone.getTimeZone(ZONE))
    spark.conf.unset(TIME_ZONE)
    yield spark
    zone.setDefault(before)


def local(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=ZoneInfo(ZONE))  # type: ignore[misc, arg-type]


def times(folder: Path) -> list[tuple[int, dt.datetime]]:
    rows = DeltaRsTable(folder).to_pyarrow_table().sort_by("id").to_pylist()
    return [(row["id"], row["at"]) for row in rows]


def test_the_zone_of_the_jvm(spark_in_los_angeles: SparkSession) -> None:
    conf = merge_conf(spark_in_los_angeles)
    assert conf.session_time_zone == ZONE
    assert conf.ansi_enabled is (spark_in_los_angeles.conf.get("spark.sql.ansi.enabled") == "true")


def test_a_timestamp_without_a_zone(spark_in_los_angeles: SparkSession, tmp_path: Path) -> None:
    """Files whose times lie between midnight in UTC and in the session's zone have matching rows, too."""
    spark = spark_in_los_angeles
    at = [local(2024, 6, 1, 20), local(2024, 6, 2, 0), local(2024, 6, 2, 1)]
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    for number, moment in enumerate(at):
        write_deltalake(tmp_path, pa.table([[number], [moment]], schema=schema), mode="append")
    table = DeltaTable.forPath(spark, str(tmp_path))
    table.delete("at < '2024-06-02'")
    assert times(tmp_path) == [(1, at[1]), (2, at[2])]
    table.update("at = '2024-06-02'", {"id": "10"})
    assert times(tmp_path) == [(2, at[2]), (10, at[1])]
    source = spark.sql("SELECT 2 AS id, TIMESTAMP'2024-06-02 01:00:00' AS at")
    merge = table.alias("t").merge(source.alias("s"), "t.at = s.at AND t.at >= '2024-06-02'")
    merge.whenMatchedDelete().whenNotMatchedInsertAll().execute()
    assert times(tmp_path) == [(10, at[1])]


def test_partitions_and_the_current_date(spark_in_los_angeles: SparkSession, tmp_path: Path) -> None:
    spark = spark_in_los_angeles
    path = str(tmp_path)
    builder = DeltaTable.create(spark).location(path).addColumn("id", "BIGINT").addColumn("day", "DATE")
    table = builder.addColumn("at", "TIMESTAMP").partitionedBy("at").execute()
    source = spark.sql("SELECT 1 AS id, current_date() AS day, TIMESTAMP'2024-06-01 20:00:00' AS at")
    table.alias("t").merge(source.alias("s"), "t.at = s.at").whenNotMatchedInsertAll().execute()
    table.alias("t").merge(source.alias("s"), "t.at = s.at").whenMatchedUpdate(set={"id": "2"}).execute()
    table.update("day = current_date()", {"id": "id + 1"})
    assert times(tmp_path) == [(3, local(2024, 6, 1, 20))]


def test_the_data_source(spark_in_los_angeles: SparkSession, tmp_path: Path) -> None:
    spark = spark_in_los_angeles
    path = str(tmp_path)
    rows = spark.sql("SELECT 1 AS id, TIMESTAMP'2024-06-01 20:00:00' AS at")
    assert register(spark)
    rows.write.format("delta").mode("append").option("partitionBy", "at").save(path)
    assert times(tmp_path) == [(1, local(2024, 6, 1, 20))]
    found = spark.read.format("delta").load(path)
    assert found.where("at = TIMESTAMP'2024-06-01 20:00:00'").count() == 1
    before = dt.datetime.now(ZoneInfo(ZONE)) + dt.timedelta(minutes=1)
    of_version = spark.read.format("delta").option("timestampAsOf", before.strftime("%Y-%m-%d %H:%M:%S"))
    with pytest.raises(Exception, match="after the latest"):
        of_version.load(path).collect()


def test_a_session_without_ansi(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    assert not merge_conf(spark).ansi_enabled
