"""Removes duplicates that a faulty load left in a table, and loads on without; run it with a folder as its argument."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

import deltamerge
from deltamerge.tables import DeltaTable

base = sys.argv[1]
path = f"{base}/readings"

spark = SparkSession.builder.appName("dedupe").getOrCreate()
deltamerge.register(spark)

schema = "device string, at bigint, value double"
loaded = [("a", 1, 1.0), ("a", 2, 2.0), ("b", 1, 3.0)]
spark.createDataFrame(loaded, schema).write.format("delta").mode("append").save(path)
# The same file came twice, and once with a correction.
spark.createDataFrame([*loaded[:2], ("b", 1, 3.5)], schema).write.format("delta").mode("append").save(path)

readings = DeltaTable.forPath(spark, path)

counted = readings.toDF().groupBy("device", "at").count().filter("count > 1")
assert counted.count() == 3, "there should be duplicates"

newest = Window.partitionBy("device", "at").orderBy(F.col("value").desc())
kept = readings.toDF().withColumn("n", F.row_number().over(newest)).filter("n = 1").drop("n")
kept.write.format("delta").mode("overwrite").save(path)

new = spark.createDataFrame([("b", 1, 9.9), ("c", 1, 4.0), ("c", 1, 4.0)], schema)
(
    readings.alias("t")
    .merge(new.dropDuplicates(["device", "at"]).alias("s"), "t.device = s.device AND t.at = s.at")
    .whenNotMatchedInsertAll()
    .execute()
)
