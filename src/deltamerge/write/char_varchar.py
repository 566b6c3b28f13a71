"""CHAR and VARCHAR: strings in the log, with a length limit in the field's metadata."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import types as T

from deltamerge.exceptions import DeltaRuntimeException
from deltamerge.scan.char_padding import convert_limited
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark import columns as F
from deltamerge.spark.length_limits import LIMITED, ddl, with_limits
from deltamerge.spark.nested_types import contains, with_inner
from deltamerge.spark.row_errors import row_error, row_error_in

_TOO_LONG = "length"


def as_strings(schema: T.StructType) -> T.StructType:
    """Convert CHAR and VARCHAR columns to STRING with the type in the field's metadata, as Spark and Delta store them.

    Spark: CharVarcharUtils.replaceCharVarcharWithStringInSchema.
    """
    return T.StructType([_as_string(field) for field in schema.fields])


def _as_string(field: T.StructField) -> T.StructField:
    metadata = dict(field.metadata)
    if contains(field.dataType, LIMITED):
        metadata[CHAR_VARCHAR_TYPE] = ddl(field.dataType)
    return T.StructField(field.name, _plain(field.dataType), field.nullable, metadata)


def _plain(data_type: T.DataType) -> T.DataType:
    if isinstance(data_type, LIMITED):
        return T.StringType()
    if isinstance(data_type, T.StructType):
        fields = [(f.name, _plain(f.dataType), f.nullable, f.metadata) for f in data_type.fields]
        return T.StructType([T.StructField(*field) for field in fields])
    return with_inner(data_type, data_type, lambda one, *_: _plain(one)) or data_type


def may_become(before: str, after: str) -> bool:
    """Return whether every string of one type is one of another: CHAR, VARCHAR and STRING by their DDL.

    Spark: CheckAnalysis, ALTER COLUMN.
    """
    limited, other = T.DataType.fromDDL(before), T.DataType.fromDDL(after)
    if not isinstance(limited, LIMITED):
        return limited == other
    if isinstance(other, T.VarcharType):
        return limited.length <= other.length
    return limited == other or type(other) is T.StringType


def fitted(value: Column, field: T.StructField) -> Column:
    """Pad a CHAR's value and make Spark raise for one that is too long, at any depth; other columns' values stay.

    Delta: CharVarcharConstraint, for which blanks at the end count.
    """
    return convert_limited(value, with_limits(field), field.name, _fitted)


def _fitted(value: Column, limited: T.CharType | T.VarcharType, path: str) -> Column:
    too_long = row_error(_TOO_LONG, {"column": path, "type": limited.simpleString()}, {"value": value})
    fitting = F.rpad(value, limited.length, " ") if isinstance(limited, T.CharType) else value
    return F.when(F.length(value) <= limited.length, fitting).when(value.isNotNull(), too_long.cast("string"))


def excess_in(message: str) -> DeltaRuntimeException | None:
    """Return the user's error for a value that is too long, from a failed job's message; None for other failures."""
    found = row_error_in(message, _TOO_LONG)
    if found is None:
        return None
    name, data_type, value = found["column"], found["type"], found["value"]
    return DeltaRuntimeException(
        "DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
        f'Value "{value}" exceeds char/varchar type length limitation. Failed '
        f"check: {data_type.upper()} of column {name}. Nothing was written. Shorten the value, or leave the row out; "
        "`upsert` with `quarantine` merges the other rows and writes such ones to a table of their own.",
        parameters={"value": value, "expr": data_type},
    )
