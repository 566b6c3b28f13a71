"""What Spark's tasks have done since a step of a merge began: polled in a classic session, reported over Connect."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

logger = logging.getLogger("deltamerge.render.progress")


@dataclass(frozen=True)
class SparkTasks:
    """The tasks of the stages that have run or run."""

    stages: int
    done: int
    tasks: int


NO_TASKS = SparkTasks(0, 0, 0)


class TaskWatch(Protocol):
    """Counts the tasks of a session; what other threads of it run is counted, too."""

    def start(self) -> None:
        """Begin to watch."""

    def stop(self) -> None:
        """Leave the session as it was."""

    def reset(self) -> None:
        """Count from zero."""

    def read(self) -> SparkTasks | None:
        """Return the counts, or None if Spark does not answer."""


def watch_of(spark: SparkSession | None) -> TaskWatch | None:
    """Return what counts a session's tasks, or None where nothing does."""
    if spark is None:
        return None
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return _ConnectWatch(spark) if hasattr(spark, "registerProgressHandler") else None
    try:
        return ClassicWatch(spark.sparkContext.statusTracker())
    # A platform may refuse it with an error of its own; the progress must not fail the merge.
    except Exception:
        logger.debug("there is no status tracker", exc_info=True)
        return None


class ClassicWatch:
    """Asks the status tracker."""

    def __init__(self, tracker: StatusTracker) -> None:
        self._tracker = tracker
        self._seen: set[int] = set()

    def start(self) -> None:
        pass

    stop = start

    def reset(self) -> None:
        self._seen = set()

    def read(self) -> SparkTasks | None:
        seen = self._seen
        try:
            seen.update(self._tracker.getActiveStageIds())
            infos = [self._tracker.getStageInfo(stage) for stage in sorted(seen)]
        # A session that was stopped answers with errors of several kinds, and none of them is the merge's.
        except Exception:
            logger.debug("the status tracker failed", exc_info=True)
            return None
        known = [info for info in infos if info is not None]
        return SparkTasks(
            stages=len(known),
            done=sum(info.numCompletedTasks for info in known),
            tasks=sum(info.numTasks for info in known),
        )


class _ConnectWatch:
    """Gets the counts from the client, which reports them while it waits for the server."""

    def __init__(self, spark: Any) -> None:  # noqa: ANN401
        self._spark = spark
        self._stages: dict[tuple[str | None, int], Any] = {}

    def start(self) -> None:
        self._spark.registerProgressHandler(self._reported)

    def stop(self) -> None:
        self._spark.removeProgressHandler(self._reported)

    def reset(self) -> None:
        self._stages = {}

    def read(self) -> SparkTasks | None:
        stages = list(self._stages.values())
        return SparkTasks(
            stages=len(stages),
            done=sum(stage.num_completed_tasks for stage in stages),
            tasks=sum(stage.num_tasks for stage in stages),
        )

    def _reported(
        self,
        stages: Iterable[Any] | None,
        inflight_tasks: int,  # noqa: ARG002
        operation_id: str | None,
        done: bool,  # noqa: ARG002
    ) -> None:
        for stage in stages or ():
            self._stages[operation_id, stage.stage_id] = stage
