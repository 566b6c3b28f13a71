"""A small cluster for tests of faults: its driver is a process of its own, and so is each of two executors."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from deltalake import DeltaTable as DeltaRs
from deltalake import QueryBuilder, write_deltalake

from class_archive import java_options
from faults import points
from faults.test_killed_merge import strays
from merge.tables import DRIVER_BYTES, EXECUTOR, latest_version
from oracle.client import LineProcess

TESTS = Path(__file__).parents[1]
OLD_ROWS, OLD_FILES = 400, 4
JAVA = java_options()
SETTINGS = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "1024m",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "3",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # What was in the memory of an executor that died is not asked for again and again.
    "spark.shuffle.io.retryWait": "100ms",
}
TASKS = {DRIVER_BYTES: "0"}
PLANS = {
    "key_lookup": {EXECUTOR: "key_lookup", **TASKS},
    "low_shuffle": {EXECUTOR: "low_shuffle", **TASKS},
    "classic": {EXECUTOR: "classic"},
    "insert_only": {EXECUTOR: "insert_only"},
}


@dataclass(frozen=True)
class Cluster:
    """A cluster that is running.

    Args:
        faults: The folder of what is armed.
        log: What the driver and Spark have said.
    """

    driver: LineProcess
    faults: Path
    log: Path

    def arm(self, point: str, what: str, times: int = 1) -> None:
        points.arm(self.faults, point, what, times)

    def reached(self) -> list[str]:
        return points.reached(self.faults)

    def merge(
        self,
        path: str,
        plan: str,
        clauses: str = "all",
        source: str = "plain",
        kill: float | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Runs a merge; what is armed, and how often the source was begun, is what was since `reset`."""
        given = {**PLANS[plan], **(settings or {})}
        outcome: dict[str, Any] = self.driver.ask(
            "merge", path=path, settings=given, source=source, clauses=clauses, kill=kill, options={}
        )
        return outcome

    def evaluations(self) -> int:
        """Counts how often a partition of the source was begun."""
        return len(points.evaluations(self.faults))

    def attempts(self, point: str) -> set[int]:
        return points.attempts(self.faults, point)

    def vacuum(self, path: str) -> list[str]:
        """Asks which files VACUUM would delete."""
        found: list[str] = self.driver.ask("vacuum", path=path)
        return found

    def reset(self) -> None:
        points.reset(self.faults)


@contextmanager
def two_hosts(folder: Path) -> Iterator[dict[str, str]]:
    """Starts a standalone cluster and gives its settings; its executors have different hosts, as speculation wants."""
    home = Path(str(pyspark.__file__)).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:

        def start(daemon: str, host: str, *arguments: str) -> None:
            output = stack.enter_context((folder / f"{daemon}-{host}.log").open("w"))
            process = subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.deploy.{daemon}", "--host", host, *arguments],
                env={**_environment(folder), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": host},
                stdout=output,
                stderr=output,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)

        start("master.Master", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        for host in ("127.0.0.1", "127.0.0.2"):
            start("worker.Worker", host, "--webui-port", "0", "--cores", "1", "--memory", "1g", master)
        yield {"spark.master": master}


def _environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        points.FOLDER: str(folder / "faults"),
    }


@contextmanager
def cluster(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Starts a cluster.

    Args:
        settings: Besides `SETTINGS`.
    """
    faults = folder / "faults"
    faults.mkdir()
    given = {**SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse"), **(settings or {})}
    command = [sys.executable, "-m", "faults.cluster_driver", json.dumps(given)]
    log = folder / "driver.log"
    with LineProcess(command, _environment(folder), log) as driver:
        yield Cluster(driver, faults, log)


def make_table(path: Path, properties: Mapping[str, str | None]) -> str:
    """Makes the target of `points.source_rows` by delta-rs: rows that are all alike but for their ids."""
    each = OLD_ROWS // OLD_FILES
    for first in range(0, OLD_ROWS, each):
        ids = pa.array(range(first, first + each), pa.int32())
        columns = {"id": ids, "n": pa.array([-1] * each, pa.int32()), "token": pa.array(["old"] * each)}
        write_deltalake(str(path), pa.table(columns), mode="append", configuration=None if first else dict(properties))
    return str(path)


def read(path: str) -> list[dict[str, Any]]:
    """Reads a table by delta-rs, which knows nothing of what is lying around."""
    found = QueryBuilder().register("t", DeltaRs(path)).execute("SELECT id, n, token FROM t")
    return pa.table(found).to_pylist()


def check_old(path: str, version: int) -> None:
    """Looks whether the table is as it was made."""
    assert latest_version(path) == version
    assert sorted((row["id"], row["n"], row["token"]) for row in read(path)) == [
        (number, -1, "old") for number in range(OLD_ROWS)
    ]


def check_merged(path: str, version: int, outcome: Mapping[str, Any], *, deletes: bool) -> None:
    """Looks whether one evaluation of the source was merged into the table in one commit.

    Args:
        version: The table's before the merge.
        deletes: Whether every tenth row of the source is one that deletes.
    """
    assert (latest_version(path), outcome["version"]) == (version + 1, version + 1)
    rows = {row["id"]: row for row in read(path)}
    assert len(rows) == len(read(path)), "a key twice"
    numbers = range(points.ROWS)
    deleting = {number for number in numbers if deletes and number % 10 == 0}
    changed = {row["n"]: row for row in rows.values() if row["n"] >= 0}
    assert len(changed) == sum(row["n"] >= 0 for row in rows.values()), "a row of the source twice"
    if deletes:
        assert changed.keys() == set(numbers) - deleting, "a row of the source is lost"
    for number, row in changed.items():
        assert row["id"] in (number, number + points.NEW)
        if row["id"] != number:
            assert rows[number]["token"] == "old", "a row of the source that matched, too"
    untouched = [rows[number] for number in range(points.ROWS, OLD_ROWS)]
    assert all(row["token"] == "old" and row["n"] == -1 for row in untouched)
    a_partition = points.ROWS // points.PARTITIONS
    for first in range(0, points.ROWS, a_partition):
        tokens = {changed[number]["token"] for number in range(first, first + a_partition) if number in changed}
        assert len(tokens) == 1, "several evaluations of a partition of the source"
    metrics = outcome["metrics"]
    gone = set(range(OLD_ROWS)) - rows.keys()
    assert gone <= deleting
    new = sum(row["id"] >= points.NEW for row in rows.values())
    old = sum(row["id"] < points.NEW for row in changed.values())
    counted = [int(metrics[f"numTargetRows{what}"]) for what in ("Updated", "Deleted", "Inserted")]
    assert counted == [old, len(gone), new]


def check_clean(path: str, vacuumed: list[str], *, may_leave: bool) -> int:
    """Looks for files that no commit names: VACUUM finds them, and where nothing may be left there is none."""
    left = strays(path)
    assert left <= set(vacuumed), "files that VACUUM does not find"
    assert may_leave or not left
    return len(left)
