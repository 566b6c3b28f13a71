"""What functions for ``mapInArrow`` return of the work that they did, a row for each."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

_TYPES = {"STRING": pa.string(), "BIGINT": pa.int64(), "BINARY": pa.binary()}


def answer(schema: str, *rows: Mapping[str, object]) -> pa.RecordBatch:
    """Return rows as a batch; a column that a row lacks is NULL.

    Args:
        schema: The columns as DDL.
    """
    columns = (column.split() for column in schema.split(", "))
    return pa.RecordBatch.from_pylist(list(rows), pa.schema([(name, _TYPES[kind]) for name, kind in columns]))
