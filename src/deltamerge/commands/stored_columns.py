"""Which files have columns or types that the table no longer has, by the files' footers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.log.actions import AddFile
from deltamerge.log.features.column_mapping import physical_name
from deltamerge.log.features.type_widening import can_widen
from deltamerge.log.paths import decode_path
from deltamerge.log.schema import ArrayType, DataType, MapType, PrimitiveType, StructType
from deltamerge.spark.file_stores import StoreOf
from deltamerge.storage.store import in_parallel
from deltamerge.workers.table_columns import is_array

_Test: TypeAlias = Callable[[pa.DataType, DataType], bool]


def with_dropped_columns(
    store_of: StoreOf, files: Sequence[AddFile], schema: StructType, hidden: Sequence[str]
) -> list[AddFile]:
    """Return the files that have columns or fields which a schema, with physical names, has not.

    Args:
        hidden: Columns that files may have besides.
    """
    return _where(store_of, files, schema, lambda stored, kind: _has_more(stored, kind, frozenset(hidden)))


def with_narrower_types(store_of: StoreOf, files: Sequence[AddFile], schema: StructType) -> list[AddFile]:
    """Return the files that have values in types which were widened since. Protocol: Type Widening."""
    return _where(store_of, files, schema, _is_narrower)


def _where(store_of: StoreOf, files: Sequence[AddFile], schema: StructType, test: _Test) -> list[AddFile]:
    def is_wanted(file: AddFile) -> bool:
        with store_of(file.path).open_input(decode_path(file.path)) as source:
            return test(pa.struct(list(pq.read_schema(source))), schema)

    return [file for file, wanted in zip(files, in_parallel(is_wanted, files), strict=True) if wanted]


def _parts(stored: pa.DataType, kind: DataType) -> list[tuple[pa.DataType, DataType]]:
    """Return the types within two types that have the same form."""
    if isinstance(kind, StructType) and pa.types.is_struct(stored):
        by_name = {physical_name(field): field.data_type for field in kind.fields}
        return [(field.type, by_name[field.name]) for field in stored if field.name in by_name]
    if isinstance(kind, ArrayType) and is_array(stored):
        return [(stored.value_type, kind.element_type)]
    if isinstance(kind, MapType) and pa.types.is_map(stored):
        return [(stored.key_type, kind.key_type), (stored.item_type, kind.value_type)]
    return []


def _has_more(stored: pa.DataType, kind: DataType, hidden: frozenset[str] = frozenset()) -> bool:
    if isinstance(kind, StructType) and pa.types.is_struct(stored):
        known = {physical_name(field) for field in kind.fields} | hidden
        if any(field.name not in known for field in stored):
            return True
    return any(_has_more(*part) for part in _parts(stored, kind))


_LOG_TYPES: Mapping[pa.DataType, str] = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.date32(): "date",
}


def _is_narrower(stored: pa.DataType, kind: DataType) -> bool:
    if isinstance(kind, PrimitiveType):
        is_decimal = pa.types.is_decimal(stored)
        name = f"decimal({stored.precision},{stored.scale})" if is_decimal else _LOG_TYPES.get(stored, "")
        return can_widen(name, kind.name)
    return any(_is_narrower(*part) for part in _parts(stored, kind))
