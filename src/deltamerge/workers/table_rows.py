"""Rows of a table's files as Arrow batches in the table's schema, without the rows that deletion vectors delete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltamerge.workers.files import Files, check_rows
from deltamerge.workers.row_blocks import Blocks, mask_of
from deltamerge.workers.staged_rows import is_of_other_calendar, is_of_spark_2
from deltamerge.workers.table_columns import Part, has_times, is_array, shaped

_MICROSECONDS_OF_1900 = -2_208_988_800_000_000


@dataclass(frozen=True)
class FilePart:
    """Rows of a file: those of the row groups whose middle is in a range of its bytes, or all.

    Args:
        path: The path, as tasks open it.
        bytes: The first of the bytes, and the one after the last; None for all.
        deleted: The positions of the rows that are deleted.
        values: The values of columns that are the same for all rows, each an array of one value.
        size: The file's bytes by the log; None where it does not have them.
    """

    path: str
    bytes: tuple[int, int] | None = None
    deleted: Blocks | None = None
    values: Mapping[str, pa.Array] = field(default_factory=dict)
    size: int | None = None


@dataclass(frozen=True)
class RowsOfTable:
    """How a table's files are read.

    Args:
        columns: For each column of `schema` how files have it.
        expected: The columns of which every file has one; none where that is not certain.
        batch_rows: The most rows of a batch.
        time_zone: The session's time zone, where values depend on it; else None.
    """

    files: Files
    table: str
    schema: pa.Schema
    columns: tuple[Part, ...]
    expected: tuple[str, ...]
    batch_rows: int
    time_zone: str | None = None

    def read(self, parts: Iterable[FilePart]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of parts of files.

        Raises:
            ValueError: A file is not to be read in this way; the message has its name.
        """
        for part in parts:
            try:
                yield from self._rows(part)
            except FileNotFoundError as error:
                raise ValueError(
                    f"[DELTA_FILE_NOT_FOUND_DETAILED] The data file {part.path} of table {self.table} does not exist: "
                    "it may have been deleted by a vacuum since the frame was made, or by hand."
                ) from error
            except pa.ArrowException as error:
                raise ValueError(
                    f"PyArrow cannot read the data file {part.path} of table {self.table}: {error}. Unless the file is "
                    "damaged, Spark can: read the table with DeltaTable.toDF()."
                ) from error
            except (ValueError, OSError) as error:
                raise ValueError(f"The data file {part.path} of table {self.table} cannot be read: {error}") from error

    def _rows(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        size = self.files.version(part.path)[0]
        if part.size not in (None, size):
            raise ValueError(f"it has {size} bytes, but {part.size} by the log: it was cut off, or replaced")
        with self.files.parquet(part.path, int96="us") as file:
            fields = list(file.schema_arrow)
            self._check(file, fields)
            stored = {
                name: index
                for name, column in zip(self.schema.names, self.columns, strict=True)
                if name not in part.values and (index := column.index_in(fields)) is not None
            }
            keep = None if part.deleted is None else ~mask_of(part.deleted, file.metadata.num_rows)
            start = 0
            for group in range(file.metadata.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                wanted = keep is None or keep[start : start + rows].any()
                if wanted and (part.bytes is None or _is_within(file.metadata.row_group(group), part.bytes)):
                    yield from self._group(file, group, rows, stored, part, None if keep is None else keep[start:])
                start += rows

    def _check(self, file: pq.ParquetFile, fields: list[pa.Field]) -> None:
        found = {each.name.lower() for each in fields}
        by_name = not any(column.is_found_by_id(fields) for column in self.columns)
        if by_name and self.expected and found.isdisjoint(name.lower() for name in self.expected):
            raise ValueError(
                f"[DELTAMERGE_FILE_WITHOUT_COLUMNS] It has none of the table's columns {', '.join(self.expected)}, but "
                f"{', '.join(each.name for each in fields)}: it was written under other names"
            )
        if is_of_spark_2(file.metadata) and any(has_times(each.type) for each in fields):
            raise ValueError("its times are in the calendar of Spark 2; read the table with DeltaTable.toDF()")

    def _group(
        self,
        file: pq.ParquetFile,
        group: int,
        rows: int,
        stored: Mapping[str, int],
        part: FilePart,
        keep: np.ndarray | None,
    ) -> Iterator[pa.RecordBatch]:
        has_old = is_of_other_calendar(file.metadata)
        names = list(dict.fromkeys(file.schema_arrow.field(index).name for index in stored.values()))
        batches: Iterable[pa.RecordBatch | int]
        if names:
            batches = file.iter_batches(self.batch_rows, row_groups=[group], columns=names, use_threads=False)
        else:
            batches = [min(self.batch_rows, rows - start) for start in range(0, rows, self.batch_rows)]
        start = 0
        for batch in batches:
            length = batch if isinstance(batch, int) else batch.num_rows
            arrays = []
            for name, column in zip(self.schema.names, self.columns, strict=True):
                if name in part.values:
                    arrays.append(pa.repeat(part.values[name][0], length))
                elif name not in stored or isinstance(batch, int):
                    arrays.append(pa.nulls(length, column.shape.target))
                else:
                    found = batch.column(file.schema_arrow.field(stored[name]).name)
                    if has_old:
                        _check_since_1900(found)
                    arrays.append(_shaped(found, column, name))
            made = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            if keep is not None:
                mask = keep[start : start + length]
                made = made if mask.all() else made.filter(pa.array(mask))
            start += length
            if made.num_rows:
                yield made
        check_rows(start, rows)


def _check_since_1900(values: pa.Array) -> None:
    """Refuse times of Spark 3.0 that are others in the calendar of Spark 2 than in today's."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        first = pc.min(values.cast(pa.int64())).as_py()
        if first is not None and first < _MICROSECONDS_OF_1900:
            raise ValueError("it has times before 1900 in the calendar of Spark 2; use DeltaTable.toDF()")
    elif pa.types.is_map(kind):
        _check_since_1900(values.keys)
        _check_since_1900(values.items)
    elif pa.types.is_struct(kind):
        for field in values.flatten():
            _check_since_1900(field)
    elif is_array(kind):
        _check_since_1900(values.flatten())


def _shaped(found: pa.Array, column: Part, name: str) -> pa.Array:
    try:
        return shaped(found, column.shape)
    except (ValueError, pa.ArrowException) as error:
        raise ValueError(f"column {name}: {error}") from error


def _is_within(group: pq.RowGroupMetaData, wanted: tuple[int, int]) -> bool:
    """Return whether the middle of a row group is among some bytes, as Spark decides which task reads it."""
    chunks = [group.column(index) for index in range(group.num_columns)]
    begin = min(
        chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset for chunk in chunks
    )
    middle = begin + sum(chunk.total_compressed_size for chunk in chunks) // 2
    return bool(wanted[0] <= middle < wanted[1])
