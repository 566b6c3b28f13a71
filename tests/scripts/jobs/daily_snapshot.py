"""Replaces each day's snapshot of an account table, and keeps history in a second one; run it with a folder."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import deltamerge
from deltamerge.tables import DeltaTable

base = sys.argv[1]
snapshots, dimension = f"{base}/snapshots", f"{base}/accounts"

spark = SparkSession.builder.appName("daily snapshot").getOrCreate()
deltamerge.register(spark)


def write_snapshot(day, rows):
    frame = spark.createDataFrame(rows, "id bigint, balance double").withColumn("day", F.lit(day).cast("date"))
    (
        frame.write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", f"day = DATE'{day}'")
        .partitionBy("day")
        .save(snapshots)
    )


def update_dimension(day):
    """Closes the rows that changed and opens new ones (a slowly changing dimension of type 2)."""
    today = spark.read.format("delta").load(snapshots).filter(F.col("day") == F.lit(day)).drop("day")
    if not DeltaTable.isDeltaTable(spark, dimension):
        first = today.select(
            "id", "balance", F.lit(day).cast("date").alias("since"), F.lit(None).cast("date").alias("until")
        )
        first.write.format("delta").mode("append").save(dimension)
        return
    accounts = DeltaTable.forPath(spark, dimension)
    changed = (
        today.alias("s")
        .join(accounts.toDF().alias("t"), "id")
        .where("t.until IS NULL AND s.balance <> t.balance")
        .selectExpr("NULL AS key", "id", "s.balance")
    )
    staged = changed.union(today.selectExpr("id AS key", "id", "balance"))
    (
        accounts.alias("t")
        .merge(staged.alias("s"), "t.id = s.key AND t.until IS NULL")
        .whenMatchedUpdate(condition="t.balance <> s.balance", set={"until": F.lit(day).cast("date")})
        .whenNotMatchedInsert(
            values={"id": "s.id", "balance": "s.balance", "since": F.lit(day).cast("date"), "until": "NULL"}
        )
        .execute()
    )


write_snapshot("2024-06-01", [(1, 10.0), (2, 20.0)])
update_dimension("2024-06-01")
write_snapshot("2024-06-02", [(1, 99.0), (2, 20.0)])
# The source was wrong: the day is written again before anything reads it.
write_snapshot("2024-06-02", [(1, 11.0), (2, 20.0), (3, 30.0)])
update_dimension("2024-06-02")
