"""Types that Spark has and that no Delta table can hold."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VarcharType,
    VariantType,
)

from deltamerge.exceptions import DeltaAnalysisException

_TYPE_CHECK = "spark.databricks.delta.schema.typeCheck.enabled"
_SUPPORTED = (
    NullType,
    BooleanType,
    NumericType,
    CharType,
    VarcharType,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
    VariantType,
)


def check_types(schema: StructType) -> None:
    """Refuse a schema with columns or fields of types that Delta lacks.

    Raises:
        DeltaAnalysisException: DELTA_UNSUPPORTED_DATA_TYPES.
    """
    found = [f"{path}: {data_type.simpleString().upper()}" for path, data_type in _unsupported(schema, "")]
    if found:
        listed = f"[{', '.join(found)}]"
        raise DeltaAnalysisException(
            "DELTA_UNSUPPORTED_DATA_TYPES",
            f"Found columns using unsupported data types: {listed}. Cast them to types that Delta has: intervals and "
            "times to BIGINT or STRING, strings with a collation to STRING COLLATE UTF8_BINARY.",
            sqlstate="0AKDC",
            parameters={"dataTypeList": listed, "config": _TYPE_CHECK},
        )


def _unsupported(data_type: DataType, path: str) -> Iterator[tuple[str, DataType]]:
    """Delta: SchemaUtils.findUnsupportedDataTypes."""
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            yield from _unsupported(field.dataType, f"{path}.{field.name}" if path else field.name)
    elif isinstance(data_type, ArrayType):
        yield from _unsupported(data_type.elementType, f"{path}[]")
    elif isinstance(data_type, MapType):
        yield from _unsupported(data_type.keyType, f"{path}[key]")
        yield from _unsupported(data_type.valueType, f"{path}[value]")
    elif isinstance(data_type, UserDefinedType):
        yield from _unsupported(data_type.sqlType(), path)
    elif not (data_type == StringType() or isinstance(data_type, _SUPPORTED)):
        yield path, data_type
