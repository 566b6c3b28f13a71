"""A stream that counts: each file is a batch of its own, and a batch that is merged twice counts twice.

Run as a program with the folder; it ends when all files are merged, unless it is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from deltamerge.streaming import upsert_into


def main(folder: Path) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "1")
    spark = builder.config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
    stream = spark.readStream.schema("id INT, n INT").option("maxFilesPerTrigger", 1).json(str(folder / "arriving"))
    counted = upsert_into(str(folder / "counts"), "id", update={"n": "t.n + s.n"})

    def merge(batch: object, number: int) -> None:
        counted(batch, number)  # type: ignore[arg-type]
        print(number, flush=True)

    query = stream.writeStream.foreachBatch(merge).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
