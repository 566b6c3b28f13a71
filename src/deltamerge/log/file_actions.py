"""Add and remove actions as Arrow tables: their columns, and how JSON lines and Parquet become them.

A log of a million files must not become a million Python objects, so file actions stay in Arrow from the
first read to the last.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from deltamerge.log.actions import AddFile, RemoveFile, camel_case
from deltamerge.log.arrays import EMPTY, empty_table, from_numpy, repeat, scalar, strings, to_numpy
from deltamerge.log.paths import canonical_paths

STRING_MAP = pa.map_(pa.string(), pa.string())

DELETION_VECTOR = pa.struct(
    [
        ("storage_type", pa.string()),
        ("path_or_inline_dv", pa.string()),
        ("offset", pa.int32()),
        ("size_in_bytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)

_TYPES = {
    "path": pa.string(),
    "partition_values": STRING_MAP,
    "size": pa.int64(),
    "modification_time": pa.int64(),
    "deletion_timestamp": pa.int64(),
    "data_change": pa.bool_(),
    "extended_file_metadata": pa.bool_(),
    "stats": pa.string(),
    "tags": STRING_MAP,
    "deletion_vector": DELETION_VECTOR,
    "base_row_id": pa.int64(),
    "default_row_commit_version": pa.int64(),
    "clustering_provider": pa.string(),
}

ADD_SCHEMA = pa.schema([(field.name, _TYPES[field.name]) for field in fields(AddFile)])
"""The columns of a `FileTable`: an AddFile's fields. `path` has the log's spelling."""

REMOVE_SCHEMA = pa.schema([(field.name, _TYPES[field.name]) for field in fields(RemoveFile)])

REMOVE_KEY_SCHEMA = pa.schema([REMOVE_SCHEMA.field("path"), REMOVE_SCHEMA.field("deletion_vector")])
"""What replay needs of a remove."""

_MAPS = ("partition_values", "tags")
_BLOCK = 4 << 20


def parse_file_actions(lines: Sequence[bytes], action: str, schema: pa.Schema) -> pa.Table:
    """Parse lines such as ``{"add":{...}}`` that all hold the same file action, one row a line.

    `schema` has the wanted fields: `ADD_SCHEMA`, `REMOVE_SCHEMA` or `REMOVE_KEY_SCHEMA`.
    """
    if not lines:
        return empty_table(schema)
    try:
        table = _parse_with_arrow(lines, action, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        # What Arrow's reader refuses, such as doubled keys or numbers with an exponent, Python may take.
        table = None
    if table is None or table.num_rows != len(lines) or table.column("path").null_count:
        table = _parse_with_python(lines, action, schema)
    return table


def from_parquet(structs: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    """Return the rows of a checkpoint's ``add`` or ``remove`` column, without nulls, as a table.

    What the column lacks becomes NULL.
    """
    table = pa.Table.from_batches(
        [pa.RecordBatch.from_struct_array(chunk) for chunk in structs.chunks],
        schema=pa.schema(list(structs.type)),
    )
    return _conform(table, schema)


def file_keys(paths: pa.ChunkedArray, deletion_vectors: pa.ChunkedArray, root: str) -> pa.ChunkedArray:
    """Return what identifies a logical file: its canonical path and its deletion vector's unique id.

    Source: Protocol, Action Reconciliation. `deletion_vectors` are structs of `DELETION_VECTOR`.
    """
    keys = _canonical(paths, root)
    if deletion_vectors.null_count == len(deletion_vectors):
        return keys
    storage, path, offset = (
        pc.struct_field(deletion_vectors, name) for name in ("storage_type", "path_or_inline_dv", "offset")
    )
    at = pc.if_else(
        pc.is_null(offset),
        EMPTY,
        pc.binary_join_element_wise(scalar("@"), pc.cast(offset, pa.string()), EMPTY),
    )
    with_vector = pc.binary_join_element_wise(keys, pc.binary_join_element_wise(storage, path, at, EMPTY), scalar("\n"))
    return pc.coalesce(with_vector, keys)


def _canonical(paths: pa.ChunkedArray, root: str) -> pa.ChunkedArray:
    # Most paths have one spelling only; the few others go through Python.
    special = pc.or_(pc.match_substring_regex(paths, r"%|//|:/|(?:^|/)\./"), pc.starts_with(paths, "/"))
    if not pc.any(special).as_py():
        return paths
    canonical = list(canonical_paths(paths.filter(special).to_pylist(), root))
    return pc.replace_with_mask(
        paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths,
        special.combine_chunks() if isinstance(special, pa.ChunkedArray) else special,
        strings(canonical),
    )


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for wanted in schema:
        index = table.schema.get_field_index(camel_case(wanted.name))
        if index < 0:
            columns.append(pa.nulls(table.num_rows, wanted.type))
        elif wanted.name == "deletion_vector":
            columns.append(_deletion_vectors(table.column(index)))
        else:
            column = table.column(index)
            columns.append(column if column.type == wanted.type else pc.cast(column, wanted.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _deletion_vectors(column: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = []
    for chunk in column.chunks:
        if chunk.null_count == len(chunk):
            chunks.append(pa.nulls(len(chunk), DELETION_VECTOR))
            continue
        parts = []
        for wanted in DELETION_VECTOR:
            index = chunk.type.get_field_index(camel_case(wanted.name))
            found = pa.nulls(len(chunk), wanted.type)
            parts.append(found if index < 0 else pc.cast(pc.struct_field(chunk, [index]), wanted.type))
        chunks.append(_vectors_of(parts))
    return pa.chunked_array(chunks, DELETION_VECTOR)


def _vectors_of(parts: Sequence[pa.Array]) -> pa.StructArray:
    """Return structs of `DELETION_VECTOR`; where a writer has a struct of NULLs, there is no vector."""
    storage, path, *_ = parts
    mask = pc.and_(storage.is_null(), path.is_null())
    return pa.StructArray.from_arrays(list(parts), fields=list(DELETION_VECTOR), mask=mask)


def _json_struct(schema: pa.Schema, keys: dict[str, list[str]]) -> pa.DataType:
    fields = []
    for wanted in schema:
        kind = wanted.type
        if wanted.name in _MAPS:
            kind = pa.struct([(key, pa.string()) for key in keys[wanted.name]])
        elif wanted.name == "deletion_vector":
            kind = pa.struct([(camel_case(part.name), part.type) for part in DELETION_VECTOR])
        fields.append((camel_case(wanted.name), kind))
    return pa.struct(fields)


def _read_json(lines: Sequence[bytes], action: str, kind: pa.DataType, unexpected: str) -> pa.StructArray:
    longest = max(map(len, lines))
    table = pyarrow.json.read_json(
        pa.BufferReader(b"\n".join(lines)),
        read_options=pyarrow.json.ReadOptions(block_size=max(_BLOCK, longest + 2)),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([(action, kind)]), unexpected_field_behavior=unexpected
        ),
    )
    return table.column(action)


def _parse_with_arrow(lines: Sequence[bytes], action: str, schema: pa.Schema) -> pa.Table:
    # Arrow's reader makes structs of JSON objects. The first line has the likely keys of the maps; what
    # else turns up is inferred, and then read once more as strings.
    maps = [name for name in _MAPS if name in schema.names]
    first = json.loads(lines[0])[action]
    given = {name: first.get(camel_case(name)) if isinstance(first, dict) else None for name in maps}
    keys = {name: list(members) if isinstance(members, dict) else [] for name, members in given.items()}
    expected = _json_struct(schema, keys)
    structs = _read_json(lines, action, expected, "infer" if maps else "ignore")
    if maps and structs.type != expected:
        found = {name: [child.name for child in structs.type.field(camel_case(name)).type] for name in maps}
        if found != keys:
            structs = _read_json(lines, action, _json_struct(schema, found), "ignore")
    columns = {}
    for name in schema.names:
        index = structs.type.get_field_index(camel_case(name))
        column = pc.struct_field(structs, [index])
        if name in maps:
            column = _maps_from_structs(column, lines, action, camel_case(name))
        columns[camel_case(name)] = column
    return _conform(pa.table(columns), schema)


def _maps_from_structs(structs: pa.ChunkedArray, lines: Sequence[bytes], action: str, field: str) -> pa.ChunkedArray:
    """Turn structs that Arrow's JSON reader made of objects back into maps."""
    rows = structs.combine_chunks()
    children = [pc.struct_field(rows, [index]) for index in range(rows.type.num_fields)]
    count, width = len(rows), len(children)
    offsets = from_numpy(np.arange(count + 1, dtype=np.int32) * np.int32(width))
    if width == 0:
        return _map_array(offsets, pa.nulls(0, pa.string()), pa.nulls(0, pa.string()), rows)
    keys = pa.concat_arrays([repeat(rows.type.field(index).name, count) for index in range(width)])
    values = pa.concat_arrays(children)
    if width > 1:
        # From one child after the other to one row after the other.
        order = from_numpy((np.arange(count)[:, None] + count * np.arange(width)[None, :]).ravel())
        keys, values = keys.take(order), values.take(order)
    maps = _map_array(offsets, keys, values, rows)
    # A NULL child is either a null value or an absent key: only the line itself shows which.
    unsure = [child.is_null() for child in children if child.null_count]
    if not unsure:
        return maps
    somewhere = functools.reduce(pc.or_, unsure)
    where = to_numpy(pc.indices_nonzero(pc.and_(somewhere, rows.is_valid()))).astype(np.int64)
    if len(where) == 0:
        return maps
    exact = [list(json.loads(lines[index])[action][field].items()) for index in where.tolist()]
    take = np.arange(count)
    take[where] = count + np.arange(len(where))
    return pa.concat_arrays([maps, pa.array(exact, STRING_MAP)]).take(from_numpy(take))


