"""Writes rows into a fresh folder of a table; the `AddFile`s get their statistics from the footers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from deltamerge.exceptions import CommitStateUnknownException
from deltamerge.log.actions import AddCDCFile, AddFile
from deltamerge.log.features.column_mapping import NONE, mapping_mode, physical_schema
from deltamerge.log.paths import encode_path
from deltamerge.log.schema import StructType as LogSchema
from deltamerge.log.schema import parse_schema
from deltamerge.scan.column_mapping import WRITE_IDS, as_physical, physical_field
from deltamerge.scan.paths import located
from deltamerge.skipping.collect_statistics import parquet_statistics
from deltamerge.skipping.indexed import IndexedColumns
from deltamerge.skipping.nulls import count_nulls
from deltamerge.spark import columns as F
from deltamerge.spark.held_settings import session_settings
from deltamerge.sql.names import quote
from deltamerge.storage.store import Store, StoredFile, in_parallel
from deltamerge.txn.transaction import now_ms
from deltamerge.workers.change_files import CHANGE_TYPE
from deltamerge.workers.partition_names import NULL_PARTITION, escape_path_name, unescape_path_name

CHANGE_DATA_FOLDER = "_change_data"
IS_CDC = "__is_cdc"
PATCHED_FOLDER = "patched"
SHRED_VARIANTS = "spark.sql.variant.inferShreddingSchema"

# A chunk of a column that is read is never in memory whole.
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class WriteTarget:
    """Where rows are written and in which form.

    Args:
        folder: A folder, relative to the table's root, that no write has used before.
        hidden_columns: BIGINT columns that the files have besides the table's own.
        records_per_file: The most rows of a file; None for any number.
        options: Of Spark's Parquet writer; they go before the session's settings.
        bin_size: Of how many bytes a task's rows are to be, for which Spark shuffles them by partition and puts them
            together; None where they stay in the tasks that they are in.
    """

    store: Store
    schema: StructType
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    folder: str
    hidden_columns: tuple[str, ...] = ()
    records_per_file: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    bin_size: int | None = None

    @cached_property
    def log_schema(self) -> LogSchema:
        return parse_schema(self.schema.json())

    @property
    def mode(self) -> str:
        """The table's column mapping mode."""
        return mapping_mode(self.configuration)

    @property
    def physical_partition_columns(self) -> tuple[str, ...]:
        """The partition columns' names in the log and in folders."""
        by_name = {f.name: f for f in self.schema.fields}
        return tuple(physical_field(by_name[name], self.mode).name for name in self.partition_columns)


@dataclass(frozen=True)
class WrittenFiles:
    """The files of a write; `rows` has the number of rows of each data file."""

    files: tuple[AddFile, ...]
    rows: tuple[int, ...]
    change_files: tuple[AddCDCFile, ...]

    def with_files_of(self, other: WrittenFiles) -> WrittenFiles:
        """Return the files of two writes into one folder."""
        files, rows, changes = self.files + other.files, self.rows + other.rows, self.change_files + other.change_files
        return WrittenFiles(files, rows, changes)

    @property
    def row_count(self) -> int:
        return sum(self.rows)


def write_files(frame: DataFrame, target: WriteTarget) -> WrittenFiles:
    """Write rows of a table and return the files, none of them empty."""
    write_rows(frame, target)
    return collect_files(target)


def write_rows(frame: DataFrame, target: WriteTarget) -> None:
    """Write a frame with the table's columns by name; `collect_files` finds the files."""
    _write(frame.select(*_physical(target)), target, target.physical_partition_columns)


def collect_files(target: WriteTarget) -> WrittenFiles:
    """Return the data files in the folder of a write, none of them empty."""
    return _collect(target, _data_files(target.store, target.folder))


def files_of_tasks(target: WriteTarget, done: Iterable[Mapping[str, Any]]) -> WrittenFiles:
    """Return the data files that tasks have written, none of them empty, without another look at the store.

    Args:
        done: What the tasks return of each: ``path`` as tasks open it, ``rows``, ``size`` and ``footer``, a Parquet
            file without rows; of its change data ``change_path``, ``change_rows`` and ``change_size``.
    """
    root = located(target.store, target.folder)
    done = sorted(done, key=lambda row: str(row["path"]))
    written = [row for row in done if row["rows"]]
    found = _with_statistics(
        target,
        [
            (
                StoredFile(f"{target.folder}{row['path'].removeprefix(root)}", row["size"], 0),
                pq.read_metadata(pa.BufferReader(bytes(row["footer"]))),
            )
            for row in written
        ],
    )
    below = located(target.store, change_folder(target.folder))
    changes = [
        (f"{change_folder(target.folder)}{row['change_path'].removeprefix(below)}", row["change_size"])
        for row in done
        if row.get("change_rows")
    ]
    return replace(found, change_files=tuple(_change_file(path, size, target) for path, size in changes))


