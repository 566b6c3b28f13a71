"""Applies change records, deletes among them, to a table; run it with a folder as its argument."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import deltamerge
from deltamerge.tables import DeltaTable

base = sys.argv[1]
path = f"{base}/customers"

spark = SparkSession.builder.appName("cdc").getOrCreate()
deltamerge.register(spark)

if not DeltaTable.isDeltaTable(spark, path):
    (
        DeltaTable.createIfNotExists(spark)
        .location(path)
        .addColumn("id", "BIGINT", nullable=False)
        .addColumn("name", "STRING")
        .addColumn("city", "STRING")
        .addColumn("changed_at", "TIMESTAMP")
        .property("delta.enableChangeDataFeed", "true")
        .execute()
    )


def apply_changes(changes):
    latest = (
        changes.selectExpr("id", "struct(changed_at, seq, op, name, city) AS change")
        .groupBy("id")
        .agg(F.max("change").alias("latest"))
        .selectExpr("id", "latest.op", "latest.name", "latest.city", "latest.changed_at")
    )
    values = {c: f"s.{c}" for c in ("id", "name", "city", "changed_at")}
    (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(latest.alias("s"), "t.id = s.id")
        .whenMatchedDelete(condition="s.op = 'D'")
        .whenMatchedUpdate(condition="s.changed_at >= t.changed_at", set=values)
        .whenNotMatchedInsert(condition="s.op <> 'D'", values=values)
        .execute()
    )


def changes(*records):
    schema = "id bigint, op string, name string, city string, changed_at string, seq int"
    return spark.createDataFrame(list(records), schema).withColumn("changed_at", F.to_timestamp("changed_at"))


apply_changes(
    changes(
        (1, "I", "Ann", "Rome", "2024-01-01 00:00:00", 1),
        (2, "I", "Bob", "Oslo", "2024-01-01 00:00:00", 2),
        (3, "I", "Cid", "Bonn", "2024-01-01 00:00:00", 3),
    )
)
apply_changes(
    changes(
        (1, "U", "Ann", "Paris", "2024-01-02 00:00:00", 4),
        (1, "U", "Anna", "Paris", "2024-01-02 00:00:00", 5),
        (2, "D", None, None, "2024-01-02 00:00:00", 6),
        (4, "I", "Dee", "Kyiv", "2024-01-02 00:00:00", 7),
        (4, "D", None, None, "2024-01-03 00:00:00", 8),
    )
)

feed = (
    spark.read.format("delta")
    .option("readChangeFeed", "true")
    .option("startingVersion", 2)
    .load(path)
    .select("id", "name", "_change_type")
)
feed.write.format("delta").mode("overwrite").save(f"{base}/feed")
