"""Appends log lines that are not there yet, reading only the last days; run it with a folder as its argument."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr

import deltamerge
from deltamerge.tables import DeltaTable

base = sys.argv[1]
path = f"{base}/logs"

spark = SparkSession.builder.appName("append without duplicates").getOrCreate()
deltamerge.register(spark)


def lines(first, last):
    return spark.range(first, last).select(
        col("id").alias("line"),
        expr("date_add(DATE'2024-03-01', CAST(id DIV 10 AS INT))").alias("day"),
        expr("concat('message ', id)").alias("message"),
    )


lines(0, 30).repartition("day").write.format("delta").partitionBy("day").mode("append").save(path)

# The batch was sent again, with more behind it.
batch = lines(25, 40)
logs = DeltaTable.forPath(spark, path)
(
    logs.alias("logs")
    .merge(batch.alias("new"), "logs.line = new.line AND logs.day >= DATE'2024-03-03'")
    .whenNotMatchedInsertAll("new.day >= DATE'2024-03-03'")
    .execute()
)
