"""A Parquet file written again: columns of a row group that do not change are copied as they are, not encoded again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.workers.files import Files, Output, WholeParquet
from deltamerge.workers.nan_columns import NanColumns
from deltamerge.workers.parquet_footer import Chunk, ChunkFile, Footer, footer_of
from deltamerge.workers.table_columns import leaves_of


class PatchedFile:
    """Write a file again; the new one appears whole once the block ends well, and not at all where it has no rows.

    Its footer records which floating-point columns have NaN.

    Args:
        source: The file.
        schema: The new one's.
        options: Arguments of ``ParquetWriter`` for what is encoded.

    Attributes:
        rows: The rows written so far.
        size: The file's bytes, once the block has ended.
        footer: The file's footer, as a Parquet file without rows, once the block has ended.
    """

    def __init__(
        self,
        files: Files,
        target: str,
        source: WholeParquet,
        schema: pa.Schema,
        options: Mapping[str, Any],
        metadata: Mapping[bytes, bytes],
    ) -> None:
        self.rows = 0
        self.size = 0
        self.footer = b""
        self._source = source
        self._before = Footer(source.reader([]), source.size)
        self._schema = schema
        self._options = options
        self._nan = NanColumns(schema)
        form = _form(schema, options, metadata)
        self._alike = _columns_alike(source.file, schema, form)
        self._output = Output(files, target)
        self._chunks = ChunkFile(self._output.stream, footer_of(form))

    def to_read(self, changed: Collection[str]) -> list[str]:
        """Return the columns of a row group that `write_group` has to be given, if some of them change.

        All that cannot be copied are among them, and those with floating-point numbers, which are looked at for NaN.
        """
        copied = self._alike.keys() - changed if self._before.is_of_known_writer else frozenset[str]()
        return [name for name in self._schema.names if name not in copied or name in self._nan.columns]

    def write(self, rows: pa.Table) -> None:
        """Write rows as a row group."""
        if rows.num_rows:
            self._nan.watch(rows)
            self._add(rows.num_rows, self._encoded(rows))

    def write_group(self, group: int, rows: pa.Table, changed: Collection[str]) -> None:
        """Write a row group of the file, some columns of which have other values now.

        Args:
            group: Its number.
            rows: All of its rows, with the columns of `to_read` at least.
            changed: The columns that change.
        """
        count = self._source.file.metadata.row_group(group).num_rows
        self._nan.watch(rows)
        copied = [name for name in self._alike if name not in changed and self._is_copied(group, name, rows)]
        chunks = self._encoded(rows.select([name for name in rows.column_names if name not in copied]))
        chunks |= self._copied(group, copied)
        self._add(count, chunks)

    def _add(self, rows: int, chunks: Mapping[str, Sequence[Chunk]]) -> None:
        self._chunks.add(rows, [chunk for name in self._schema.names for chunk in chunks[name]])
        self.rows += rows

    def _is_copied(self, group: int, name: str, rows: pa.Table) -> bool:
        if name not in rows.column_names:
            return True
        if not self._before.is_of_known_writer:
            return False
        # Writers that leave NaN out of a chunk's bounds, and those that leave such bounds out, look alike.
        return name not in self._nan.columns or (
            all(self._before.has_bounds(group, leaf) for leaf in self._alike[name]) and not self._nan.is_in(rows, name)
        )

    def _copied(self, group: int, names: Sequence[str]) -> dict[str, list[Chunk]]:
        leaves = {name: self._alike[name] for name in names}
        spans = [self._before.span(group, leaf) for leaf in chain.from_iterable(leaves.values())]
        read = self._source.reader(spans)
        return {name: [self._before.chunk(group, leaf, read) for leaf in found] for name, found in leaves.items()}

    def _encoded(self, rows: pa.Table) -> dict[str, list[Chunk]]:
        if not rows.num_columns:
            return {}
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, rows.schema, write_page_checksum=True, **self._options) as writer:
            writer.write_table(rows, row_group_size=rows.num_rows)
        content = sink.getvalue()
        footer = footer_of(content)
        return {
            name: [footer.chunk(0, leaf) for leaf in leaves] for name, leaves in _leaves_by_column(rows.schema).items()
        }

    def __enter__(self) -> PatchedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._output:
            if kind is None and self.rows:
                self.footer = self._chunks.end(self._nan.as_metadata())
                self.size = self._output.stream.tell()
                self._output.keep()


def _form(schema: pa.Schema, options: Mapping[str, Any], metadata: Mapping[bytes, bytes]) -> pa.Buffer:
    """Return a file with a schema, and without rows."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, **options) as writer:
        writer.add_key_value_metadata(dict(metadata))
    return sink.getvalue()


def _leaves_by_column(schema: pa.Schema) -> dict[str, range]:
    """Return where the leaves of columns are among those of the file."""
    found: dict[str, range] = {}
    first = 0
    for field in schema:
        end = first + sum(1 for _ in leaves_of(field))
        found[field.name] = range(first, end)
        first = end
    return found


def _columns_alike(file: pq.ParquetFile, schema: pa.Schema, form: pa.Buffer) -> dict[str, range]:
    """Return the columns that a file has just as one with another schema has them, and their leaves in the file."""
    before = _leaves_by_column(file.schema_arrow)
    after = _leaves_by_column(schema)
    described = pq.ParquetFile(form).schema
    if sum(map(len, before.values())) != len(file.schema) or sum(map(len, after.values())) != len(described):
        # Of a type whose leaves PyArrow hides.
        return {}

    def is_alike(name: str) -> bool:
        pairs = zip(before[name], after[name], strict=False)
        return len(before[name]) == len(after[name]) and all(
            _is_same_leaf(file.schema.column(one), described.column(other)) for one, other in pairs
        )

    return {name: before[name] for name in after if name in before and is_alike(name)}


def _is_same_leaf(one: Any, other: Any) -> bool:  # noqa: ANN401
    return all(
        getattr(one, name) == getattr(other, name)
        for name in (
            "path",
            "physical_type",
            "length",
            "converted_type",
            "precision",
            "scale",
            "max_definition_level",
            "max_repetition_level",
        )
    ) and str(one.logical_type) == str(other.logical_type)
