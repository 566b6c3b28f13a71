"""Points in Spark's Python workers at which a test lets something happen: an executor dies, a task waits.

A test arms a point by a file in a folder (`arm`); the first worker that comes there claims it, so that it happens once.
The module is imported by workers, by the driver of a cluster, and by tests.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

FOLDER = "DELTAMERGE_TEST_FAULTS"
ROWS = 200
PARTITIONS = 4
# What a source row's key is more than its number where it is to match nothing.
NEW = 1_000
SOURCE_SCHEMA = "id INT, n INT, token STRING"
_EVALUATIONS, _ATTEMPTS = "evaluations", "attempts"


def arm(folder: Path, point: str, what: str, times: int = 1) -> None:
    """Lets something happen at a point.

    Args:
        what: ``kill_executor`` (and its workers), ``cut_off`` (the executor dies, and its worker goes on as if nothing
            had happened), ``kill_worker``, or with a number behind a blank ``wait`` (seconds) and ``memory`` (MiB that
            the worker may still take).
        times: How often.
    """
    for number in range(times):
        (folder / f"{point}.{number}").write_text(what)


def reached(folder: Path) -> list[str]:
    """Gives the points at which something has happened."""
    return sorted(path.name.removeprefix("done-").partition(".")[0] for path in folder.glob("done-*"))


def evaluations(folder: Path) -> list[str]:
    """Gives a line for each time that a partition of the source was begun."""
    path = folder / _EVALUATIONS
    return path.read_text().splitlines() if path.exists() else []


def attempts(folder: Path, point: str) -> set[int]:
    """Gives the numbers of the attempts of tasks that came to a point: above 0 where a task ran again."""
    path = folder / _ATTEMPTS
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return {int(attempt) for at, attempt in lines if at == point}


def reset(folder: Path) -> None:
    """Makes a folder as if nothing had been armed."""
    for path in folder.iterdir():
        # A task that still runs may have taken it away.
        path.unlink(missing_ok=True)


def reach(point: str) -> None:
    """Does what is armed at a point."""
    task = TaskContext.get()
    if task is None:
        # The driver must live.
        return
    folder = Path(os.environ[FOLDER])
    with (folder / _ATTEMPTS).open("a") as log:
        log.write(f"{point} {task.attemptNumber()}\n")
    for armed in sorted(folder.glob(f"{point}.*")):
        done = folder / f"done-{armed.name}"
        try:
            armed.rename(done)
        except FileNotFoundError:
            continue
        _do(done.read_text())
        return


def _do(what: str) -> None:
    kind, _, amount = what.partition(" ")
    if kind == "cut_off":
        # The daemon tells its workers by this signal that their executor is gone.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if kind in ("kill_executor", "cut_off"):
        os.kill(_executor(), signal.SIGKILL)
    if kind in ("kill_executor", "kill_worker"):
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "cut_off":
        time.sleep(float(amount or 0))
    if kind == "memory":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = used + (int(amount) << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if kind == "wait":
        time.sleep(float(amount))


def with_points_at_files() -> None:
    """Puts points before and after deltamerge's tasks give a file its name; its code travels with the tasks."""
    from deltamerge.workers.files import Output

    original = Output.__exit__

    def end(output: Output, kind: Any, *rest: Any) -> None:
        point = kind_of(output._path)
        if kind is None:
            reach(f"{point}_before")
        original(output, kind, *rest)
        if kind is None:
            reach(f"{point}_after")

    Output.__exit__ = end  # type: ignore[method-assign]


def kind_of(path: str) -> str:
    """Tells source rows, pairs of rows and data files apart by their names."""
    name = path.rpartition("/")[2]
    if name.endswith(".staged.arrow"):
        return "staged"
    if name.startswith("pairs-"):
        return "pairs"
    return "data" if name.endswith(".parquet") else "other"


def _executor() -> int:
    """The JVM of this worker: its parent is the daemon that Spark forks workers from."""
    return parent_of(os.getppid())


def parent_of(process: int) -> int:
    # The name in parentheses may have blanks.
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def source_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Computes rows of a source that is another one each time, as Spark does not know: a function for ``mapInArrow``.

    Each row matches a row of the target, or none, by chance; all of one evaluation of a partition have one token.
    """
    token = str(uuid.uuid4())
    with Path(os.environ[FOLDER], _EVALUATIONS).open("a") as log:
        log.write(f"{token}\n")
    for batch in batches:
        numbers = batch.column("n").to_pylist()
        keys = [number + random.choice((0, NEW)) for number in numbers]
        half = len(numbers) // 2
        for part in (slice(0, half), slice(half, None)):
            count = len(numbers[part])
            columns = [
                pa.array(keys[part], pa.int32()),
                pa.array(numbers[part], pa.int32()),
                pa.array([token] * count, pa.string()),
            ]
            yield pa.RecordBatch.from_arrays(columns, ["id", "n", "token"])
            reach("source")


def passing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Returns rows as they are: a function for ``mapInArrow``, with a point in each partition."""
    task = TaskContext.get()
    assert task is not None
    for batch in batches:
        yield batch
        reach(f"passed_{task.partitionId()}")


def condition(value: int | None) -> bool:
    """Holds: a function of SQL, with a point."""
    reach("condition")
    return value is None or value >= 0


def value(value: str | None) -> str | None:
    """Returns a value as it is: a function of SQL, with a point."""
    reach("value")
    return value
