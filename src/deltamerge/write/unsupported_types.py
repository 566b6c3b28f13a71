"""Types that Spark has and that no Delta table can hold."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import types as T

from deltamerge.exceptions import DeltaAnalysisException

_TYPE_CHECK = "spark.databricks.delta.schema.typeCheck.enabled"
_SUPPORTED = (
    T.NullType,
    T.BooleanType,
    T.NumericType,
    T.CharType,
    T.VarcharType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.VariantType,
)


def check_types(schema: T.StructType) -> None:
    """Refuse a schema with columns or fields of types that Delta lacks."""
    found = [f"{path}: {data_type.simpleString().upper()}" for path, data_type in _unsupported(schema, "")]
    if found:
        listed = f"[{', '.join(found)}]"
        raise DeltaAnalysisException(
            "DELTA_UNSUPPORTED_DATA_TYPES",
            f"Found columns using unsupported data types: {listed}. Cast them to types that Delta has: intervals and "
            "times to BIGINT or STRING, strings with a collation to STRING COLLATE UTF8_BINARY.",
            parameters={"dataTypeList": listed, "config": _TYPE_CHECK},
        )


def _unsupported(data_type: T.DataType, path: str) -> Iterator[tuple[str, T.DataType]]:
    """Delta: SchemaUtils.findUnsupportedDataTypes."""
    if isinstance(data_type, T.StructType):
        for field in data_type.fields:
            yield from _unsupported(field.dataType, f"{path}.{field.name}" if path else field.name)
    elif isinstance(data_type, T.ArrayType):
        yield from _unsupported(data_type.elementType, f"{path}[]")
    elif isinstance(data_type, T.MapType):
        yield from _unsupported(data_type.keyType, f"{path}[key]")
        yield from _unsupported(data_type.valueType, f"{path}[value]")
    elif isinstance(data_type, T.UserDefinedType):
        yield from _unsupported(data_type.sqlType(), path)
    elif not (data_type == T.StringType() or isinstance(data_type, _SUPPORTED)):
        yield path, data_type
