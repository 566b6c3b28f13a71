"""Writers in processes of their own that are killed now and then: sums exact, versions without gaps, nothing twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import QueryBuilder, write_deltalake

from faults.writer import GO, KEYS, expected
from storage.hdfs import Hdfs, cluster
from storage.s3 import BUCKET, server

WRITERS = int(os.environ.get("DELTAMERGE_WRITERS", "2"))
MERGES = int(os.environ.get("DELTAMERGE_MERGES", "5"))
KILLS = int(os.environ.get("DELTAMERGE_KILLS", "1"))
SECONDS = 1800
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.deltamerge.merge.conflictRetries": "1000",
}


@contextmanager
def started(path: str, writer: int, options: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    given = json.dumps({"settings": {**SETTINGS, GO: str(log.with_name("go"))}, "options": dict(options)})
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "faults.writer", path, str(writer), str(MERGES), given],
            env={**os.environ, "PYTHONPATH": paths, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a writer with its JVM, without notice."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def race(path: str, options: Mapping[str, str], folder: Path) -> tuple[list[dict[str, int]], int]:
    """Lets writers finish their merges, some killed on the way; gives what they reported, and the number of kills."""
    rng, kills = random.Random(1), 0
    until = time.monotonic() + SECONDS
    with ExitStack() as stack:
        logs = [folder / f"writer-{number}.log" for number in range(WRITERS)]
        running = {n: stack.enter_context(started(path, n, options, logs[n])) for n in range(WRITERS)}
        while not all(log.exists() and "ready" in log.read_text() for log in logs):
            time.sleep(0.1)
        (folder / "go").touch()
        next_kill = time.monotonic() + rng.uniform(2, 4)
        while running:
            assert time.monotonic() < until, [log.read_text()[-2000:] for log in logs]
            time.sleep(0.2)
            for number, process in list(running.items()):
                if process.poll() is None:
                    continue
                assert process.returncode == 0, logs[number].read_text()[-4000:]
                del running[number]
            if kills < KILLS and time.monotonic() > next_kill and running:
                number = rng.choice(sorted(running))
                kill(running[number])
                running[number] = stack.enter_context(started(path, number, options, logs[number]))
                kills, next_kill = kills + 1, time.monotonic() + rng.uniform(4, 12)
    lines = [line for log in logs for line in log.read_text().splitlines() if line.startswith('{"number"')]
    return [json.loads(line) for line in lines], kills


# The stores only where `make torture` asks for long races; HDFS's JARs come by Maven.
LONG = "DELTAMERGE_WRITERS" in os.environ
STORES = ["disk", "s3", pytest.param("hdfs", marks=pytest.mark.oracle)] if LONG else ["disk"]


@pytest.mark.slow
@pytest.mark.parametrize("where", STORES)
def test_counters(tmp_path: Path, where: str) -> None:
    with ExitStack() as stack:
        options: dict[str, str] = {}
        hdfs: Hdfs | None = None
        path = for_rs = str(tmp_path / "t")
        if where == "s3":
            s3 = stack.enter_context(server(tmp_path))
            options, path, for_rs = s3.options, f"s3a://{BUCKET}/t", f"s3://{BUCKET}/t"
        rows = pa.table({"id": pa.array(range(KEYS), pa.int32()), "v": pa.array([0] * KEYS, pa.int64())})
        vectors = {"delta.enableDeletionVectors": "true"}
        write_deltalake(for_rs, rows, configuration=vectors, storage_options=options)
        if where == "hdfs":
            (tmp_path / "hdfs").mkdir()
            hdfs = stack.enter_context(cluster(tmp_path / "hdfs"))
            hdfs.upload(tmp_path / "t", "/t")
            path = f"{hdfs.url}/t"
        began = time.monotonic()
        reported, kills = race(path, options, tmp_path)
        if hdfs is not None:
            # delta-rs has no access to HDFS.
            hdfs.download("/t", tmp_path / "t")
        table = DeltaRs(for_rs, storage_options=options)
        found = pa.table(QueryBuilder().register("t", table).execute("SELECT id, v FROM t")).to_pylist()
        assert len(found) == len({row["id"] for row in found})
        assert {row["id"]: row["v"] for row in found} == expected(WRITERS, MERGES)
        assert table.version() == WRITERS * MERGES
        ids = Counter(commit["txnId"] for commit in table.history() if "txnId" in commit)
        assert set(ids.values()) == {1}
        sums = {name: sum(line[name] for line in reported) for name in ("lost", "beside")}
        print(
            f"{where}: {WRITERS} writers, {MERGES} merges each, {kills} kills: {sums}, {time.monotonic() - began:.0f} s"
        )
