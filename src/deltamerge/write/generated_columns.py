"""Generated columns: computed from the row's other columns where no value is given (Protocol: Generated Columns)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.spark import columns as F
from deltamerge.sql.conditions import contains_subquery
from deltamerge.sql.current_time import fix_current_time
from deltamerge.sql.names import quote
from deltamerge.sql.stored_expressions import check_stored

GENERATION_EXPRESSION = "delta.generationExpression"


def generation_expression(field: StructField) -> str | None:
    sql = field.metadata.get(GENERATION_EXPRESSION)
    return None if sql is None else str(sql)


def generated_value(field: StructField) -> Column:
    """Return a generated column's value over the table's other columns by name."""
    sql = generation_expression(field)
    assert sql is not None
    return F.expr(check_stored(sql, _place(field))).cast(field.dataType)


def _place(field: StructField) -> str:
    return f"the generation expression of column {field.name}"


def with_generated(frame: DataFrame, schema: StructType, given: Collection[str]) -> DataFrame:
    """Compute the generated columns that are not among `given`, the names of columns whose values stay."""
    missing = {f.name: f for f in schema.fields if generation_expression(f) and f.name not in given}
    if not missing:
        return frame
    return frame.select(
        *(
            (generated_value(missing[name]) if name in missing else F.col(quote(name))).alias(name)
            for name in frame.columns
        )
    )


def check_generation_expressions(spark: SparkSession, schema: StructType) -> None:
    """Refuse generation expressions that a table must not have.

    Raises:
        DeltaAnalysisException: An expression cannot be resolved, is not of its column's type, or is not a function of
            the row's other columns only. Delta: GeneratedColumn.validateGeneratedColumns.
    """
    generated = [f for f in schema.fields if generation_expression(f)]
    if not generated:
        return
    others = spark.createDataFrame([], StructType([f for f in schema.fields if f not in generated]))
    everything = spark.createDataFrame([], schema)
    for field in generated:
        _check(field, others, everything)


def _check(field: StructField, others: DataFrame, everything: DataFrame) -> None:
    sql = str(generation_expression(field))
    if field.metadata.get("CURRENT_DEFAULT") is not None:
        raise DeltaAnalysisException(
            "GENERATED_COLUMN_WITH_DEFAULT_VALUE",
            f"A column cannot have both a default value and a generation expression, but column {field.name} has "
            f"both. Leave one out; its generation expression is {sql}.",
        )
    if contains_subquery(sql):
        raise _unsupported(field, sql, "subquery expressions are not allowed for generated columns")
    if fix_current_time(sql, 0, everything.columns) != sql:
        raise DeltaAnalysisException(
            "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
            f"{sql} cannot be used in a generated column: column {field.name} would have another value each time.",
        )
    data_type = _type_of(field, sql, others, everything)
    if data_type != field.dataType and data_type.simpleString() != field.dataType.simpleString():
        raise DeltaAnalysisException(
            "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH",
            f"The expression type of the generated column {field.name} is {data_type.simpleString().upper()}, but the "
            f"column type is {field.dataType.simpleString().upper()}. Cast the expression: CAST({sql} AS "
            f"{field.dataType.simpleString().upper()}).",
            parameters={"columnName": field.name},
        )
    check_stored(sql, _place(field))


def _type_of(field: StructField, sql: str, others: DataFrame, everything: DataFrame) -> DataType:
    value = F.expr(sql)
    try:
        data_type = others.select(value).schema.fields[0].dataType
    except PySparkException as error:
        if _resolves(lambda: everything.select(value)):
            reason = "generation expression cannot reference another generated column"
            raise _unsupported(field, sql, reason) from None
        raise DeltaAnalysisException(
            error.getCondition() or "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
            f"Cannot resolve the generation expression of column {field.name}, {sql}, over the table's other columns "
            f"({', '.join(others.columns)}). {str(error).splitlines()[0]}",
            sqlstate=error.getSqlState() or "42621",
        ) from None
    # A join takes neither aggregates nor what is random.
    anything = others.select(F.lit(1).alias("other"))
    if not _resolves(lambda: others.join(anything, value.isNull(), "inner")):
        raise _unsupported(field, sql, "generation expression is not deterministic, or it aggregates rows")
    return data_type


def _resolves(frame: Callable[[], DataFrame]) -> bool:
    try:
        # Classic Spark resolves as the frame is made, Connect when its schema is asked for.
        _ = frame().schema
    except PySparkException:
        return False
    return True


def _unsupported(field: StructField, sql: str, reason: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
        f"Cannot create generated column {field.name} with generation expression {sql} because {reason}.",
        parameters={"fieldName": field.name, "expressionStr": sql, "reason": reason},
    )
