"""Streams: a batch is merged once, whatever becomes of the process."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltamerge import DeltaTable, write_delta
from deltamerge.exceptions import DeltaIllegalArgumentException
from deltamerge.streaming import upsert_into

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = int(os.environ.get("DELTAMERGE_STREAM_KILLS", "2"))
PROGRAM = Path(__file__).with_name("counting_stream.py")


def test_a_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.createDataFrame([(1, 1)], "id INT, n INT"), path)
    source = spark.createDataFrame([(1, 10), (2, 20)], "id INT, n INT")
    merge = upsert_into(path, "id", update={"n": "t.n + s.n"}, app_id="counts")
    for number in (0, 0, 1, 0):
        merge(source, number)
    assert sorted(tuple(row) for row in DeltaTable.forPath(spark, path).toDF().collect()) == [(1, 21), (2, 40)]
    with pytest.raises(DeltaIllegalArgumentException, match="Give upsert_into an `app_id`"):
        upsert_into(path, "id")(source, 0)


@pytest.mark.slow
def test_killed_and_started_again(spark: SparkSession, tmp_path: Path) -> None:
    write_delta(spark.createDataFrame([], "id INT, n INT"), str(tmp_path / "counts"))
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    batches = 8 + 4 * KILLS
    for number in range(batches):
        rows = [{"id": number % 5, "n": 1}, {"id": 100 + number, "n": 1}]
        (arriving / f"{number:04}.json").write_text("\n".join(map(json.dumps, rows)))
    chosen = random.Random(7)
    killed = 0
    for _ in range(KILLS):
        killed += killed_after(tmp_path, chosen.randint(1, 3), chosen.uniform(0, 0.8))
    assert killed == KILLS, "the stream was killed before its end"
    killed_after(tmp_path, None, 0)
    counts = dict(map(tuple, DeltaTable.forPath(spark, str(tmp_path / "counts")).toDF().collect()))
    expected = {i: len(range(i, batches, 5)) for i in range(5)} | {100 + number: 1 for number in range(batches)}
    assert counts == expected


def killed_after(folder: Path, batches: int | None, delay: float) -> bool:
    """Runs the stream and kills it some time after so many batches; gives whether it was still running."""
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    running = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    if batches is None:
        _, errors = running.communicate(timeout=300)
        assert running.returncode == 0, errors
        return False
    for _ in range(batches):
        running.stdout.readline()
    waited = threading.Event()
    waited.wait(delay)
    was_running = running.poll() is None
    # Spark's JVM is in the session of its own, too.
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    return was_running
