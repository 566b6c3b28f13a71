"""The steps of one merge as they run: timed for the report, passed on to a progress listener."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltamerge.merge.outcome import Progress, StepTiming
from deltamerge.merge.statement import Operation
from deltamerge.spark.session import job_description

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")


class Steps:
    def __init__(self, spark: SparkSession, progress: Progress | None, operation: Operation = "MERGE") -> None:
        self._spark = spark
        self._operation = operation
        self._progress = progress
        self._began = time.monotonic()
        self._timings: list[StepTiming] = []

    @contextmanager
    def step(self, name: str, description: str) -> Iterator[None]:
        """Time a step, which Spark's UI shows as the statement's name, `` operation - `` and the description."""
        self._report(name, description)
        began = time.monotonic()
        try:
            with job_description(self._spark, f"{self._operation} operation - {description}"):
                yield
        finally:
            elapsed = int((time.monotonic() - began) * 1000)
            self._timings.append(StepTiming(name, description, elapsed))

    def _report(self, name: str, description: str) -> None:
        """Call the progress; one that fails, such as on a closed pipe, must not fail the merge."""
        if self._progress is None:
            return
        try:
            self._progress.step(name, description)
        except Exception:
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
