"""The high water marks of identity columns, which commits that generate values move (Protocol: Identity Columns)."""

from __future__ import annotations

from dataclasses import replace

from deltamerge.log.actions import Metadata
from deltamerge.log.schema import StructField, StructType, parse_schema

HIGH_WATER_MARK = "delta.identity.highWaterMark"


def moves_marks_only(before: Metadata, after: Metadata) -> bool:
    """Return whether metadata differ in nothing but high water marks, and in these."""
    if replace(before, schema_string=None) != replace(after, schema_string=None):
        return False
    old, new = parse_schema(before.schema_string), parse_schema(after.schema_string)
    return old != new and _without_marks(old) == _without_marks(new)


def _without_marks(schema: StructType) -> StructType:
    return StructType(tuple(map(_without_mark, schema.fields)))


def _without_mark(field: StructField) -> StructField:
    return replace(field, metadata={key: value for key, value in field.metadata.items() if key != HIGH_WATER_MARK})
