"""The same small upsert into tables of 20, 200, 2,000 and 20,000 files: what the table's size costs.

    python benchmarks/merge_locality.py

Each file holds 1,000 rows of a key range of its own; the merge updates 500 rows of one file and inserts 500
beside them. Only that file exists: the others are only in the log, with their statistics, and a merge that
read one would fail.
The first merge of a session loads the log, which is shown by itself; the others find it loaded.

It needs the dependency group dev and Java.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from deltamerge import DeltaTable as Merged
from deltamerge import merge_sql
from merge_engines import ROOT, lineitem_settings

SIZES = (20, 200, 2_000, 20_000)
ROWS = 1_000
STEP = 4
"""Keys of a file are so far apart that new ones fit between them."""

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "v", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
)


def make(path: Path, files: int) -> int:
    """Make a table.

    Args:
        path: Its folder.
        files: How many files its log names.

    Returns:
        The number of the one file that exists.
    """
    shutil.rmtree(path, ignore_errors=True)
    (path / "_delta_log").mkdir(parents=True)
    there = files // 2
    rows = pa.table({"id": pa.array(ids_of(there), pa.int64()), "v": ["old"] * ROWS})
    pq.write_table(rows, path / file_name(there))
    size = (path / file_name(there)).stat().st_size
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "00000000-0000-0000-0000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": SCHEMA,
                "partitionColumns": [],
                "configuration": {},
                "createdTime": 0,
            }
        },
    ]
    actions += [{"add": add(number, size)} for number in range(files)]
    log = path / "_delta_log" / f"{0:020}.json"
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return there


def ids_of(number: int) -> range:
    """Return the keys of a file."""
    return range(number * ROWS * STEP, (number + 1) * ROWS * STEP, STEP)


def file_name(number: int) -> str:
    """Names a file."""
    return f"part-{number:05}.parquet"


def add(number: int, size: int) -> dict[str, Any]:
    """Write a file's action."""
    ids = ids_of(number)
    statistics_of = {
        "numRecords": ROWS,
        "minValues": {"id": ids[0], "v": "old"},
        "maxValues": {"id": ids[-1], "v": "old"},
        "nullCount": {"id": 0, "v": 0},
    }
    return {
        "path": file_name(number),
        "partitionValues": {},
        "size": size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps(statistics_of),
    }


def check(path: Path, files: int, there: int, text: str) -> None:
    """Compare the table with what the merges must have made of it.

    Raises:
        SystemExit: It is another.
    """
    table = DeltaTable(path)
    names = set(table.get_add_actions().column("path").to_pylist())
    made = names - {file_name(number) for number in range(files)}
    rows = pa.concat_tables(
        pq.read_table(path / name, schema=pa.schema({"id": pa.int64(), "v": pa.string()})) for name in made
    )
    first = there * ROWS * STEP
    wanted = {i: text if i < first + 500 * STEP else "old" for i in ids_of(there)}
    wanted |= {i + 1: text for i in range(first, first + 500 * STEP, STEP)}
    if len(names) - len(made) != files - 1 or dict(zip(*rows.to_pydict().values(), strict=True)) != wanted:
        raise SystemExit(f"the table in {path} is not what it must be")


def run(spark: SparkSession, path: Path, files: int, repeat: int) -> dict[str, Any]:
    """Merge several times into a table; the log's load, the first merge and the others apart."""
    there = make(path, files)
    start = time.perf_counter()
    Merged.forPath(spark, str(path)).detail().collect()
    load = time.perf_counter() - start
    first = there * ROWS * STEP
    seconds, steps = [], []
    for number in range(repeat):
        text = f"new {number}"
        # The first merge inserts, so that all of them meet 1,000 rows; later ones update these.
        source = f"SELECT {first} + id * {STEP} + n AS id, '{text}' AS v FROM range(500), (VALUES (0), (1)) AS p(n)"
        spark.sql(source).createOrReplaceTempView("source")
        start = time.perf_counter()
        report = merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` t USING source s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        )
        seconds.append(time.perf_counter() - start)
        steps.append({step.name: step.milliseconds for step in report.outcome.steps})
    check(path, files, there, text)
    return {"load": load, "seconds": seconds, "steps": steps}


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=15, help="merges into each table; the median counts")
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench")
    options = parser.parse_args()
    folder = options.folder.resolve()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("locality")
    for name, value in lineitem_settings("deltamerge").items():
        builder = builder if value is None else builder.config(name, value)
    spark = builder.getOrCreate()
    # The first merges of a process load classes and start its tasks.
    run(spark, folder / "locality", 20, options.repeat)
    results = {files: run(spark, folder / "locality", files, options.repeat) for files in SIZES}
    spark.stop()
    print("| files | log loaded s | median of merges s | slowest s (writes a checkpoint) |\n|---|---|---|---|")
    for files, result in results.items():
        seconds = result["seconds"]
        print(f"| {files:,} | {result['load']:.2f} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |")
    medians = {files: statistics.median(result["seconds"]) for files, result in results.items()}
    print(f"20,000 files cost {medians[20_000] / medians[20]:.2f} times what 20 cost.")
    (folder / "merge_locality.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
