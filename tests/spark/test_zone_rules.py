"""Time zones whose rules Java and Python know differently: Spark's count, wherever a time is evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltamerge import DeltaTable, write_delta
from deltamerge.scan.time_travel import timestamp_ms
from storage.s3 import with_settings

# In Java it was 20 minutes ahead of UTC then; in Python's tz database, since 2022, not at all.
ZONE = "Europe/Amsterdam"
FIRST = "TIMESTAMP'1900-01-01 00:00:00'"


@pytest.fixture
def zoned(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", str(before))


def of_first(spark: SparkSession, path: Path) -> list[int]:
    frame = DeltaTable.forPath(spark, str(path)).toDF()
    return sorted(row["id"] for row in frame.where(f"at = {FIRST}").select("id").collect())


@pytest.mark.sessions
def test_values_and_conditions(zoned: SparkSession, tmp_path: Path) -> None:
    spark = zoned
    rows = spark.sql(f"SELECT id, if(id = 1, {FIRST}, TIMESTAMP'2024-01-01 00:00:00') AS at FROM range(4)")
    for each in range(4):
        write_delta(rows.where(f"id = {each}"), str(tmp_path), mode="append")
    table = DeltaTable.forPath(spark, str(tmp_path))
    table.update("id = 2", {"at": FIRST})
    assert of_first(spark, tmp_path) == [1, 2]
    source = spark.sql(f"SELECT id, {FIRST} AS at FROM range(3, 6)")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate(set={"at": FIRST})
    merge.whenNotMatchedInsert(values={"id": "s.id", "at": "'1900-01-01 00:00:00'"}).execute()
    assert of_first(spark, tmp_path) == [1, 2, 3, 4, 5]
    table.update(f"at = {FIRST} AND id > 4", {"id": "50"})
    table.delete("at <= '1900-01-01 00:00:00' AND id = 1")
    table.delete("id = 2 AND at <= DATE'1900-01-01'")
    assert of_first(spark, tmp_path) == [3, 4, 50]
    source = spark.sql(f"SELECT 50 AS id, {FIRST} AS at")
    merge = table.alias("t").merge(source.alias("s"), f"t.at = s.at AND t.id = s.id AND t.at = {FIRST}")
    merge.whenMatchedDelete(f"t.at = {FIRST}").whenNotMatchedInsertAll().execute()
    assert of_first(spark, tmp_path) == [3, 4]


def test_times_are_instants_where_timestamps_have_no_zone(zoned: SparkSession) -> None:
    with with_settings(zoned, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        assert timestamp_ms(zoned, "2024-05-01T12:00:00Z") == 1_714_564_800_000
        assert timestamp_ms(zoned, "2024-05-01 14:00:00") == 1_714_564_800_000
