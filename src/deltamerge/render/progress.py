"""A merge's progress while it runs, on a terminal and in a notebook."""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from deltamerge.render.html import progress_html
from deltamerge.render.printable import duration
from deltamerge.render.running_step import RunningStep
from deltamerge.render.spark_tasks import TaskWatch, watch_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Self

_POLL_SECONDS = 0.25


def show_progress(spark: SparkSession | None = None) -> TerminalProgress | NotebookProgress:
    """Return what shows the progress of merges here: in the notebook if this is one, else on the terminal.

    Use it as a context manager and pass it to ``run(progress=...)`` or ``merge_sql(progress=...)``.

    Args:
        spark: The merge's session, whose tasks say how much of a step is done.

    Returns:
        The progress.
    """
    return NotebookProgress(spark) if _is_notebook() else TerminalProgress(spark)


def _is_notebook() -> bool:
    """Return whether a kernel with rich output runs this; the IPython of a terminal has none."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and getattr(shell, "kernel", None) is not None


class _LiveProgress(ABC):
    """Keeps the running step, and asks Spark now and then what its tasks have done."""

    def __init__(self, spark: SparkSession | None) -> None:
        self._tasks: TaskWatch | None = watch_of(spark)
        self._step: RunningStep | None = None
        self._changing = threading.Lock()
        self._ended = threading.Event()
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._ended.clear()
        if self._open():
            if self._tasks is not None:
                self._tasks.reset()
                self._tasks.start()
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_open:
            self._ended.set()
            if self._tasks is not None:
                self._tasks.stop()
            self._close()

    def step(self, name: str, description: str) -> None:
        """Show that a step begins.

        Args:
            name: The step's name, such as ``find_touched_files``.
            description: What it is about to do, such as ``rewriting 3 files``.
        """
        del name  # The description is for people.
        if self._tasks is not None:
            self._tasks.reset()
        with self._changing:
            self._step = RunningStep(description, self._began, time.monotonic())
        self._begin_step(self._step)

    def measure(self, files: int, size: int) -> None:
        """Show how much the step has to go through.

        Args:
            files: How many files of the table.
            size: Their bytes.
        """
        self._change(files=files, size=size)

    def advance(self, done: int, of: int) -> None:
        """Show how much of the step's work in the driver is done.

        Args:
            done: How many parts are done.
            of: How many there are.
        """
        self._change(done=done, of=of)

    def _change(self, **changes: Any) -> None:  # noqa: ANN401
        with self._changing:
            if self._step is not None:
                self._step = replace(self._step, **changes)

    def _watch(self) -> None:
        """Draw the step, with Spark's tasks until Spark does not answer."""
        tasks = self._tasks
        while not self._ended.wait(_POLL_SECONDS):
            counted = tasks.read() if tasks is not None else None
            if counted is None:
                tasks = None
            else:
                self._change(tasks=counted)
            if self._step is not None:
                self._draw(self._step)

    @property
    @abstractmethod
    def _is_open(self) -> bool: ...

    @abstractmethod
    def _open(self) -> bool:
        """Begin to draw, and return whether steps are drawn while they run."""

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _begin_step(self, step: RunningStep) -> None: ...

    @abstractmethod
    def _draw(self, step: RunningStep) -> None: ...


@final
class TerminalProgress(_LiveProgress):
    """Shows the running step of a merge: live on a terminal, as one line a step elsewhere.

    Use it as a context manager and pass it to ``run(progress=...)`` or ``merge_sql(progress=...)``.

    Args:
        spark: The merge's session, whose tasks say how much of a step is done.
        console: Where to; standard error by default.
    """

    def __init__(self, spark: SparkSession | None = None, console: Console | None = None) -> None:
        super().__init__(spark)
        self._console = console or Console(stderr=True)
        self._live: Live | None = None
        self._spinner = Spinner("dots")

    @property
    def _is_open(self) -> bool:
        return self._live is not None

    def _open(self) -> bool:
        if self._console.is_terminal:
            self._live = Live(console=self._console, transient=True, refresh_per_second=8)
            self._live.start()
        return self._is_open

    def _close(self) -> None:
        assert self._live is not None
        self._live.stop()
        self._live = None

    def _begin_step(self, step: RunningStep) -> None:
        if self._live is not None:
            self._live.update(_Line(step, self._spinner), refresh=True)
        elif not self._console.is_terminal:
            elapsed = duration(round((step.began - step.merge_began) * 1000))
            self._console.print(Text(f"{elapsed:>8}  {step.description}"))

    def _draw(self, step: RunningStep) -> None:
        if (live := self._live) is not None:
            live.update(_Line(step, self._spinner))


class _Line:
    """The lines of a step; its times are those of the drawing."""

    def __init__(self, step: RunningStep, spinner: Spinner) -> None:
        self._step = step
        self._spinner = spinner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        now, step = time.monotonic(), self._step
        line = Table.grid(padding=(0, 1))
        line.add_row(self._spinner, Text(step.description), Text(step.took(now), "bold"), Text(step.so_far(now), "dim"))
        yield line
        parts = step.details(now)
        if parts:
            yield Text("  " + "; ".join(parts), "dim")


@final
class NotebookProgress(_LiveProgress):
    """Shows the running step of a merge below a notebook's cell, and nothing once the merge has ended.

    Use it as a context manager and pass it to ``run(progress=...)`` or ``merge_sql(progress=...)``.

    Args:
        spark: The merge's session, whose tasks say how much of a step is done.

    Raises:
        ImportError: There is no IPython, as outside of notebooks.
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        # Notebooks have it; nobody else needs it.
        from IPython.display import HTML, display  # noqa: PLC0415

        super().__init__(spark)
        self._display: Any = display
        self._html: Any = HTML
        self._shown: Any = None

    @property
    def _is_open(self) -> bool:
        return self._shown is not None

    def _open(self) -> bool:
        self._shown = self._display(self._html(""), display_id=True)
        return True

    def _close(self) -> None:
        self._shown.update(self._html(""))
        self._shown = None

    def _begin_step(self, step: RunningStep) -> None:
        self._draw(step)

    def _draw(self, step: RunningStep) -> None:
        if (shown := self._shown) is not None:
            shown.update(self._html(progress_html(step, time.monotonic())))
