"""Arrow columns in another schema: renamed, reordered and widened at any depth, with NULL for what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FIELD_ID = b"PARQUET:field_id"
_SHREDDED = "typed_value"
_PLAIN = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


@dataclass(frozen=True)
class Shape:
    """A type that values get, and where its parts are found in the values as they are.

    Args:
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

    def is_found_by_id(self, fields: list[pa.Field]) -> bool:
        return self.id is not None and any(FIELD_ID in (field.metadata or {}) for field in fields)

    def index_in(self, fields: list[pa.Field]) -> int | None:
        """Return the place of the field that this part is found in; None where it is missing.

        Raises:
            ValueError: Two fields have the name in another case.
        """
        if self.is_found_by_id(fields):
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


_ANY = Shape(pa.null())


def shape_of(target: pa.DataType) -> Shape:
    """Return the shape of values whose fields have a type's names, in any order."""
    if pa.types.is_struct(target):
        return Shape(target, tuple(Part(field.name, shape_of(field.type)) for field in target))
    if pa.types.is_list(target):
        return Shape(target, (Part("element", shape_of(target.value_type)),))
    if pa.types.is_map(target):
        return Shape(target, (Part("key", shape_of(target.key_type)), Part("value", shape_of(target.item_type))))
    return Shape(target)


def in_type(column: Any, wanted: pa.DataType) -> Any:  # noqa: ANN401
    """Return a file's column in its table's type: widened, and NULL for the fields that the file lacks.

    One of another type that is not nested stays as it is.

    Raises:
        ValueError: It is of a nested type that the table's does not take.
    """
    if column.type == wanted:
        return column
    if not pa.types.is_nested(wanted):
        return widened(column, wanted)
    if not _takes(column.type, wanted):
        raise _unfit(column.type, wanted)
    return shaped(column, shape_of(wanted))


def paths_of(name: str, found: pa.DataType, wanted: pa.DataType) -> Iterator[str]:
    """Yield the paths of what `in_type` needs of a column in a file: of a struct the wanted fields, if it has any.

    Raises:
        ValueError: It is of a nested type that the table's does not take.
    """
    if pa.types.is_nested(wanted) and found != wanted and not _takes(found, wanted):
        raise _unfit(found, wanted)
    inner = []
    if pa.types.is_struct(wanted):
        fields = {field.name: field.type for field in found}
        inner = [(field, fields[field.name]) for field in wanted if field.name in fields]
    for field, kind in inner:
        yield from paths_of(f"{name}.{field.name}", kind, field.type)
    if not inner:
        yield name


