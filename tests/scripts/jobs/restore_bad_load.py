"""Takes back a load that went wrong; run it with a folder as its argument."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import deltamerge
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.tables import DeltaTable

base = sys.argv[1]
path = f"{base}/prices"

spark = SparkSession.builder.appName("restore").getOrCreate()
deltamerge.register(spark)

good = spark.createDataFrame([("apple", 1.0), ("pear", 2.0)], "product string, price double")
good.write.format("delta").mode("append").save(path)
prices = DeltaTable.forPath(spark, path)
good_version = prices.history(1).collect()[0]["version"]

bad = spark.createDataFrame([("apple", -1.0), ("pear", None), ("plum", 0.0)], "product string, price double")
prices.alias("t").merge(
    bad.alias("s"), F.col("t.product") == F.col("s.product")
).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

wrong = prices.toDF().filter("price IS NULL OR price <= 0").count()
if wrong:
    print(f"{wrong} wrong rows: back to version {good_version}")
    prices.restoreToVersion(good_version)

spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT positive CHECK (price > 0)")
try:
    prices.alias("t").merge(bad.alias("s"), "t.product = s.product").whenMatchedUpdateAll().execute()
except Exception as error:
    assert "positive" in str(error), error
else:
    raise AssertionError("the bad load should not pass")
try:
    prices.restoreToVersion(1000)
except DeltaAnalysisException as error:
    assert error.getErrorClass() == "DELTA_CANNOT_RESTORE_TABLE_VERSION"

first = spark.read.format("delta").option("versionAsOf", 0).load(path)
assert first.exceptAll(prices.toDF()).count() == 0
