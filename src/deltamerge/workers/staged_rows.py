"""Rows of a DataFrame staged in Arrow files, so that later tasks map them into memory and take the ones they need."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.workers.files import Files, read_rows
from deltamerge.workers.obstore_client import FileChanged
from deltamerge.workers.table_columns import in_plain_types

_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)
# A piece is one contiguous batch: rows are taken from few pieces much faster than from many.
PIECE_BYTES = 64 << 20
# Of a row group, of which tasks read those with the rows that they take.
_ROW_GROUP_BYTES = 16 << 20
STAGED_SUFFIX = ".staged.arrow"
REMOTE_SUFFIX = ".staged.parquet"
SPARK_VERSION = b"org.apache.spark.version"
_OTHER_CALENDARS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
# Empty files, in whose names tasks say how much they have staged.
_COUNT_SUFFIX = ".count.arrow"
# What stands in the place of days and times, since Python's calendar lacks some.
_AS_NUMBERS = {"date": "int", "timestamp": "bigint"}
# In the place of a path: the task has more rows than it may stage.
TOO_MANY = ""


@dataclass(frozen=True)
class Staging:
    """How rows are staged.

    Args:
        keys: The columns whose ranges are returned; numbers, dates, timestamps or strings.
        most_bytes: How many bytes they take at most.
        suffix: `STAGED_SUFFIX`, for files that tasks map into memory, or `REMOTE_SUFFIX`, for files of which they read
            some columns and rows.
        clause: The column without which a row is only counted, where there is one: NULL there.
    """

    folder: str
    keys: tuple[str, ...]
    most_rows: int
    most_bytes: int
    suffix: str = STAGED_SUFFIX
    clause: str | None = None


class SourceChanged(ValueError):
    """A file of the source is no longer the one that was looked at."""


@dataclass(frozen=True)
class StagedFile:
    """A file of rows, as it was when it was first looked at.

    Args:
        size: Its size in bytes; 0 of one that was staged.
        modified: When it was last changed, nanoseconds since 1970; 0 of one that was staged.
    """

    path: str
    rows: int
    size: int = 0
    modified: int = 0

    @property
    def is_staged(self) -> bool:
        """Whether it was written for the merge, under a name that was never used before."""
        return self.path.endswith((STAGED_SUFFIX, REMOTE_SUFFIX))

    @property
    def is_arrow(self) -> bool:
        return self.path.endswith(STAGED_SUFFIX)

    @contextmanager
    def unchanged(self, files: Files) -> Iterator[None]:
        """Read the file, once or several times.

        Raises:
            SourceChanged: It is another one now. Whatever else failed may come of that.
        """
        try:
            yield
        except Exception as error:
            # Whatever failed may come of the change: another footer, bytes of another file, no file.
            if isinstance(error, FileChanged) or self._is_another(files):
                raise SourceChanged(f"{self.path} was changed meanwhile") from error
            raise
        if self._is_another(files):
            raise SourceChanged(f"{self.path} was changed meanwhile")

    def _is_another(self, files: Files) -> bool:
        if self.is_staged:
            return False
        try:
            return files.version(self.path) != (self.size, self.modified)
        except FileNotFoundError:
            return True


@dataclass(frozen=True)
class StagedRows:
    """The rows of a source, in its own files or in files that were written for a merge.

    Args:
        files: The files that hold them, or those of their columns that are not computed; none where all are.
        names: By the name under which a column is asked for, its name in these files; empty where it is the same.
        computed: Files of Arrow with the columns that are not in `names`, in any order of rows.
        position: The column of these with the row's number among all rows.
        in_parts: Whether a task opens only the parts with the rows that it takes, since all are too many for each task.
    """

    files: tuple[StagedFile, ...]
    names: Mapping[str, str] = field(default_factory=dict)
    computed: tuple[StagedFile, ...] = ()
    position: str = ""
    in_parts: bool = False

    def beside(self, columns: Sequence[str]) -> list[str]:
        """Return those of some columns that are computed ones."""
        return [name for name in columns if self.computed and name not in self.names]

    @property
    def row_count(self) -> int:
        return sum(file.rows for file in self.files or self.computed)

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.files]


def staged_schema(key_types: Sequence[str]) -> str:
    ranges = [
        f", lo{i} {name}, hi{i} {name}, n{i} BIGINT, bytes{i} BIGINT, not_utf8{i} BIGINT"
        for i, name in enumerate(_AS_NUMBERS.get(name, name) for name in key_types)
    ]
    return "path STRING, n BIGINT, staged BIGINT, size BIGINT" + "".join(ranges)


def staging(files: Files, wanted: Staging) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that stages a task's rows, for ``mapInArrow``.

    Returns:
        A function over batches of rows that returns one row a task: the file, the rows read and staged, their bytes,
        and for each key its range, how many are not NULL, the bytes of its strings, and whether a bound of a batch is
        not UTF-8, which its range then leaves out. Without rows there is no file.
    """

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        path = f"{wanted.folder}/source-{uuid.uuid4().hex}{wanted.suffix}"
        is_mapped = wanted.suffix == STAGED_SUFFIX
        write, most = (files.write_arrow, PIECE_BYTES) if is_mapped else (files.write_row_groups, _ROW_GROUP_BYTES)
        found = _Counts(len(wanted.keys))
        rows = _counted(batches, wanted, found, _staged_before(files, wanted.folder))
        write(path, (pa.Table.from_batches(piece).combine_chunks() for piece in in_pieces(rows, most)))
        if found.staged:
            files.mark(f"{wanted.folder}/{uuid.uuid4().hex}-{found.staged}-{found.size}{_COUNT_SUFFIX}")
        if found.rows:
            yield found.as_batch(path)

    return stage


