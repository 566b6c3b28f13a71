"""Spark's ``${key}`` in SQL: the value of a setting or of a variable of the environment."""

from __future__ import annotations

import os
import re

from pyspark.sql import SparkSession

from deltamerge.spark.session import conf_value

_VARIABLE = re.compile(r"\$\{(?:(\w+?):)?(\S+?)\}")
_SETTINGS = frozenset({None, "spark", "sparkconf", "hivevar", "hiveconf"})


def substituted(spark: SparkSession, sql: str) -> str:
    """Return a statement with what its variables stand for; one that stands for nothing stays. Spark: ConfigReader."""
    if "${" not in sql or (conf_value(spark, "spark.sql.variable.substitute") or "true").lower() == "false":
        return sql
    return _substituted(spark, sql, frozenset())


def _substituted(spark: SparkSession, sql: str, within: frozenset[str]) -> str:
    def value(found: re.Match[str]) -> str:
        prefix, key = found.groups()
        if key in within:
            return found.group()
        # A setting that is not there is the empty string.
        setting = (conf_value(spark, key) or "") if prefix in _SETTINGS else None
        value = os.environ.get(key) if prefix == "env" else setting
        return found.group() if value is None else _substituted(spark, value, within | {key})

    return _VARIABLE.sub(value, sql)
