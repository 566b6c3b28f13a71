"""Schemas with the fields of one struct changed; in its path are ``element``, ``key`` and ``value``, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.schema import DataType, StructField, StructType, parts, simple_string, with_parts

Fields: TypeAlias = tuple[StructField, ...]


def find_field(schema: StructType, path: Sequence[str]) -> tuple[tuple[str, ...], StructField]:
    """Return a column or field, and its path as the schema spells it."""
    wanted = tuple(name.lower() for name in path)
    for spelled, field in schema.walk():
        if tuple(name.lower() for name in spelled) == wanted:
            return spelled, field
    raise DeltaAnalysisException(
        "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
        f"Couldn't find column {'.'.join(path)} in: {', '.join(schema.names)}.",
        parameters={"columnName": ".".join(path), "tableSchema": simple_string(schema)},
    )


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
