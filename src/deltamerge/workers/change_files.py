"""Change data of the rows that a task writes: what they were, and what they become."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from deltamerge.workers.files import Files
from deltamerge.workers.parquet_patch import in_schema
from deltamerge.workers.staged_rows import PIECE_BYTES
from deltamerge.workers.table_writer import TableWriter

CHANGE_TYPE = "_change_type"
INSERT, DELETE = "insert", "delete"
UPDATE_PREIMAGE, UPDATE_POSTIMAGE = "update_preimage", "update_postimage"


class ChangeWriter:
    """Write a file of change data that appears whole once the block ends well, and not at all without changes.

    Args:
        target: Its path; empty where no change data is written.
        columns: The table's columns, as data files have them.
        options: Arguments of ``ParquetWriter``.
    """

    def __init__(
        self,
        files: Files,
        target: str,
        columns: pa.Schema,
        options: Mapping[str, Any],
        metadata: Mapping[bytes, bytes],
    ) -> None:
        self._files = files
        self._target = target
        self._columns = columns
        self._schema = columns.append(pa.field(CHANGE_TYPE, pa.string()))
        self._options = options
        self._metadata = metadata
        self._pending: list[pa.Table] = []
        self._writer: TableWriter | None = None

    @property
    def is_wanted(self) -> bool:
        return bool(self._target)

    @property
    def done(self) -> tuple[str, int, int]:
        """The file's path, rows and bytes, once the block has ended."""
        return ("", 0, 0) if self._writer is None else (self._target, self._writer.rows, self._writer.size)

    def add(self, rows: pa.Table, change_type: str) -> None:
        """Add rows that a change is about.

        Args:
            rows: With the table's columns in files; one that is missing is NULL, and others are left out.
        """
        if not self.is_wanted or not rows.num_rows:
            return
        kind = pa.repeat(pa.scalar(change_type, pa.string()), rows.num_rows)
        own = in_schema(rows, self._columns)
        self._pending.append(pa.table([*own.columns, kind], schema=self._schema))
        if sum(table.nbytes for table in self._pending) >= PIECE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            writer = TableWriter(self._files, self._target, self._schema, self._options, self._metadata)
            self._writer = writer.__enter__()
        self._writer.write(pa.concat_tables(self._pending).combine_chunks())
        self._pending = []

    def __enter__(self) -> ChangeWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        ended = kind
        try:
            if kind is None and self._pending:
                self._flush()
        except BaseException as error:
            # Whatever ends it, also Ctrl-C: the writer must not finish its file.
            ended = type(error)
            raise
        finally:
            if self._writer is not None:
                self._writer.__exit__(ended)