def in_pieces(tables: Iterable[_Rows], most: int | None = None) -> Iterator[list[_Rows]]:
    """Put tables or batches together until they have enough bytes for a piece."""
    pending: list[_Rows] = []
    size = 0
    for table in tables:
        pending.append(table)
        size += table.nbytes
        if size >= (most or PIECE_BYTES):
            yield pending
            pending, size = [], 0
    if pending:
        yield pending


def _counted(
    batches: Iterable[pa.RecordBatch], wanted: Staging, found: _Counts, before: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a task stages, and count all."""
    most_rows, most_bytes = wanted.most_rows - before[0], wanted.most_bytes - before[1]
    for batch in batches:
        found.rows += batch.num_rows
        rows = in_plain_types(batch)
        for index, name in enumerate(wanted.keys):
            # Python's calendar lacks days that Spark and Arrow have.
            found.add(index, in_plain_numbers(rows.column(name)))
        if wanted.clause is not None:
            rows = rows.filter(pc.is_valid(rows.column(wanted.clause)))
        found.staged += rows.num_rows
        found.size += rows.nbytes
        if found.staged > most_rows or found.size > most_bytes:
            found.too_many = True
            return
        if rows.num_rows:
            yield rows


def _staged_before(files: Files, folder: str) -> tuple[int, int]:
    """Sum up the rows and bytes that tasks have staged which ended before; one that ran twice counts twice."""
    names = [name.removesuffix(_COUNT_SUFFIX) for name in files.names(folder) if name.endswith(_COUNT_SUFFIX)]
    counts = [name.split("-")[1:] for name in names]
    return sum(int(rows) for rows, _ in counts), sum(int(size) for _, size in counts)


class _Counts:
    def __init__(self, keys: int) -> None:
        self.rows = self.staged = self.size = 0
        self.too_many = False
        self._ranges: list[tuple[Any, Any]] = [(None, None)] * keys
        self._types = [pa.null()] * keys
        self._counts = [0] * keys
        self._bytes = [0] * keys
        self._not_utf8 = [0] * keys

    def add(self, index: int, column: Any) -> None:  # noqa: ANN401
        self._types[index] = column.type
        self._counts[index] += len(column) - column.null_count
        if pa.types.is_string(column.type):
            self._bytes[index] += pc.sum(pc.binary_length(column)).as_py() or 0
        try:
            found = pc.min_max(column).as_py()
        except UnicodeDecodeError:
            self._not_utf8[index] = 1
            return
        low, high = self._ranges[index]
        if found["min"] is not None:
            low = found["min"] if low is None else min(low, found["min"], key=in_order)
            high = found["max"] if high is None else max(high, found["max"], key=in_order)
        self._ranges[index] = (low, high)

    def as_batch(self, path: str) -> pa.RecordBatch:
        columns: list[tuple[str, pa.DataType, object]] = [
            ("path", pa.string(), TOO_MANY if self.too_many else path),
            ("n", pa.int64(), self.rows),
            ("staged", pa.int64(), self.staged),
            ("size", pa.int64(), self.size),
        ]
        for index, kind in enumerate(self._types):
            low, high = self._ranges[index]
            columns += [
                (f"lo{index}", kind, low),
                (f"hi{index}", kind, high),
                (f"n{index}", pa.int64(), self._counts[index]),
                (f"bytes{index}", pa.int64(), self._bytes[index]),
                (f"not_utf8{index}", pa.int64(), self._not_utf8[index]),
            ]
        arrays = [pa.array([value], kind) for _, kind, value in columns]
        return pa.RecordBatch.from_arrays(arrays, [name for name, _, _ in columns])


def in_order(value: Any) -> Any:  # noqa: ANN401
    """Return what a key's value is ordered by: strings by their bytes."""
    return value.encode() if isinstance(value, str) else value


def is_of_other_calendar(metadata: Any) -> bool:  # noqa: ANN401
    """Return whether a file has dates and times in the calendar of Spark 2, which Spark turns into today's.

    Args:
        metadata: The file's ``FileMetaData``.
    """
    version = (metadata.metadata or {}).get(SPARK_VERSION)
    if is_of_spark_2(metadata) or version is None or version >= b"3.1.0":
        return is_of_spark_2(metadata)
    # Spark 3.0 still wrote INT96 so. Spark: DataSourceUtils.int96RebaseSpec.
    columns = map(metadata.schema.column, range(metadata.num_columns))
    return any(column.physical_type == "INT96" for column in columns)


def is_of_spark_2(metadata: Any) -> bool:  # noqa: ANN401
    """Return whether all of a file's dates and times are in that calendar."""
    entries = metadata.metadata or {}
    version = entries.get(SPARK_VERSION)
    return (version is not None and version < b"3") or any(key in entries for key in _OTHER_CALENDARS)


def open_staged(files: Files, staged: StagedRows, columns: Sequence[str]) -> pa.Table:
    """Return staged rows, in the order of their files.

    Raises:
        SourceChanged: A file of the source is another one now.
    """
    computed = staged.beside(columns)
    in_files = [name for name in columns if name not in computed]
    found = {}
    if in_files:
        names = [staged.names.get(name, name) for name in in_files]
        table = pa.concat_tables(files.ahead(lambda file: _opened(files, file, names), staged.files, staged.paths))
        found = dict(zip(in_files, table.columns, strict=True))
    if computed:
        beside = pa.concat_tables(_opened(files, file, [staged.position, *computed]) for file in staged.computed)
        order = _in_positions(beside.column(staged.position), staged.row_count)
        found |= {name: taken(beside.column(name), order) for name in computed}
    return pa.table({name: found[name] for name in columns})


def _opened(files: Files, file: StagedFile, columns: list[str]) -> pa.Table:
    """Open a file of Arrow, which is mapped into memory, or of Parquet."""
    if file.is_arrow:
        return files.arrow(file.path).select(columns)
    # Each of the threads that work on a merge asks for the same columns.
    memory_map = file.is_staged
    with file.unchanged(files), files.parquet_columns(file.path, columns, memory_map=memory_map, keep=True) as opened:
        table = read_rows(opened, range(opened.num_row_groups), columns).select(columns)
    return in_plain_types(table)


def _in_positions(positions: Any, rows: int) -> np.ndarray[Any, Any]:  # noqa: ANN401
    found = positions.to_numpy()
    order = np.argsort(found, kind="stable")
    if positions.null_count or len(found) != rows or not np.array_equal(found[order], np.arange(rows)):
        raise ValueError("the rows that were computed are not those that the files hold")
    return order


def in_plain_numbers(column: Any) -> Any:  # noqa: ANN401
    """Return a column's dates as days since 1970, its times as microseconds; other columns as they are."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def taken(column: Any, rows: np.ndarray[Any, Any]) -> Any:  # noqa: ANN401
    return TakenRows(rows).of(column)


class TakenRows:
    """Some rows that are taken of columns, in their order; where they are is found once for columns of like pieces."""

    def __init__(self, rows: np.ndarray[Any, Any]) -> None:
        self._rows = rows
        self._in_pieces: dict[tuple[int, ...], _InPieces] = {}

    def of(self, column: Any) -> Any:  # noqa: ANN401
        if not isinstance(column, pa.ChunkedArray):
            return column.take(pa.array(self._rows))
        if column.num_chunks < 2:
            return column.take(pa.array(self._rows)).combine_chunks()
        lengths = tuple(map(len, column.chunks))
        if lengths not in self._in_pieces:
            self._in_pieces[lengths] = _InPieces(self._rows, lengths)
        return self._in_pieces[lengths].of(column)


class _InPieces:
    """Rows by the pieces that they are in.

    Arrow would put all pieces of a column together first, which takes longer and may be more than it addresses.
    """

    def __init__(self, rows: np.ndarray[Any, Any], lengths: Sequence[int]) -> None:
        order = None if (rows[1:] >= rows[:-1]).all() else np.argsort(rows, kind="stable")
        ordered = rows if order is None else rows[order]
        begins = np.cumsum([0, *lengths])
        places = np.searchsorted(ordered, begins)
        ends = enumerate(pairwise(places))
        self._pieces = [(n, pa.array(ordered[first:end] - begins[n])) for n, (first, end) in ends if first < end]
        self._back: pa.Array | None = None
        if order is not None:
            back = np.empty(len(order), np.int64)
            back[order] = np.arange(len(order))
            self._back = pa.array(back)

    def of(self, column: pa.ChunkedArray) -> Any:  # noqa: ANN401
        pieces = [column.chunk(number).take(rows) for number, rows in self._pieces]
        found = pa.concat_arrays(pieces) if pieces else pa.array([], column.type)
        return found if self._back is None else found.take(self._back)
