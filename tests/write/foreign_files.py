"""Parquet files that Spark reads and PyArrow does not open."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from deltamerge.workers.thrift_compact import I32, read_struct, write_struct

_SCHEMA, _REPETITION = 2, 3
_REQUIRED, _OPTIONAL = 0, 1


class _Keys(pe.KmsClient):  # type: ignore[misc]
    """Keeps keys as they are."""

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped_key)


def write_encrypted(path: Path, *, plaintext_footer: bool) -> None:
    """Write two rows of `id` and `secret`, which is encrypted."""
    rows = pa.table({"id": [1, 2], "secret": ["a", "b"]})
    configuration = pe.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["secret"]}, plaintext_footer=plaintext_footer
    )
    properties = pe.CryptoFactory(lambda _: _Keys()).file_encryption_properties(pe.KmsConnectionConfig(), configuration)
    pq.write_table(rows, path, encryption_properties=properties)


def write_optional_keys(path: Path, rows: Sequence[tuple[int, dict[str, int]]]) -> None:
    """Write rows of `id` and `m`, maps that are not empty, whose keys may be NULL by the file's schema."""
    kind = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
    table = pa.table({"id": [row[0] for row in rows], "m": pa.array([list(row[1].items()) for row in rows], kind)})
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False)
    content = sink.getvalue()
    length = int.from_bytes(content[-8:-4], "little")
    footer = read_struct(content[-8 - length : -8])
    _, _, column, _, key, value = footer[_SCHEMA][1][1]
    # There are as many levels as before.
    column[_REPETITION] = (I32, _REQUIRED)
    key[_REPETITION] = value[_REPETITION] = (I32, _OPTIONAL)
    changed = write_struct(footer)
    path.write_bytes(content[: -8 - length] + changed + len(changed).to_bytes(4, "little") + b"PAR1")
