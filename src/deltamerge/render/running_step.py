"""The step of a merge that runs, in words: how long it has taken, how much of it is done, and the time left."""

from __future__ import annotations

from dataclasses import dataclass

from deltamerge.render.printable import count, duration, size
from deltamerge.render.spark_tasks import NO_TASKS, SparkTasks

# Of a shorter time nobody wants to know what is left, and it would be wrong.
_SECONDS_BEFORE_ESTIMATE = 1.0


@dataclass(frozen=True)
class RunningStep:
    """A step as it runs.

    Args:
        merge_began: When the merge began, as `time.monotonic` returns it.
        began: When the step began.
        files: The table's files that it goes through; 0 where it goes through none.
        size: Their bytes.
        done: How many parts of work in the driver are done.
        of: How many there are; 0 where Spark does the work.
    """

    description: str
    merge_began: float
    began: float
    files: int = 0
    size: int = 0
    done: int = 0
    of: int = 0
    tasks: SparkTasks = NO_TASKS

    @property
    def share(self) -> float | None:
        """How much is done, from 0 to 1, by the parts or tasks that are known; None where none are."""
        done, of = (self.done, self.of) if self.of else (self.tasks.done, self.tasks.tasks)
        return min(1.0, done / of) if of else None

    def took(self, now: float) -> str:
        return _seconds(now - self.began)

    def so_far(self, now: float) -> str:
        """Return the merge's time; empty where it is the step's."""
        return f"({_seconds(now - self.merge_began)} so far)" if self.began - self.merge_began > 0.05 else ""

    def details(self, now: float) -> tuple[str, ...]:
        return tuple(filter(None, (self.amount(), self.left(now), self.work())))

    def amount(self) -> str:
        """Return how much of how many files is done, such as ``about 7 of 20 files, 120 MB of 350 MB``."""
        if not self.files:
            return ""
        if self.share is None:
            return f"{count(self.files, 'file')}, {size(self.size)}"
        files, done = int(self.share * self.files), int(self.share * self.size)
        return f"about {files:,} of {count(self.files, 'file')}, {size(done)} of {size(self.size)}"

    def left(self, now: float) -> str:
        """Return an estimate of the time that the step will take yet; empty where there is none."""
        elapsed = now - self.began
        if not self.share or self.share == 1 or elapsed < _SECONDS_BEFORE_ESTIMATE:
            return ""
        return f"about {_seconds(elapsed * (1 - self.share) / self.share)} left"

    def work(self) -> str:
        tasks = self.tasks
        if not tasks.tasks:
            return ""
        return f"{tasks.done:,} of {count(tasks.tasks, 'task')} in {count(tasks.stages, 'stage')}"


def _seconds(seconds: float) -> str:
    return duration(round(seconds * 1000))
