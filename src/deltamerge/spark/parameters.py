"""Values of a statement's parameters that only Spark can tell: Columns."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampNTZType

from deltamerge.sql.parameters import literal

# The types that literals of their values have.
_OF_LITERALS = frozenset({"boolean", "int", "double", "string", "binary", "date", "timestamp"})


def parameter_sql(spark: SparkSession, value: object) -> str:
    """Return a parameter's value as SQL.

    Raises:
        AnalysisException: INVALID_SQL_ARG, a Column is neither a literal nor made of literals.
    """
    if not isinstance(value, Column):
        return literal(value)
    frame = spark.sql("SELECT :value", {"value": value})
    ((found,),) = frame.collect()
    return _typed(found, frame.schema.fields[0].dataType)


def _typed(value: Any, kind: DataType) -> str:  # noqa: ANN401
    if value is None:
        return f"CAST(NULL AS {kind.simpleString()})"
    if isinstance(kind, StructType):
        fields = (f"{literal(field.name)}, {_typed(value[i], field.dataType)}" for i, field in enumerate(kind.fields))
        return f"named_struct({', '.join(fields)})"
    if isinstance(kind, ArrayType):
        return f"array({', '.join(_typed(element, kind.elementType) for element in value)})"
    if isinstance(kind, MapType):
        entries = (f"{_typed(key, kind.keyType)}, {_typed(of, kind.valueType)}" for key, of in value.items())
        return f"map({', '.join(entries)})"
    if isinstance(kind, TimestampNTZType):
        return f"TIMESTAMP_NTZ'{value}'"
    name = kind.simpleString()
    return literal(value) if name in _OF_LITERALS else f"CAST({literal(value)} AS {name})"
