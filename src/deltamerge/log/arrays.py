"""Small Arrow arrays and scalars made without `pyarrow.array`.

`pyarrow.array`, `pyarrow.scalar`, `Schema.empty_table` and `Array.to_numpy` import pandas where it is
installed. That takes longer and more memory than to read the log of most tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def empty_table(schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([], schema=schema)


def from_numpy(values: npt.NDArray[Any]) -> pa.Array:
    """Return an Arrow array over the memory of a NumPy array of integers."""
    values = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def to_numpy(values: pa.Array) -> npt.NDArray[Any]:
    """Return a NumPy array over the memory of an Arrow array of integers without NULLs."""
    dtype = np.dtype(str(values.type))
    content = values.buffers()[1]
    if content is None:
        return np.empty(0, dtype)
    return np.frombuffer(content, dtype, len(values), values.offset * dtype.itemsize)


def bools(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return the values of an Arrow array of booleans without NULLs."""
    content = values.buffers()[1]
    if content is None:
        return np.empty(0, np.bool_)
    bits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
    found: npt.NDArray[np.bool_] = bits[values.offset : values.offset + len(values)].astype(np.bool_)
    return found


def mask_from_numpy(mask: npt.NDArray[np.bool_]) -> pa.Array:
    bits = np.packbits(np.asarray(mask, dtype=bool), bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits)])


def strings(values: Sequence[str]) -> pa.Array:
    """Return an Arrow array of strings, none of them NULL."""
    content = [value.encode() for value in values]
    offsets = np.zeros(len(content) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, content), np.int32, len(content)), out=offsets[1:])
    return pa.StringArray.from_buffers(len(content), pa.py_buffer(offsets), pa.py_buffer(b"".join(content)))


def repeat(value: str, count: int) -> pa.Array:
    content = value.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(content))
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(content * count))


def scalar(value: str) -> pa.Scalar:
    return repeat(value, 1)[0]


EMPTY = scalar("")
