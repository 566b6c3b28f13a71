"""Writing where a file cannot be created atomically: only where the user says that there is no other writer."""

from __future__ import annotations

from collections.abc import Mapping

from deltamerge.exceptions import DeltaTableException

SINGLE_WRITER = "single_writer"
"""The option that says so."""


def has_single_writer(options: Mapping[str, object]) -> bool:
    """Return whether a table's options say that nobody else writes into it."""
    return str(options.get(SINGLE_WRITER, "false")).lower() == "true"


def not_atomic(why: str, root: str) -> DeltaTableException:
    """Return the error of a write that two writers might both take for theirs."""
    return DeltaTableException(
        "DELTA_UNSUPPORTED_ATOMIC_WRITE",
        f"Nothing was written: {why}, so that two writers could both commit the same version. If nobody else ever "
        f"writes into the table, set the option {SINGLE_WRITER}=true where you open it.",
        parameters={"path": root},
    )
