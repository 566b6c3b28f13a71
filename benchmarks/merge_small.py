"""Ten rows upserted into a ten-row table, sessions warm: deltamerge beside delta-spark with its defaults.

    python benchmarks/merge_small.py

It needs the dependency group dev, Java and, for delta-spark, an environment of its own that it builds by
Maven when there is none (see tests/oracle/environment.py). The engines take turns, so that both see the
same machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from merge_engines import ROOT, SPARK, Engine

ROWS = 10
# Spark's and delta-spark's own defaults, as a user has them who sets nothing.
SETTINGS: dict[str, str | None] = {
    **SPARK,
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": None,
    "spark.databricks.delta.snapshotPartitions": None,
}
MERGE = (
    "MERGE INTO delta.`{target}` t USING source s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def source_query() -> str:
    """Writes a query of ten rows, half of which the table has."""
    rows = ", ".join(f"({number}L, 'new {number}')" for number in range(ROWS // 2, ROWS + ROWS // 2))
    return f"SELECT * FROM VALUES {rows} AS v(id, v)"


def merge(engine: Engine, prepared: Path, target: Path) -> float:
    """Merges into a fresh copy and checks it; gives the seconds."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(prepared, target)
    answer = engine.merge_sql(MERGE.format(target=target), {"source": source_query()})
    rows = pa.concat_tables(pq.read_table(path) for path in map(_local, DeltaTable(target).file_uris()))
    expected = {n: f"new {n}" if n >= ROWS // 2 else f"old {n}" for n in range(ROWS + ROWS // 2)}
    if dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)) != expected:
        raise SystemExit(f"{engine.name} is wrong: its table is in {target}")
    return answer["seconds"]


def _local(uri: str) -> str:
    return uri.removeprefix("file://")


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=7, help="merges of each engine; the median counts")
    parser.add_argument("--warm-up", type=int, default=3, help="merges before those")
    parser.add_argument("--engines", default="deltamerge,delta-spark")
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench")
    options = parser.parse_args()
    folder = options.folder.resolve()
    prepared = folder / "small"
    shutil.rmtree(prepared, ignore_errors=True)
    rows = {"id": pa.array(range(ROWS), pa.int64()), "v": [f"old {number}" for number in range(ROWS)]}
    write_deltalake(prepared, pa.table(rows))
    times: dict[str, list[float]] = {}
    with ExitStack() as stack:
        names = options.engines.split(",")
        engines = [
            stack.enter_context(Engine(name, SETTINGS, folder / f"small-{name}.log")) for name in names
        ]
        for number in range(options.warm_up + options.repeat):
            for engine in engines:
                seconds = merge(engine, prepared, folder / f"small-{engine.name}")
                if number >= options.warm_up:
                    times.setdefault(engine.name, []).append(seconds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(f"{name:12} median {medians[name]:6.2f} s  ({', '.join(f'{value:.2f}' for value in values)})")
    if len(medians) == 2:
        print(f"delta-spark / deltamerge: {medians['delta-spark'] / medians['deltamerge']:.1f}")
    (folder / "merge_small.json").write_text(json.dumps(times, indent=1) + "\n")


if __name__ == "__main__":
    main()
