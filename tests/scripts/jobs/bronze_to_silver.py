"""Lands raw events in a bronze table and merges the cleaned ones into silver; run it with a folder as its argument."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

import deltamerge
from deltamerge.tables import DeltaTable

base = sys.argv[1]
bronze_path, silver_path = f"{base}/bronze/events", f"{base}/silver/events"

spark = SparkSession.builder.appName("bronze to silver").getOrCreate()
deltamerge.register(spark)


def land(batch, records):
    raw = spark.createDataFrame(records, "event_id string, user string, amount string, at string")
    raw = raw.withColumn("batch", F.lit(batch)).withColumn("ingested_at", F.current_timestamp())
    raw.write.format("delta").mode("append").save(bronze_path)


def clean(batch):
    newest = Window.partitionBy("event_id").orderBy(F.col("at").desc())
    return (
        spark.read.format("delta")
        .load(bronze_path)
        .filter(F.col("batch") == batch)
        .filter(F.col("event_id").isNotNull())
        .withColumn("amount", F.expr("try_cast(amount AS DECIMAL(10, 2))"))
        .withColumn("at", F.to_timestamp("at"))
        .withColumn("day", F.to_date("at"))
        .withColumn("n", F.row_number().over(newest))
        .filter("n = 1")
        .drop("n", "batch", "ingested_at")
    )


def to_silver(batch):
    updates = clean(batch)
    if not DeltaTable.isDeltaTable(spark, silver_path):
        updates.write.format("delta").partitionBy("day").mode("append").save(silver_path)
        return
    (
        DeltaTable.forPath(spark, silver_path)
        .alias("t")
        .merge(updates.alias("s"), "t.event_id = s.event_id")
        .whenMatchedUpdateAll("s.at > t.at")
        .whenNotMatchedInsertAll()
        .execute()
    )


land(1, [("e1", "ann", "10.50", "2024-05-01 10:00:00"), ("e2", "bob", "oops", "2024-05-01 11:00:00")])
land(1, [("e1", "ann", "11.00", "2024-05-01 10:05:00"), (None, "eve", "1", "2024-05-01 12:00:00")])
to_silver(1)
land(2, [("e2", "bob", "20", "2024-05-02 09:00:00"), ("e3", "cid", "30", "2024-05-02 09:30:00")])
land(2, [("e1", "ann", "0", "2024-04-30 00:00:00")])
to_silver(2)
