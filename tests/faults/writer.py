"""One writer of many, in a process of its own: adds to counters by merges, each as a transaction of an application.

``python -m faults.writer <table> <writer> <merges> <settings and options as JSON>``; it may be killed at any time, and
goes on where its transactions in the table end.
"""

from __future__ import annotations

import json
import random
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

KEYS = 40
# Names the file that all wait for.
GO = "spark.deltamerge.test.go"
SCHEMA = "id INT, v BIGINT"


def additions(writer: int, number: int) -> dict[int, int]:
    """What a writer's merge of that number adds to which counters; some of them are new."""
    rng = random.Random(f"{writer}-{number}")
    added = {key: rng.randrange(1, 100) for key in rng.sample(range(KEYS), 3)}
    return added | ({1000 * (writer + 1) + number: 7} if rng.random() < 0.3 else {})


def expected(writers: int, merges: int) -> dict[int, int]:
    """The counters once every writer has done all its merges once."""
    total: Counter[int] = Counter(dict.fromkeys(range(KEYS), 0))
    for writer in range(writers):
        for number in range(1, merges + 1):
            total.update(additions(writer, number))
    return dict(total)


def main(path: str, writer: int, merges: int, given: dict[str, dict[str, str]]) -> None:
    from pyspark.sql import SparkSession

    from deltamerge import DeltaTable
    from deltamerge.log.snapshot import load_snapshot
    from deltamerge.storage.store import open_store

    builder = SparkSession.builder.master("local[1]").appName(f"writer {writer}")
    for name, value in given["settings"].items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = builder.getOrCreate()
    spark.range(1).collect()
    print("ready", flush=True)
    while not Path(given["settings"][GO]).exists():
        time.sleep(0.02)
    app = f"writer-{writer}"
    done = load_snapshot(open_store(path, given["options"])).set_transactions.get(app)
    # The last one again, as a job does that was killed before it could note how far it came.
    for number in range(max(1, done.version if done else 1), merges + 1):
        source = spark.createDataFrame([*additions(writer, number).items()], SCHEMA).alias("s")
        target = DeltaTable.forPath(spark, path, given["options"]).alias("t")
        merge = target.merge(source, "t.id = s.id").whenMatchedUpdate(set={"v": "t.v + s.v"}).whenNotMatchedInsertAll()
        outcome = merge.run(txn_app_id=app, txn_version=number).outcome
        line = {"number": number, "lost": len(outcome.lost_to), "beside": len(outcome.reconciled_with)}
        print(json.dumps({**line, "version": outcome.version}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
