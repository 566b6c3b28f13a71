"""A Parquet file written again: columns of a row group that do not change are copied as they are, not encoded again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.workers.encoded_columns import MOST_ROWS, encoded_columns, leaves_by_column
from deltamerge.workers.files import Files, WholeParquet
from deltamerge.workers.null_counts import uncounted_leaves
from deltamerge.workers.parquet_footer import Chunk, Footer, is_of_known_writer
from deltamerge.workers.table_columns import plain_schema
from deltamerge.workers.table_writer import TableWriter

Changed: TypeAlias = Collection[str] | None
"""The columns of a row group that change; None where rows leave it, so that all of them do."""


class PatchedFile(TableWriter):
    """Write a file that takes another one's place.

    Args:
        schema: The new file's.
        options: Arguments of ``ParquetWriter`` for what is encoded.
        changed: What changes in each row group.
    """

    def __init__(
        self,
        files: Files,
        target: str,
        source: WholeParquet,
        schema: pa.Schema,
        options: Mapping[str, Any],
        metadata: Mapping[bytes, bytes],
        changed: Sequence[Changed],
    ) -> None:
        super().__init__(files, target, schema, options, metadata)
        self._source = source
        self._changed = changed
        self._alike: Mapping[str, range] = {}
        alike = _columns_alike(source.file, schema)
        if any(alike.keys() - columns for columns in changed if columns is not None):
            self._before = Footer(source.reader, source.size)
            self._alike = alike if self._before.has_plain_chunks else {}

    def columns(self, group: int) -> list[str]:
        """Return the columns of a row group that `write_group` has to be given at least.

        All that cannot be copied are among them, and those with floating-point numbers, which are looked at for NaN.
        """
        changed = self._changed[group]
        copied = self._alike.keys() - changed - self._nan.columns if changed is not None else frozenset[str]()
        return [name for name in self.schema.names if name not in copied]

    def write_group(self, group: int, rows: pa.Table) -> None:
        """Write what a row group of the file has become."""
        if not self._alike:
            self.write(rows)
            return
        self._nan.watch(rows)
        changed, given = self._changed[group], frozenset(rows.column_names)
        copied: list[str] = []
        count = rows.num_rows
        if changed is not None:
            count = self._source.file.metadata.row_group(group).num_rows
            unchanged = (name for name in self._alike if name not in changed)
            copied = [name for name in unchanged if name not in given or self._is_copied(group, name, rows)]
        encoded = [name for name in self.schema.names if name in given.difference(copied)]
        if count:
            found = encoded_columns(rows.select(encoded), self.schema, self._options)
            self._add(count, found | self._copied(group, copied))

    def _is_copied(self, group: int, name: str, rows: pa.Table) -> bool:
        # Writers that leave NaN out of a chunk's bounds, and those that leave such bounds out, look alike.
        return name not in self._nan.columns or (
            all(self._before.has_bounds(group, leaf) for leaf in self._alike[name]) and not self._nan.is_in(rows, name)
        )

    def _copied(self, group: int, names: Sequence[str]) -> dict[str, list[Chunk]]:
        leaves = {name: self._alike[name] for name in names}
        spans = [self._before.span(group, leaf) for leaf in chain.from_iterable(leaves.values())]
        read = self._source.reader(spans)
        return {name: [self._before.chunk(group, leaf, read) for leaf in found] for name, found in leaves.items()}


def _columns_alike(file: pq.ParquetFile, schema: pa.Schema) -> dict[str, range]:
    """Return the columns that a file has just as one with another schema has them, and their leaves in the file.

    Without any where the writer is unknown, or wrote larger row groups than are written here.
    """
    before, metadata = plain_schema(file.schema_arrow), file.metadata
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    if not is_of_known_writer(metadata.created_by) or max(rows, default=0) > MOST_ROWS:
        return {}
    leaves, uncounted = leaves_by_column(before), uncounted_leaves(metadata.created_by, before)
    if sum(map(len, leaves.values())) != len(file.schema):
        # Of a type that is not known.
        return {}
    return {
        field.name: leaves[field.name]
        for field in schema
        if field.name in leaves
        and before.field(field.name).equals(field)
        # The new file would be taken for one whose writer counts all missing values.
        and uncounted.isdisjoint(leaves[field.name])
    }
