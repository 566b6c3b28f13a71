"""Errors for people, and the exit codes for scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from pyspark.errors import AnalysisException, ParseException, PySparkException
from rich.console import Console
from rich.text import Text

from deltamerge.exceptions import (
    CommitStateUnknownException,
    DeltaConcurrentModificationException,
    DeltaError,
    DeltaRuntimeException,
    DeltaTableException,
)
from deltamerge.render.printable import printable

_AFTER_THE_SENTENCE = re.compile(r"\s*SQLSTATE: |;?\n+(?:\tat |JVM stacktrace:|== |\+- |'|Caused by:)")


class ExitCode(IntEnum):
    DONE = 0
    UNEXPECTED = 1
    WRONG_COMMAND = 2
    """The command line, the statement or the source is wrong: correct it."""
    WRONG_TABLE = 3
    """There is no table, or it cannot be used."""
    WRONG_DATA = 4
    """The data makes the merge fail; the table is as it was."""
    CONFLICT = 5
    """Another writer was first: run the merge again."""
    UNKNOWN = 6
    """The store did not confirm the commit: look before a retry."""


class CommandError(Exception):
    """The command line is wrong; the message has the reason and what to do."""


_CODES: tuple[tuple[tuple[type[Exception], ...], ExitCode], ...] = (
    ((DeltaTableException,), ExitCode.WRONG_TABLE),
    ((DeltaRuntimeException,), ExitCode.WRONG_DATA),
    ((DeltaConcurrentModificationException,), ExitCode.CONFLICT),
    ((CommitStateUnknownException,), ExitCode.UNKNOWN),
    (
        (CommandError, AnalysisException, ParseException, ValueError, FileNotFoundError),
        ExitCode.WRONG_COMMAND,
    ),
)
"""The first that fits: a table's error may be an AnalysisException too."""

_JAVA = (
    "Spark did not start. It needs Java 17 or newer: is JAVA_HOME set, or `java` on the PATH? "
    "What Spark printed is above."
)


@contextmanager
def explained(console: Console) -> Iterator[None]:
    """Print an error as a sentence and end the process with its exit code."""
    try:
        yield
    except KeyboardInterrupt:
        console.print(Text("Interrupted."))
        raise SystemExit(130) from None
    except Exception as error:
        # The last edge: a person reads a sentence, not a traceback.
        # A caret below a statement's line keeps its place only if no line is broken.
        whole_lines = isinstance(error, ParseException) or not console.is_terminal
        console.print(Text.assemble(("Error: ", "bold red"), printable(_message(error))), soft_wrap=whole_lines)
        where = _class_and_state(error)
        if where:
            console.print(Text(printable(where), "dim"))
        raise SystemExit(int(exit_code(error))) from error


def exit_code(error: Exception) -> ExitCode:
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), ExitCode.UNEXPECTED)


def _message(error: Exception) -> str:
    if isinstance(error, DeltaError):
        return error.message.rstrip()
    if isinstance(error, PySparkException):
        return _sentence(error)
    if isinstance(error, (CommandError, ValueError, OSError)):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _class_and_state(error: Exception) -> str:
    if not isinstance(error, PySparkException):
        return ""
    condition, state = error.getCondition(), error.getSqlState()
    return " ".join(part for part in (condition or "", f"(SQLSTATE {state})" if state else "") if part)


def _sentence(error: PySparkException) -> str:
    """Return Spark's message without its class and state, the query plan and the JVM's stack trace."""
    condition = error.getCondition()
    if condition == "JAVA_GATEWAY_EXITED":
        return _JAVA
    sentence = _AFTER_THE_SENTENCE.split(str(error), maxsplit=1)[0].strip()
    return sentence.removeprefix(f"[{condition}] ") or type(error).__name__
