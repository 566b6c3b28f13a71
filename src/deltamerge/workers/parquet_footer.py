"""The footer of a Parquet file and the column chunks that it describes, to be put into another file as they are.

Source: Parquet, ``parquet.thrift``, whose field ids are used here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

import pyarrow as pa

from deltamerge.workers.thrift_compact import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    read_struct,
    write_struct,
)

MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
# Of a file's end, where nearly all footers are whole.
_END_BYTES = 64 << 10
_WRITTEN_BYTES = 8 << 20
# Readers make up for errors of these writers, whose name is in the footer.
_CORRECTED = re.compile(r"parquet-mr version (0\.|1\.\d(\D|$))|parquet-cpp version|impala version", re.IGNORECASE)
_ORDERS_BY_LENGTH = re.compile(r"parquet-rs version [0-5]\.", re.IGNORECASE)
# It took the maximum of a chunk's last page for that of the chunk. https://github.com/pola-rs/polars/issues/7842
_WRONG_ALWAYS = re.compile("Arrow2 ")
# Other writers compare decimals in bytes as if they had no sign, or each byte as if it had one. Among them are Polars,
# which gives no version, and earlier versions of these. https://github.com/apache/arrow/issues/42906,
# https://github.com/apache/arrow-rs/issues/1532, https://github.com/pola-rs/polars/issues/29347, PARQUET-686
_ORDERS_DECIMALS = re.compile(
    r"parquet-mr version (1\.\d\d|[2-9])|parquet-cpp-arrow version ([4-9]|\d\d)|delta-rs version|DuckDB version v[1-9]|"
    r"parquet-rs version ([2-9]\d|\d{3})"
)
_BINARIES = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
# FileMetaData
_SCHEMA, _ROWS, _GROUPS, _METADATA, _ORDERS = 2, 3, 4, 5, 7
# SchemaElement, and of groups only
_CHILDREN = 5
_FIELDS_OF_FILE = frozenset(range(1, 8))
# RowGroup
_COLUMNS, _BYTE_SIZE, _GROUP_ROWS, _GROUP_OFFSET, _COMPRESSED_SIZE, _ORDINAL = 1, 2, 3, 5, 6, 7
# ColumnChunk
_CHUNK_OFFSET, _COLUMN, _OFFSET_INDEX, _OFFSET_INDEX_LENGTH, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH = range(2, 8)
# Without the path of another file, which has the chunk.
_FIELDS_OF_CHUNK = frozenset(range(2, 8))
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


def footer_bytes(file: IO[bytes]) -> int:
    """Return how many bytes a Parquet file's footer has, by what is written at the file's end."""
    file.seek(max(0, file.seek(0, io.SEEK_END) - 8))
    return int.from_bytes(file.read(4), "little")


def rows_by_footer(file: IO[bytes]) -> int | None:
    """Return how many rows a Parquet file has, whatever types its columns have; None where its footer is encrypted.

    Raises:
        ValueError: It is not a Parquet file.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _END_BYTES))
    end = file.read()
    if end[-4:] == _ENCRYPTED:
        return None
    start = size - 8 - int.from_bytes(end[-8:-4], "little")
    if end[-4:] != MAGIC or start < len(MAGIC):
        raise ValueError("it does not end as a Parquet file does")
    if size - start > len(end):
        file.seek(start)
        end = file.read()
    kind, rows = read_struct(end[start - size :], last=_ROWS).get(_ROWS, (I64, None))
    if kind != I64 or rows is None:
        raise ValueError("its footer does not say how many rows it has")
    return int(rows)


def has_wrong_bounds(metadata: Any, index: int) -> bool:  # noqa: ANN401
    """Return whether a file's writer may have compared the values of a leaf in another order than theirs.

    Args:
        metadata: The file's ``FileMetaData``.
        index: The leaf's place among those of the file.
    """
    writer, column = metadata.created_by or "", metadata.schema.column(index)
    if _WRONG_ALWAYS.match(writer) or column.physical_type not in _BINARIES:
        return _WRONG_ALWAYS.match(writer) is not None
    if column.logical_type.type != "DECIMAL":
        return _ORDERS_BY_LENGTH.match(writer) is not None
    # Of bytes of any length only parquet-mr compares the numbers. https://github.com/apache/arrow-rs/issues/10860
    has_length = column.physical_type == "FIXED_LEN_BYTE_ARRAY" or writer.startswith("parquet-mr")
    return not has_length or _ORDERS_DECIMALS.match(writer) is None


@dataclass(frozen=True)
class Chunk:
    """The values of a column in a row group: their bytes, and what the footer and the page index have of them."""

    pages: Any
    start: int
    description: Struct
    column_index: bytes | None
    offset_index: Struct | None


