"""A merge's progress on a terminal, while it runs."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from deltamerge.render.units import count, duration

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.25

logger = logging.getLogger("deltamerge.render.TerminalProgress")


@dataclass(frozen=True)
class SparkTasks:
    """The tasks of Spark's running stages."""

    stages: int
    done: int
    tasks: int


@final
class TerminalProgress:
    """Shows the running step of a merge: live on a terminal, as one line a step elsewhere.

    Use it as a context manager and pass it to ``run(progress=...)`` or ``merge_sql(progress=...)``.

    Args:
        spark: The merge's session; of a classic one, the tasks of Spark's running stages are shown too.
        console: Where to; standard error by default.
    """

    def __init__(self, spark: SparkSession | None = None, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._tracker = _status_tracker(spark)
        self._line: _RunningStep | None = None
        self._live: Live | None = None
        self._ended = threading.Event()
        self._began = time.monotonic()

    def __enter__(self) -> TerminalProgress:
        self._began = time.monotonic()
        self._ended.clear()
        if self._console.is_terminal:
            self._live = Live(console=self._console, transient=True, refresh_per_second=8)
            self._live.start()
            if self._tracker is not None:
                watch = threading.Thread(target=self._watch, args=(self._tracker,), daemon=True)
                watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def step(self, name: str, description: str) -> None:
        """Show that a step begins.

        Args:
            name: The step's name, such as ``find_touched_files``.
            description: What it is about to do, such as ``rewriting 3 files``.
        """
        del name  # The description is for people.
        if self._live is not None:
            self._line = _RunningStep(description, self._began, time.monotonic())
            self._live.update(self._line, refresh=True)
        elif not self._console.is_terminal:
            elapsed = duration(round((time.monotonic() - self._began) * 1000))
            self._console.print(Text(f"{elapsed:>8}  {description}"))

    def _watch(self, tracker: StatusTracker) -> None:
        """Ask Spark now and then, until it does not answer."""
        while not self._ended.wait(_POLL_SECONDS):
            tasks = running_tasks(tracker)
            line = self._line
            if tasks is None:
                return
            if line is not None:
                line.tasks = tasks


class _RunningStep:
    """The line of the running step; its times are those of the drawing."""

    def __init__(self, description: str, merge_began: float, began: float) -> None:
        self._description = description
        self._merge_began = merge_began
        self._began = began
        self._spinner = Spinner("dots")
        self.tasks = SparkTasks(0, 0, 0)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        now = time.monotonic()
        took = Text(duration(round((now - self._began) * 1000)), "bold")
        so_far = f"({duration(round((now - self._merge_began) * 1000))} so far)"
        # The first step's time is the whole time.
        total = Text(so_far if self._began - self._merge_began > 0.05 else "", "dim")
        grid = Table.grid(padding=(0, 1))
        grid.add_row(self._spinner, Text(self._description), took, total, Text(_tasks(self.tasks), "blue"))
        yield grid


def _tasks(tasks: SparkTasks) -> str:
    if not tasks.tasks:
        return ""
    return f"{tasks.done:,} of {count(tasks.tasks, 'task')} in {count(tasks.stages, 'stage')}"


def _status_tracker(spark: SparkSession | None) -> StatusTracker | None:
    if spark is None or type(spark).__module__.startswith("pyspark.sql.connect"):
        return None
    try:
        return spark.sparkContext.statusTracker()
    # A platform may refuse it with an error of its own; the progress must not fail the merge.
    except Exception:
        logger.debug("there is no status tracker", exc_info=True)
        return None


def running_tasks(tracker: StatusTracker) -> SparkTasks | None:
    """Return the tasks of Spark's running stages, or None if Spark does not answer."""
    try:
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
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
