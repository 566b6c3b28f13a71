"""What is behind the errors of Spark's jobs."""

from __future__ import annotations

import re

# An error class, its message and its SQLSTATE, wherever they stand in the messages around them.
_SPARK_ERROR = re.compile(
    r"\[([A-Z][A-Z_0-9]+(?:\.[A-Z_0-9]+)?)\] ((?:(?!\[[A-Z][A-Z_]{3,}).)*?) SQLSTATE: (\w{5})", re.DOTALL
)
# Classes that say only where the error came from.
WRAPPERS = ("TASK_WRITE_FAILED", "WRITING_JOB_ABORTED", "FAILED_EXECUTE_UDF", "INTERNAL_ERROR")


def cause_in(message: str) -> tuple[str, str, str] | None:
    """Return the class, message and SQLSTATE of the innermost error that a job's message tells of."""
    found = [m for m in _SPARK_ERROR.findall(message) if not m[0].startswith(WRAPPERS)]
    return found[-1] if found else None
