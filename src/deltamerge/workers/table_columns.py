"""Arrow columns in another schema: renamed, reordered and widened at any depth, with NULL for what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.workers.widening import widened

FIELD_ID = b"PARQUET:field_id"
_SHREDDED = "typed_value"


@dataclass(frozen=True)
class Shape:
    """A type that values get, and where its parts are found in the values as they are.

    Args:
        target: The type.
        parts: A struct's fields in the target's order, an array's element, or a map's key and value.
        pad: The length to which strings are filled up with blanks; None for none.
    """

    target: pa.DataType
    parts: tuple[Part, ...] = ()
    pad: int | None = None

    @property
    def is_as_found(self) -> bool:
        """Whether values of the target's type stay as they are."""
        if self.pad is not None or not all(part.shape.is_as_found for part in self.parts):
            return False
        if not pa.types.is_struct(self.target):
            return True
        return [part.name for part in self.parts] == [field.name for field in self.target]


@dataclass(frozen=True)
class Part:
    """A column, or a part of one: the name that it is found by, or, where fields have ids, its id."""

    name: str
    shape: Shape
    id: int | None = None

    def index_in(self, fields: list[pa.Field]) -> int | None:
        """Return the place of the field that this part is found in; None where it is missing.

        Raises:
            ValueError: Two fields have the name in another case.
        """
        if self.id is not None and any(FIELD_ID in (field.metadata or {}) for field in fields):
            wanted = str(self.id).encode()
            found = (index for index, field in enumerate(fields) if (field.metadata or {}).get(FIELD_ID) == wanted)
            return next(found, None)
        same = [index for index, field in enumerate(fields) if field.name == self.name]
        if not same:
            lowered = self.name.lower()
            same = [index for index, field in enumerate(fields) if field.name.lower() == lowered]
        if len(same) > 1:
            raise ValueError(f"there are {len(same)} columns {self.name}")
        return same[0] if same else None


def shaped(column: Any, shape: Shape) -> Any:  # noqa: ANN401
    """Return a column's values in another shape.

    Raises:
        ValueError: They are of a type that the target does not take.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        column = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
    if column.type == shape.target and shape.is_as_found:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), shape.target)
    if pa.types.is_struct(shape.target):
        return _struct(column, shape)
    if pa.types.is_list(shape.target):
        return _list(column, shape)
    if pa.types.is_map(shape.target):
        return _map(column, shape)
    return _plain(column, shape)


def _struct(column: Any, shape: Shape) -> Any:  # noqa: ANN401
    if not pa.types.is_struct(column.type):
        raise _unfit(column.type, shape.target)
    fields = [column.type.field(index) for index in range(column.type.num_fields)]
    if _SHREDDED in {field.name for field in fields} and _is_variant(shape.target):
        raise ValueError("it is a shredded VARIANT, which only Spark puts together: read it with DeltaTable.toDF()")
    children = []
    for part in shape.parts:
        index = part.index_in(fields)
        children.append(
            pa.nulls(len(column), part.shape.target) if index is None else shaped(column.field(index), part.shape)
        )
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(shape.target), mask=mask)


def _is_variant(target: pa.DataType) -> bool:
    return any((field.metadata or {}).get(b"variant") == b"true" for field in target)


def _list(column: Any, shape: Shape) -> Any:  # noqa: ANN401
    if pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_field))
    if not pa.types.is_list(column.type):
        raise _unfit(column.type, shape.target)
    column = _from_its_beginning(column)
    values = shaped(column.values, shape.parts[0].shape)
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(column.offsets, values, type=shape.target, mask=mask)


def _map(column: Any, shape: Shape) -> Any:  # noqa: ANN401
    if not pa.types.is_map(column.type):
        raise _unfit(column.type, shape.target)
    column = _from_its_beginning(column)
    keys, items = (
        shaped(each, part.shape) for each, part in zip((column.keys, column.items), shape.parts, strict=True)
    )
    mask = column.is_null() if column.null_count else None
    return pa.MapArray.from_arrays(column.offsets, keys, items, type=shape.target, mask=mask)


def _from_its_beginning(column: Any) -> Any:  # noqa: ANN401
    # Arrow takes a mask together with offsets only from the beginning of what they are stored in.
    return pa.concat_arrays([column, column.slice(0, 0)]) if column.offset else column


def _plain(column: Any, shape: Shape) -> Any:  # noqa: ANN401
    target = shape.target
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    column = widened(column, target)
    if column.type != target:
        if not _is_same_kind(column.type, target):
            raise _unfit(column.type, target)
        # Of a timestamp only the digits below a microsecond are lost.
        column = column.cast(target, safe=not pa.types.is_timestamp(target))
    return padded(column, shape.pad)


def padded(column: Any, length: int | None) -> Any:  # noqa: ANN401
    """Return strings filled up with blanks to a length; None for as they are."""
    if length is None or pa.types.is_null(column.type):
        return column
    return pc.utf8_rpad(column, width=length, padding=" ")


def _is_same_kind(found: pa.DataType, wanted: pa.DataType) -> bool:
    kinds = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_timestamp,
        pa.types.is_date,
        pa.types.is_decimal,
        lambda kind: (
            pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
            or pa.types.is_string_view(kind)
            or pa.types.is_binary(kind)
            or pa.types.is_large_binary(kind)
            or pa.types.is_binary_view(kind)
            or pa.types.is_fixed_size_binary(kind)
        ),
    )
    return any(is_kind(found) and is_kind(wanted) for is_kind in kinds)


def _unfit(found: pa.DataType, wanted: pa.DataType) -> ValueError:
    return ValueError(f"its type is {found}, which is not read as {wanted}")
