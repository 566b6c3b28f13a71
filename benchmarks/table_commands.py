"""DELETE, UPDATE and OPTIMIZE of lineitem with deltamerge and delta-spark.

    python benchmarks/table_commands.py
    python benchmarks/table_commands.py --deletion-vectors --commands "delete*,update*"

Each command runs on a fresh copy of a table of 20 files. The engines take turns, and a time counts only where both
have made the same rows. It needs what merge_lineitem.py needs.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from merge_checksum import Checksum, table_checksum
from merge_data import LAYOUTS, Layout, prepare
from merge_engines import ROOT, Engine, lineitem_settings

# A twentieth of the keys, in the middle.
_KEYS = "l_orderkey BETWEEN {first} AND {last}"
_FIRST, _LAST = 3_000_000, 3_300_000
COMMANDS = {
    "delete some": "DELETE FROM {table} WHERE l_suppkey < 100",
    "delete a key range": "DELETE FROM {table} WHERE " + _KEYS,
    "delete computed": "DELETE FROM {table} WHERE l_orderkey % 100 = 7 AND year(l_shipdate) > 1995",
    "update some": "UPDATE {table} SET l_linestatus = 'X' WHERE l_suppkey < 100",
    "update a key range": "UPDATE {table} SET l_comment = 'late', l_shipmode = 'AIR' WHERE " + _KEYS,
    "update computed": (
        "UPDATE {table} SET l_quantity = l_quantity + 1, l_comment = concat(l_comment, '!') WHERE l_orderkey % 100 = 7"
    ),
    "update a day": "UPDATE {table} SET l_discount = 0 WHERE l_shipdate = DATE'1995-03-15'",
    "optimize": "OPTIMIZE {table}",
    "optimize z-order": "OPTIMIZE {table} ZORDER BY (l_shipdate, l_partkey)",
}


def run(
    engine: Engine, layout: Layout, command: str, target: Path, options: argparse.Namespace
) -> tuple[float, Checksum]:
    """Run a command on a fresh copy; return its seconds and what the table is then."""
    layout.copy(target, deletion_vectors=options.deletion_vectors)
    first, last = (int(key * options.scale) for key in (_FIRST, _LAST))
    answer = engine.run_sql(COMMANDS[command].format(table=f"delta.`{target}`", first=first, last=last))
    return answer["seconds"], table_checksum(str(target), layout.files)


def run_case(engines: list[Engine], layout: Layout, command: str, options: argparse.Namespace) -> dict[str, float]:
    """Run a command by each engine in turn; return the medians of their seconds.

    Raises:
        SystemExit: The engines made different rows.
    """
    seconds: dict[str, list[float]] = {engine.name: [] for engine in engines}
    sums: dict[str, Checksum] = {}
    for _ in range(options.repeat):
        for engine in engines:
            target = options.folder / f"commands-{engine.name}"
            taken, sums[engine.name] = run(engine, layout, command, target, options)
            seconds[engine.name].append(taken)
    if len(set(sums.values())) > 1:
        raise SystemExit(f"{command} of the {layout.name} table: the engines differ: {sums}")
    return {name: statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=1, help="runs of each engine; the median counts")
    parser.add_argument("--engines", default="deltamerge,delta-spark")
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--commands", default="*", help="commands by name, or patterns, between commas")
    parser.add_argument("--deletion-vectors", action="store_true", help="tables with deletion vectors")
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    layouts = [prepare(options.folder, options.scale, name) for name in options.layouts.split(",")]
    commands = [name for name in COMMANDS if any(fnmatch(name, p) for p in options.commands.split(","))]
    results: dict[str, Any] = {}
    ratios: list[float] = []
    with ExitStack() as stack:
        engines = [
            stack.enter_context(Engine(name, lineitem_settings(name), options.folder / f"commands-{name}.log"))
            for name in options.engines.split(",")
        ]
        for command in commands:
            # The first of each kind in a process loads classes; it does not count.
            run_case(engines, layouts[0], command, options)
        for layout in layouts:
            for command in commands:
                seconds = results[f"{layout.name}: {command}"] = run_case(engines, layout, command, options)
                line = "  ".join(f"{name} {taken:5.2f} s" for name, taken in seconds.items())
                if len(seconds) > 1:
                    ratios.append(seconds["delta-spark"] / seconds["deltamerge"])
                    line += f"  ratio {ratios[-1]:5.1f}"
                print(f"{layout.name:9} {command:20} {line}", flush=True)
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"geometric mean {mean:.2f}, least {min(ratios):.2f}")
    kind = "_vectors" if options.deletion_vectors else ""
    (options.folder / f"table_commands{kind}.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
