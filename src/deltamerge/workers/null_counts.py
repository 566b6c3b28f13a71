"""Which leaves of a Parquet file have missing values that its footer does not count.

A leaf misses a value where an array above it is NULL or empty. Not every writer counts these, so that a count of 0 need
not mean that there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from deltamerge.workers.table_columns import parts_of, plain_type, stored_type

# Those whose counts have been compared with the values.
_COUNTS_ALL = re.compile(
    r"(parquet-mr|delta-rs|parquet-rs) version |DuckDB version v[2-9]\.|parquet-cpp-arrow version (2[6-9]|[3-9]\d)\."
)
# Up to version 25 it passes over missing arrays above numbers in structs. https://github.com/apache/arrow/issues/51097
_PYARROW = re.compile(r"parquet-cpp-arrow version ([6-9]|1\d|2[0-5])\.")


def uncounted_leaves(created_by: str | None, schema: pa.Schema) -> frozenset[int]:
    """Return the leaves below arrays and maps whose counts are no proof, by their places among those of a file."""
    if _COUNTS_ALL.match(created_by or ""):
        return frozenset()
    every = not _PYARROW.match(created_by or "")
    leaves = (leaf for field in schema for leaf in _leaves(field.type))
    return frozenset(
        index for index, (is_repeated, is_number) in enumerate(leaves) if is_repeated and (every or is_number)
    )


def _leaves(kind: pa.DataType, is_repeated: bool = False, in_struct: bool = False) -> Iterator[tuple[bool, bool]]:
    """Yield of each leaf whether it is below an array or a map, and whether it has values of one width in a struct."""
    kind = stored_type(kind)
    parts, is_struct = parts_of(kind), pa.types.is_struct(kind)
    for _, part in parts:
        yield from _leaves(part.type, is_repeated or not is_struct, is_struct)
    if not parts:
        yield is_repeated, in_struct and plain_type(kind) not in (pa.string(), pa.binary())
