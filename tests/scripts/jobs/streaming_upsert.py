"""Upserts a stream of files by foreachBatch; run it with a folder as its argument."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.window import Window

import deltamerge
from deltamerge.tables import DeltaTable

base = sys.argv[1]
path, inbox = f"{base}/latest", Path(base) / "inbox"
SCHEMA = "id BIGINT, v STRING, seq BIGINT"

spark = SparkSession.builder.appName("streaming upsert").getOrCreate()
deltamerge.register(spark)

DeltaTable.createIfNotExists(spark).location(path).addColumn("id", "BIGINT").addColumn("v", "STRING").addColumn(
    "seq", "BIGINT"
).execute()


def upsert(batch, batch_id):
    from pyspark.sql import functions as F

    from deltamerge.tables import DeltaTable

    newest = Window.partitionBy("id").orderBy(F.col("seq").desc())
    updates = batch.withColumn("n", F.row_number().over(newest)).filter("n = 1").drop("n")
    (
        DeltaTable.forPath(batch.sparkSession, path)
        .alias("t")
        .merge(updates.alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll(condition="s.seq > t.seq")
        .whenNotMatchedInsertAll()
        .execute()
    )


def deliver(name, *records):
    inbox.mkdir(exist_ok=True)
    lines = "\n".join(json.dumps(dict(zip(("id", "v", "seq"), record, strict=True))) for record in records)
    (inbox / name).write_text(lines)


def run_stream():
    query = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .json(str(inbox))
        .writeStream.foreachBatch(upsert)
        .option("checkpointLocation", f"{base}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


deliver("1.json", (1, "a", 1), (2, "b", 1), (1, "aa", 2))
deliver("2.json", (2, "bb", 2), (3, "c", 1))
run_stream()
deliver("3.json", (1, "late", 1), (3, "cc", 2), (4, "d", 1))
run_stream()
