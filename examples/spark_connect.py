"""A merge over Spark Connect. Only the session differs; the server needs no JARs and no plugin.

This script starts a server on this machine. Against a running one use
`SparkSession.builder.remote("sc://host:15002")`; client and server must reach the table by the same path or URL.

Run it with: python examples/spark_connect.py
"""

from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from deltamerge import DeltaTable, write_delta

spark = SparkSession.builder.remote("local[2]").getOrCreate()

with TemporaryDirectory() as folder:
    path = f"{folder}/customers"
    write_delta(spark.sql("SELECT id, 'old' AS state FROM range(100)"), path)

    updates = spark.sql("SELECT id, 'new' AS state FROM range(90, 110)")
    report = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(updates.alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .run()
    )
    print(report)
    assert report.metrics["numTargetRowsUpdated"] == 10
    assert report.metrics["numTargetRowsInserted"] == 10

    states = DeltaTable.forPath(spark, path).toDF().groupBy("state").count().orderBy("state")
    states.show()
    assert [tuple(row) for row in states.collect()] == [("new", 20), ("old", 90)]

spark.stop()