def change_folder(folder: str) -> str:
    """Return the folder with the change data of a write."""
    return f"{CHANGE_DATA_FOLDER}/{folder}"


def _change_file(path: str, size: int, target: WriteTarget) -> AddCDCFile:
    return AddCDCFile(encode_path(path), _partition_values(path, target), size, tags=None)


def write_files_with_changes(frame: DataFrame, change_type: str, target: WriteTarget) -> WrittenFiles:
    """Write rows of a table together with its change data, in one job.

    Args:
        change_type: The column with a change's type, NULL for a row of the table.
    """
    write_rows_with_changes(frame, change_type, target)
    return collect_files_with_changes(target)


def write_rows_with_changes(frame: DataFrame, change_type: str, target: WriteTarget) -> None:
    """Write rows as `write_files_with_changes` does; `collect_files_with_changes` finds the files."""
    typed = frame.select(
        *_physical(target),
        F.col(change_type).alias(CHANGE_TYPE),
        F.when(F.col(change_type).isNull(), F.lit("false")).otherwise(F.lit("true")).alias(IS_CDC),
    )
    _write(typed, target, (IS_CDC, *target.physical_partition_columns))


def collect_files_with_changes(target: WriteTarget) -> WrittenFiles:
    """Return the files in the folder of a write, and move change data to its folder."""
    found = _data_files(target.store, target.folder)
    marker = f"{target.folder}/{IS_CDC}=true/"
    changes = [file for file in found if file.path.startswith(marker)]
    data = _collect(target, [file for file in found if not file.path.startswith(marker)])
    moved = [
        (file, f"{change_folder(target.folder)}/{file.path[len(marker) :]}")
        for file in changes
        if _footer(target.store, file).num_rows
    ]
    for file, path in moved:
        target.store.rename(file.path, path)
    target.store.delete_folder(marker)
    return replace(data, change_files=tuple(_change_file(path, file.size, target) for file, path in moved))


def remove_leftovers(store: Store, folder: str) -> None:
    """Delete all files of a write that did not end in a commit."""
    for prefix in (folder, change_folder(folder)):
        store.delete_folder(prefix)


@contextmanager
def removing_leftovers(store: Store, folder: str) -> Iterator[Callable[[], None]]:
    """Delete the files of a write where it is certain that no commit of it landed.

    Of a commit that is interrupted (KeyboardInterrupt) that is not certain.

    Yields:
        What to call once a commit has landed, where the block goes on after it.
    """
    landed = Event()
    try:
        yield landed.set
    except CommitStateUnknownException:
        raise
    except Exception:
        # Any other failure before means that no commit landed.
        if not landed.is_set():
            remove_leftovers(store, folder)
        raise


def _write(frame: DataFrame, target: WriteTarget, partition_columns: Sequence[str]) -> None:
    if target.bin_size is not None:
        frame = frame.hint("rebalance", *(F.col(quote(name)) for name in partition_columns))
    writer = frame.write.mode("append").option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    if partition_columns:
        writer = writer.partitionBy(*partition_columns)
    if target.records_per_file is not None:
        writer = writer.option("maxRecordsPerFile", target.records_per_file)
    writer = writer.options(**target.options)
    with session_settings(frame.sparkSession, _write_settings(target), are_needed=True):
        writer.parquet(target.store.absolute(target.folder))


def _write_settings(target: WriteTarget) -> dict[str, str]:
    """Settings of the form of files only: other threads of the session write the same values meanwhile."""
    schema, settings = target.schema.json(), dict[str, str]()
    if target.bin_size is not None:
        settings["spark.sql.adaptive.advisoryPartitionSizeInBytes"] = f"{target.bin_size}b"
    if target.mode != NONE:
        settings[WRITE_IDS] = "true"
    if '"timestamp"' in schema:
        # Footers of INT96 timestamps have no statistics.
        settings["spark.sql.parquet.outputTimestampType"] = "TIMESTAMP_MICROS"
    if '"variant"' in schema:
        # Newer Sparks shred variants by themselves, which not every reader of the table may know.
        settings[SHRED_VARIANTS] = "false"
    return settings


def _physical(target: WriteTarget) -> list[Column]:
    partition_columns = set(target.partition_columns)
    fields = [*target.schema.fields, *(StructField(name, LongType()) for name in target.hidden_columns)]
    return [
        partition_string(F.col(quote(f.name)), f).alias(physical_field(f, target.mode).name)
        if f.name in partition_columns
        else as_physical(F.col(quote(f.name)), f, target.mode)
        for f in fields
    ]


