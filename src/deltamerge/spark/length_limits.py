"""Length limits of CHAR and VARCHAR: of a whole column in its metadata, as Spark stores them, or beside each field."""

from __future__ import annotations

from pyspark.sql import types as T

from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark.limited_types import limited_type
from deltamerge.spark.nested_types import contains
from deltamerge.sql.names import shown_name

LIMITED = (T.CharType, T.VarcharType)


def spread_limits(schema: T.StructType) -> T.StructType:
    """Return a schema in which the limits of a struct's fields are beside these, as delta-spark's ALTER TABLE adds one.

    Fields can then be dropped, renamed and added.
    """
    return T.StructType([_spread(field) for field in schema.fields])


def gathered_limits(schema: T.StructType) -> T.StructType:
    """Return a schema in which limits beside a struct's fields are in the column's metadata."""
    return T.StructType([_gathered(field) if _has_limits(field.dataType) else field for field in schema.fields])


def limits_of_fields(limited: T.StructType, actual: T.StructType) -> list[T.DataType | None]:
    """Return each field's type in the column's metadata, None where it has none.

    Other writers rename, drop or add a field and leave the metadata as it is.

    Args:
        limited: The struct as the metadata has it, with CHAR and VARCHAR.
    """
    by_name = {f.name: f.dataType for f in limited.fields}
    otherwise: list[T.DataType | None] = [None] * len(actual.fields)
    if len(limited.fields) == len(actual.fields):
        otherwise = [f.dataType for f in limited.fields]
    return [by_name.get(f.name, other) for f, other in zip(actual.fields, otherwise, strict=True)]


def ddl(data_type: T.DataType) -> str:
    """Spell a type as Spark reads it back; PySpark never quotes names."""
    if isinstance(data_type, T.StructType):
        fields = (f"{shown_name((f.name,))}:{ddl(f.dataType)}" for f in data_type.fields)
        return f"struct<{','.join(fields)}>"
    if isinstance(data_type, T.ArrayType):
        return f"array<{ddl(data_type.elementType)}>"
    if isinstance(data_type, T.MapType):
        return f"map<{ddl(data_type.keyType)},{ddl(data_type.valueType)}>"
    return data_type.simpleString()


def _spread(field: T.StructField) -> T.StructField:
    if not isinstance(field.dataType, T.StructType):
        return field
    whole = _with_limits(limited_type(field), field.dataType)
    assert isinstance(whole, T.StructType)
    fields = []
    for inner, kind in zip(field.dataType.fields, (each.dataType for each in whole.fields), strict=True):
        found = {CHAR_VARCHAR_TYPE: ddl(kind)} if contains(kind, LIMITED) else {}
        fields.append(_spread(T.StructField(inner.name, inner.dataType, inner.nullable, {**found, **inner.metadata})))
    return T.StructField(field.name, T.StructType(fields), field.nullable, _without_limit(field))


def _with_limits(limited: T.DataType | None, actual: T.DataType) -> T.DataType:
    if isinstance(limited, LIMITED) and isinstance(actual, T.StringType):
        return limited
    if isinstance(limited, T.ArrayType) and isinstance(actual, T.ArrayType):
        return T.ArrayType(_with_limits(limited.elementType, actual.elementType))
    if isinstance(limited, T.MapType) and isinstance(actual, T.MapType):
        key, value = _with_limits(limited.keyType, actual.keyType), _with_limits(limited.valueType, actual.valueType)
        return T.MapType(key, value)
    if isinstance(limited, T.StructType) and isinstance(actual, T.StructType):
        known = zip(actual.fields, limits_of_fields(limited, actual), strict=True)
        return T.StructType([T.StructField(field.name, _with_limits(kind, field.dataType)) for field, kind in known])
    return actual


def _has_limits(data_type: T.DataType) -> bool:
    """Return whether a struct has limits beside its fields."""
    if not isinstance(data_type, T.StructType):
        return False
    return any(CHAR_VARCHAR_TYPE in field.metadata or _has_limits(field.dataType) for field in data_type.fields)


def _gathered(field: T.StructField) -> T.StructField:
    spread = _spread(field)
    metadata = {**spread.metadata, CHAR_VARCHAR_TYPE: ddl(_limited_type(spread))}
    return T.StructField(field.name, _without_limits(field.dataType), field.nullable, metadata)


def _limited_type(field: T.StructField) -> T.DataType:
    if isinstance(field.dataType, T.StructType):
        return T.StructType([T.StructField(inner.name, _limited_type(inner)) for inner in field.dataType.fields])
    return _with_limits(limited_type(field), field.dataType)


def _without_limits(data_type: T.DataType) -> T.DataType:
    if not isinstance(data_type, T.StructType):
        return data_type
    return T.StructType(
        [T.StructField(f.name, _without_limits(f.dataType), f.nullable, _without_limit(f)) for f in data_type.fields]
    )


def _without_limit(field: T.StructField) -> dict[str, object]:
    return {key: value for key, value in field.metadata.items() if key != CHAR_VARCHAR_TYPE}
