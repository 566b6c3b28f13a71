"""MERGE as a SQL statement, its source a query over a Delta table and a temporary view.

Run it with: python examples/merge_by_sql.py
"""

from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from deltamerge import DeltaTable, merge_sql, write_delta

spark = SparkSession.builder.master("local[2]").getOrCreate()

with TemporaryDirectory() as folder:
    stock, products = f"{folder}/stock", f"{folder}/products"
    write_delta(spark.createDataFrame([("bolt", 10), ("nut", 20)], "product STRING, pieces INT"), stock)
    write_delta(spark.createDataFrame([("bolt",), ("nut",), ("washer",)], "product STRING"), products)
    deliveries = [("bolt", 5), ("washer", 100), ("unknown", 1)]
    spark.createDataFrame(deliveries, "product STRING, pieces INT").createOrReplaceTempView("deliveries")

    # Names that the statement uses for Delta tables; other names are looked up in the session's catalog.
    report = merge_sql(
        spark,
        """
        MERGE INTO stock AS t
        USING (SELECT d.product, d.pieces FROM deliveries d JOIN products p ON d.product = p.product) AS s
        ON t.product = s.product
        WHEN MATCHED THEN UPDATE SET pieces = t.pieces + s.pieces
        WHEN NOT MATCHED THEN INSERT *
        """,
        tables={"stock": stock, "products": products},
    )
    print(report)
    assert report.metrics["numSourceRows"] == 2

    table = DeltaTable.forPath(spark, stock).toDF().orderBy("product")
    table.show()
    assert [tuple(row) for row in table.collect()] == [("bolt", 15), ("nut", 20), ("washer", 100)]

spark.stop()
