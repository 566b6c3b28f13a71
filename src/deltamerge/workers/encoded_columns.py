"""Columns of rows, encoded as the column chunks of a row group."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.workers.files import column_threads
from deltamerge.workers.parquet_footer import Chunk, footer_of
from deltamerge.workers.table_columns import leaves_of

MOST_ROWS = 64 << 20
"""PyArrow makes several row groups of more."""
# Below this a thread costs more than it gains.
_LEAST_BYTES = 1 << 20


def encoded_columns(rows: pa.Table, form: pa.Schema, options: Mapping[str, Any]) -> dict[str, list[Chunk]]:
    """Encode columns, in `column_threads`.

    Args:
        rows: At most `MOST_ROWS` rows, of some columns of the file.
        options: Arguments of ``ParquetWriter``.
    """
    own = pa.schema([form.field(name) for name in rows.column_names])
    if not rows.schema.equals(own):
        raise ValueError(f"rows have the columns {_printed(rows.schema)}, not {_printed(own)} as their file")
    shares = _shares(rows, column_threads())
    if len(shares) == 1:
        return _encoded(rows, options)
    with ThreadPoolExecutor(len(shares) - 1) as pool:
        others = [pool.submit(_encoded, rows.select(share), options) for share in shares[1:]]
        found = _encoded(rows.select(shares[0]), options)
        for other in others:
            found |= other.result()
    return found


def _shares(rows: pa.Table, threads: int) -> list[list[str]]:
    """Share out columns by their bytes, the largest first."""
    if threads == 1 or rows.num_columns == 1 or rows.nbytes < _LEAST_BYTES:
        return [rows.column_names]
    shares: list[list[str]] = [[] for _ in range(min(threads, rows.num_columns))]
    sizes = [0] * len(shares)
    for column in sorted(range(rows.num_columns), key=lambda index: -rows.column(index).nbytes):
        least = sizes.index(min(sizes))
        shares[least].append(rows.column_names[column])
        sizes[least] += rows.column(column).nbytes
    return shares


def _encoded(rows: pa.Table, options: Mapping[str, Any]) -> dict[str, list[Chunk]]:
    if not rows.num_columns:
        return {}
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, write_page_checksum=True, **options) as writer:
        writer.write_table(rows, row_group_size=rows.num_rows)
    footer = footer_of(sink.getvalue())
    if footer.rows != [rows.num_rows]:
        raise ValueError(f"{rows.num_rows} rows became row groups of {footer.rows}")
    leaves = leaves_by_column(rows.schema)
    if sum(map(len, leaves.values())) != footer.leaves:
        raise ValueError(f"the columns {_printed(rows.schema)} became {footer.leaves} columns of Parquet")
    return {name: [footer.chunk(0, leaf) for leaf in found] for name, found in leaves.items()}


def leaves_by_column(schema: pa.Schema) -> dict[str, range]:
    """Return where the leaves of columns are among those of a file."""
    found: dict[str, range] = {}
    first = 0
    for field in schema:
        end = first + sum(1 for _ in leaves_of(field))
        found[field.name] = range(first, end)
        first = end
    return found


def _printed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema)
