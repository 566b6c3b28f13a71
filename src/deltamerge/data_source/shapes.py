"""How data files have the columns that tasks hand to Spark."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql.types import CharType, DataType, StructField, StructType

from deltamerge.log.features.column_mapping import COLUMN_ID, ID, NONE, PHYSICAL_NAME
from deltamerge.scan.file_types import shape_by
from deltamerge.spark.length_limits import with_limits
from deltamerge.spark.limited_types import limited_type
from deltamerge.spark.nested_types import matching_inner_types
from deltamerge.workers.table_columns import Part, Shape


def char_lengths(schema: StructType) -> dict[str, int]:
    limits = ((field.name, limited_type(field)) for field in schema.fields)
    return {name: limit.length for name, limit in limits if isinstance(limit, CharType)}


def stored_part(field: StructField, wanted: DataType, arrow: pa.DataType, mode: str) -> Part:
    metadata = field.metadata
    name = field.name if mode == NONE else metadata.get(PHYSICAL_NAME, field.name)
    shape = shape_by(partial(stored_part, mode=mode), field.dataType, wanted, arrow)
    shape = _padded(shape, with_limits(field), wanted)
    return Part(name, shape, metadata.get(COLUMN_ID) if mode == ID else None)


def _padded(shape: Shape, limited: DataType, wanted: DataType) -> Shape:
    """Return a shape that fills up the strings that are CHAR, at any depth."""
    if isinstance(limited, CharType):
        return replace(shape, pad=limited.length)
    inner = [(one, other) for _, one, other in matching_inner_types(limited, wanted)]
    if isinstance(limited, StructType) and isinstance(wanted, StructType):
        by_name = {field.name.lower(): field.dataType for field in limited.fields}
        inner = [(by_name[field.name.lower()], field.dataType) for field in wanted.fields]
    if not inner:
        return shape
    parts = zip(shape.parts, inner, strict=True)
    return replace(shape, parts=tuple(replace(part, shape=_padded(part.shape, *types)) for part, types in parts))
