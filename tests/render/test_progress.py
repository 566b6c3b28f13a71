from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from deltamerge.render.progress import TerminalProgress, running_tasks

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


def test_tasks_of_an_idle_session(spark: SparkSession) -> None:
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        assert TerminalProgress(spark)._tracker is None
        return
    tasks = running_tasks(spark.sparkContext.statusTracker())
    assert tasks is not None
    assert (tasks.stages, tasks.tasks) == (0, 0)
