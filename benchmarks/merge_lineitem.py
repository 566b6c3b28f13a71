"""Delta's MergeBenchmark on TPC-H's lineitem: deltamerge beside delta-spark and delta-rs.

    python benchmarks/merge_lineitem.py
    python benchmarks/merge_lineitem.py --scale 0.05 --cases 'upsert-*' --engines delta-rs,deltamerge
    python benchmarks/merge_lineitem.py --deletion-vectors
    python benchmarks/merge_lineitem.py --store s3
    python benchmarks/merge_lineitem.py --store hdfs --engines delta-spark,deltamerge
    python benchmarks/merge_lineitem.py --store s3 --cluster --engines delta-spark,deltamerge

It needs the dependency groups dev and bench (tpchgen-cli, deltalake), Java and, for delta-spark, an
environment of its own that it builds by Maven when there is none (see tests/oracle/environment.py). Maven also
brings the S3 server of --store s3.
Every result is compared with what the merge must come to before its time counts. In each case the engines
take turns.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from merge_cases import CASES, LARGE_SOURCES, MergeCase
from merge_data import LAYOUTS, Layout, Source, make_source, prepare
from merge_engines import ENGINES, ROOT, Engine, engine_python
from merge_tables import Tables, tables_in
from spark_cluster import spark_cluster

Times = dict[tuple[str, str, str], dict[str, Any]]


def run_engines(
    names: list[str],
    layouts: list[Layout],
    cases: list[MergeCase],
    repeat: int,
    folder: Path,
    tables: Tables,
    *,
    on_cluster: bool,
) -> Times:
    """Run engines over all cases; in each they take turns, so that all see the same machine.

    Args:
        names: The engines.
        layouts: Their tables.
        cases: Their merges.
        repeat: How often each is run.
        folder: Where logs are kept.
        tables: Where tables are.
        on_cluster: Whether Spark's engines have a cluster of two workers each.

    Returns:
        By layout, case and engine: ``seconds``, the median, or ``error``.
    """
    times: Times = {}
    sources = {(layout.name, case.name): make_source(layout, case) for layout in layouts for case in cases}
    with ExitStack() as stack:
        engines = []
        for name in names:
            settings = tables.settings(name)
            if on_cluster and name != "delta-rs":
                settings |= stack.enter_context(spark_cluster(engine_python(name), folder / f"cluster-{name}"))
            engines.append(stack.enter_context(Engine(name, settings, folder / f"{name}.log")))
        # The first merges of a process load classes and start its tasks; the largest of each kind is not counted.
        for engine in engines:
            for case in {case.clauses: case for case in cases}.values():
                engine.merge_case(case, *tables.fresh(engine.name, layouts[0], sources[layouts[0].name, case.name]))
        for layout in layouts:
            for case in cases:
                for engine in engines:
                    source = sources[layout.name, case.name]
                    runs = [run_once(engine, layout, case, source, tables) for _ in range(repeat)]
                    times[layout.name, case.name, engine.name] = median_run(runs)
                seconds = [f"{times[layout.name, case.name, name]['seconds']:8.2f} s" for name in names]
                print(f"  {layout.name:9} {case.name:22} {' '.join(seconds)}", file=sys.stderr, flush=True)
    return times


def run_once(engine: Engine, layout: Layout, case: MergeCase, source: Source, tables: Tables) -> dict[str, Any]:
    """Merge once and check the table.

    Raises:
        SystemExit: The table is not what it must be.
    """
    target, rows = tables.fresh(engine.name, layout, source)
    tables.count()
    answer = engine.merge_case(case, target, rows) | tables.count()
    got = tables.checksum(layout)
    if got != source.result:
        raise SystemExit(
            f"{engine.name} is wrong in {layout.name} {case.name}: expected {source.result}, got {got}; "
            f"its table is in {target}"
        )
    return answer


def median_run(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Take the run of the (lower) median time, with all times beside it."""
    ordered = sorted(runs, key=lambda run: run["seconds"])
    return {**ordered[(len(ordered) - 1) // 2], "all": [run["seconds"] for run in runs]}


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean; NaN of nothing."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def table(times: Times, layouts: list[str], cases: list[str], engines: list[str]) -> str:
    """Write the times, and how many times as long the others take as deltamerge, as Markdown."""
    others = [name for name in engines if name != "deltamerge"] if "deltamerge" in engines else []
    head = [
        "case",
        "layout",
        *(f"{name} s" for name in engines),
        *(f"{name} / deltamerge" for name in others),
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    rows: list[list[float]] = []
    for layout in layouts:
        for case in cases:
            seconds = {name: times[layout, case, name]["seconds"] for name in engines}
            ratios = [seconds[name] / seconds["deltamerge"] for name in others]
            rows.append([*seconds.values(), *ratios])
            lines.append(f"| {case} | {layout} | " + " | ".join(f"{value:.2f}" for value in rows[-1]) + " |")
    means = [geometric_mean(list(column)) for column in zip(*rows, strict=True)]
    lines.append("| geometric mean | | " + " | ".join(f"{value:.2f}" for value in means) + " |")
    return "\n".join(lines)


def chosen(text: str, known: tuple[str, ...]) -> list[str]:
    """Take the names that match one of some patterns, separated by commas."""
    found = [name for name in known if any(fnmatchcase(name, part) for part in text.split(","))]
    if not found:
        raise SystemExit(f"nothing is called {text}; there are {', '.join(known)}")
    return found


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H's scale factor; 1 is 6 million rows")
    parser.add_argument("--cases", default="*", help="names or patterns between commas")
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument(
        "--deletion-vectors", action="store_true", help="in tables that have them; delta-rs cannot write them"
    )
    parser.add_argument(
        "--store", choices=["local", "s3", "hdfs"], default="local", help="where tables and sources are"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="a standalone cluster of two workers, a core each, for each Spark engine"
    )
    parser.add_argument("--repeat", type=int, default=1, help="merges of each case; the median counts")
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench", help="where tables are kept")
    parser.add_argument("--output", type=Path, help="results as JSON; by default in the folder")
    options = parser.parse_args()
    engines = chosen(options.engines, ENGINES)
    if options.deletion_vectors:
        engines = [name for name in engines if name != "delta-rs"]
    known = (*CASES, *(case for case in LARGE_SOURCES if case.name in options.cases.split(",")))
    names = chosen(options.cases, tuple(case.name for case in known))
    cases = [case for case in known if case.name in names]
    folder = options.folder.resolve()
    layouts = [prepare(folder, options.scale, name) for name in chosen(options.layouts, LAYOUTS)]
    print(f"  {' '.join(engines)}", file=sys.stderr)
    with tables_in(options.store, folder, deletion_vectors=options.deletion_vectors) as tables:
        times = run_engines(engines, layouts, cases, options.repeat, folder, tables, on_cluster=options.cluster)
    print(table(times, [layout.name for layout in layouts], names, engines))
    suffix = (
        ("_deletion_vectors" if options.deletion_vectors else "")
        + ("" if options.store == "local" else f"_{options.store}")
        + ("_cluster" if options.cluster else "")
    )
    output = options.output or folder / f"merge_lineitem{suffix}.json"
    results = [
        {"layout": layout, "case": case, "engine": name, **result} for (layout, case, name), result in times.items()
    ]
    about = {
        "scale": options.scale,
        "repeat": options.repeat,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    output.write_text(json.dumps({**about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
