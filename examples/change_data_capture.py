"""Apply a stream of changes from a database: inserts, updates and deletes, several for one key.

Such a feed has a sequence number (a log position, a timestamp). Only the last change of each key counts, and
`dedupe_by` picks it; without it a merge fails where two source rows want to change one row of the table.

Run it with: python examples/change_data_capture.py
"""

from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from deltamerge import DeltaTable, write_delta

spark = SparkSession.builder.master("local[2]").getOrCreate()

with TemporaryDirectory() as folder:
    path = f"{folder}/orders"
    orders = spark.createDataFrame([(1, "open"), (2, "open"), (3, "open")], "id BIGINT, state STRING")
    write_delta(orders, path)

    changes = spark.createDataFrame(
        [
            (101, "update", 1, "paid"),
            (102, "insert", 4, "open"),
            (103, "update", 1, "shipped"),  # later than 101: this one counts
            (104, "delete", 2, None),
            (105, "delete", 4, None),  # inserted and deleted within the same batch: never in the table
            (106, "insert", 5, "open"),
        ],
        "sequence BIGINT, operation STRING, id BIGINT, state STRING",
    )

    report = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(changes.alias("s"), "t.id = s.id", dedupe_by="sequence")
        .whenMatchedDelete("s.operation = 'delete'")
        .whenMatchedUpdate(set={"state": "s.state"})
        .whenNotMatchedInsert("s.operation <> 'delete'", {"id": "s.id", "state": "s.state"})
        .run()
    )
    print(report)

    table = DeltaTable.forPath(spark, path).toDF().orderBy("id")
    table.show()
    assert [tuple(row) for row in table.collect()] == [(1, "shipped"), (3, "open"), (5, "open")]

spark.stop()
