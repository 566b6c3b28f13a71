"""A merge that is larger than memory: TPC-H's lineitem at scale 10, 30 % of its rows updated, 2 GB for Spark.

    python benchmarks/merge_scale.py
    python benchmarks/merge_scale.py --scale 1 --memory 1g

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
from merge_data import make_source, prepare
from merge_engines import ROOT, Engine, lineitem_settings
from merge_lineitem import run_once

ENGINES = ("deltamerge", "delta-spark")
CASE = MergeCase("upsert-1-.3-.001", 1.0, 0.3, 0.001, (Clause("update"), Clause("insert")))


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=10.0, help="TPC-H's scale factor; 1 is 6 million rows")
    parser.add_argument("--memory", default="2g", help="spark.driver.memory")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench", help="where tables are kept")
    options = parser.parse_args()
    folder = options.folder.resolve()
    layout = prepare(folder, options.scale, "sorted")
    source = make_source(layout, CASE)
    print(f"{layout.checksum.rows:,} rows, a source of {source.rows:,}, {options.memory}", file=sys.stderr)
    seconds = {}
    for name in options.engines.split(","):
        target = folder / f"target-scale-{name}"
        layout.copy(target)
        settings = {**lineitem_settings(name), "spark.driver.memory": options.memory}
        with Engine(name, settings, folder / f"scale-{name}.log") as engine:
            answer = run_once(engine, layout, CASE, source, target)
        shutil.rmtree(target)
        seconds[name] = answer["seconds"]
        steps = ", ".join(f"{step} {ms / 1000:.1f} s" for step, ms in answer.get("steps", {}).items())
        print(f"{name}: {seconds[name]:.1f} s {answer.get('executor', '')} {steps}", flush=True)
    if len(seconds) == len(ENGINES):
        print(f"delta-spark / deltamerge: {seconds['delta-spark'] / seconds['deltamerge']:.2f}")


if __name__ == "__main__":
    main()
