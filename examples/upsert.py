"""Upsert by builder: update the rows that exist, insert the others, and read what the merge did.

Run it with: python examples/upsert.py
"""

from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from deltamerge import DeltaTable, write_delta

spark = SparkSession.builder.master("local[2]").getOrCreate()

with TemporaryDirectory() as folder:
    path = f"{folder}/customers"
    customers = [(1, "Ada", "London"), (2, "Alan", "Manchester"), (3, "Grace", "New York")]
    write_delta(spark.createDataFrame(customers, "id BIGINT, name STRING, city STRING"), path)

    # One customer has moved, one is new.
    updates = spark.createDataFrame(
        [(3, "Grace", "Arlington"), (4, "Edsger", "Austin")], "id BIGINT, name STRING, city STRING"
    )

    # run() returns a report; execute() returns delta-spark's row of counts instead.
    report = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(updates.alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .run()
    )
    print(report)
    assert report.metrics["numTargetRowsUpdated"] == 1
    assert report.metrics["numTargetRowsInserted"] == 1

    table = DeltaTable.forPath(spark, path).toDF().orderBy("id")
    table.show()
    assert [(row.id, row.city) for row in table.collect()] == [
        (1, "London"),
        (2, "Manchester"),
        (3, "Arlington"),
        (4, "Austin"),
    ]

spark.stop()
