"""A stream that counts: a batch that is merged twice counts twice.

Run as a program with the folder; it begins when it is given a line, and ends when all files are merged, unless it is
killed. Each batch is a line of its output as it begins and another one as it has ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltamerge.streaming import upsert_into

# It lives for seconds, so that starting is most of what it does.
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}


def main(folder: Path) -> None:
    builder = SparkSession.builder.master("local[1]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not sys.stdin.readline():
        return
    stream = spark.readStream.schema("id INT, n INT").option("maxFilesPerTrigger", 1).json(str(folder / "arriving"))
    counted = upsert_into(str(folder / "counts"), "id", update={"n": "t.n + s.n"})

    def merge(batch: DataFrame, number: int) -> None:
        print("begun", number, flush=True)
        # A batch has one file, unless the process was killed as Spark had noted one, but not yet its batch.
        counted(batch.groupBy("id").agg(F.sum("n").cast("int").alias("n")), number)
        print("done", number, flush=True)

    query = stream.writeStream.foreachBatch(merge).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
