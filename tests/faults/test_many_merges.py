"""Many merges in one session: what a process holds stays the same."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltamerge import DeltaTable, write_delta
from merge.tables import EXECUTOR
from storage.s3 import with_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MERGES = int(os.environ.get("DELTAMERGE_SESSION_MERGES", "12"))
SAMPLES = 10
# A leak grows in each window of so many merges; an allocator that takes another block does not.
WINDOWS = 5
EXECUTORS = ("auto", "auto", "low_shuffle", "classic")
# What a merge may leave behind, by the slope over a window.
MOST_ADDED = {"python_kb": 100.0, "threads": 0.0, "files": 0.0, "jvm_files": 0.2, "views": 0.0, "cached": 0.0}
# Spark's own pools of threads fill up, and it remembers its last jobs.
MOST_JVM_THREADS = 700
MOST_HEAP_KB = 50 << 10


def status(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "Threads"))}


def held(spark: SparkSession) -> dict[str, int]:
    """What the driver's two processes hold."""
    gc.collect()
    # What PyArrow keeps for the next merge is not left behind.
    pa.default_memory_pool().release_unused()
    jvm = spark._jvm
    assert jvm is not None
    for _ in range(2):
        # What Spark cleans up after one collection is free after the next.
        jvm.java.lang.System.gc()
        time.sleep(0.3)
    runtime, pid = jvm.java.lang.Runtime.getRuntime(), jvm.java.lang.ProcessHandle.current().pid()
    python, java = status(os.getpid()), status(pid)
    return {
        "python_kb": python["VmRSS"],
        "jvm_heap_kb": (runtime.totalMemory() - runtime.freeMemory()) >> 10,
        "threads": python["Threads"],
        "jvm_threads": java["Threads"],
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 it changes while it is read
        "jvm_files": len(os.listdir(f"/proc/{pid}/fd")),  # noqa: PTH208
        "views": len(spark.catalog.listTables()),
        "cached": spark.sparkContext._jsc.getPersistentRDDs().size(),
    }


def merge(spark: SparkSession, path: str, number: int) -> None:
    source = spark.range(number % 50, number % 50 + 10).selectExpr("id", f"{number}L AS v")
    target = DeltaTable.forPath(spark, path).alias("t")
    upsert = target.merge(source.alias("s"), "t.id = s.id").whenMatchedUpdate(set={"v": "t.v + s.v"})
    with with_settings(spark, {EXECUTOR: EXECUTORS[number % len(EXECUTORS)]}):
        upsert.whenNotMatchedInsertAll().execute()


@pytest.mark.slow
def test_what_many_merges_leave_behind(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(100).selectExpr("id", "0L AS v"), path)
    for number in range(2 * len(EXECUTORS)):
        merge(spark, path, number)
    grows = set(MOST_ADDED)
    least_heap: list[int] = []
    for window in range(WINDOWS):
        samples = sampled(spark, path)
        slopes = slope(samples, max(MERGES // SAMPLES, 1))
        print(f"window {window}, for each merge: { {name: round(v, 3) for name, v in slopes.items()} }", flush=True)
        grows &= {name for name, most in MOST_ADDED.items() if slopes[name] > most}
        least_heap.append(min(sample["jvm_heap_kb"] for sample in samples))
        assert samples[-1]["jvm_threads"] < MOST_JVM_THREADS
        if not grows:
            break
    assert not grows
    assert least_heap[-1] - least_heap[0] < MOST_HEAP_KB


def sampled(spark: SparkSession, path: str) -> list[dict[str, int]]:
    """What the processes hold before, during and after so many merges."""
    samples = [held(spark)]
    for number in range(MERGES):
        merge(spark, path, number)
        if (number + 1) % max(MERGES // SAMPLES, 1) == 0:
            samples.append(held(spark))
    return samples


def slope(samples: Sequence[Mapping[str, int]], every: int) -> dict[str, float]:
    """What each merge adds: the median of the slopes between any two samples, which one step does not change."""
    pairs = list(combinations(range(len(samples)), 2))
    return {
        name: median((samples[b][name] - samples[a][name]) / ((b - a) * every) for a, b in pairs) for name in samples[0]
    }
