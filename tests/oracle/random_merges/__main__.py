"""Random merges beside delta-spark.

    python -m oracle.random_merges --merges 1000 --seed 1

runs the merges of the seeds 1 to 1000, each by one plan; ``--merges 1`` replays one, and ``--each-plan`` runs each
merge by every plan that fits. ``--feature "type widening"`` switches a feature on in every table. It ends with 1
where anything differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..client import RequestFailed
from ..sessions import both_sessions
from .generator import random_merge
from .harness import BothEngines, Comparison
from .merge import RandomMerge
from .plans import FORCED
from .properties import FEATURES
from .shrink import shrink


@contextmanager
def engines(folder: Path) -> Iterator[BothEngines]:
    """Starts both engines."""
    with both_sessions(folder) as (spark, oracle):
        yield BothEngines(spark, oracle, folder)


def shrunk(engines: BothEngines, comparison: Comparison) -> Comparison:
    """Makes a merge that differs as small as it gets."""
    found = comparison

    def fails(merge: RandomMerge) -> bool:
        nonlocal found
        try:
            again = engines.compare(merge)
        except RequestFailed:
            return False
        if again.kinds & comparison.kinds:
            found = again
            return True
        return False

    shrink(comparison.merge, fails)
    return found


def main() -> int:
    """Runs the merges and says what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--merges", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each-plan", action="store_true", help="run each merge by every plan that fits")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--feature", action="append", default=[], choices=[f.name for f in FEATURES])
    parser.add_argument("--show", action="store_true", help="print each merge")
    arguments = parser.parse_args()
    ran, differing, outcomes, explanations, plans = 0, [], Counter[str](), Counter[str](), Counter[str]()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, engines(Path(folder)) as both:
        for seed in range(arguments.seed, arguments.seed + arguments.merges):
            merge = random_merge(seed, arguments.feature)
            if arguments.show:
                print(merge.show())
            try:
                by_plan = list(both.compare_each(merge, FORCED)) if arguments.each_plan else [both.compare(merge)]
            except RequestFailed as error:
                outcomes["no table"] += 1
                print(f"seed {seed}: delta-spark makes no such table: {str(error).strip().splitlines()[-1][:300]}")
                continue
            ran += 1
            outcomes[by_plan[0].theirs.error or "merged"] += 1
            for comparison in by_plan:
                plans[comparison.merge.plan] += 1
                explanations.update(comparison.explained)
                if comparison.differences:
                    differing.append(f"{seed} ({comparison.merge.plan})")
                    _print(comparison if arguments.no_shrink else shrunk(both, comparison))
            if ran % 50 == 0:
                print(f"... {ran} merges, {len(differing)} differ, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{ran} merges in {time.monotonic() - start:.0f} s; by delta-spark: {dict(outcomes.most_common())}")
    print(f"plans: {dict(plans)}")
    print(f"explained: {dict(explanations)}")
    print(f"{len(differing)} differ without an explanation" + (f": seeds {', '.join(differing)}" if differing else ""))
    return 1 if differing else 0


def _print(comparison: Comparison) -> None:
    print("=" * 100)
    print(comparison.merge.show())
    for difference in comparison.differences:
        print(difference)
    for who, outcome in (("deltamerge", comparison.ours), ("delta-spark", comparison.theirs)):
        if outcome.error:
            print(f"{who}: {outcome.error}: {outcome.message.strip()[:600]}")
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
