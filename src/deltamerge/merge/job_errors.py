"""Errors of Spark jobs, worded for the person whose data or cluster is at fault."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from deltamerge.errors import DeltaError, DeltaRuntimeException
from deltamerge.write.constraints import violation_in

_LOST_BLOCK = re.compile(r"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|[Cc]heckpoint block rdd_\d+_\d+ not found")


def is_lost_source(error: BaseException) -> bool:
    """Tells whether a job failed because rows of the materialized source are gone with an executor."""
    return _LOST_BLOCK.search(str(error)) is not None


def translated(error: Exception, table: str) -> Exception:
    """Gives the error a user can act on.

    Args:
        error: What a step of the merge raised.
        table: The table's name.

    Returns:
        A constraint's violation where one is behind it, else the error itself.
    """
    if isinstance(error, DeltaError) or not isinstance(error, PySparkException):
        return error
    return violation_in(str(error), table) or error


def source_failed_repeatedly(attempts: int, error: Exception) -> DeltaRuntimeException:
    """The materialized source was lost each time it was computed."""
    return DeltaRuntimeException(
        "DELTA_MERGE_MATERIALIZE_SOURCE_FAILED_REPEATEDLY",
        f"Keeping the source of the MERGE statement has failed {attempts} times, because executors that held its rows "
        "were lost. The table is as it was. Give executors more memory, or write the source to a table first and merge "
        f"from there. The last failure: {str(error).splitlines()[0]}",
        sqlstate="25000",
    )
