"""Read a table's change data feed: which rows a merge inserted, updated and deleted, before and after.

Run it with: python examples/change_data_feed.py
"""

from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from deltamerge import DeltaTable, write_delta

spark = SparkSession.builder.master("local[2]").getOrCreate()

with TemporaryDirectory() as folder:
    path = f"{folder}/accounts"
    write_delta(
        spark.createDataFrame([(1, 100), (2, 200), (3, 300)], "id BIGINT, balance INT"),
        path,
        properties={"delta.enableChangeDataFeed": "true"},
    )

    changes = spark.createDataFrame([(1, 150), (2, None), (4, 50)], "id BIGINT, balance INT")
    (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(changes.alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.balance IS NULL")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    )

    # What version 1 changed; the next job continues with startingVersion=2.
    feed = DeltaTable.forPath(spark, path).changes(startingVersion=1)
    feed = feed.select("_change_type", "id", "balance").orderBy("id", "_change_type")
    feed.show()
    assert [tuple(row) for row in feed.collect()] == [
        ("update_postimage", 1, 150),
        ("update_preimage", 1, 100),
        ("delete", 2, 200),
        ("insert", 4, 50),
    ]

spark.stop()
