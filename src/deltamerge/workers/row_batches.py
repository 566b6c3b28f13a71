"""Rows of Spark's as Arrow batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa


def batch_of_rows(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as a batch.

    Args:
        rows: What Spark hands to writers: tuples of Python values, timestamps in the machine's time zone.
    """
    arrays = [
        pa.array([_value(row[index], field.type) for row in rows], field.type) for index, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _value(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _value(each, field.type) for field, each in zip(kind, value, strict=True)}
    if pa.types.is_map(kind):
        return [(_value(key, kind.key_type), _value(each, kind.item_type)) for key, each in value.items()]
    if pa.types.is_list(kind):
        return [_value(each, kind.value_type) for each in value]
    if isinstance(value, datetime) and pa.types.is_timestamp(kind) and kind.tz is not None:
        return value.astimezone(timezone.utc)
    return value
