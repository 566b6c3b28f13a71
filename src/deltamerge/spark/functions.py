"""Functions of a session that have the names of Spark's own."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.sql import SparkSession

from deltamerge.spark.session import SPARK_ERRORS
from deltamerge.sql.condition_reader import NAMED_OPERATORS

_ORDER = "spark.sql.functionResolution.sessionOrder"
_OWN = "org.apache.spark.sql.catalyst.expressions."
_CALLED = re.compile(rf"\b({'|'.join(NAMED_OPERATORS)})\s*\(", re.IGNORECASE)


def replaced_operators(spark: SparkSession, expressions: Iterable[str]) -> frozenset[str]:
    """Return the operators in expressions whose functions the session has replaced by functions of its own.

    Temporary functions go before Spark's own up to Spark 4.1, and later where a setting says so.
    """
    used = {name.lower() for expression in expressions for name in _CALLED.findall(expression)}
    if not used or _own_functions_first(spark):
        return frozenset()
    return frozenset(NAMED_OPERATORS[name] for name in used if not _is_own(spark, name))


def _own_functions_first(spark: SparkSession) -> bool:
    try:
        return str(spark.conf.get(_ORDER)).lower() != "first"
    except SPARK_ERRORS:
        # A Spark without the setting.
        return False


def _is_own(spark: SparkSession, name: str) -> bool:
    try:
        return str(spark.catalog.getFunction(name).className).startswith(_OWN)
    except SPARK_ERRORS:
        # A session that does not say.
        return False
