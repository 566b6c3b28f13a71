"""The little that classic Spark and Spark Connect do differently, behind one door."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from deltamerge.config import MergeConf, read_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READING_MANY_FILES = {
    # Above this number of paths Spark starts a job that lists them, though the log has told all about them.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "2147483647",
    # Footers of INT96 timestamps carry no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def is_connect(spark: SparkSession) -> bool:
    """Tells whether a session is a Spark Connect client."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def merge_conf(spark: SparkSession) -> MergeConf:
    """Reads the settings of a merge from a session."""
    return read_conf(lambda key: conf_value(spark, key))


def conf_value(spark: SparkSession, key: str) -> str | None:
    """Gives a session's value of a key, or None where it has none."""
    value = spark.conf.get(key, None)
    return None if value is None else str(value)


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Sets session settings for a while and puts back what was there.

    Args:
        spark: The session.
        settings: Values by key.
    """
    before = {key: conf_value(spark, key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


@contextmanager
def job_description(spark: SparkSession, description: str) -> Iterator[None]:
    """Names the Spark jobs that start meanwhile, where the session can (classic Spark)."""
    if is_connect(spark):
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(description)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)  # type: ignore[arg-type]


def alias_of(frame: DataFrame) -> str | None:
    """Gives the alias that ``DataFrame.alias`` gave a frame, or None.

    Args:
        frame: A DataFrame of classic Spark or of Spark Connect.
    """
    plan: Any = getattr(frame, "_plan", None)
    if plan is not None:
        alias = getattr(plan, "_alias", None) if type(plan).__name__ == "SubqueryAlias" else None
        return alias if isinstance(alias, str) else None
    with suppress(Exception):
        logical: Any = frame._jdf.queryExecution().logical()
        if logical.nodeName() == "SubqueryAlias":
            return str(logical.alias())
    return None
