"""The target columns a predicate names: their types, and the names statistics and partition values use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deltamerge.log.features.column_mapping import physical_name
from deltamerge.log.features.type_widening import TYPE_CHANGES
from deltamerge.log.schema import DataType, PrimitiveType, StructField, StructType
from deltamerge.skipping.predicates import And, Not, Or, Predicate, Unknown

CHAR_VARCHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
COLLATIONS = "__COLLATIONS"

INTEGRAL = frozenset({"byte", "short", "integer", "long"})
_NAMES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long", "real": "float"}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


@dataclass(frozen=True)
class ColumnType:
    """A primitive type as pruning sees it; precision and scale are a decimal's, precision an integral one's, too.

    Args:
        kind: One of integral, decimal, float, double, date, timestamp, timestamp_ntz, string, boolean.
        was_float: Whether a double may have been a float when a file was written: its statistics then spell a
            float, whose value as a double is another number.
    """

    kind: str
    precision: int = 0
    scale: int = 0
    was_float: bool = False


@dataclass(frozen=True)
class TargetColumn:
    """A column or nested field of the target that pruning may look at.

    Args:
        path: Its name and names of fields, as the predicate and the table spell them.
        type: None where its values cannot be compared with literals (char padding, collations, binary, arrays,
            maps, structs).
        counts_nulls: Whether statistics of the column count the column's own NULLs.
    """

    path: tuple[str, ...]
    physical_path: tuple[str, ...]
    type: ColumnType | None
    counts_nulls: bool
    partition: bool


def referenced_columns(predicate: Predicate) -> frozenset[tuple[str, ...]]:
    if isinstance(predicate, Unknown):
        return frozenset()
    if isinstance(predicate, Not):
        return referenced_columns(predicate.part)
    if isinstance(predicate, (And, Or)):
        return frozenset().union(*(referenced_columns(part) for part in predicate.parts))
    return frozenset({predicate.column.path})


def put(tree: dict[str, Any], path: tuple[str, ...], leaf: object) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = leaf


def column_type(name: str) -> ColumnType | None:
    """Return a primitive type by its name, in the log's spelling or in SQL's.

    None for a type whose values cannot be compared here.
    """
    lowered = name.strip().lower()
    lowered = _NAMES.get(lowered, lowered)
    if lowered in INTEGRAL:
        return ColumnType("integral", {"byte": 3, "short": 5, "integer": 10, "long": 20}[lowered])
    if lowered in ("float", "double", "date", "timestamp", "timestamp_ntz", "string", "boolean"):
        return ColumnType(lowered)
    if re.fullmatch(r"varchar\(\d+\)", lowered):
        return ColumnType("string")
    match = _DECIMAL.fullmatch(lowered)
    if match:
        return ColumnType("decimal", int(match.group(1)), int(match.group(2)))
    return None


def find_column(schema: StructType, path: tuple[str, ...], partition_columns: frozenset[str]) -> TargetColumn | None:
    """Return the column of exactly a path: a column's name, then names of struct fields."""
    parent: DataType = schema
    fields: list[StructField] = []
    for name in path:
        siblings = parent.fields if isinstance(parent, StructType) else ()
        field = next((item for item in siblings if item.name == name), None)
        if field is None:
            return None
        fields.append(field)
        parent = field.data_type
    return TargetColumn(
        path=path,
        physical_path=tuple(map(physical_name, fields)),
        type=None if any(holds_char(field.metadata) for field in fields) else _comparable_type(fields[-1]),
        # Some writers count an array's or a map's NULL elements.
        counts_nulls=isinstance(parent, PrimitiveType),
        partition=len(path) == 1 and path[0] in partition_columns,
    )


def holds_char(metadata: Mapping[str, Any]) -> bool:
    """Return whether a column has CHAR at any depth, which is padded as it is read; VARCHAR is never padded."""
    return re.search(r"(?<!var)char\(", str(metadata.get(CHAR_VARCHAR_TYPE)), re.IGNORECASE) is not None


def _comparable_type(field: StructField) -> ColumnType | None:
    if not isinstance(field.data_type, PrimitiveType):
        return None
    if field.metadata.get(COLLATIONS):
        return None
    kind = column_type(field.data_type.name)
    changes = field.metadata.get(TYPE_CHANGES, ())
    was_float = any(change.get("fromType") == "float" for change in changes)
    return replace(kind, was_float=True) if kind is not None and was_float else kind
