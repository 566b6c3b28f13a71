"""Upsert a stream, batch by batch, with foreachBatch, so that each batch is merged exactly once.

Structured Streaming may run a batch again after a failure. The table remembers, by an application's name, the last
batch that it has; a batch that it has already does nothing.

Run it with: python examples/streaming_upsert.py
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from deltamerge import DeltaTable, write_delta
from deltamerge.streaming import upsert_into

# Streams run without adaptive execution: 200 partitions, Spark's default, are far too many for small batches.
spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 4).getOrCreate()

with TemporaryDirectory() as folder:
    path = f"{folder}/devices"
    schema = "id BIGINT, celsius DOUBLE, at BIGINT"
    write_delta(spark.createDataFrame([], schema), path)

    # The latest reading of each device; the application's name is for batches that this script runs by hand below.
    upsert = upsert_into(path, keys="id", order_by="at", app_id="devices-upsert")

    # Two files arrive; with maxFilesPerTrigger=1 each is a batch of its own.
    arriving = Path(folder, "arriving")
    arriving.mkdir()
    batches = [
        [{"id": 1, "celsius": 20.0, "at": 1}, {"id": 1, "celsius": 21.0, "at": 2}],
        [{"id": 1, "celsius": 22.0, "at": 3}, {"id": 2, "celsius": 18.5, "at": 3}],
    ]
    for number, readings in enumerate(batches):
        lines = "\n".join(json.dumps(reading) for reading in readings)
        Path(arriving, f"{number}.json").write_text(lines)

    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(arriving))
    query = (
        stream.writeStream.foreachBatch(upsert)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    # A batch that is tried again changes nothing.
    again = spark.createDataFrame([(1, -99.0, 9)], schema)
    upsert(again, 1)

    table = DeltaTable.forPath(spark, path).toDF().orderBy("id")
    table.show()
    assert [tuple(row) for row in table.collect()] == [(1, 22.0, 3), (2, 18.5, 3)]
    print(f"{len(batches)} batches merged, the second one only once")

spark.stop()
