from __future__ import annotations

import io

import pytest
from pyspark.errors import AnalysisException
from rich.console import Console

from deltamerge.cli.failures import CommandError, ExitCode, exit_code, explained
from deltamerge.exceptions import (
    CommitStateUnknownException,
    ConcurrentAppendException,
    DeltaAnalysisException,
    DeltaError,
    DeltaParseException,
    DeltaTableNotFoundException,
    InvariantViolationException,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DeltaAnalysisException("A", "m"), ExitCode.WRONG_COMMAND),
        (DeltaParseException("A", "m"), ExitCode.WRONG_COMMAND),
        (CommandError("m"), ExitCode.WRONG_COMMAND),
        (DeltaTableNotFoundException("A", "m"), ExitCode.WRONG_TABLE),
        (InvariantViolationException("A", "m"), ExitCode.WRONG_DATA),
        (ConcurrentAppendException("A", "m"), ExitCode.CONFLICT),
        (CommitStateUnknownException("A", "m"), ExitCode.UNKNOWN),
        (DeltaError("A", "m"), ExitCode.UNEXPECTED),
        (KeyError("m"), ExitCode.UNEXPECTED),
    ],
)
def test_exit_codes(error: Exception, code: ExitCode) -> None:
    assert exit_code(error) == code


def said(error: BaseException, width: int = 80) -> str:
    file = io.StringIO()
    with pytest.raises(SystemExit), explained(Console(file=file, width=width)):
        raise error
    return file.getvalue()


def test_an_error_of_ours() -> None:
    assert said(DeltaAnalysisException("DELTA_X", "Wrong [bold]thing[/bold].", sqlstate="42000")) == (
        "Error: Wrong [bold]thing[/bold].\nDELTA_X (SQLSTATE 42000)\n"
    )


def test_no_line_of_ours_is_broken_in_a_file() -> None:
    line = "word " * 40
    assert line.strip() in said(DeltaAnalysisException("DELTA_X", line))


def test_an_error_of_sparks_is_its_sentence() -> None:
    text = (
        "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03;\n'Project [*]\n+- 'Relation\n\n"
        "JVM stacktrace:\norg.apache.spark.X\n\tat a.b.C(D.scala:1)"
    )
    assert "Project" not in said(AnalysisException(text))
    assert "stacktrace" not in said(AnalysisException(text))
    assert "Path does not exist: file:/x." in said(AnalysisException(text))


def test_a_bug_says_its_kind() -> None:
    assert said(KeyError("x")) == "Error: KeyError: 'x'\n"


def test_an_interrupt() -> None:
    assert said(KeyboardInterrupt()) == "Interrupted.\n"
