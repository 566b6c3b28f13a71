"""A merge that is larger than memory: TPC-H's lineitem at scale 10, 30 % of its rows updated, 2 GB for Spark.

    python benchmarks/merge_scale.py
    python benchmarks/merge_scale.py --scale 1 --memory 1g
    python benchmarks/merge_scale.py --updated 0.017,0.083,0.333 --engines deltamerge

The table has 60 million rows in 20 files; the source holds 18 million of them with other values, and 60,000 new ones.
Driver and executors are one process (local[2]), with so much heap. It needs what merge_lineitem.py needs, 20 GB of
disk, and memory to make the source. Each engine merges once, in a process of its own, and its result is checked.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from merge_cases import Clause, MergeCase
from merge_data import Layout, make_source, prepare
from merge_engines import ROOT, Engine
from merge_lineitem import run_once
from merge_tables import LocalTables

ENGINES = ("deltamerge", "delta-spark")


def upsert(updated: float) -> MergeCase:
    """Return the merge that updates so much of all files' rows, and inserts one for 1,000 of them."""
    name = f"upsert-1-{updated:g}-.001".replace("0.", ".")
    return MergeCase(name, 1.0, updated, 0.001, (Clause("update"), Clause("insert")))


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=10.0, help="TPC-H's scale factor; 1 is 6 million rows")
    parser.add_argument("--memory", default="2g", help="spark.driver.memory")
    parser.add_argument("--updated", default="0.3", help="which part of the rows is updated; several between commas")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench", help="where tables are kept")
    options = parser.parse_args()
    folder = options.folder.resolve()
    layout = prepare(folder, options.scale, "sorted")
    for case in map(upsert, map(float, options.updated.split(","))):
        compare(options.engines.split(","), layout, case, folder, options.memory)


def compare(engines: list[str], layout: Layout, case: MergeCase, folder: Path, memory: str) -> None:
    """Merge once with each engine, in a process of its own."""
    source = make_source(layout, case)
    print(f"{layout.checksum.rows:,} rows, a source of {source.rows:,}, {memory}", file=sys.stderr)
    seconds = {}
    for name in engines:
        tables = LocalTables(folder / f"target-scale-{name}", deletion_vectors=False)
        settings = {**tables.settings(name), "spark.driver.memory": memory}
        with Engine(name, settings, folder / f"scale-{name}.log") as engine:
            answer = run_once(engine, layout, case, source, tables)
        shutil.rmtree(tables.folder)
        seconds[name] = answer["seconds"]
        steps = ", ".join(f"{step} {ms / 1000:.1f} s" for step, ms in answer.get("steps", {}).items())
        memory_of_driver = f"{answer['memory'] >> 20:,} MiB" if "memory" in answer else ""
        print(f"{name}: {seconds[name]:.1f} s {answer.get('executor', '')} {memory_of_driver} {steps}", flush=True)
    if len(seconds) == len(ENGINES):
        print(f"delta-spark / deltamerge: {seconds['delta-spark'] / seconds['deltamerge']:.2f}")


if __name__ == "__main__":
    main()