class Footer:
    """What a file's footer has, field by field.

    Args:
        reader: Returns, of ranges that are going to be read, the function that returns the file's bytes.
    """

    def __init__(self, reader: Callable[[Sequence[tuple[int, int]]], Bytes], size: int) -> None:
        read, end = reader([]), size - len(MAGIC) - 4
        length = int.from_bytes(memoryview(read(end, end + 4)), "little")
        self.content = read_struct(bytes(memoryview(read(end - length, end))))
        # All indexes together are between the rows and the footer.
        indexes = [
            column[index][1]
            for column in self._columns()
            for index in (_OFFSET_INDEX, _COLUMN_INDEX)
            if index in column
        ]
        self._read = reader([(min(indexes), end - length)]) if indexes else read

    @property
    def rows(self) -> list[int]:
        return [group[_GROUP_ROWS][1] for group in self.content[_GROUPS][1][1]]

    @property
    def leaves(self) -> int:
        """The leaves of the schema: what a row group has a chunk of each."""
        return sum(_CHILDREN not in element for element in self.content[_SCHEMA][1][1])

    @property
    def has_plain_chunks(self) -> bool:
        """Whether chunks mean the same in another file.

        They are in this one, and not encrypted; what readers must know of them is what this module knows; and it is
        told how values are ordered, without which bounds mean nothing.
        """
        is_known = self.content.keys() <= _FIELDS_OF_FILE and _ORDERS in self.content
        return is_known and all(column.keys() <= _FIELDS_OF_CHUNK for column in self._columns())

    def _columns(self) -> Iterator[Struct]:
        for group in self.content[_GROUPS][1][1]:
            yield from group[_COLUMNS][1][1]

    def has_bounds(self, group: int, column: int) -> bool:
        """Return whether a chunk has a minimum and a maximum, or only NULLs."""
        metadata = self._chunk(group, column)[_COLUMN][1]
        statistics = metadata[_STATISTICS][1] if _STATISTICS in metadata else {}
        if _LOW in statistics and _HIGH in statistics:
            return True
        return _NULLS in statistics and statistics[_NULLS][1] == metadata[_VALUES][1]

    def span(self, group: int, column: int) -> tuple[int, int]:
        """Return where a chunk begins in the file, and where it ends."""
        metadata: Struct = self._chunk(group, column)[_COLUMN][1]
        start = metadata[_DATA_PAGE][1]
        if _DICTIONARY_PAGE in metadata and metadata[_DICTIONARY_PAGE][1]:
            start = min(start, metadata[_DICTIONARY_PAGE][1])
        return start, start + metadata[_COMPRESSED][1]

    def chunk(self, group: int, column: int, read: Bytes | None = None) -> Chunk:
        """Return a column's values in a row group.

        Args:
            read: Returns the file's bytes; None for the footer's own.

        Raises:
            ValueError: The file ends before.
        """
        description = self._chunk(group, column)
        start, end = self.span(group, column)
        pages = (read or self._read)(start, end)
        if len(pages) != end - start:
            raise ValueError("a column ends behind the end of its file")
        column_index = self._part(description, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH)
        offset_index = self._part(description, _OFFSET_INDEX, _OFFSET_INDEX_LENGTH)
        places = None if offset_index is None else read_struct(offset_index)
        return Chunk(pages, start, description, column_index if places else None, places)

    def _chunk(self, group: int, column: int) -> Struct:
        found: Struct = self.content[_GROUPS][1][1][group][_COLUMNS][1][1][column]
        return found

    def _part(self, description: Struct, offset: int, length: int) -> bytes | None:
        if offset not in description or length not in description:
            return None
        first = description[offset][1]
        # A slice would keep in memory what it is of.
        return bytes(memoryview(self._read(first, first + description[length][1])))


