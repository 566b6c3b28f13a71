"""Many small merges, then OPTIMIZE and VACUUM; run it with a folder as its argument."""

import sys

from pyspark.sql import SparkSession

import deltamerge
from deltamerge.tables import DeltaTable

base = sys.argv[1]
path = f"{base}/stock"

spark = SparkSession.builder.appName("maintenance").getOrCreate()
deltamerge.register(spark)

first = spark.range(0, 100).selectExpr("id", "id % 4 AS store", "0 AS n")
first.write.format("delta").partitionBy("store").mode("append").save(path)
stock = DeltaTable.forPath(spark, path)

for turn in range(1, 4):
    updates = spark.range(turn * 10, turn * 10 + 5).selectExpr("id", "id % 4 AS store", f"{turn} AS n")
    (
        stock.alias("t")
        .merge(updates.alias("s"), "t.id = s.id AND t.store = s.store")
        .whenMatchedUpdate(set={"n": "t.n + s.n"})
        .whenNotMatchedInsertAll()
        .execute()
    )
stock.update(condition="store = 3 AND n = 0", set={"n": "-1"})
stock.delete("id >= 95")

files_before = stock.detail().collect()[0]["numFiles"]
stock.optimize().where("store = 1").executeCompaction()
stock.optimize().executeZOrderBy("id")
assert stock.detail().collect()[0]["numFiles"] <= files_before

spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
stock.vacuum(0)

operations = [row["operation"] for row in stock.history().select("operation").collect()]
assert operations[:2] == ["VACUUM END", "VACUUM START"], operations
assert operations.count("MERGE") == 3, operations
