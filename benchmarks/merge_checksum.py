"""An order-independent checksum of a table: a sum over its rows, so that it adds up over its files.

A row's hash mixes the hashes of all its values by column, so that values which change places change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable

_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_PRIME = np.uint64(1099511628211)
# A hash of strings takes tens of bytes for each of theirs.
_BATCH = 1 << 18
_NULL = np.uint64(0x5851F42D4C957F2D)


@dataclass(frozen=True)
class Checksum:
    """What is compared between engines.

    Args:
        rows: The number of rows.
        hash: The sum of the rows' hashes, modulo 2 to the 64.
    """

    rows: int
    hash: int

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows + other.rows, (self.hash + other.hash) % 2**64)

    def __sub__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows - other.rows, (self.hash - other.hash) % 2**64)


def table_checksum(
    path: str, known: dict[str, Checksum], files: pafs.FileSystem | None = None, options: dict[str, str] | None = None
) -> Checksum:
    """Read a Delta table's files and sum them up.

    Args:
        path: The table's folder, or its URL.
        known: Checksums of files by name that need not be read again.
        files: Opens the files of a URL.
        options: delta-rs's for a URL.
    """
    total = Checksum(0, 0)
    table = DeltaTable(path, storage_options=options)
    folder = path.partition("://")[2] or path
    kept = {
        Path(unquote(urlparse(row["filepath"]).path)).name: row["selection_vector"]
        for batch in table.deletion_vectors()
        for row in pa.record_batch(batch).to_pylist()
    }
    for name in table.get_add_actions().column("path").to_pylist():
        if name in known and Path(name).name not in kept:
            total += known[name]
        else:
            total += file_checksum(f"{folder}/{name}", kept.get(Path(name).name), files)
    return total


def file_checksum(path: str, kept: list[bool] | None, files: pafs.FileSystem | None = None) -> Checksum:
    """Sum up one Parquet file.

    Args:
        path: The file, as `files` names it.
        files: Opens it; this machine's by default.
        kept: For its first rows whether each is one of the table's; None where all rows are.
    """
    total, start = Checksum(0, 0), 0
    for batch in pq.ParquetFile(path, filesystem=files).iter_batches(batch_size=_BATCH):
        hashes = row_hashes(pa.Table.from_batches([batch]))
        if kept is not None:
            mask = kept[start : start + len(hashes)]
            hashes = hashes[[*mask, *[True] * (len(hashes) - len(mask))]]
        total += _summed(hashes)
        start += len(batch)
    return total


def rows_checksum(rows: pa.Table) -> Checksum:
    """Sum up rows; the columns' order does not matter."""
    batches = rows.to_batches(max_chunksize=_BATCH)
    return sum((_summed(row_hashes(pa.Table.from_batches([b]))) for b in batches), Checksum(0, 0))


def _summed(hashes: np.ndarray) -> Checksum:
    return Checksum(len(hashes), int(hashes.sum(dtype=np.uint64)))


def row_hashes(rows: pa.Table) -> np.ndarray:
    """Return each row's hash."""
    total = np.zeros(rows.num_rows, dtype=np.uint64)
    for name in sorted(rows.column_names):
        seed = _string_hashes(pa.array([name], pa.large_string()))[0]
        for_column = _column_hashes(rows.column(name).combine_chunks())
        total = _mixed((total * _GOLDEN) ^ _mixed(for_column + seed))
    return total


def _mixed(values: np.ndarray) -> np.ndarray:
    """Spreads each number's bits over all its bits (the finalizer of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))


def _column_hashes(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    hashes = _value_hashes(column)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _value_hashes(column: pa.Array) -> np.ndarray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _value_hashes(column.cast(kind.value_type))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _string_hashes(column.cast(pa.large_string()))
    if pa.types.is_decimal(kind):
        # Every value of TPC-H fits the lower half of its 128 bits.
        words = np.frombuffer(column.cast(pa.decimal128(38, kind.scale)).buffers()[1], dtype=np.uint64)
        return words.reshape(-1, 2)[column.offset : column.offset + len(column), 0].copy()
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
    raise NotImplementedError(f"checksum of {kind}")


def _string_hashes(column: pa.Array) -> np.ndarray:
    """Hashes each string as a polynomial of its bytes, all at once by a running sum over the bytes."""
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    if data is None or offsets[-1] == offsets[0]:
        return np.zeros(len(column), dtype=np.uint64)
    codes = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64) + np.uint64(1)
    offsets = offsets - offsets[0]
    lengths = np.diff(offsets)
    powers = np.cumprod(np.full(int(lengths.max()) + 1, _PRIME, dtype=np.uint64), dtype=np.uint64)
    places = np.arange(len(codes)) - np.repeat(offsets[:-1], lengths)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(codes * powers[places], dtype=np.uint64)])
    return sums[offsets[1:]] - sums[offsets[:-1]]