def _map_array(offsets: pa.Array, keys: pa.Array, values: pa.Array, rows: pa.StructArray) -> pa.Array:
    mask = rows.is_null() if rows.null_count else None
    return pa.MapArray.from_arrays(offsets, keys, values, mask=mask)


def _parse_with_python(lines: Sequence[bytes], action: str, schema: pa.Schema) -> pa.Table:
    contents: list[Any] = []
    for line in lines:
        parsed = json.loads(line)
        content = parsed.get(action) if isinstance(parsed, dict) else None
        is_action = isinstance(content, dict) and isinstance(content.get("path"), str)
        if not is_action:
            raise ValueError(f"no '{action}' action with a path: {line[:200]!r}")
        contents.append(content)
    columns = [_python_column([content.get(camel_case(f.name)) for content in contents], f) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _python_column(values: list[Any], wanted: pa.Field) -> pa.Array:
    try:
        if wanted.name in _MAPS:
            pairs = [None if value is None else list(value.items()) for value in values]
            return pa.array(pairs, wanted.type)
        if wanted.name == "deletion_vector":
            found = [{} if value is None else value for value in values]
            parts = [(camel_case(part.name), part.type) for part in DELETION_VECTOR]
            return _vectors_of([pa.array([value.get(name) for value in found], kind) for name, kind in parts])
        if pa.types.is_integer(wanted.type):
            return pa.array([None if value is None else int(value) for value in values], wanted.type)
        return pa.array(values, wanted.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, AttributeError, TypeError, OverflowError) as error:
        raise ValueError(f"field '{camel_case(wanted.name)}' has a wrong type: {error}") from error
