"""Scans whose NOT NULL columns are not nullable, as those of delta-spark."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType
from pyspark.sql.utils import get_active_spark_context

from deltamerge.spark.session import is_connect


def with_required(frame: DataFrame, names: Collection[str]) -> DataFrame:
    """Return a scan of files with columns that are not nullable; Spark's reader makes all nullable.

    No call of a DataFrame does this, so that over Connect the scan stays as it is.
    """
    spark = frame.sparkSession
    if not names or is_connect(spark):
        return frame
    java: Any = spark._jsparkSession
    scan: Any = frame._jdf.queryExecution().analyzed().relation()
    data, partitions = (_required(spark, found, names) for found in (scan.dataSchema(), scan.partitionSchema()))
    required = scan.copy(
        scan.location(), partitions, data, scan.bucketSpec(), scan.fileFormat(), scan.options(), scan.sparkSession()
    )
    return DataFrame(java.baseRelationToDataFrame(required), spark)


def not_null(value: Column) -> Column:
    """Return a value that is never NULL as one that is not nullable; over Connect it stays as it is."""
    java: Any = getattr(value, "_jc", None)
    if java is None:
        return value
    jvm: Any = get_active_spark_context()._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    known = jvm.org.apache.spark.sql.catalyst.expressions.KnownNotNull(expressions.expression(java))
    return type(value)(expressions.column(known))


def _required(spark: SparkSession, schema: Any, names: Collection[str]) -> Any:  # noqa: ANN401
    found = StructType.fromJson(json.loads(schema.json()))
    fields = [StructField(f.name, f.dataType, f.nullable and f.name not in names, f.metadata) for f in found.fields]
    java: Any = spark._jsparkSession
    return java.parseDataType(StructType(fields).json())
