"""Counts by hour, corrected as late events arrive; run it with a folder as its argument."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import deltamerge
from deltamerge.tables import DeltaTable

base = sys.argv[1]
path = f"{base}/hourly"

spark = SparkSession.builder.appName("late data").getOrCreate()
deltamerge.register(spark)

spark.sql(
    f"""
    CREATE TABLE IF NOT EXISTS delta.`{path}` (
        hour TIMESTAMP NOT NULL,
        page STRING NOT NULL,
        views BIGINT DEFAULT 0,
        last_event TIMESTAMP COMMENT 'of those that were counted'
    ) USING DELTA
    TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')
    """,
)


def count(events):
    counted = (
        spark.createDataFrame(events, "page string, at string")
        .withColumn("at", F.to_timestamp("at"))
        .groupBy(F.date_trunc("hour", "at").alias("hour"), "page")
        .agg(F.count("*").alias("views"), F.max("at").alias("last_event"))
    )
    table = DeltaTable.forPath(spark, path)
    (
        table.alias("t")
        .merge(counted.alias("s"), "t.hour = s.hour AND t.page = s.page")
        .whenMatchedUpdate(
            set={
                "views": F.col("t.views") + F.col("s.views"),
                "last_event": F.greatest("t.last_event", "s.last_event"),
            }
        )
        .whenNotMatchedInsertAll()
        .execute()
    )


count([("home", "2024-07-01 10:01:00"), ("home", "2024-07-01 10:30:00"), ("shop", "2024-07-01 11:00:00")])
count([("home", "2024-07-01 12:00:00"), ("home", "2024-07-01 10:10:00"), ("shop", "2024-07-01 11:59:00")])

# What is older than the last version read is found in the log.
before = spark.read.format("delta").option("versionAsOf", 1).load(path)
late = spark.read.format("delta").load(path).exceptAll(before)
assert late.count() == 3, late.collect()