def partition_string(value: Column, field: StructField) -> Column:
    """Spell partition values as the log does, a TIMESTAMP's in UTC. Protocol: Partition Value Serialization."""
    if isinstance(field.dataType, TimestampType):
        return _utc_string(value)
    return value.cast(StringType())


def as_stored(value: Column, field: StructField, partition_columns: Collection[str]) -> Column:
    """Return a column's value as it will be read: an empty string of a partition column becomes NULL.

    Protocol: Partition Value Serialization. Delta: TransactionalWrite.convertEmptyToNullIfNeeded.
    """
    if field.name not in partition_columns or not isinstance(field.dataType, (StringType, BinaryType)):
        return value
    return F.when(F.length(value) > 0, value)


def _utc_string(value: Column) -> Column:
    micros = F.unix_micros(value)
    rest = F.pmod(micros, F.lit(86_400_000_000))
    # Spark divides BIGINTs as DOUBLEs, which the last microsecond of a day would round up.
    day = (micros - rest) / F.lit(86_400_000_000)
    date = F.date_add(F.lit("1970-01-01").cast("date"), day.cast("int")).cast("string")
    seconds = F.floor(rest / F.lit(1_000_000))
    clock = F.format_string(
        "%02d:%02d:%02d.%06d",
        F.floor(seconds / F.lit(3600)),
        F.pmod(F.floor(seconds / F.lit(60)), F.lit(60)),
        F.pmod(seconds, F.lit(60)),
        F.pmod(rest, F.lit(1_000_000)),
    )
    return F.concat(date, F.lit("T"), clock, F.lit("Z"))


def _data_files(store: Store, folder: str) -> list[StoredFile]:
    """Return what Spark has written; of patched files only their tasks know which attempt counts."""
    patched = f"{folder}/{PATCHED_FOLDER}/"
    return [
        file
        for file in store.list(folder)
        if file.path.endswith(".parquet") and "/_temporary/" not in file.path and not file.path.startswith(patched)
    ]


def _collect(target: WriteTarget, found: Iterable[StoredFile]) -> WrittenFiles:
    found = sorted(found, key=lambda file: file.path)
    footers = in_parallel(partial(_footer, target.store), found)
    empty = [file.path for file, footer in zip(found, footers, strict=True) if not footer.num_rows]
    target.store.delete(empty)
    kept = [(file, footer) for file, footer in zip(found, footers, strict=True) if footer.num_rows]
    return _with_statistics(target, kept)


def _with_statistics(target: WriteTarget, kept: Sequence[tuple[StoredFile, pq.FileMetaData]]) -> WrittenFiles:
    schema = physical_schema(target.log_schema, target.mode)
    indexed = IndexedColumns.of(schema, target.partition_columns, target.configuration)
    now = now_ms()

    def added(file: StoredFile, footer: pq.FileMetaData) -> AddFile:
        return AddFile(
            path=encode_path(file.path),
            partition_values=_partition_values(file.path, target),
            size=file.size,
            modification_time=file.modification_time or now,
            data_change=True,
            stats=statistics_of(target.store, file, footer, schema, indexed),
        )

    files = tuple(in_parallel(added, *zip(*kept, strict=True))) if kept else ()
    return WrittenFiles(files, tuple(footer.num_rows for _, footer in kept), ())


def statistics_of(
    store: Store, file: StoredFile, footer: pq.FileMetaData, schema: LogSchema, indexed: IndexedColumns
) -> str:
    """Return the statistics of a data file, from its footer as far as that has them."""

    def counted(path: tuple[str, ...], leaves: tuple[int, ...]) -> int | None:
        with store.open_input(file.path) as source:
            opened = pq.ParquetFile(source, metadata=footer, buffer_size=_READ_BYTES, pre_buffer=False)
            return count_nulls(opened, path, leaves)

    return parquet_statistics(footer, schema, indexed, counted)


def _footer(store: Store, file: StoredFile) -> pq.FileMetaData:
    return pq.ParquetFile(store.open_input(file.path)).metadata


def _partition_values(path: str, target: WriteTarget) -> dict[str, str | None]:
    if not target.partition_columns:
        return {}
    names = {escape_path_name(name): name for name in target.physical_partition_columns}
    folders = path.split("/")[-1 - len(target.partition_columns) : -1]
    values: dict[str, str | None] = {}
    for folder in folders:
        name, _, value = folder.partition("=")
        values[names[name]] = None if value == NULL_PARTITION else unescape_path_name(value)
    return values
