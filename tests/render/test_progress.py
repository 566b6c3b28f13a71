from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from dataclasses import replace
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import IPython
import IPython.display
import pytest
from rich.console import Console

from deltamerge.render.progress import NotebookProgress, TerminalProgress, show_progress
from deltamerge.render.running_step import RunningStep
from deltamerge.render.spark_tasks import SparkTasks, watch_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_without_a_terminal_each_step_is_a_line() -> None:
    file = io.StringIO()
    with TerminalProgress(console=Console(file=file, width=80)) as progress:
        progress.step("resolve", "resolving the statement")
        progress.step("write_all_changes", "rewriting [3] files")
    lines = file.getvalue().splitlines()
    assert [re.sub(r"^ +\d+\.\d+ s  ", "", line) for line in lines] == [
        "resolving the statement",
        "rewriting [3] files",
    ]


def test_on_a_terminal_the_running_step_is_shown_and_gone_at_the_end() -> None:
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, legacy_windows=False)
    with TerminalProgress(console=console) as progress:
        progress.step("resolve", "resolving the statement")
    shown = file.getvalue()
    assert "resolving the statement" in shown
    # The last thing it does is to erase its line.
    assert shown.rstrip().endswith("\x1b[2K")


def test_an_error_ends_the_display() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with pytest.raises(ValueError, match="boom"), TerminalProgress(console=console) as progress:
        progress.step("resolve", "resolving")
        raise ValueError("boom")
    # rich refuses a second live display while one runs.
    with TerminalProgress(console=console) as progress:
        progress.step("resolve", "resolving")


def test_a_session_that_answers_with_errors_is_no_matter() -> None:
    class Stopped:
        @property
        def sparkContext(self) -> object:  # noqa: N802
            raise RuntimeError("the session was stopped")

    with TerminalProgress(Stopped(), console=Console(file=io.StringIO())) as progress:  # type: ignore[arg-type]
        progress.step("resolve", "resolving")


def test_what_is_done_and_what_is_left() -> None:
    step = RunningStep("scanning", merge_began=0.0, began=2.0, files=20, size=350_000_000)
    assert step.amount() == "20 files, 350 MB"
    assert (step.left(12.0), step.work()) == ("", "")
    by_tasks = replace(step, tasks=SparkTasks(stages=1, done=3, tasks=12))
    assert by_tasks.amount() == "about 5 of 20 files, 88 MB of 350 MB"
    assert (by_tasks.took(12.0), by_tasks.so_far(12.0)) == ("10.0 s", "(12.0 s so far)")
    assert by_tasks.left(12.0) == "about 30.0 s left"
    assert by_tasks.left(2.5) == ""
    assert by_tasks.work() == "3 of 12 tasks in 1 stage"
    in_driver = replace(by_tasks, done=20, of=20)
    assert in_driver.amount() == "about 20 of 20 files, 350 MB of 350 MB"
    assert in_driver.left(12.0) == ""


def test_the_amount_on_a_terminal() -> None:
    file = io.StringIO()
    console = Console(file=file, width=120, force_terminal=True, legacy_windows=False, color_system=None)
    with TerminalProgress(console=console) as progress:
        progress.measure(1, 2)
        progress.step("write_all_changes", "rewriting 4 files")
        progress.measure(4, 4_000_000)
        progress.advance(1, 4)
        wait_for(lambda: "about 1 of 4 files, 1.0 MB of 4.0 MB" in file.getvalue())


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Cell:
        def update(self, html: Any) -> None:
            shown.append(str(html.data))

    def display(html: Any, *, display_id: bool) -> Cell:
        assert display_id
        return Cell()

    monkeypatch.setattr(IPython.display, "display", display)
    with NotebookProgress() as progress:
        progress.step("write_all_changes", "rewriting <4> files")
        progress.measure(4, 4_000_000)
        progress.advance(1, 4)
        wait_for(lambda: "about 1 of 4 files, 1.0 MB of 4.0 MB" in shown[-1])
    assert "rewriting &lt;4&gt; files" in shown[0]
    assert "width: 25.0%" in shown[-2]
    assert shown[-1] == ""
    assert isinstance(show_progress(), TerminalProgress)
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    assert isinstance(show_progress(), NotebookProgress)


@pytest.mark.sessions
def test_tasks_of_a_session(spark: SparkSession) -> None:
    watch = watch_of(spark)
    assert watch is not None
    watch.start()
    assert watch.read() == SparkTasks(0, 0, 0)
    # Slow enough to be seen: over Connect the server tells every two seconds.
    slow = spark.range(0, 4, 1, 4).selectExpr("java_method('java.lang.Thread', 'sleep', 1200L)")
    job = Thread(target=slow.collect)
    job.start()
    found: SparkTasks | None = None
    while job.is_alive():
        found = watch.read()
        assert found is not None
        if found.done:
            break
        time.sleep(0.1)
    job.join()
    watch.stop()
    assert found is not None
    assert (found.stages, found.tasks) == (1, 4)