class ChunkFile:
    """Write a Parquet file of column chunks, one row group after another.

    Args:
        stream: Where to; nothing is written there yet.
        form: The footer of a file with the same schema and metadata, and without rows.
    """

    def __init__(self, stream: Any, form: Footer) -> None:  # noqa: ANN401
        self._stream = stream
        self._form = form.content
        self._leaves = form.leaves
        self._groups: list[Struct] = []
        self._indexes: list[tuple[Struct, bytes | None, bytes | None]] = []
        self._pending: list[pa.Buffer] = []
        self._at = self._written = 0
        self._put(MAGIC)

    def _put(self, content: Any) -> None:  # noqa: ANN401
        self._pending.append(pa.py_buffer(content))
        self._at += len(content)
        if self._at - self._written >= _WRITTEN_BYTES:
            self._flush()

    def _flush(self) -> None:
        for run in _runs(self._pending):
            self._stream.write(run)
        self._pending, self._written = [], self._at

    @property
    def size(self) -> int:
        return self._at

    def add(self, rows: int, chunks: list[Chunk]) -> None:
        """Add a row group of chunks for all leaves of the schema."""
        if len(chunks) != self._leaves:
            raise ValueError(f"a row group has {len(chunks)} column chunks, and its file {self._leaves} columns")
        first, columns, uncompressed = self._at, list[Struct](), 0
        for chunk in chunks:
            shift = self._at - chunk.start
            metadata = {
                number: (field[0], field[1] + shift)
                if number in (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE) and field[1]
                else field
                for number, field in chunk.description[_COLUMN][1].items()
                # A Bloom filter is elsewhere in its file.
                if number not in (_BLOOM_FILTER, _BLOOM_FILTER_LENGTH)
            }
            columns.append({_CHUNK_OFFSET: (I64, 0), _COLUMN: (STRUCT, metadata)})
            uncompressed += metadata[_UNCOMPRESSED][1]
            self._indexes.append((columns[-1], chunk.column_index, _shifted(chunk.offset_index, shift)))
            self._put(chunk.pages)
        group = {
            _COLUMNS: (LIST, (STRUCT, columns)),
            _BYTE_SIZE: (I64, uncompressed),
            _GROUP_ROWS: (I64, rows),
            _GROUP_OFFSET: (I64, first),
            _COMPRESSED_SIZE: (I64, self._at - first),
        }
        if len(self._groups) < _MOST_NUMBERED:
            group[_ORDINAL] = (I16, len(self._groups))
        self._groups.append(group)

    def end(self, metadata: dict[bytes, bytes]) -> bytes:
        """Write the footer, with more key-value metadata, and return it as a Parquet file without rows."""
        for column, index, _ in self._indexes:
            self._put_index(column, index, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH)
        for column, _, index in self._indexes:
            self._put_index(column, index, _OFFSET_INDEX, _OFFSET_INDEX_LENGTH)
        content = dict(self._form)
        content[_ROWS] = (I64, sum(group[_GROUP_ROWS][1] for group in self._groups))
        content[_GROUPS] = (LIST, (STRUCT, self._groups))
        more = [{1: (BINARY, key), 2: (BINARY, value)} for key, value in metadata.items()]
        if more:
            own = content[_METADATA][1][1] if _METADATA in content else []
            content[_METADATA] = (LIST, (STRUCT, [*own, *more]))
        footer = write_struct({number: content[number] for number in sorted(content)})
        footer += len(footer).to_bytes(4, "little") + MAGIC
        self._put(footer)
        self._flush()
        return MAGIC + footer

    def _put_index(self, column: Struct, content: bytes | None, offset: int, length: int) -> None:
        if content is not None:
            placed = {**column, offset: (I64, self._at), length: (I32, len(content))}
            column.clear()
            column.update(sorted(placed.items()))
            self._put(content)


def _runs(buffers: Sequence[pa.Buffer]) -> Iterator[pa.Buffer]:
    """Yield the same bytes in few buffers, where they are one behind the other in memory without copying them.

    Each write waits for the interpreter's lock: of a thousand small ones that would be most of the time.
    """
    first = 0
    for index, buffer in enumerate(buffers):
        after = buffers[index + 1].address if index + 1 < len(buffers) else None
        if buffer.address + buffer.size != after:
            start, end = buffers[first].address, buffer.address + buffer.size
            yield buffer if first == index else pa.foreign_buffer(start, end - start, base=buffers[first : index + 1])
            first = index + 1


def _shifted(index: Struct | None, shift: int) -> bytes | None:
    """Return an offset index whose pages are elsewhere."""
    if index is None:
        return None
    kind, locations = index[_LOCATIONS][1]
    moved = [{**location, _LOCATION_OFFSET: (I64, location[_LOCATION_OFFSET][1] + shift)} for location in locations]
    return write_struct({**index, _LOCATIONS: (LIST, (kind, moved))})


def is_of_known_writer(created_by: str | None) -> bool:
    """Return whether chunks mean the same in a file of another writer. Source: Parquet, ``created_by``."""
    wrong = (_CORRECTED, _ORDERS_BY_LENGTH)
    return " version " in (created_by or "") and not any(writers.match(created_by or "") for writers in wrong)


def footer_of(buffer: pa.Buffer) -> Footer:
    return Footer(lambda _: lambda first, end: buffer[first:end], buffer.size)
