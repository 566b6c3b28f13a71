"""Types within types, and values of any type as JSON that loses nothing of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import Column
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructField, StructType, UserDefinedType

from deltamerge.spark import columns as F
from deltamerge.spark.field_metadata import MetadataOf, no_metadata

# By default Spark writes times to milliseconds, in the session's time zone.
_EXACT = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

_UNCLEAR_KEYS = (BinaryType, StructType, ArrayType)


def inner_types(data_type: DataType) -> list[tuple[str, DataType]]:
    """Return the types directly inside of a type, by field name or ``element``, ``key`` and ``value``."""
    if isinstance(data_type, StructType):
        return [(field.name, field.dataType) for field in data_type.fields]
    if isinstance(data_type, ArrayType):
        return [("element", data_type.elementType)]
    if isinstance(data_type, MapType):
        return [("key", data_type.keyType), ("value", data_type.valueType)]
    return []


def stored_type(data_type: DataType) -> DataType:
    """Return the type of what is stored: of a user-defined type's values, as those of Spark ML, that of their parts."""
    return data_type.sqlType() if isinstance(data_type, UserDefinedType) else data_type


def matching_inner_types(left: DataType, right: DataType) -> list[tuple[str, DataType, DataType]]:
    """Return the element types of two arrays, or the key and value types of two maps; nothing for other types."""
    if not any(isinstance(left, kind) and isinstance(right, kind) for kind in (ArrayType, MapType)):
        return []
    pairs = zip(inner_types(left), inner_types(right), strict=True)
    return [(name, one, other) for (name, one), (_, other) in pairs]


def with_inner(
    data_type: DataType, other: DataType, convert: Callable[[DataType, DataType, str], DataType]
) -> ArrayType | MapType | None:
    """Return two arrays or two maps as one, whose elements, or keys and values, are converted in pairs.

    Args:
        data_type: The one that says whether they may be NULL.
        convert: Is also given ``element``, ``key`` or ``value``.

    Returns:
        None for other types.
    """
    inner = [convert(one, of_other, name) for name, one, of_other in matching_inner_types(data_type, other)]
    if isinstance(data_type, ArrayType) and inner:
        return ArrayType(inner[0], data_type.containsNull)
    if isinstance(data_type, MapType) and inner:
        return MapType(inner[0], inner[1], data_type.valueContainsNull)
    return None


def contains(data_type: DataType, kinds: type[DataType] | tuple[type[DataType], ...]) -> bool:
    return any(isinstance(each, kinds) for each in all_types(data_type))


def all_types(data_type: DataType) -> Iterator[DataType]:
    yield data_type
    for _, inner in inner_types(data_type):
        yield from all_types(inner)


def nullable_type(data_type: DataType, field: Callable[[StructField], StructField]) -> DataType:
    """Return a type with nullable elements and values, whose fields are converted; `field` converts inner types too."""
    if isinstance(data_type, StructType):
        return StructType([field(each) for each in data_type.fields])
    if isinstance(data_type, ArrayType):
        return ArrayType(nullable_type(data_type.elementType, field), True)
    if isinstance(data_type, MapType):
        return MapType(nullable_type(data_type.keyType, field), nullable_type(data_type.valueType, field), True)
    return data_type


def as_nullable(data_type: DataType, metadata: MetadataOf = no_metadata) -> DataType:
    """Return a type as scans yield it: nullable at every depth."""
    return nullable_type(data_type, lambda f: nullable_field(f, metadata))


def nullable_field(field: StructField, metadata: MetadataOf) -> StructField:
    return StructField(field.name, as_nullable(field.dataType, metadata), True, metadata(field))


def exact_json(value: Column, data_type: DataType) -> Column:
    """Return a struct, or another value in one, as JSON that no two different values have, in any session."""
    shown = _with_keys_as_values(value, data_type)
    return F.to_json(shown if isinstance(data_type, StructType) else F.struct(shown.alias("v")), _EXACT)


def _with_keys_as_values(value: Column, data_type: DataType) -> Column:
    """Return a value with entries for maps whose keys Spark's JSON does not tell apart, as those of bytes."""
    if not any(isinstance(each, MapType) and contains(each.keyType, _UNCLEAR_KEYS) for each in all_types(data_type)):
        return value
    if isinstance(data_type, StructType):
        fields = (_with_keys_as_values(value.getField(f.name), f.dataType).alias(f.name) for f in data_type.fields)
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(data_type, ArrayType):
        return F.transform(value, lambda each: _with_keys_as_values(each, data_type.elementType))
    assert isinstance(data_type, MapType)
    if not contains(data_type.keyType, _UNCLEAR_KEYS):
        return F.transform_values(value, lambda _, each: _with_keys_as_values(each, data_type.valueType))
    entry = StructType([StructField("key", data_type.keyType), StructField("value", data_type.valueType)])
    return _with_keys_as_values(F.map_entries(value), ArrayType(entry))
