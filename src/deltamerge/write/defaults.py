"""Defaults of columns that an INSERT leaves out, or that are set to DEFAULT (Protocol: Default Columns)."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.spark import columns as F
from deltamerge.sql.current_time import fix_current_time
from deltamerge.sql.stored_expressions import check_stored

CURRENT_DEFAULT = "CURRENT_DEFAULT"


def default_sql(field: StructField) -> str | None:
    sql = field.metadata.get(CURRENT_DEFAULT)
    return None if sql is None else str(sql)


def column_defaults(schema: StructType, microseconds: int) -> Callable[[int], Column]:
    """Return a function from a column's position in the output schema to its default, NULL where it has none.

    Args:
        microseconds: The current time in all defaults of a statement, microseconds since 1970.
    """

    def default(index: int) -> Column:
        field = schema.fields[index]
        sql = default_sql(field)
        if sql is None:
            return F.lit(None).cast(field.dataType)
        value = F.expr(check_stored(fix_current_time(sql, microseconds, ()), f"the default of column {field.name}"))
        return value.cast(field.dataType)

    return default


def check_defaults(spark: SparkSession, schema: StructType) -> None:
    """Refuse defaults that Spark cannot resolve or store in their columns; runs a job for each.

    Raises:
        DeltaAnalysisException: INVALID_DEFAULT_VALUE.UNRESOLVED_EXPRESSION or INVALID_DEFAULT_VALUE.DATA_TYPE.
    """
    for field in schema.fields:
        sql = default_sql(field)
        if sql is not None:
            _check_default(spark, field, sql)


def _check_default(spark: SparkSession, field: StructField, sql: str) -> None:
    value = F.expr(check_stored(sql, f"the default of column {field.name}"))
    try:
        frame = spark.sql("SELECT 1").select(value.alias("value"))
        given = frame.schema.fields[0].dataType
    except AnalysisException as error:
        raise _invalid("UNRESOLVED_EXPRESSION", field, sql, "cannot be resolved") from error
    wanted = field.dataType
    what = f"is of type {given.simpleString().upper()} and cannot be stored as {wanted.simpleString().upper()}"
    if isinstance(given, StringType) and not isinstance(wanted, StringType):
        raise _invalid("DATA_TYPE", field, sql, what)
    try:
        fits = F.col("value").isNull() | F.col("value").try_cast(wanted).isNotNull()
        is_fit = all(row[0] for row in frame.select(fits).collect())
    except AnalysisException as error:
        raise _invalid("DATA_TYPE", field, sql, what) from error
    if not is_fit:
        raise _invalid("DATA_TYPE", field, sql, what)


def _invalid(kind: str, field: StructField, sql: str, what: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        f"INVALID_DEFAULT_VALUE.{kind}",
        f"The default {sql} of column `{field.name}` {what}.",
        parameters={"colName": field.name, "defaultValue": sql},
    )
