"""Loads a dimension, a fact table and totals, each by its own means; run it with a folder as its argument."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

import deltamerge
from deltamerge.tables import DeltaTable

base = sys.argv[1]
customers, orders, totals = (f"{base}/{name}" for name in ("customers", "orders", "totals"))

spark = SparkSession.builder.appName("multi table job").getOrCreate()
deltamerge.register(spark)


def sql(text, **args):
    return spark.sql(text, args or None)


schema = StructType([StructField("id", LongType(), False), StructField("name", StringType())])
DeltaTable.createOrReplace(spark).location(customers).addColumns(schema).comment("who buys").execute()
sql(f"INSERT INTO delta.`{customers}` VALUES (1, 'Ann'), (2, 'Bob'), (3, 'Cid')")

(
    DeltaTable.create(spark)
    .location(orders)
    .addColumn("id", "BIGINT")
    .addColumn("customer", "BIGINT")
    .addColumn("at", "TIMESTAMP")
    .addColumn("amount", "DECIMAL(10, 2)")
    .addColumn("day", "DATE", generatedAlwaysAs="CAST(at AS DATE)")
    .partitionedBy("day")
    .execute()
)
new_orders = spark.createDataFrame(
    [
        (10, 1, "2024-02-01 10:00:00", "5.00"),
        (11, 1, "2024-02-02 10:00:00", "7.50"),
        (12, 2, "2024-02-02 11:00:00", "1.00"),
    ],
    "id bigint, customer bigint, at string, amount string",
).selectExpr("id", "customer", "CAST(at AS TIMESTAMP) AS at", "CAST(amount AS DECIMAL(10, 2)) AS amount")
new_orders.createOrReplaceTempView("new_orders")
sql(
    f"""
    MERGE INTO delta.`{orders}` AS o
    USING new_orders AS n
    ON o.id = n.id
    WHEN MATCHED THEN UPDATE SET customer = n.customer, at = n.at, amount = n.amount
    WHEN NOT MATCHED THEN INSERT (id, customer, at, amount) VALUES (n.id, n.customer, n.at, n.amount)
    """
)

DeltaTable.forPath(spark, customers).update("name = 'Cid'", {"name": "'Cecil'"})
DeltaTable.forPath(spark, orders).delete("amount <= 1")

sql(
    f"""
    CREATE OR REPLACE TABLE delta.`{totals}` USING delta AS
    SELECT c.id, c.name, coalesce(sum(o.amount), 0) AS total, max(o.day) AS last_day
    FROM delta.`{customers}` AS c
    LEFT JOIN delta.`{orders}` AS o ON o.customer = c.id
    GROUP BY c.id, c.name
    """
)
rich = sql(f"SELECT name FROM delta.`{totals}` WHERE total > :least", least=10).collect()
assert [row["name"] for row in rich] == ["Ann"], rich

sql(f"OPTIMIZE delta.`{orders}`")
assert sql(f"DESCRIBE DETAIL delta.`{orders}`").collect()[0]["partitionColumns"] == ["day"]
