"""Type widening: which types may become which wider ones, and the record of it in the schema.

Source: Delta protocol, "Type Widening".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from deltamerge.exceptions import DeltaUnsupportedFeatureException
from deltamerge.log.properties import is_enabled
from deltamerge.log.schema import (
    DECIMAL,
    DataType,
    PrimitiveType,
    StructField,
    StructType,
    parts,
    with_each_field,
    with_parts,
)

ENABLED = "delta.enableTypeWidening"
TYPE_CHANGES = "delta.typeChanges"
_VOID = "void"
STABLE, PREVIEW = "typeWidening", "typeWidening-preview"
ALWAYS, SAME_FAMILY, NEVER = "always", "same_family_type", "never"
# Which Parquet stores alike, so that it needs no feature.
SMALL_INTEGERS = "small_integers"

_INTEGRAL = ("byte", "short", "integer", "long")
# Digits of the whole part of the narrowest DECIMAL that takes a type; of the smaller ones INT's, by the protocol.
_WHOLE_DIGITS = {"byte": 10, "short": 10, "integer": 10, "long": 20}


def widening_mode(configuration: Mapping[str, str], features: Collection[str], allowed: str) -> str:
    """Return how far schema evolution may widen a table's columns.

    `allowed` is the session's setting: ``always``, ``same_family_type`` or ``never``.
    """
    enabled = is_enabled(configuration, ENABLED)
    return allowed if enabled and (STABLE in features or PREVIEW in features) else NEVER


def check_type_changes(schema: StructType) -> None:
    """Refuse a table some of whose columns had types that cannot be read as the present ones."""
    for path, field in schema.walk():
        for change in field.metadata.get(TYPE_CHANGES, ()):
            before, after = str(change.get("fromType")), str(change.get("toType"))
            # No file has values of a column without a type.
            if before != _VOID and not can_widen(before, after):
                name = ".".join((*path, *str(change.get("fieldPath", "")).split("."))).rstrip(".")
                raise DeltaUnsupportedFeatureException(
                    "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA",
                    "Unable to operate on this table because an unsupported type change was applied. Field "
                    f"{name} was changed from {before} to {after}. Use the engine that made the change.",
                    parameters={"fieldName": name, "fromType": before, "toType": after},
                )


def can_widen(before: str, after: str, mode: str = ALWAYS) -> bool:
    """Return whether every value of one primitive type is a value of another, within a mode.

    Protocol: Type Widening, "Supported Type Changes". Types are spelled as in the log.

    >>> can_widen("byte", "long"), can_widen("integer", "double"), can_widen("long", "double")
    (True, True, False)
    >>> can_widen("decimal(5,2)", "decimal(7,4)"), can_widen("decimal(5,2)", "decimal(6,4)")
    (True, False)
    """
    if mode == NEVER or before == after:
        return False
    if before in _INTEGRAL and after in _INTEGRAL:
        is_wider = _INTEGRAL.index(before) < _INTEGRAL.index(after)
        return is_wider and (mode != SMALL_INTEGERS or after != "long")
    if mode == SMALL_INTEGERS:
        return False
    if (before, after) in (("float", "double"), ("date", "timestamp_ntz")):
        return True
    wide = DECIMAL.fullmatch(after)
    narrow = DECIMAL.fullmatch(before)
    if narrow and wide:
        precision, scale = int(wide[1]) - int(narrow[1]), int(wide[2]) - int(narrow[2])
        return precision >= scale >= 0
    if mode == SAME_FAMILY or before not in _INTEGRAL:
        return False
    if wide:
        return int(wide[1]) - int(wide[2]) >= _WHOLE_DIGITS[before]
    return after == "double" and before != "long"


def with_type_changes(before: StructType, after: StructType, table_version: int | None) -> StructType:
    """Record in the schema of a table with the feature which types have changed, the newest change last.

    Protocol: Type Widening, "Type Change Metadata". The fields of `after` are the old ones in their order, then new
    ones. The preview of the feature records `table_version`.
    """
    old = {field.name: field for field in before.fields}
    return StructType(
        tuple(_changed(old[field.name], field, table_version) if field.name in old else field for field in after.fields)
    )


def with_version_of_changes(schema: StructType, assumed: int, version: int) -> StructType:
    """Return a schema whose changes of one version, as the preview of the feature records it, are of another."""

    def moved(_: tuple[str, ...], field: StructField) -> StructField:
        if TYPE_CHANGES not in field.metadata:
            return field
        changes = [
            {**change, "tableVersion": version} if change.get("tableVersion") == assumed else change
            for change in field.metadata[TYPE_CHANGES]
        ]
        return replace(field, metadata={**field.metadata, TYPE_CHANGES: changes})

    return with_each_field(schema, moved)


def without_type_changes(schema: StructType) -> StructType:
    def cleaned(_: tuple[str, ...], field: StructField) -> StructField:
        return replace(field, metadata={key: value for key, value in field.metadata.items() if key != TYPE_CHANGES})

    return with_each_field(schema, cleaned)


def _changed(before: StructField, after: StructField, table_version: int | None) -> StructField:
    inner = _within(before.data_type, after.data_type, table_version)
    changes = [
        {
            "toType": wide.name,
            "fromType": narrow.name,
            **({} if table_version is None else {"tableVersion": table_version}),
            **({"fieldPath": ".".join(path)} if path else {}),
        }
        for path, narrow, wide in _type_changes(before.data_type, after.data_type, ())
        if narrow.name != _VOID
    ]
    if not changes:
        return replace(after, data_type=inner)
    recorded: list[dict[str, Any]] = [*after.metadata.get(TYPE_CHANGES, ()), *changes]
    return replace(after, data_type=inner, metadata={**after.metadata, TYPE_CHANGES: recorded})


def _within(before: DataType, after: DataType, table_version: int | None) -> DataType:
    if isinstance(before, StructType) and isinstance(after, StructType):
        return with_type_changes(before, after, table_version)
    if type(before) is not type(after):
        return after
    old = dict(parts(before))
    return with_parts(after, lambda name, part: _within(old[name], part, table_version))


def _type_changes(
    before: DataType, after: DataType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], PrimitiveType, PrimitiveType]]:
    """Yield the changes of a field's own type, also inside arrays and maps, but not inside structs."""
    if isinstance(before, PrimitiveType) and isinstance(after, PrimitiveType):
        if before != after:
            yield path, before, after
    elif type(before) is type(after):
        for (name, narrow), (_, wide) in zip(parts(before), parts(after), strict=True):
            yield from _type_changes(narrow, wide, (*path, name))
