"""What fails after a commit must not look like a merge that failed: whoever runs it again changes the rows twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deltamerge.exceptions import DeltaRuntimeException

_STEP = "looking up what the statement changed"


@contextmanager
def after_commit(version: int, table: str) -> Iterator[None]:
    """Name the version that is committed in the error of looking up what changed.

    Raises:
        DeltaRuntimeException: DELTA_POST_COMMIT_HOOK_FAILED, it failed. Delta: runPostCommitHooks.
    """
    try:
        yield
    except Exception as error:
        # Whatever fails in reading the new version, the user must know that it is there.
        raise DeltaRuntimeException(
            "DELTA_POST_COMMIT_HOOK_FAILED",
            f"Committing to the Delta table {table} succeeded, as version {version}, but {_STEP} failed: {error}. Do "
            "not run the statement again: its changes are in the table.",
            parameters={"version": str(version), "name": _STEP, "tableName": table},
        ) from error
