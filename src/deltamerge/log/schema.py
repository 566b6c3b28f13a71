"""The table's schema: the JSON of `metaData.schemaString`, read and written without Spark.

Source: Delta protocol, "Schema Serialization Format".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from deltamerge.exceptions import DeltaAnalysisException, DeltaLogCorruptException

Fields: TypeAlias = "tuple[StructField, ...]"


@dataclass(frozen=True)
class PrimitiveType:
    """A type without parts, by the name that the JSON has, such as ``long`` or ``decimal(10,2)``."""

    name: str


@dataclass(frozen=True)
class UserDefinedType(PrimitiveType):
    """A type of an application, such as the vectors of Spark ML: `name` is its class, `json` what the log has of it."""

    json: str


@dataclass(frozen=True)
class ArrayType:
    element_type: DataType
    contains_null: bool = True


@dataclass(frozen=True)
class MapType:
    key_type: DataType
    value_type: DataType
    value_contains_null: bool = True


@dataclass(frozen=True)
class StructField:
    """A column or a nested field; `metadata` is the JSON object as the log has it."""

    name: str
    data_type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class StructType:
    fields: tuple[StructField, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.fields)

    def find(self, name: str) -> StructField | None:
        lower = name.lower()
        return next((item for item in self.fields if item.name.lower() == lower), None)

    def walk(self) -> Iterator[tuple[tuple[str, ...], StructField]]:
        """Yield every field, also those nested in structs, arrays and maps, with its path of names."""
        return _walk(self, ())


JsonValue: TypeAlias = Any
DataType: TypeAlias = PrimitiveType | ArrayType | MapType | StructType

# Spark's short names where they differ from the JSON's.
_SIMPLE_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}

_PART_NAMES = frozenset({"element", "key", "value"})

# What walks a schema, here and in PySpark, may call itself a few times for each level.
_MOST_LEVELS = 100
DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_MOST_DIGITS = 38


def lower_case(path: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in path)


def parts(data_type: DataType) -> tuple[tuple[str, DataType], ...]:
    """Return the types that an array or a map is made of, by the names that the protocol has for them in paths."""
    if isinstance(data_type, ArrayType):
        return (("element", data_type.element_type),)
    if isinstance(data_type, MapType):
        return (("key", data_type.key_type), ("value", data_type.value_type))
    return ()


def with_parts(data_type: DataType, change: Callable[[str, DataType], DataType]) -> DataType:
    """Return an array or a map with its `parts` changed; another type as it is."""
    if isinstance(data_type, ArrayType):
        return replace(data_type, element_type=change("element", data_type.element_type))
    if isinstance(data_type, MapType):
        key, value = (change(name, part) for name, part in parts(data_type))
        return replace(data_type, key_type=key, value_type=value)
    return data_type


def with_each_field(
    schema: StructType, change: Callable[[tuple[str, ...], StructField], StructField], above: tuple[str, ...] = ()
) -> StructType:
    """Return a schema with every field changed, outer ones first; paths are of the names before the change."""

    def within(data_type: DataType, path: tuple[str, ...]) -> DataType:
        if isinstance(data_type, StructType):
            return with_each_field(data_type, change, path)
        return with_parts(data_type, lambda name, part: within(part, (*path, name)))

    fields = []
    for item in schema.fields:
        path = (*above, item.name)
        changed = change(path, item)
        fields.append(replace(changed, data_type=within(changed.data_type, path)))
    return StructType(tuple(fields))


def contains_type(data_type: DataType, name: str) -> bool:
    """Return whether a type is, or holds at any depth, the primitive type of a name such as ``variant``."""
    if isinstance(data_type, PrimitiveType):
        return data_type.name == name
    if isinstance(data_type, StructType):
        return any(contains_type(item.data_type, name) for item in data_type.fields)
    return any(contains_type(part, name) for _, part in parts(data_type))


def parse_schema(schema_string: str | None) -> StructType:
    """Return the schema of a `metaData.schemaString`; None, as some old tables have it, means no columns."""
    if not schema_string:
        return StructType()
    try:
        parsed = _parse(json.loads(schema_string), 0)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _corrupt(schema_string, repr(error)) from error
    if not isinstance(parsed, StructType):
        raise _corrupt(schema_string, "the outermost type is no struct")
    return parsed


def schema_to_json(schema: StructType) -> str:
    return json.dumps(_to_json(schema), ensure_ascii=False, separators=(",", ":"))


def simple_string(data_type: DataType) -> str:
    """Return a type as Spark's `simpleString` does, for messages: ``struct<id:bigint,name:string>``."""
    if isinstance(data_type, PrimitiveType):
        return _SIMPLE_NAMES.get(data_type.name, data_type.name)
    if not isinstance(data_type, StructType):
        kind = "array" if isinstance(data_type, ArrayType) else "map"
        return f"{kind}<{','.join(simple_string(part) for _, part in parts(data_type))}>"
    names = (f"{item.name}:{simple_string(item.data_type)}" for item in data_type.fields)
    return f"struct<{','.join(names)}>"


def _parse(content: JsonValue, depth: int) -> DataType:
    if isinstance(content, str):
        decimal = DECIMAL.fullmatch(content)
        if decimal is not None and not 0 <= int(decimal[2]) <= int(decimal[1]) <= _MOST_DIGITS:
            raise ValueError(f"there is no type {content:.80}")
        return PrimitiveType(content)
    if depth > _MOST_LEVELS:
        raise ValueError(f"types are nested more than {_MOST_LEVELS} deep")
    kind = content["type"]
    if kind == "struct":
        return StructType(tuple(_parse_field(item, depth) for item in content["fields"]))
    if kind == "array":
        return ArrayType(_parse(content["elementType"], depth + 1), content.get("containsNull", True))
    if kind == "map":
        key, value = (_parse(content[name], depth + 1) for name in ("keyType", "valueType"))
        return MapType(key, value, content.get("valueContainsNull", True))
    if kind == "udt":
        return UserDefinedType(str(content.get("class") or content["pyClass"]), json.dumps(content, sort_keys=True))
    raise ValueError(f"unknown type {kind!r}")


