"""Tasks that run twice because one is slow, and tasks without enough memory: the right rows, or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from combinations import some
from faults.cluster import Cluster, check_clean, check_merged, check_old, cluster, make_table, two_hosts
from merge.tables import VECTORS, latest_version

pytestmark = pytest.mark.slow
PLAIN: dict[str, str] = {}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "200ms",
    # A second attempt does not wait for the executor that has the rows.
    "spark.locality.wait": "0",
    # Of stages with few tasks.
    "spark.speculation.task.duration.threshold": "300ms",
}
SLOW_SECONDS = 6


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with two_hosts(folder) as hosts, cluster(folder, {**SPECULATION, **hosts}) as started:
        yield started


SLOW = [
    ("key_lookup", VECTORS, "all", "staged_after"),
    ("classic", PLAIN, "all", "source"),
    ("key_lookup", PLAIN, "all", "data_before"),
    ("low_shuffle", VECTORS, "slow_value", "value"),
    ("key_lookup", VECTORS, "all", "data_after"),
    ("key_lookup", PLAIN, "all", "pairs_before"),
    ("low_shuffle", PLAIN, "all", "data_after"),
    ("insert_only", PLAIN, "slow_inserts", "value"),
]


@pytest.mark.parametrize("number", some(range(len(SLOW)), 4))
def test_slow_task(running: Cluster, tmp_path: Path, number: int) -> None:
    """A task that waits is run once more on the other executor; whichever ends first, its rows count once."""
    plan, properties, clauses, point = SLOW[number]
    path = make_table(tmp_path / "t", properties)
    version = latest_version(path)
    running.reset()
    running.arm(point, f"wait {SLOW_SECONDS}")
    outcome = running.merge(path, plan, clauses)
    assert "error" not in outcome, outcome
    assert running.reached() == [point]
    assert max(running.attempts(point)) > 0, "no task ran twice"
    check_merged(path, version, outcome, deletes="inserts" not in clauses)
    left = check_clean(path, running.vacuum(path), may_leave=True)
    # Spark kills the slower one wherever it is.
    assert left == 0 or point.startswith("data")


MEMORY = [
    ("key_lookup", VECTORS, "source"),
    ("classic", PLAIN, "source"),
    ("key_lookup", PLAIN, "data_before"),
    ("low_shuffle", PLAIN, "data_after"),
    ("key_lookup", PLAIN, "pairs_before"),
]


@pytest.mark.parametrize(("what", "times"), [("kill_worker", 1), ("kill_worker", 99), ("memory 0", 99)])
@pytest.mark.parametrize("number", some(range(len(MEMORY)), 2))
def test_worker_without_memory(running: Cluster, tmp_path: Path, number: int, what: str, times: int) -> None:
    """A worker that the system kills as it takes too much memory, or that gets no more: once, or each time."""
    plan, properties, point = MEMORY[number]
    path = make_table(tmp_path / "t", properties)
    version = latest_version(path)
    running.reset()
    running.arm(point, what, times)
    outcome = running.merge(path, plan, "all")
    assert point in running.reached()
    if "error" in outcome:
        assert times > 1
        assert "Python worker exited unexpectedly" in outcome["error"] or "MemoryError" in outcome["error"]
        check_old(path, version)
        assert not check_clean(path, running.vacuum(path), may_leave=True)
    else:
        check_merged(path, version, outcome, deletes=True)
        assert check_clean(path, running.vacuum(path), may_leave=True) == 0 or point == "data_before"
