"""The footer of a Parquet file and the column chunks that it describes, to be put into another file as they are.

Source: Parquet, ``parquet.thrift``, whose field ids are used here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from deltamerge.workers.thrift_compact import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    Items,
    Struct,
    read_struct,
    write_struct,
)

MAGIC = b"PAR1"
# Readers make up for errors of older versions, and of some other writers, by the name in the footer.
_WRITERS = re.compile(rb"parquet-mr version 1\.[1-9]\d|parquet-cpp-arrow version|parquet-rs version|DuckDB version")
# FileMetaData
_ROWS, _GROUPS, _METADATA, _CREATED_BY, _ORDERS = 3, 4, 5, 6, 7
# RowGroup
_COLUMNS, _BYTE_SIZE, _GROUP_ROWS, _GROUP_OFFSET, _COMPRESSED_SIZE, _ORDINAL = 1, 2, 3, 5, 6, 7
# ColumnChunk
_FILE_PATH, _CHUNK_OFFSET, _COLUMN = 1, 2, 3
_OFFSET_INDEX, _OFFSET_INDEX_LENGTH, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH = 4, 5, 6, 7
# ColumnMetaData
_VALUES, _UNCOMPRESSED, _COMPRESSED = 5, 6, 7
_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE, _STATISTICS, _BLOOM_FILTER, _BLOOM_FILTER_LENGTH = 9, 10, 11, 12, 14, 15
# Statistics
_NULLS, _HIGH, _LOW = 3, 5, 6
# The most row groups that have a number: it has 16 bits.
_MOST_NUMBERED = 1 << 15
# OffsetIndex, and its PageLocation
_LOCATIONS, _LOCATION_OFFSET = 1, 1

Bytes: TypeAlias = Callable[[int, int], Any]
"""Returns a file's bytes from a place on and before another, as a buffer."""


@dataclass(frozen=True)
class Chunk:
    """The values of a column in a row group: their bytes, and what the footer and the page index have of them."""

    pages: Any
    start: int
    description: Struct
    column_index: Any | None
    offset_index: Struct | None


class Footer:
    """What a file's footer has, field by field.

    Args:
        read: Returns its bytes.
    """

    def __init__(self, read: Bytes, size: int) -> None:
        self._read = read
        end = size - len(MAGIC) - 4
        length = int.from_bytes(memoryview(read(end, end + 4)), "little")
        self.content = read_struct(bytes(memoryview(read(end - length, end))))

    @property
    def is_of_known_writer(self) -> bool:
        """Whether chunks mean the same in a file of another writer: statistics do with the orders of columns only."""
        created_by = self.content.get(_CREATED_BY)
        return created_by is not None and _WRITERS.match(created_by.value) is not None and _ORDERS in self.content

    def has_bounds(self, group: int, column: int) -> bool:
        """Return whether a chunk has a minimum and a maximum, or only NULLs."""
        metadata = self._chunk(group, column)[_COLUMN].value
        statistics = metadata[_STATISTICS].value if _STATISTICS in metadata else {}
        if _LOW in statistics and _HIGH in statistics:
            return True
        return _NULLS in statistics and statistics[_NULLS].value == metadata[_VALUES].value

    def span(self, group: int, column: int) -> tuple[int, int]:
        """Return where a chunk begins in the file, and where it ends."""
        metadata: Struct = self._chunk(group, column)[_COLUMN].value
        start = metadata[_DATA_PAGE].value
        if _DICTIONARY_PAGE in metadata and metadata[_DICTIONARY_PAGE].value:
            start = min(start, metadata[_DICTIONARY_PAGE].value)
        return start, start + metadata[_COMPRESSED].value

    def chunk(self, group: int, column: int, read: Bytes | None = None) -> Chunk:
        """Return a column's values in a row group.

        Args:
            read: Returns the file's bytes; None for the footer's own.

        Raises:
            ValueError: They are in another file, or this one ends before.
        """
        description = self._chunk(group, column)
        if _FILE_PATH in description:
            raise ValueError("a column is in another file")
        start, end = self.span(group, column)
        pages = (read or self._read)(start, end)
        if len(pages) != end - start:
            raise ValueError("a column ends behind the end of its file")
        column_index = self._part(description, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH)
        offset_index = self._part(description, _OFFSET_INDEX, _OFFSET_INDEX_LENGTH)
        places = None if offset_index is None else read_struct(bytes(memoryview(offset_index)))
        return Chunk(pages, start, description, column_index if places else None, places)

    def _chunk(self, group: int, column: int) -> Struct:
        found: Struct = self.content[_GROUPS].value.values[group][_COLUMNS].value.values[column]
        return found

    def _part(self, description: Struct, offset: int, length: int) -> Any | None:  # noqa: ANN401
        if offset not in description or length not in description:
            return None
        first = description[offset].value
        return self._read(first, first + description[length].value)


