"""The three engines, each in a process of its own, asked in one way."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merge_cases import ON, MergeCase

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from oracle.client import LineProcess, start_oracle  # noqa: E402
from oracle.environment import find_or_build  # noqa: E402

ENGINES = ("deltamerge", "delta-spark", "delta-rs")

# What both Spark engines have; the memory is what a merge of lineitem at scale 1 wants.
SPARK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "8g",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
# Its default of 50 makes delta-spark read the log of a small table in 50 tasks.
DELTA_SPARK = {"spark.databricks.delta.snapshotPartitions": "2"}


class Engine:
    """An engine that is running.

    Args:
        name: One of ``ENGINES``.
        settings: Spark settings; None leaves one at Spark's default.
        log: Where its standard error goes.
    """

    def __init__(self, name: str, settings: Mapping[str, str | None], log: Path) -> None:
        self.name = name
        log.parent.mkdir(parents=True, exist_ok=True)
        if name == "delta-spark":
            self._process = start_oracle(find_or_build(), settings, log)
        else:
            worker = Path(__file__).with_name("merge_worker.py")
            variables = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
            self._process = LineProcess([sys.executable, worker, name, json.dumps(settings)], variables, log)

    def merge_case(self, case: MergeCase, target: str, source: str) -> dict[str, Any]:
        """Merge a case's source into a table; the answer has ``seconds``."""
        if self.name == "delta-rs":
            clauses = [[clause.kind, clause.condition] for clause in case.clauses]
            return self._process.ask("merge", target=target, source=source, on=ON, clauses=clauses)
        return self.merge_sql(case.sql(target, source), {})

    def merge_sql(self, statement: str, queries: Mapping[str, str]) -> dict[str, Any]:
        """Run a MERGE over temporary views of these queries."""
        return self._process.ask("merge", statement=statement, queries=dict(queries))

    def run_sql(self, statement: str) -> dict[str, Any]:
        """Run any statement; the answer has ``seconds``."""
        return self._process.ask("run", statement=statement)

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def engine_python(name: str) -> Path:
    """Return the interpreter that an engine runs in."""
    return find_or_build().python if name == "delta-spark" else Path(sys.executable)


def lineitem_settings(name: str) -> dict[str, str | None]:
    """Return an engine's settings for merges of lineitem."""
    return {**SPARK, **(DELTA_SPARK if name == "delta-spark" else {})}


def comparison(title: str, runs: Mapping[str, list[dict[str, Any]]], about: str) -> str:
    """Return how long each engine took, what deltamerge did, and the ratio.

    Args:
        title: What was merged.
        runs: The answers of each engine, by its name.
        about: What deltamerge did; shown where it ran.
    """
    lines, medians = [title], {}
    for name, answers in runs.items():
        seconds = [answer["seconds"] for answer in answers]
        medians[name] = statistics.median(seconds)
        lines.append(f"  {name:12} median {medians[name]:6.2f} s  ({', '.join(f'{s:.2f}' for s in seconds)})")
    if "deltamerge" in runs:
        lines.append(f"  {about.format(**runs['deltamerge'][-1])}")
    if len(medians) == 2:
        lines.append(f"  delta-spark / deltamerge: {medians['delta-spark'] / medians['deltamerge']:.1f}")
    return "\n".join(lines)
