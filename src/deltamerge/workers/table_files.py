"""Rows of a frame as a table's files: with its columns, types and names there, in folders by partition."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.workers.conditions import Condition, evaluate
from deltamerge.workers.files import Files
from deltamerge.workers.partition_names import partition_folder, partition_strings, without_empty
from deltamerge.workers.table_columns import Part, Shape, has_null, padded, shaped
from deltamerge.workers.table_writer import TableWriter

# Rows wait for their file until they make a row group of this size.
_GROUP_BYTES = 64 << 20
_WAITING_BYTES = 256 << 20
_MOST_OPEN = 64
_ROWS_AT_ONCE = 10_000
_ANY = Shape(pa.null())


@dataclass(frozen=True)
class WrittenPart:
    """A file that a task has written; the footer is a Parquet file without rows."""

    path: str
    rows: int
    size: int
    footer: bytes


@dataclass(frozen=True)
class RowsToWrite:
    """How tasks write a frame's rows as files of a table.

    Args:
        folder: The folder of the write, as tasks open it; it is there.
        schema: The columns of files, in the types and with the names and ids that they have there.
        columns: For each column of `schema` how the frame has it.
        partitions: The names of partition columns in the log, and how the frame has them.
        not_null: The columns and fields, as the frame names them, that are never NULL.
        lengths: The most characters of columns, by their names.
        pads: The lengths to which strings are filled up with blanks, by the columns' names.
        conditions: What must be TRUE for every row, over the frame's columns by position, and the error otherwise.
        most_bytes: The size at which a file ends; None for one file a task and partition.
        most_rows: The rows at which a file ends; None without a limit.
        time_zone: The session's time zone, where it says which rows are replaced; else None.
    """

    files: Files
    table: str
    folder: str
    schema: pa.Schema
    columns: tuple[Part, ...]
    partitions: tuple[tuple[str, Part], ...]
    not_null: tuple[tuple[str, ...], ...]
    lengths: Mapping[str, int]
    pads: Mapping[str, int]
    conditions: tuple[tuple[Condition, str], ...]
    most_bytes: int | None
    most_rows: int | None
    options: Mapping[str, Any]
    metadata: Mapping[bytes, bytes]
    frame_schema: pa.Schema
    time_zone: str | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[WrittenPart]:
        """Write a task's rows.

        Raises:
            ValueError: A row violates a constraint, or has a value that its column does not take.
        """
        with _OpenFiles(self) as opened:
            for batch in batches:
                if batch.num_rows:
                    rows = self._as_read(batch)
                    self._check(rows)
                    opened.add(self._stored(rows), self._keys(rows))
            opened.finish()
        return opened.written

    def _as_read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a frame's rows with the values that the table has then.

        CHAR is padded with blanks, and an empty string is no partition's value.
        """
        fields, columns = list(batch.schema), list(batch.columns)
        for name, length in self.pads.items():
            index = Part(name, _ANY).index_in(fields)
            if index is not None:
                columns[index] = padded(columns[index], length)
        for _, part in self.partitions:
            index = part.index_in(fields)
            if index is not None:
                columns[index] = without_empty(columns[index])
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def _stored(self, batch: pa.RecordBatch) -> pa.Table:
        fields = list(batch.schema)
        arrays = []
        for column in self.columns:
            index = column.index_in(fields)
            try:
                found = pa.nulls(batch.num_rows) if index is None else batch.column(index)
                arrays.append(shaped(found, column.shape))
            except (ValueError, pa.ArrowException) as error:
                raise ValueError(f"column {column.name} of table {self.table} cannot be written: {error}") from error
        return pa.table(arrays, schema=self.schema)

    def _keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        fields = list(batch.schema)
        keys = []
        for _, column in self.partitions:
            index = column.index_in(fields)
            keys.append(
                pa.nulls(batch.num_rows, pa.string())
                if index is None
                else partition_strings(shaped(batch.column(index), column.shape))
            )
        return keys

    def _check(self, batch: pa.RecordBatch) -> None:
        fields = list(batch.schema)
        for path in self.not_null:
            index = Part(path[0], _ANY).index_in(fields)
            if index is None or has_null(batch.column(index), path[1:]):
                raise ValueError(
                    f"[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: {'.'.join(path)}. "
                    f"A row for table {self.table} has NULL there; nothing was written. SQLSTATE: 23502"
                )
        for name, most in self.lengths.items():
            index = Part(name, _ANY).index_in(fields)
            longest = None if index is None else pc.max(pc.utf8_length(batch.column(index).cast(pa.string()))).as_py()
            if longest is not None and longest > most:
                raise ValueError(
                    f"[DELTA_EXCEED_CHAR_VARCHAR_LIMIT] A value of column {name} of table {self.table} has {longest} "
                    f"characters, more than {most}; nothing was written. SQLSTATE: 22001"
                )
        numbered = pa.table(list(batch.columns), names=[str(index) for index in range(batch.num_columns)])
        for condition, error in self.conditions:
            holds = evaluate(condition, numbered)
            if not (holds.as_py() if isinstance(holds, pa.Scalar) else pc.all(holds.fill_null(False)).as_py()):
                raise ValueError(error)

    def as_batches(self, given: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        """Return what Spark hands to the writer of a stream as batches: Spark 4.0 hands rows."""
        waiting: list[Any] = []
        for each in given:
            if isinstance(each, pa.RecordBatch):
                yield each
                continue
            waiting.append(each)
            if len(waiting) == _ROWS_AT_ONCE:
                yield batch_of_rows(waiting, self.frame_schema)
                waiting = []
        if waiting:
            yield batch_of_rows(waiting, self.frame_schema)


@dataclass
class _Waiting:
    """The rows of a partition that wait for its file."""

    pieces: list[pa.Table] = field(default_factory=list)
    bytes: int = 0


class _OpenFiles:
    """The files that a task is writing, one for each partition."""

    def __init__(self, rows: RowsToWrite) -> None:
        self.written: list[WrittenPart] = []
        self._rows = rows
        self._writers: dict[tuple[str | None, ...], tuple[TableWriter, str]] = {}
        self._waiting: dict[tuple[str | None, ...], _Waiting] = {}
        self._bytes = 0
        self._number = 0

    def add(self, table: pa.Table, keys: Sequence[pa.Array]) -> None:
        for key, rows in _by_partition(table, keys):
            waiting = self._waiting.setdefault(key, _Waiting())
            size = rows.nbytes
            waiting.pieces.append(rows)
            waiting.bytes += size
            self._bytes += size
            if waiting.bytes >= _GROUP_BYTES:
                self._flush(key)
        if self._bytes >= _WAITING_BYTES:
            # Half of them at once: partitions are many, and so would be the searches for the largest.
            for key in sorted(self._waiting, key=lambda key: -self._waiting[key].bytes):
                if self._bytes < _WAITING_BYTES // 2:
                    break
                self._flush(key)

    def _flush(self, key: tuple[str | None, ...]) -> None:
        waiting, most = self._waiting.pop(key), self._rows.most_rows
        self._bytes -= waiting.bytes
        rows = pa.concat_tables(waiting.pieces).combine_chunks()
        while len(rows):
            writer = self._writer(key)
            count = len(rows) if most is None else most - writer.rows
            writer.write(rows.slice(0, count))
            rows = rows.slice(count)
            if self._is_full(writer):
                self._close(key)

    def _writer(self, key: tuple[str | None, ...]) -> TableWriter:
        if key not in self._writers:
            if len(self._writers) >= _MOST_OPEN:
                self._close(next(iter(self._writers)))
            self._writers[key] = self._open(key)
        return self._writers[key][0]

    def _is_full(self, writer: TableWriter) -> bool:
        most_bytes, most_rows = self._rows.most_bytes, self._rows.most_rows
        return (most_bytes is not None and writer.bytes_so_far >= most_bytes) or writer.rows == most_rows

    def _open(self, key: tuple[str | None, ...]) -> tuple[TableWriter, str]:
        rows = self._rows
        folder = rows.folder
        for (name, _), value in zip(rows.partitions, key, strict=True):
            folder = f"{folder}/{partition_folder(name, value)}"
            if folder.startswith("/"):
                # Only below the write's own folder, which is gone where the write has failed.
                with suppress(FileExistsError):
                    Path(folder).mkdir()
        self._number += 1
        path = rows.files.attempt_path(f"{folder}/part-{self._number:05d}-{uuid.uuid4().hex}.parquet")
        writer = TableWriter(rows.files, path, rows.schema, rows.options, rows.metadata)
        return writer.__enter__(), path

    def _close(self, key: tuple[str | None, ...]) -> None:
        writer, path = self._writers.pop(key)
        writer.__exit__(None)
        self.written.append(WrittenPart(path, writer.rows, writer.size, writer.footer))

    def finish(self) -> None:
        for key in list(self._waiting):
            self._flush(key)
        for key in list(self._writers):
            self._close(key)

    def __enter__(self) -> _OpenFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with ExitStack() as closing:
            for writer, _path in self._writers.values():
                closing.callback(writer.__exit__, kind)


def _by_partition(table: pa.Table, keys: Sequence[pa.Array]) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    if not keys:
        yield (), table
        return
    encoded = [key.dictionary_encode() for key in keys]
    codes = [pc.fill_null(each.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64) for each in encoded]
    numbers, first, inverse = np.unique(codes[0], return_index=True, return_inverse=True)
    for code in codes[1:]:
        # Numbered anew with each column: a product of all sizes could be beyond 64 bits.
        combined = inverse * (int(code.max(initial=-1)) + 2) + code + 1
        numbers, first, inverse = np.unique(combined, return_index=True, return_inverse=True)
    values = [
        [None if code < 0 else each.dictionary[int(code)].as_py() for code in of_column[first]]
        for each, of_column in zip(encoded, codes, strict=True)
    ]
    if len(numbers) == 1:
        yield tuple(of_column[0] for of_column in values), table
        return
    order = np.argsort(inverse, kind="stable")
    ends = np.cumsum(np.bincount(inverse))
    for place, rows in enumerate(np.split(order, ends[:-1])):
        # Copies: a part of a table would keep all of it in memory.
        yield tuple(of_column[place] for of_column in values), table.take(pa.array(rows))


def batch_of_rows(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as a batch.

    Args:
        rows: What Spark hands to writers: tuples of Python values, timestamps in the machine's time zone.
    """
    arrays = [
        pa.array([_value(row[index], field.type) for row in rows], field.type) for index, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _value(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401
    if value is None:
        return None
    if hasattr(value, "__UDT__"):
        # Of a user-defined type, as Spark ML's vectors.
        value = value.__UDT__.serialize(value)
    if pa.types.is_struct(kind):
        return {field.name: _value(each, field.type) for field, each in zip(kind, value, strict=True)}
    if pa.types.is_map(kind):
        return [(_value(key, kind.key_type), _value(each, kind.item_type)) for key, each in value.items()]
    if pa.types.is_list(kind):
        return [_value(each, kind.value_type) for each in value]
    if isinstance(value, datetime) and pa.types.is_timestamp(kind) and kind.tz is not None:
        return value.astimezone(timezone.utc)
    return value
