"""Executors that die while a merge runs: one evaluation of the source in one commit, or an error; nothing is left."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from combinations import ALL, some
from faults import points
from faults.cluster import Cluster, check_clean, check_merged, cluster, make_table
from merge.tables import VECTORS, latest_version

pytestmark = pytest.mark.slow
# Kills at any time, besides those in each job.
KILLS = int(os.environ.get("DELTAMERGE_EXECUTOR_KILLS", "0"))
PLAIN: dict[str, str] = {}
CHANGE_DATA = {"delta.enableChangeDataFeed": "true"}
CASES = {
    "vectors": ("key_lookup", VECTORS),
    "low_shuffle": ("low_shuffle", VECTORS | CHANGE_DATA),
    "classic": ("classic", PLAIN),
    "patched": ("key_lookup", PLAIN),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


def check(running: Cluster, path: str, version: int, outcome: Mapping[str, Any], *, deletes: bool = True) -> int:
    """Looks whether the merge is in the table and nothing else; gives how many files are left for VACUUM."""
    check_merged(path, version, outcome, deletes=deletes)
    return check_clean(path, running.vacuum(path), may_leave=True)


# Where in a task its executor dies. The source's rows are lost with the last two of low_shuffle and classic.
POINTS = [
    ("key_lookup", VECTORS, "all", "source"),
    ("classic", PLAIN, "slow_value", "value"),
    ("key_lookup", PLAIN, "all", "data_before"),
    ("low_shuffle", PLAIN, "slow_condition", "condition"),
    ("key_lookup", VECTORS, "all", "staged_after"),
    ("insert_only", PLAIN, "slow_inserts", "value"),
    ("key_lookup", PLAIN, "all", "staged_before"),
    ("key_lookup", PLAIN, "all", "pairs_before"),
    ("key_lookup", VECTORS, "all", "pairs_after"),
    ("key_lookup", VECTORS, "all", "data_after"),
    ("low_shuffle", VECTORS, "all", "source"),
    ("low_shuffle", VECTORS, "slow_value", "value"),
    ("low_shuffle", PLAIN, "all", "data_after"),
    ("classic", VECTORS, "all", "source"),
    ("classic", PLAIN, "slow_condition", "condition"),
    ("insert_only", PLAIN, "inserts", "source"),
]


@pytest.mark.parametrize("number", some(range(len(POINTS)), 6))
def test_killed_at_a_point(running: Cluster, tmp_path: Path, number: int) -> None:
    plan, properties, clauses, point = POINTS[number]
    path = make_table(tmp_path / "t", properties)
    version = latest_version(path)
    running.reset()
    running.arm(point, "kill_executor")
    outcome = running.merge(path, plan, clauses)
    assert "error" not in outcome, outcome
    assert running.reached() == [point]
    left = check(running, path, version, outcome, deletes="inserts" not in clauses)
    # A file that has no name yet stays where its task cannot remove it.
    assert left == 0 or point.endswith("before")
    if outcome["source"] == "checkpoint":
        assert running.evaluations() > points.PARTITIONS, "the source's rows were not lost"


@pytest.mark.parametrize("case", some(CASES, 3))
def test_killed_in_each_job(running: Cluster, tmp_path: Path, case: str) -> None:
    plan, properties = CASES[case]
    running.reset()
    path = make_table(tmp_path / "whole", properties)
    version = latest_version(path)
    whole = running.merge(path, plan)
    assert check(running, path, version, whole) == 0
    rng = random.Random(case)
    jobs = range(whole["jobs"])
    # One at the beginning, in the middle and at the end.
    in_jobs: list[float] = list(jobs if ALL or KILLS else sorted({0, len(jobs) // 2, len(jobs) - 1}))
    killed, left, seconds = 0, 0, 0.0
    for number, kill in enumerate([*in_jobs, *(rng.uniform(0, whole["seconds"]) for _ in range(KILLS))]):
        path = make_table(tmp_path / str(number), properties)
        outcome = running.merge(path, plan, kill=kill)
        assert "error" not in outcome, (kill, outcome)
        assert outcome["killed"] or kill not in in_jobs
        left += check(running, path, version, outcome)
        killed, seconds = killed + len(outcome["killed"]), seconds + outcome["seconds"]
    print(f"{case}: {whole['jobs']} jobs, {killed} kills, {left} files left, {seconds / (number + 1):.1f} s a merge")


CHECKSUMS = {
    f"spark.sql.shuffle.orderIndependentChecksum.{name}": "false" for name in ("enabled", "enableFullRetryOnMismatch")
}


@pytest.mark.parametrize("plan", some(["insert_only", "key_lookup", "classic", "low_shuffle"], 3))
def test_shuffled_source(running: Cluster, tmp_path: Path, plan: str) -> None:
    """Spark computes lost parts of a shuffle again, and they are others then: the merge begins anew.

    The session has switched off what notices that, as it is by default before Spark 4.2.
    """
    path = make_table(tmp_path / "t", PLAIN)
    version = latest_version(path)
    clauses = "inserts" if plan == "insert_only" else "all"
    running.reset()
    # The other partitions are read by then.
    running.arm("passed_2", "kill_executor")
    outcome = running.merge(path, plan, clauses, source="shuffled", settings=CHECKSUMS)
    assert "error" not in outcome, outcome
    assert running.reached() == ["passed_2"]
    check(running, path, version, outcome, deletes=clauses == "all")
    assert running.evaluations() >= 2 * points.PARTITIONS, "nothing that was read was lost"


@pytest.mark.parametrize("point", some(["data_before", "staged_before", "data_after"]))
def test_cut_off(running: Cluster, tmp_path: Path, point: str) -> None:
    """A worker whose executor is gone goes on, and ends after the merge."""
    path = make_table(tmp_path / "t", PLAIN)
    version = latest_version(path)
    running.reset()
    running.arm(point, "cut_off 12")
    outcome = running.merge(path, "key_lookup")
    assert "error" not in outcome, outcome
    assert running.reached() == [point]
    print(point, outcome["seconds"])
    for wait in (0, 13):
        time.sleep(wait)
        check(running, path, version, outcome)
