"""Whose Delta tables are in a session: this library's, or a JAR's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.register import registered_on_demand
from deltamerge.api.save_frame import find_table
from deltamerge.spark.data_source import drop_missing_catalog, has_source_of_jar, is_default_source
from deltamerge.spark.session import SPARK_ERRORS, effective_value, session_identity

_Answer = TypeVar("_Answer")
_TIME_ZONE = "spark.sql.session.timeZone"
# Set where this library takes the place of a JAR's source, too: by `install_in_pyspark`.
REPLACES_JARS = threading.Event()
HAS_JAR: dict[str, bool] = {}
# The time zone that each session had when its source was registered.
REGISTERED: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()


def is_served(spark: SparkSession) -> bool:
    """Return whether Delta tables of a session are this library's: where a JAR has them, only if all were asked for."""
    # Each batch of a stream has a Python object of its own for its session.
    identity = session_identity(spark)
    if identity not in HAS_JAR:
        drop_missing_catalog(spark)
        HAS_JAR[identity] = not REPLACES_JARS.is_set() and has_source_of_jar(spark)
    return REPLACES_JARS.is_set() or not HAS_JAR[identity]


def register_once(spark: SparkSession) -> None:
    if spark not in REGISTERED or REGISTERED[spark] != effective_value(spark, _TIME_ZONE):
        register_now(spark)


def register_now(spark: SparkSession) -> None:
    registered_on_demand(spark)
    REGISTERED[spark] = effective_value(spark, _TIME_ZONE)


def with_source(spark: SparkSession, call: Callable[[], _Answer]) -> _Answer:
    """Call Spark, once more with the source where it finds that the session lacks it, as for a stored view."""
    try:
        return call()
    except SPARK_ERRORS as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error) or "delta" not in str(error) or spark in REGISTERED:
            raise
    register_now(spark)
    return call()


def is_delta(spark: SparkSession, source: str) -> bool:
    return (source == "delta" if source else is_default_source(spark)) and is_served(spark)


def table_of(spark: SparkSession, name: str) -> DeltaTable | None:
    return find_table(spark, name) if is_served(spark) else None


def registered(spark: SparkSession) -> None:
    """Note that a session has this library's source, with the settings that it has now."""
    REGISTERED[spark] = effective_value(spark, _TIME_ZONE)
    HAS_JAR[session_identity(spark)] = False
