"""Make one part of a table equal to its source: WHEN NOT MATCHED BY SOURCE deletes what the source no longer has.

The condition on the BY SOURCE clause limits the deletion to the part that the source is a full copy of; other rows
stay, and files that hold no such row are not read.

Run it with: python examples/synchronize.py
"""

from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from deltamerge import DeltaTable, write_delta

spark = SparkSession.builder.master("local[2]").getOrCreate()

with TemporaryDirectory() as folder:
    path = f"{folder}/prices"
    schema = "country STRING, product STRING, price INT"
    prices = [("NO", "tea", 40), ("NO", "coffee", 50), ("SE", "tea", 35), ("SE", "cocoa", 45)]
    write_delta(spark.createDataFrame(prices, schema), path, partition_by="country")

    # Norway's complete price list of today: coffee costs more, tea is no longer sold, juice is new.
    norway = spark.createDataFrame([("NO", "coffee", 55), ("NO", "juice", 30)], schema)

    report = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(norway.alias("s"), "t.country = s.country AND t.product = s.product")
        .whenMatchedUpdateAll("t.price <> s.price")
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceDelete("t.country = 'NO'")
        .run()
    )
    print(report)

    table = DeltaTable.forPath(spark, path).toDF().orderBy("country", "product")
    table.show()
    assert [tuple(row) for row in table.collect()] == [
        ("NO", "coffee", 55),
        ("NO", "juice", 30),
        ("SE", "cocoa", 45),
        ("SE", "tea", 35),
    ]

spark.stop()
