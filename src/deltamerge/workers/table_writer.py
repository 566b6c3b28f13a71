"""A new Parquet file of a table, written by PyArrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.workers.encoded_columns import MOST_ROWS, encoded_columns
from deltamerge.workers.files import Files, Output
from deltamerge.workers.nan_columns import NanColumns
from deltamerge.workers.parquet_footer import Chunk, ChunkFile, footer_of

_Writer = TypeVar("_Writer", bound="TableWriter")


class TableWriter:
    """Write a Parquet file that appears whole once the block ends well, and not at all where it has no rows.

    Its footer records which floating-point columns have NaN.

    Args:
        options: Arguments of ``ParquetWriter``.

    Attributes:
        rows: The rows written so far.
        size: The file's bytes, once the block has ended.
        footer: The file's footer, as a Parquet file without rows, once the block has ended.
    """

    def __init__(
        self,
        files: Files,
        target: str,
        schema: pa.Schema,
        options: Mapping[str, Any],
        metadata: Mapping[bytes, bytes],
    ) -> None:
        self.rows = 0
        self.schema = schema
        self.size = 0
        self.footer = b""
        self._options = options
        self._nan = NanColumns(schema)
        self._files = files
        self._target = target
        self._form = footer_of(_form(schema, options, metadata))

    def write(self, table: pa.Table) -> None:
        """Write rows, as a row group if they are not very many."""
        self._nan.watch(table)
        for start in range(0, table.num_rows, MOST_ROWS):
            rows = table.slice(start, MOST_ROWS)
            self._add(rows.num_rows, encoded_columns(rows, self.schema, self._options))

    def _add(self, rows: int, chunks: Mapping[str, Sequence[Chunk]]) -> None:
        self._chunks.add(rows, [chunk for name in self.schema.names for chunk in chunks[name]])
        self.rows += rows

    @property
    def bytes_so_far(self) -> int:
        return self._chunks.size

    # typing.Self is newer than Python 3.10, and executors need not have typing_extensions.
    def __enter__(self: _Writer) -> _Writer:  # noqa: PYI019
        self._output = Output(self._files, self._target)
        self._chunks = ChunkFile(self._output.stream, self._form)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._output:
            if kind is None and self.rows:
                self.footer = self._chunks.end(self._nan.as_metadata())
                self.size = self._chunks.size
                self._output.keep()


def _form(schema: pa.Schema, options: Mapping[str, Any], metadata: Mapping[bytes, bytes]) -> pa.Buffer:
    """Return a file with a schema, and without rows."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, **options) as writer:
        writer.add_key_value_metadata(dict(metadata))
    return sink.getvalue()
