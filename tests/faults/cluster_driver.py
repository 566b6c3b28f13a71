"""The driver of a small cluster (``local-cluster``), behind JSON lines: executors are processes, which can be killed.

``python -m faults.cluster_driver <settings as JSON>``; requests (``op`` and its values):

- ``merge``: ``path``, ``settings``, ``source`` (``plain``, or ``shuffled``), ``clauses`` (see `CLAUSES`), ``kill``: the
  number of the Spark job, counted from 0, in which an executor is killed, or the seconds after which one is; null for
  none. Gives what became of it.
- ``vacuum``: ``path``; the files that VACUUM would delete, in the table's folder.
- ``stop``: ends the session, so that its logs are written to the end.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faults import points
from oracle.lines import answers, serve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltamerge import DeltaMergeBuilder

EXECUTORS = 2
_CLASS = b"CoarseGrainedExecutorBackend"
_POLL_SECONDS = 0.003


def start(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("cluster")
    for name, setting in settings.items():
        builder = builder.config(name, setting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    points.with_points_at_files()
    session.udf.register("reaching_condition", points.condition, "boolean")
    session.udf.register("reaching_value", points.value, "string")
    return session


class Driver:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        jvm: Any = spark._jvm
        self._jvm_pid = int(jvm.java.lang.ProcessHandle.current().pid())

    def executors(self) -> list[int]:
        """The processes of executors that are running."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if _CLASS in (folder / "cmdline").read_bytes() and points.parent_of(int(folder.name)) == self._jvm_pid:
                    found.append(int(folder.name))
            except OSError:
                continue
        return sorted(found)

    def wait(self) -> None:
        """Waits until all executors are there; the driver is counted, too."""
        java: Any = self._spark.sparkContext._jsc
        until = time.monotonic() + 60
        while java.sc().getExecutorMemoryStatus().size() <= EXECUTORS:
            assert time.monotonic() < until, "executors did not come back"
            time.sleep(0.05)

    @contextmanager
    def killing(self, kill: float | None) -> Iterator[list[str]]:
        """Kills one executor in the job of that number (an int), or after so many seconds; lists what was done."""
        done: list[str] = []
        ended = threading.Event()
        thread = threading.Thread(target=self._kill, args=(kill, done, ended), daemon=True)
        thread.start()
        try:
            yield done
        finally:
            ended.set()
            thread.join()

    def _kill(self, kill: float | None, done: list[str], ended: threading.Event) -> None:
        tracker = self._spark.sparkContext.statusTracker()
        began, seen = time.monotonic(), list[int]()
        while not ended.wait(_POLL_SECONDS):
            seen += sorted(set(tracker.getActiveJobsIds()).difference(seen))
            if kill is None or any(each.startswith("killed") for each in done):
                continue
            if (len(seen) > kill) if isinstance(kill, int) else time.monotonic() - began > kill:
                # Each of the two in turn.
                victims = self.executors()
                os.kill(victims[len(seen) % len(victims)], signal.SIGKILL)
                done.append(f"killed in job {len(seen) - 1}")
        done.append(f"jobs {len(seen)}")

    def source(self, kind: str) -> DataFrame:
        numbers = self._spark.range(0, points.ROWS, 1, points.PARTITIONS).selectExpr("cast(id AS INT) AS n")
        rows = numbers.mapInArrow(points.source_rows, points.SOURCE_SCHEMA)
        if kind == "shuffled":
            return rows.repartition(3, "id").mapInArrow(points.passing, points.SOURCE_SCHEMA)
        return rows

    def merge_builder(self, path: str, kind: str, clauses: str, options: Mapping[str, str]) -> DeltaMergeBuilder:
        from deltamerge import DeltaTable

        target = DeltaTable.forPath(self._spark, path, dict(options)).alias("t")
        merge = target.merge(self.source(kind).alias("s"), "t.id = s.id")
        return CLAUSES[clauses](merge)

    def merge(
        self,
        path: str,
        settings: Mapping[str, str],
        source: str,
        clauses: str,
        kill: float | None,
        options: Mapping[str, str],
    ) -> dict[str, Any]:
        for name, setting in settings.items():
            self._spark.conf.set(name, setting)
        self.wait()
        began, notes = time.monotonic(), list[str]()
        try:
            with self.killing(kill) as notes:
                report = self.merge_builder(path, source, clauses, options).run()
        except Exception as error:
            # What the merge raised is what the test asks for.
            outcome: dict[str, Any] = {"error": f"{type(error).__name__}: {error}"}
        else:
            plan = report.outcome.plan
            outcome = {
                "executor": report.outcome.executor,
                "version": report.outcome.version,
                "metrics": {name: number for name, number in report.metrics.items() if name.startswith("numTarget")},
                "source": plan.source.choice if plan is not None else None,
            }
        finally:
            for name in settings:
                self._spark.conf.unset(name)
        jobs = next((int(found.group(1)) for note in notes if (found := re.fullmatch(r"jobs (\d+)", note))), 0)
        killed = [note for note in notes if note.startswith("killed")]
        return {**outcome, "killed": killed, "jobs": jobs, "seconds": time.monotonic() - began}

    def vacuum(self, path: str) -> list[str]:
        from deltamerge import DeltaTable

        self._spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        found = DeltaTable.forPath(self._spark, path).vacuum(0, dry_run=True).collect()
        return [row["path"].removeprefix("file:").removeprefix(f"{path}/") for row in found]

    def stop(self) -> None:
        self._spark.stop()


def _changes(merge: DeltaMergeBuilder, token: str, condition: str = "true") -> DeltaMergeBuilder:
    values = {"id": "s.id", "n": "s.n", "token": token}
    deleting = merge.whenMatchedDelete(f"s.n % 10 = 0 AND {condition}")
    return deleting.whenMatchedUpdate(set={"n": "s.n", "token": token}).whenNotMatchedInsert(
        "s.n % 10 <> 0", values=values
    )


def _inserts(merge: DeltaMergeBuilder, token: str) -> DeltaMergeBuilder:
    return merge.whenNotMatchedInsert(values={"id": "s.id", "n": "s.n", "token": token})


CLAUSES: dict[str, Callable[[DeltaMergeBuilder], DeltaMergeBuilder]] = {
    "all": lambda merge: _changes(merge, "s.token"),
    "slow_condition": lambda merge: _changes(merge, "s.token", "reaching_condition(s.n)"),
    "slow_value": lambda merge: _changes(merge, "reaching_value(s.token)"),
    "inserts": lambda merge: _inserts(merge, "s.token"),
    "slow_inserts": lambda merge: _inserts(merge, "reaching_value(s.token)"),
}


def main() -> None:
    """Starts the session and answers until the input ends."""
    with answers() as answer:
        driver = Driver(start(json.loads(sys.argv[1])))
        serve(driver, answer)
        driver.stop()


if __name__ == "__main__":
    main()