def _parse_field(content: JsonValue, depth: int) -> StructField:
    name, metadata = content["name"], content.get("metadata") or {}
    if not isinstance(name, str) or not isinstance(metadata, dict):
        raise TypeError(f"field {name!r:.80} has no name or no object of metadata")
    return StructField(name, _parse(content["type"], depth + 1), content.get("nullable", True), metadata)


def _to_json(data_type: DataType) -> JsonValue:
    if isinstance(data_type, UserDefinedType):
        return json.loads(data_type.json)
    if isinstance(data_type, PrimitiveType):
        return data_type.name
    types = {f"{name}Type": _to_json(part) for name, part in parts(data_type)}
    if isinstance(data_type, ArrayType):
        return {"type": "array", **types, "containsNull": data_type.contains_null}
    if isinstance(data_type, MapType):
        return {"type": "map", **types, "valueContainsNull": data_type.value_contains_null}
    return {
        "type": "struct",
        "fields": [
            {
                "name": item.name,
                "type": _to_json(item.data_type),
                "nullable": item.nullable,
                "metadata": dict(item.metadata),
            }
            for item in data_type.fields
        ],
    }


def _walk(data_type: DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], StructField]]:
    if isinstance(data_type, StructType):
        for item in data_type.fields:
            yield (*path, item.name), item
            yield from _walk(item.data_type, (*path, item.name))
    for name, part in parts(data_type):
        yield from _walk(part, (*path, name))


def _corrupt(schema_string: str, why: str) -> DeltaLogCorruptException:
    return DeltaLogCorruptException(
        "DELTA_STATE_RECOVER_ERROR",
        f"The table's schema in the log's metaData cannot be read ({why}): {schema_string[:200]}",
        parameters={"operation": "schema"},
    )


def fits_into(written: StructType, read: StructType) -> bool:
    """Return whether rows of one schema can be read with another: columns may have been added, nothing else.

    The case of names does not matter.
    """
    known = {item.name.lower(): item for item in read.fields}
    for item in written.fields:
        other = known.get(item.name.lower())
        if other is None:
            return False
        if isinstance(item.data_type, StructType) and isinstance(other.data_type, StructType):
            if not fits_into(item.data_type, other.data_type):
                return False
        elif simple_string(item.data_type) != simple_string(other.data_type):
            return False
    return True


def find_field(schema: StructType, path: Sequence[str]) -> tuple[tuple[str, ...], StructField]:
    """Return a column or field, and its path as the schema spells it."""
    for spelled, found in schema.walk():
        if lower_case(spelled) == lower_case(path):
            return spelled, found
    raise column_not_found(path, schema)


def column_not_found(path: Sequence[str], data_type: DataType) -> DeltaAnalysisException:
    among = ", ".join(data_type.names) if isinstance(data_type, StructType) else simple_string(data_type)
    return DeltaAnalysisException(
        "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
        f"Couldn't find column {'.'.join(path)} in: {among}.",
        parameters={"columnName": ".".join(path), "tableSchema": simple_string(data_type)},
    )


def find_parent(schema: StructType, path: Sequence[str]) -> tuple[str, ...]:
    """Return the path of a struct as the schema spells it; one in an array or a map is its element, key or value."""
    wanted = lower_case(path)
    found = [
        spelled
        for spelled, _ in schema.walk()
        if lower_case(spelled) == wanted[: len(spelled)] and _PART_NAMES.issuperset(wanted[len(spelled) :])
    ]
    longest = max(found, key=len) if found else find_field(schema, path)[0]
    return (*longest, *wanted[len(longest) :])


def with_fields(schema: StructType, parent: Sequence[str], change: Callable[[Fields], Fields]) -> StructType:
    """Return a schema with the fields of one struct changed; the empty path is the table itself."""
    changed = _within(schema, tuple(parent), change, tuple(parent))
    assert isinstance(changed, StructType)
    return changed


def _within(
    data_type: DataType, path: tuple[str, ...], change: Callable[[Fields], Fields], whole: tuple[str, ...]
) -> DataType:
    if isinstance(data_type, StructType):
        if not path:
            return StructType(change(data_type.fields))
        spelled = find_field(data_type, path[:1])[1].name
        fields = (
            replace(f, data_type=_within(f.data_type, path[1:], change, whole)) if f.name == spelled else f
            for f in data_type.fields
        )
        return StructType(tuple(fields))
    if not path or path[0].lower() not in dict(parts(data_type)):
        raise DeltaAnalysisException(
            "DELTA_ADD_COLUMN_PARENT_NOT_STRUCT",
            f"{'.'.join(whole)} is no struct whose fields could change. Found {simple_string(data_type)}.",
            parameters={"columnName": ".".join(whole), "other": simple_string(data_type)},
        )
    return with_parts(
        data_type, lambda name, part: _within(part, path[1:], change, whole) if name == path[0].lower() else part
    )


def placed(fields: Fields, field: StructField, after: str | None, *, first: bool = False) -> Fields:
    """Return fields with one more: the first, behind another one, or the last."""
    if first:
        return (field, *fields)
    if after is None:
        return (*fields, field)
    spelled = find_field(StructType(fields), (after,))[1].name
    index = [one.name for one in fields].index(spelled) + 1
    return (*fields[:index], field, *fields[index:])
