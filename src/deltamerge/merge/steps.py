"""The steps of one merge as they run: timed for the report, passed on to a progress listener."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from deltamerge.log.actions import AddFile
from deltamerge.merge.outcome import MeasuredProgress, Progress, StepTiming
from deltamerge.merge.statement import Operation
from deltamerge.spark.session import job_description

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")


class Steps:
    def __init__(self, spark: SparkSession, progress: Progress | None, operation: Operation = "MERGE") -> None:
        self._spark = spark
        self._operation = operation
        self._progress = progress
        self._began = time.monotonic()
        self._timings: list[StepTiming] = []

    @contextmanager
    def step(self, name: str, description: str, files: Sequence[AddFile] = ()) -> Iterator[None]:
        """Time a step, which Spark's UI shows as the statement's name, `` operation - `` and the description.

        Args:
            files: The table's files that it goes through.
        """
        self._report(lambda progress: progress.step(name, description))
        if files:
            self._measured(lambda progress: progress.measure(len(files), sum(file.size for file in files)))
        began = time.monotonic()
        try:
            with job_description(self._spark, f"{self._operation} operation - {description}"):
                yield
        finally:
            elapsed = int((time.monotonic() - began) * 1000)
            self._timings.append(StepTiming(name, description, elapsed))

    def advance(self, done: int, of: int) -> None:
        self._measured(lambda progress: progress.advance(done, of))

    def _measured(self, call: Callable[[MeasuredProgress], None]) -> None:
        if isinstance(self._progress, MeasuredProgress):
            measured = self._progress
            self._report(lambda _: call(measured))

    def _report(self, call: Callable[[Progress], None]) -> None:
        """Call the progress; one that fails, such as on a closed pipe, must not fail the merge."""
        if self._progress is None:
            return
        try:
            call(self._progress)
        except Exception:
            # The user's own object, or what it prints to, may fail in any way.
            logger.warning("what watches the merge's progress failed; the merge goes on", exc_info=True)
            self._progress = None

    @property
    def timings(self) -> tuple[StepTiming, ...]:
        return tuple(self._timings)

    def milliseconds(self, *names: str) -> int:
        return sum(t.milliseconds for t in self._timings if t.name in names)

    @property
    def elapsed(self) -> int:
        """Milliseconds since the merge began."""
        return int((time.monotonic() - self._began) * 1000)