class ChunkFile:
    """Write a Parquet file of column chunks, one row group after another.

    Args:
        stream: Where to; nothing is written there yet.
        form: The footer of a file with the same schema and metadata, and without rows.
    """

    def __init__(self, stream: Any, form: Footer) -> None:  # noqa: ANN401
        self._stream = stream
        self._form = form.content
        self._groups: list[Struct] = []
        self._indexes: list[tuple[Struct, Chunk, int]] = []
        self._at = 0
        self._put(MAGIC)

    def _put(self, content: Any) -> None:  # noqa: ANN401
        self._stream.write(content)
        self._at += len(content)

    def add(self, rows: int, chunks: list[Chunk]) -> None:
        """Add a row group of chunks for all leaves of the schema."""
        first, columns, uncompressed = self._at, list[Struct](), 0
        for chunk in chunks:
            shift = self._at - chunk.start
            metadata = {
                number: Field(field.kind, field.value + shift)
                if number in (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE) and field.value
                else field
                for number, field in chunk.description[_COLUMN].value.items()
                # A Bloom filter is elsewhere in its file.
                if number not in (_BLOOM_FILTER, _BLOOM_FILTER_LENGTH)
            }
            columns.append({_CHUNK_OFFSET: Field(I64, 0), _COLUMN: Field(STRUCT, metadata)})
            uncompressed += metadata[_UNCOMPRESSED].value
            self._indexes.append((columns[-1], chunk, shift))
            self._put(chunk.pages)
        group = {
            _COLUMNS: Field(LIST, Items(STRUCT, columns)),
            _BYTE_SIZE: Field(I64, uncompressed),
            _GROUP_ROWS: Field(I64, rows),
            _GROUP_OFFSET: Field(I64, first),
            _COMPRESSED_SIZE: Field(I64, self._at - first),
        }
        if len(self._groups) < _MOST_NUMBERED:
            group[_ORDINAL] = Field(I16, len(self._groups))
        self._groups.append(group)

    def end(self, metadata: dict[bytes, bytes]) -> bytes:
        """Write the footer, with more key-value metadata, and return it as a Parquet file without rows."""
        column_indexes = [chunk.column_index for _, chunk, _ in self._indexes]
        self._put_indexes(column_indexes, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH)
        offset_indexes = [_shifted(chunk.offset_index, shift) for _, chunk, shift in self._indexes]
        self._put_indexes(offset_indexes, _OFFSET_INDEX, _OFFSET_INDEX_LENGTH)
        content = dict(self._form)
        content[_ROWS] = Field(I64, sum(group[_GROUP_ROWS].value for group in self._groups))
        content[_GROUPS] = Field(LIST, Items(STRUCT, self._groups))
        more = [{1: Field(BINARY, key), 2: Field(BINARY, value)} for key, value in metadata.items()]
        if more:
            own = content[_METADATA].value.values if _METADATA in content else []
            content[_METADATA] = Field(LIST, Items(STRUCT, [*own, *more]))
        footer = write_struct({number: content[number] for number in sorted(content)})
        footer += len(footer).to_bytes(4, "little") + MAGIC
        self._put(footer)
        return MAGIC + footer

    def _put_indexes(self, indexes: list[Any | None], offset: int, length: int) -> None:
        for (column, _, _), content in zip(self._indexes, indexes, strict=True):
            if content is not None:
                placed = {**column, offset: Field(I64, self._at), length: Field(I32, len(content))}
                column.clear()
                column.update(sorted(placed.items()))
                self._put(content)


def _shifted(index: Struct | None, shift: int) -> bytes | None:
    """Return an offset index whose pages are elsewhere."""
    if index is None:
        return None
    kind, locations = index[_LOCATIONS].value
    moved = [
        {**location, _LOCATION_OFFSET: Field(I64, location[_LOCATION_OFFSET].value + shift)} for location in locations
    ]
    return write_struct({**index, _LOCATIONS: Field(LIST, Items(kind, moved))})


def footer_of(buffer: pa.Buffer) -> Footer:
    """Return the footer of a file in memory."""
    return Footer(lambda first, end: buffer[first:end], buffer.size)