def can_become(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of one type are to be widened, or have fewer or other fields than another type."""
    return can_widen(found, wanted) or (pa.types.is_nested(wanted) and found != wanted and _takes(found, wanted))


def _takes(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_struct(wanted) and pa.types.is_struct(found):
        fields = {field.name: field.type for field in found}
        lowered = {name.lower() for name in fields}
        return len(lowered) == len(fields) and all(
            _takes(fields[field.name], field.type) if field.name in fields else field.name.lower() not in lowered
            for field in wanted
        )
    if pa.types.is_list(wanted) and (pa.types.is_list(found) or pa.types.is_large_list(found)):
        return _takes(found.value_type, wanted.value_type)
    if pa.types.is_map(wanted) and pa.types.is_map(found):
        return _takes(found.key_type, wanted.key_type) and _takes(found.item_type, wanted.item_type)
    plain = plain_type(found)
    return bool(plain == wanted) or can_widen(plain, wanted)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return for a larger or a view type the plain one, whose values are the same; what is inside becomes nullable."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return _PLAIN.get(kind, kind)


def in_plain_types(rows: Any) -> Any:  # noqa: ANN401
    plain = [plain_type(kind) for kind in rows.schema.types]
    if plain == rows.schema.types:
        return rows
    columns = [
        column
        if column.type == kind
        else shaped(column, shape_of(kind))
        if pa.types.is_nested(kind)
        else column.cast(kind)
        for column, kind in zip(rows.columns, plain, strict=True)
    ]
    return type(rows).from_arrays(columns, names=rows.schema.names)


def has_times(kind: pa.DataType) -> bool:
    """Return whether a type has dates or times, at any depth."""
    inner = (kind.field(index).type for index in range(kind.num_fields))
    return bool(pa.types.is_temporal(kind)) or any(map(has_times, inner))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return columns of view types, which Arrow cannot filter, their plain types."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    for index, kind in enumerate(schema.types):
        if kind in plain:
            schema = schema.set(index, schema.field(index).with_type(plain[kind]))
    return schema.remove_metadata()


def leaves_of(field: pa.Field) -> Iterator[tuple[str, pa.DataType]]:
    """Yield a column's leaves in a Parquet file that PyArrow writes: their paths and types, in order."""
    parts = parts_of(field.type)
    if not parts:
        yield field.name, field.type
    for name, part in parts:
        yield from leaves_of(part.with_name(f"{field.name}.{name}"))


def parts_of(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """Return what a type is made of, with its path in a Parquet file that PyArrow writes; of a leaf nothing."""
    kind = stored_type(kind)
    if pa.types.is_struct(kind):
        return [(field.name, field) for field in kind]
    if pa.types.is_map(kind):
        return [("key_value.key", kind.key_field), ("key_value.value", kind.item_field)]
    return [("list.element", kind.value_field)] if is_array(kind) else []


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return a type, or that of the values of an extension type."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def is_array(kind: pa.DataType) -> bool:
    """Return whether a type is one of those that are arrays in Parquet and in Spark."""
    of_lists = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    return any(is_list(kind) for is_list in of_lists)


def has_null(column: Any, path: Sequence[str]) -> bool:  # noqa: ANN401
    """Return whether a value, or the field of it that a path leads to, is NULL."""
    if isinstance(column, pa.ChunkedArray):
        return any(has_null(chunk, path) for chunk in column.chunks)
    if column.null_count:
        return True
    if not path:
        return False
    index = Part(path[0], _ANY).index_in([column.type.field(i) for i in range(column.type.num_fields)])
    return index is None or has_null(column.field(index), path[1:])


def shaped(column: Any, shape: Shape) -> Any:  # noqa: ANN401
    """Return a column's values in another shape.

    Raises:
        ValueError: They are of a type that the target does not take.
    """
    if isinstance(column, pa.ChunkedArray):
        # The strings of all chunks together may be more than one array takes.
        return pa.chunked_array([shaped(chunk, shape) for chunk in column.chunks], shape.target)
    if isinstance(column.type, pa.BaseExtensionType):
        return shaped(column.storage, shape)
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
    elif is_array(column.type) and not pa.types.is_list(column.type):
        column = _of_view(column)
    if not pa.types.is_list(column.type):
        raise _unfit(column.type, shape.target)
    column = _from_its_beginning(column)
    values = shaped(column.values, shape.parts[0].shape)
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(column.offsets, values, type=shape.target, mask=mask)


def _of_view(column: Any) -> Any:  # noqa: ANN401
    """Return the lists of a view, whose values may be in any order, and some in no list."""
    ends = np.cumsum(pc.list_value_length(column).fill_null(0).to_numpy())
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    return pa.ListArray.from_arrays(offsets, column.flatten(), mask=column.is_null() if column.null_count else None)


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
    elif pa.types.is_duration(column.type):
        # Parquet has no durations, but numbers.
        column = column.cast(pa.int64())
    elif pa.types.is_string(target) and _is_bytes(column.type):
        # As Spark, which does not check that bytes without the annotation of strings are UTF-8.
        column = column.cast(pa.binary()).view(target)
    column = widened(column, target)
    if column.type != target:
        if not _is_same_kind(column.type, target):
            raise _unfit(column.type, target)
        is_finer = pa.types.is_timestamp(target) and column.type.unit == "ns"
        column = (_floored(column) if is_finer else column).cast(target)
    return padded(column, shape.pad)


def _floored(column: Any) -> Any:  # noqa: ANN401
    """Return the microseconds since 1970 in which times in nanoseconds are, as Spark reads them."""
    numbers = column.cast(pa.int64())
    towards_zero = pc.divide(numbers, 1000)
    return pc.subtract(towards_zero, pc.greater(pc.multiply(towards_zero, 1000), numbers).cast(pa.int64()))


def padded(column: Any, length: int | None) -> Any:  # noqa: ANN401
    if length is None or pa.types.is_null(column.type):
        return column
    return pc.utf8_rpad(column, width=length, padding=" ")


def _is_same_kind(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_floating(found) and pa.types.is_floating(wanted):
        # A narrower one would round, or be infinite.
        return bool(found.bit_width <= wanted.bit_width)
    kinds = (
        pa.types.is_integer,
        pa.types.is_timestamp,
        pa.types.is_date,
        pa.types.is_decimal,
        lambda kind: plain_type(kind) == pa.string() or _is_bytes(kind),
    )
    return any(is_kind(found) and is_kind(wanted) for is_kind in kinds)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(plain_type(kind) == pa.binary() or pa.types.is_fixed_size_binary(kind))


def _unfit(found: pa.DataType, wanted: pa.DataType) -> ValueError:
    return ValueError(f"its type is {found}, which is not read as {wanted}")


# Digits of the whole part of the narrowest DECIMAL that takes INT and smaller, and BIGINT. Protocol: Type Widening.
_DIGITS_OF_INT, _DIGITS_OF_LONG = 10, 20
_INT_BITS = 32
# Days whose microseconds since 1970 fit 64 bits.
_MOST_DAYS = (1 << 63) // 86_400_000_000


def can_widen(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether every value of one type is a value of another, by the protocol's type changes."""
    if pa.types.is_signed_integer(narrow):
        if pa.types.is_signed_integer(wide):
            return bool(narrow.bit_width < wide.bit_width)
        is_int = narrow.bit_width <= _INT_BITS
        if pa.types.is_decimal128(wide):
            return bool(wide.precision - wide.scale >= (_DIGITS_OF_INT if is_int else _DIGITS_OF_LONG))
        return bool(is_int and pa.types.is_float64(wide))
    if pa.types.is_decimal128(narrow) and pa.types.is_decimal128(wide):
        scale = wide.scale - narrow.scale
        return bool(narrow != wide and wide.precision - narrow.precision >= scale >= 0)
    if pa.types.is_float32(narrow):
        return bool(pa.types.is_float64(wide))
    return bool(pa.types.is_date32(narrow) and wide == pa.timestamp("us"))


def widened(column: Any, wide: pa.DataType) -> Any:  # noqa: ANN401
    """Return a column in a wider type, or as it is where its type has no such change.

    Raises:
        ValueError: A day has no timestamp.
    """
    if not can_widen(column.type, wide):
        return column
    if pa.types.is_date32(column.type):
        most = pc.max(pc.abs(column.cast(pa.int32()).cast(pa.int64()))).as_py()
        if most is not None and most >= _MOST_DAYS:
            raise ValueError("a day is too far away for a timestamp")
    return column.cast(wide)
