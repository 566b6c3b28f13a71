"""Timestamps as users write them, in milliseconds since 1970."""

from __future__ import annotations

import datetime as dt

from pyspark.sql import Column, SparkSession
from pyspark.sql.types import TimestampType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.spark import columns as F


def timestamp_ms(spark: SparkSession, timestamp: str | dt.datetime | dt.date) -> int:
    """Return a timestamp in milliseconds since 1970, rounded down.

    Args:
        spark: The session; its time zone is that of a string without one.
        timestamp: A datetime (one without a time zone is the machine's local time), a date, or a string such as
            ``2024-05-01`` or ``2024-05-01 12:30:00``.
    """
    if isinstance(timestamp, dt.datetime):
        since = timestamp.astimezone(dt.timezone.utc) - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
        return since // dt.timedelta(milliseconds=1)
    return _evaluated(spark, F.lit(str(timestamp)), repr(str(timestamp)))


def expression_ms(spark: SparkSession, sql: str) -> int:
    """Evaluate the SQL after TIMESTAMP AS OF; see `timestamp_ms`."""
    return _evaluated(spark, F.expr(sql), sql)


def _evaluated(spark: SparkSession, value: Column, shown: str) -> int:
    micros = spark.range(1).select(F.unix_micros(value.try_cast(TimestampType()))).collect()[0][0]
    if micros is None:
        raise DeltaAnalysisException(
            "DELTA_TIMESTAMP_INVALID",
            f"The provided timestamp ({shown}) cannot be converted to a valid timestamp.",
            parameters={"expr": shown},
        )
    return int(micros) // 1000
