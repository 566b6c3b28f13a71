"""Streams: a batch is merged once, whatever becomes of the process."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from deltamerge import DeltaTable, write_delta
from deltamerge.api.report import MergeReport
from deltamerge.exceptions import DeltaIllegalArgumentException
from deltamerge.streaming import upsert_into

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KILLS = int(os.environ.get("DELTAMERGE_STREAM_KILLS", "1"))
PROGRAM = Path(__file__).with_name("counting_stream.py")


def test_a_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.createDataFrame([(1, 1)], "id INT, n INT"), path)
    source = spark.createDataFrame([(1, 10), (2, 20)], "id INT, n INT")
    reports: list[MergeReport] = []
    merge = upsert_into(path, "id", update={"n": "t.n + s.n"}, app_id="counts", on_report=reports.append)
    for number in (0, 0, 1, 0):
        merge(source, number)
    assert sorted(tuple(row) for row in DeltaTable.forPath(spark, path).toDF().collect()) == [(1, 21), (2, 40)]
    with pytest.raises(DeltaIllegalArgumentException, match="Give upsert_into an `app_id`"):
        upsert_into(path, "id")(source, 0)
    # A batch that the table has already has the same metrics, all of them zero.
    assert [report.version is None for report in reports] == [False, True, False, True]
    assert reports[0].metrics.keys() == reports[1].metrics.keys()
    assert set(reports[1].metrics.values()) == {0}


def stream_into(spark: SparkSession, folder: Path, merge: Callable[[DataFrame, int], None]) -> None:
    """Runs a query over the files that arrived, from its checkpoint; raises what its function raised."""
    frame = spark.readStream.schema("id INT, n INT").json(str(folder / "arriving"))
    writer = frame.writeStream.foreachBatch(merge).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_two_merges_of_a_batch_into_one_table(spark: SparkSession, tmp_path: Path) -> None:
    path, other = str(tmp_path / "t"), str(tmp_path / "u")
    for place in (path, other):
        write_delta(spark.createDataFrame([(1, 0), (2, 0)], "id INT, n INT"), place)
    spark.createDataFrame([(1, 1), (2, 1)], "id INT, n INT").write.json(str(tmp_path / "arriving"))
    counts: dict[str, Any] = {"update": {"n": "t.n + s.n"}}

    def both(second: str | None) -> Callable[[DataFrame, int], None]:
        def merge(batch: DataFrame, number: int) -> None:
            upsert_into(path, "id", **counts)(batch.where("id = 1"), number)
            upsert_into(other, "id", **counts)(batch, number)
            upsert_into(path, "id", app_id=second, **counts)(batch.where("id = 2"), number)

        return merge

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="`app_id` of its own"):
            stream_into(spark, tmp_path, both(None))
    # The batch is run again, and each merge is done once.
    stream_into(spark, tmp_path, both("second"))
    for place in (path, other):
        found = DeltaTable.forPath(spark, place).toDF().collect()
        assert sorted(tuple(row) for row in found) == [(1, 1), (2, 1)]


@pytest.mark.slow
def test_killed_and_started_again(spark: SparkSession, tmp_path: Path) -> None:
    write_delta(spark.createDataFrame([], "id INT, n INT"), str(tmp_path / "counts"))
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    batches = 4 + 3 * KILLS
    for number in range(batches):
        rows = [{"id": number % 5, "n": 1}, {"id": 100 + number, "n": 1}]
        (arriving / f"{number:04}.json").write_text("\n".join(map(json.dumps, rows)))
    chosen = random.Random(7)
    killed, waiting = 0, started(tmp_path)
    for _ in range(KILLS):
        # The next one starts meanwhile, which takes longer than a batch.
        running, waiting = waiting, started(tmp_path)
        killed += killed_after(running, chosen.randint(1, 4), chosen.uniform(0, 0.4))
    assert killed == KILLS, "the stream was killed before its end"
    _, errors = waiting.communicate("\n", timeout=300)
    assert waiting.returncode == 0, errors
    counts = dict(map(tuple, DeltaTable.forPath(spark, str(tmp_path / "counts")).toDF().collect()))
    expected = {i: len(range(i, batches, 5)) for i in range(5)} | {100 + number: 1 for number in range(batches)}
    assert counts == expected


def started(folder: Path) -> subprocess.Popen[str]:
    """Starts Spark for the stream, which begins when it is given a line."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder)],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def killed_after(running: subprocess.Popen[str], lines: int, delay: float) -> bool:
    """Lets the stream begin and kills it some time after so many lines; gives whether it was still running."""
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write("\n")
    running.stdin.flush()
    for _ in range(lines):
        running.stdout.readline()
    time.sleep(delay)
    was_running = running.poll() is None
    # Spark's JVM is in the session of its own, too.
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    return was_running
