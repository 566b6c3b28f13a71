"""Length limits of CHAR and VARCHAR: of a whole column in its metadata, as Spark stores them, or beside each field."""

from __future__ import annotations

from pyspark.sql import types as T

from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark.limited_types import limited_type
from deltamerge.spark.nested_types import contains, inner_types, with_inner
from deltamerge.sql.names import shown_name

LIMITED = (T.CharType, T.VarcharType)


def with_limits(field: T.StructField) -> T.DataType:
    """Return a column's type with CHAR and VARCHAR where its metadata has limits, also those beside its fields."""
    return _whole(field, field.dataType)


def spread_limits(schema: T.StructType) -> T.StructType:
    """Return a schema in which limits are beside the fields that have them, as delta-spark's ALTER TABLE adds one.

    Fields can then be dropped, renamed and added.
    """
    return T.StructType([_spread(field, with_limits(field)) for field in schema.fields])


def gathered_limits(schema: T.StructType) -> T.StructType:
    """Return a schema in which limits beside fields are in the column's metadata."""
    return T.StructType([_gathered(field) if _has_limits(field.dataType) else field for field in schema.fields])


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


def _whole(field: T.StructField, known: T.DataType) -> T.DataType:
    """Return a field's type with its limits.

    Args:
        known: The same by the metadata of the column that it is in.
    """
    limited = limited_type(field)
    return _with_fields(field.dataType, known if limited is None else _applied(limited, field.dataType))


def _with_fields(actual: T.DataType, known: T.DataType) -> T.DataType:
    if isinstance(actual, T.StructType) and isinstance(known, T.StructType):
        pairs = zip(actual.fields, known.fields, strict=True)
        return T.StructType([T.StructField(field.name, _whole(field, other.dataType)) for field, other in pairs])
    return with_inner(actual, known, lambda one, other, _: _with_fields(one, other)) or known


def _applied(limited: T.DataType, actual: T.DataType) -> T.DataType:
    """Return a type with the limits of another, which other writers leave as it is where they change fields."""
    if isinstance(limited, LIMITED) and isinstance(actual, T.StringType):
        return limited
    if isinstance(limited, T.StructType) and isinstance(actual, T.StructType):
        by_name = {field.name: field.dataType for field in limited.fields}
        is_as_long = len(limited.fields) == len(actual.fields)
        places = [field.dataType for field in (limited if is_as_long else actual).fields]
        pairs = zip(actual.fields, places, strict=True)
        kinds = [(field, by_name.get(field.name, other)) for field, other in pairs]
        return T.StructType([T.StructField(field.name, _applied(kind, field.dataType)) for field, kind in kinds])
    return with_inner(actual, limited, lambda one, other, _: _applied(other, one)) or actual


def _spread(field: T.StructField, whole: T.DataType) -> T.StructField:
    own, metadata = _own(whole, field.dataType), _without_limit(field)
    if contains(own, LIMITED):
        metadata[CHAR_VARCHAR_TYPE] = ddl(own)
    return T.StructField(field.name, _with_spread(field.dataType, whole), field.nullable, metadata)


def _own(whole: T.DataType, actual: T.DataType) -> T.DataType:
    """Return a type with the limits that no field of a struct within has."""
    own = with_inner(actual, whole, lambda one, other, _: _own(other, one))
    return own or (actual if isinstance(whole, T.StructType) else whole)


def _with_spread(actual: T.DataType, whole: T.DataType) -> T.DataType:
    if isinstance(actual, T.StructType) and isinstance(whole, T.StructType):
        pairs = zip(actual.fields, whole.fields, strict=True)
        return T.StructType([_spread(field, other.dataType) for field, other in pairs])
    return with_inner(actual, whole, lambda one, other, _: _with_spread(one, other)) or actual


def _has_limits(data_type: T.DataType) -> bool:
    """Return whether a type has limits beside fields."""
    if isinstance(data_type, T.StructType):
        return any(CHAR_VARCHAR_TYPE in field.metadata or _has_limits(field.dataType) for field in data_type.fields)
    return any(_has_limits(inner) for _, inner in inner_types(data_type))


def _gathered(field: T.StructField) -> T.StructField:
    metadata = {**_without_limit(field), CHAR_VARCHAR_TYPE: ddl(with_limits(field))}
    return T.StructField(field.name, _without_limits(field.dataType), field.nullable, metadata)


def _without_limits(data_type: T.DataType) -> T.DataType:
    if isinstance(data_type, T.StructType):
        fields = [(f.name, _without_limits(f.dataType), f.nullable, _without_limit(f)) for f in data_type.fields]
        return T.StructType([T.StructField(*field) for field in fields])
    return with_inner(data_type, data_type, lambda one, *_: _without_limits(one)) or data_type


def _without_limit(field: T.StructField) -> dict[str, object]:
    return {key: value for key, value in field.metadata.items() if key != CHAR_VARCHAR_TYPE}
