"""Settings of a session that are held for a while."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.spark.session import SPARK_ERRORS, conf_value, is_refusal, session_identity

logger = logging.getLogger("deltamerge.spark.held_settings")

# Where Spark has this check, it refuses to read Parquet in the folder of a Delta table.
_FORMAT_CHECK = "spark.databricks.delta.formatCheck.enabled"

# Other threads of the session see the settings below for as long as they are held. They change how Spark plans, none of
# them what a query returns.
_PLANNING = {
    # What Spark infers of aliases of aliases grows beyond all bounds with the number of columns.
    "spark.sql.constraintPropagation.enabled": "false",
}
_ONE_EVALUATION = {
    # By these Spark notices that the rows of a shuffle that were lost with an executor are others when it computes them
    # again, such as random keys, and runs or fails the job anew instead of mixing both. Spark 4.2 does so by default.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
}
_READING_MANY_FILES = {
    # Above this number of paths Spark starts a job that lists them, though the log names them all.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "2147483647",
}
IN_TASKS = {
    # Of rows below this size (bytes) the optimizer evaluates expressions itself, one row after the other.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
}

_lock = threading.Lock()
# The threads that hold a session's setting, and its value before.
_held: dict[tuple[str, str], tuple[int, str | None]] = {}


def for_reading(spark: SparkSession) -> dict[str, str]:
    # Where another thread holds it, that thread's end would turn it on again.
    is_checked = (conf_value(spark, _FORMAT_CHECK) or "false").lower() != "false" or _is_held(spark, _FORMAT_CHECK)
    return {**_READING_MANY_FILES, _FORMAT_CHECK: "false"} if is_checked else _READING_MANY_FILES


def _is_held(spark: SparkSession, key: str) -> bool:
    with _lock:
        return bool(_held) and (session_identity(spark), key) in _held


def for_merging(spark: SparkSession) -> dict[str, str]:
    return {**for_reading(spark), **_PLANNING, **_ONE_EVALUATION}


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str], *, are_needed: bool = False) -> Iterator[None]:
    """Hold settings of a session, then restore what was there.

    Other threads of the session see them meanwhile: hold only what does not change what their queries return.

    Args:
        are_needed: Whether a setting that the session refuses is an error; else it is left as it is.
    """
    session = session_identity(spark) if settings else ""
    with ExitStack() as held:
        for key, value in settings.items():
            with _lock:
                holders, before = _held.get((session, key), (0, None))
                if not holders and (before := conf_value(spark, key)) == value:
                    continue
                _held[session, key] = (holders + 1, before)
                # From here on it is put back, also where setting it fails or is interrupted.
                held.callback(_release, spark, session, key)
                if not holders and not set_if_allowed(spark, key, value):
                    del _held[session, key]
                    if are_needed:
                        raise _setting_refused(key, value)
        yield


def set_if_allowed(spark: SparkSession, key: str, value: str) -> bool:
    """Set a setting, unless the session refuses that; return whether it is set."""
    try:
        spark.conf.set(key, value)
    except SPARK_ERRORS as error:
        if not is_refusal(error):
            raise
        logger.info("the session refuses to set %s", key)
        return False
    return True


def _setting_refused(key: str, value: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTAMERGE_SETTING_REFUSED",
        f"The session refuses to set {key}, which must be {value} while these files are written. Let whoever runs the "
        "cluster set it.",
        parameters={"key": key},
    )


def _release(spark: SparkSession, session: str, key: str) -> None:
    """Restore a setting, unless another thread holds it, too.

    It may be that the session is gone: what was done meanwhile, such as a commit, is done all the same.
    """
    with _lock:
        holders, before = _held.pop((session, key), (0, None))
        if not holders:
            # The session has refused it.
            return
        if holders > 1:
            _held[session, key] = (holders - 1, before)
            return
        try:
            if before is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, before)
        except Exception:
            # Whatever fails: it must not look like a failure of what was done with the setting.
            logger.warning("the setting %s was not put back to %s", key, before, exc_info=True)
