"""A new Parquet file of a table, written by PyArrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.workers.files import Files, Output
from deltamerge.workers.nan_columns import NanColumns

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
        self._output = Output(files, target)
        self._metadata = metadata
        self._nan = NanColumns(schema)
        self._writer = pq.ParquetWriter(self._output.stream, schema, write_page_checksum=True, **options)

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._nan.watch(table)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self.rows += table.num_rows

    @property
    def bytes_so_far(self) -> int:
        return int(self._output.stream.tell())

    # typing.Self is newer than Python 3.10, and executors need not have typing_extensions.
    def __enter__(self: _Writer) -> _Writer:  # noqa: PYI019
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._output:
            if kind is None:
                self._writer.add_key_value_metadata({**self._metadata, **self._nan.as_metadata()})
            self._writer.close()
            if kind is None and self.rows:
                self.size = self._output.stream.tell()
                sink = pa.BufferOutputStream()
                self._writer.writer.metadata.write_metadata_file(sink)
                self.footer = sink.getvalue().to_pybytes()
                self._output.keep()
