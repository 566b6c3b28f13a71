"""The frames that statements return."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltamerge.merge.outcome import MergeOutcome
from deltamerge.spark.session import empty_frame


def nothing(spark: SparkSession) -> DataFrame:
    return empty_frame(spark, StructType([]))


def table(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
    """Return rows as a frame, which may be none."""
    if rows:
        return spark.createDataFrame(list(rows), schema)
    found = StructType.fromDDL(schema)
    assert isinstance(found, StructType)
    return empty_frame(spark, found)


def of_metrics(spark: SparkSession, metrics: Mapping[str, int], names: Iterable[str]) -> DataFrame:
    """Return Delta's metrics of a command in columns with underscores: one row, or none where it did nothing."""
    columns = (re.sub("([A-Z])", r"_\1", name).lower() for name in names)
    return table(spark, [tuple(metrics.values())] if metrics else [], ", ".join(f"{name} BIGINT" for name in columns))


def affected_rows(spark: SparkSession, outcome: MergeOutcome, metric: str) -> DataFrame:
    return table(spark, [(int(outcome.metrics.get(metric, 0)),)], "num_affected_rows BIGINT")
