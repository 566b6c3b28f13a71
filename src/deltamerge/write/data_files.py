"""Writes rows into a fresh folder of a table; the `AddFile`s get their statistics from the footers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from threading import Event
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql.types import BinaryType, LongType, NullType, StringType, StructField, StructType

from deltamerge.exceptions import CommitStateUnknownException, DeltaTableException
from deltamerge.log.actions import AddCDCFile, AddFile
from deltamerge.log.features.column_mapping import NONE, mapping_mode, physical_schema
from deltamerge.log.paths import decode_path, encode_path
from deltamerge.log.schema import StructType as LogSchema
from deltamerge.log.schema import parse_schema
from deltamerge.scan.char_padding import with_length, without_length
from deltamerge.scan.column_mapping import WRITE_IDS, as_physical, physical_field
from deltamerge.scan.paths import located
from deltamerge.skipping.collect_statistics import NOTHING_KNOWN, count_nulls, parquet_statistics
from deltamerge.skipping.indexed import IndexedColumns
from deltamerge.spark import columns as F
from deltamerge.spark.held_settings import session_settings
from deltamerge.spark.observations import observed
from deltamerge.spark.session import effective_value, runs_in_local_mode
from deltamerge.sql.names import quote
from deltamerge.storage.store import Store, in_parallel
from deltamerge.storage.stored_file import StoredFile, uri_of
from deltamerge.txn.transaction import now_ms
from deltamerge.workers.change_files import CHANGE_TYPE
from deltamerge.workers.nan_columns import nan_columns
from deltamerge.write.char_varchar import fitted
from deltamerge.write.partition_folders import PartitionFolders, folders_in, values_in, values_written

CHANGE_DATA_FOLDER = "_change_data"
IS_CDC = "__is_cdc"
ValuesOf: TypeAlias = Callable[[str, Sequence[str]], dict[str, str | None]]
"""Returns the partition values of a file, by its path and the names of the partition columns in the log."""
logger = logging.getLogger("deltamerge.write")

_Nan: TypeAlias = Mapping[tuple[str, ...], bool]

_PROTOCOL = "spark.sql.sources.commitProtocolClass"
_SPARKS_PROTOCOL = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
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


@dataclass(frozen=True)
class Job:
    """A job of Spark's that has written rows.

    Args:
        has_changes: Whether change data is among the rows.
        rows: How many it has written; None where nobody needs to ask, as its disk is this process's.
    """

    target: WriteTarget
    has_changes: bool
    rows: int | None

    @property
    def by_folder(self) -> bool:
        """Whether rows are in folders of partitions or change types; without rows there is no file then."""
        return self.has_changes or bool(self.target.partition_columns)


def write_files(frame: DataFrame, target: WriteTarget, change_type: str | None = None) -> WrittenFiles:
    """Write rows as `write_rows` does and return the files, none of them empty."""
    return collect_files(write_rows(frame, target, change_type))


def write_rows(frame: DataFrame, target: WriteTarget, change_type: str | None = None) -> Job:
    """Write a frame with the table's columns by name; `collect_files` finds the files.

    Args:
        change_type: The column with a change's type, NULL for a row of the table, where change data is among the rows.
    """
    columns, folders = _physical(target), target.physical_partition_columns
    if change_type is not None:
        change = F.col(change_type)
        is_change = F.when(change.isNull(), F.lit("false")).otherwise(F.lit("true"))
        columns += [change.alias(CHANGE_TYPE), is_change.alias(IS_CDC)]
        folders = (IS_CDC, *folders)
    rows = _write(frame.select(*columns), target, folders)
    return Job(target, change_type is not None, rows)


def collect_files(job: Job) -> WrittenFiles:
    """Return the files of a write, none of them empty, and move change data to its folder.

    Raises:
        DeltaTableException: They are not all there, or more than the job's.
    """
    target = job.target
    found = _data_files(target.store, target.folder)
    marker = f"{target.folder}/{IS_CDC}=true/"

    def is_change(file: StoredFile) -> bool:
        return job.has_changes and file.path.startswith(marker)

    data = _collect(target, [file for file in found if not is_change(file)])
    changes = [file for file in found if is_change(file)]
    rows = in_parallel(lambda file: _footer(target.store, file).num_rows, changes)
    _check_all_found(job, data.row_count + sum(rows), len(found))
    moved = [
        (file, f"{change_folder(target.folder)}/{file.path[len(marker) :]}")
        for file, count in zip(changes, rows, strict=True)
        if count
    ]
    for file, path in moved:
        target.store.rename(file.path, path)
    if job.has_changes:
        target.store.delete_folder(marker)
    return replace(
        data, change_files=tuple(_change_file(path, file.size, target, values_written) for file, path in moved)
    )


def files_of_tasks(target: WriteTarget, done: Iterable[Mapping[str, Any]]) -> WrittenFiles:
    """Return the data files that tasks have written, none of them empty, without a request to the store.

    Args:
        done: What the tasks return of each: ``path`` as tasks open it, ``rows``, ``size`` and ``footer``, a Parquet
            file without rows; of its change data ``change_path``, ``change_rows`` and ``change_size``.

    Raises:
        DeltaTableException: They are not on the disk of this process.
    """
    root = located(target.store, target.folder)
    done = sorted(done, key=lambda row: str(row["path"]))
    written = [row for row in done if row["rows"]]
    found = _with_statistics(
        target,
        [
            (
                StoredFile(f"{target.folder}{row['path'].removeprefix(root)}", row["size"], 0),
                footer := pq.read_metadata(pa.BufferReader(bytes(row["footer"]))),
                nan_columns(footer.metadata),
            )
            for row in written
        ],
        values_in,
    )
    below = located(target.store, change_folder(target.folder))
    changes = [
        (f"{change_folder(target.folder)}{row['change_path'].removeprefix(below)}", row["change_size"])
        for row in done
        if row.get("change_rows")
    ]
    found = replace(found, change_files=tuple(_change_file(path, size, target, values_in) for path, size in changes))
    if target.store.is_local:
        _check_on_disk(target.store, [(file.path, file.size) for file in found.files])
        _check_on_disk(target.store, [(file.path, file.size) for file in found.change_files])
    return found


def _check_on_disk(store: Store, files: Iterable[tuple[str, int]]) -> None:
    for path, size in files:
        place = Path(store.root, decode_path(path))
        if not place.is_file() or place.stat().st_size != size:
            raise _not_found(f"Tasks have written the file {place} of {size} bytes, which is not there", str(place))


def change_folder(folder: str) -> str:
    return f"{CHANGE_DATA_FOLDER}/{folder}"


def _change_file(path: str, size: int, target: WriteTarget, values_of: ValuesOf) -> AddCDCFile:
    return AddCDCFile(encode_path(path), values_of(path, target.physical_partition_columns), size, tags=None)


def remove_leftovers(store: Store, folder: str) -> None:
    """Delete all files of a write that did not end in a commit; VACUUM finds those that a store keeps."""
    for prefix in (folder, change_folder(folder)):
        try:
            store.delete_folder(prefix)
        except Exception:
            # Whatever fails: it must not take the place of the error that ended the write.
            logger.warning("files in the folder %s that no commit names were not deleted", prefix, exc_info=True)


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


def _write(frame: DataFrame, target: WriteTarget, partition_columns: Sequence[str]) -> int | None:
    """Write rows and return how many they are, as in `Job`."""
    spark = frame.sparkSession
    if target.bin_size is not None:
        frame = frame.hint("rebalance", *(F.col(quote(name)) for name in partition_columns))
    place, observation = uri_of(target.store.absolute(target.folder)), None
    foreign = _foreign_protocol(spark)
    if foreign or (place.startswith("file:") and not runs_in_local_mode(spark)):
        # Directly below the writer: Spark counts each of its tasks once.
        observation = Observation()
        frame = frame.observe(observation, F.count(F.lit(1)).alias("rows"))
    writer = frame.write.mode("append").option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    if partition_columns:
        writer = writer.partitionBy(*partition_columns)
    if target.records_per_file is not None:
        writer = writer.option("maxRecordsPerFile", target.records_per_file)
    writer = writer.options(**target.options)
    with (
        session_settings(spark, foreign),
        session_settings(spark, _write_settings(target), are_needed=True),
    ):
        writer.parquet(place)
    return None if observation is None else int(observed(observation).get("rows", 0))


def _foreign_protocol(spark: SparkSession) -> dict[str, str]:
    """Return the setting by which Spark commits a job's files, where a platform has another.

    Spark's own give only files of tasks that succeeded their names; Databricks' tell them by files of its own.
    """
    protocol = effective_value(spark, _PROTOCOL)
    return {} if protocol is None or protocol.startswith("org.apache.spark.") else {_PROTOCOL: _SPARKS_PROTOCOL}


def _check_all_found(job: Job, rows: int, files: int) -> None:
    """Refuse a write whose files are not those that are found in its folder."""
    expected = job.rows
    if expected == rows or (expected is None and (files or job.by_folder)):
        return
    place = job.target.store.absolute(job.target.folder)
    written = "files" if expected is None else f"{expected} rows"
    raise _not_found(f"Spark has written {written} into {place}, where there are {rows} rows in {files} files", place)


def _not_found(what: str, path: str) -> DeltaTableException:
    return DeltaTableException(
        "DELTAMERGE_WRITTEN_FILES_NOT_FOUND",
        f"{what} for this process: executors, or a Spark Connect server, have disks of their own. Nothing was "
        "committed. Put the table where all see the same, such as HDFS or an object store; over Spark Connect to a "
        "server in local mode set spark.deltamerge.storage.logAccess=server.",
        parameters={"path": path},
    )


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
    folders = folders_in(target.store, target.folder) if partition_columns else PartitionFolders()
    fields = [*target.schema.fields, *(StructField(name, LongType()) for name in target.hidden_columns)]
    return [
        folders.name(F.col(quote(f.name)), f).alias(physical_field(f, target.mode).name)
        if f.name in partition_columns
        else as_physical(without_length(F.col(quote(f.name)), f), f, target.mode)
        for f in fields
        # Delta: SchemaUtils.dropNullTypeColumns.
        if not isinstance(f.dataType, NullType)
    ]


def stored_column(value: Column, field: StructField, partition_columns: Collection[str]) -> Column:
    """Name a column's value as it will be read: padded, and not too long; see `as_stored`."""
    return with_length(as_stored(fitted(value, field), field, partition_columns), field)


def as_stored(value: Column, field: StructField, partition_columns: Collection[str]) -> Column:
    """Return a column's value as it will be read: an empty string of a partition column becomes NULL.

    Protocol: Partition Value Serialization. Delta: TransactionalWrite.convertEmptyToNullIfNeeded.
    """
    if field.name not in partition_columns or not isinstance(field.dataType, (StringType, BinaryType)):
        return value
    return F.when(F.length(value) > 0, value)


def _data_files(store: Store, folder: str) -> list[StoredFile]:
    return [file for file in store.list(folder) if file.path.endswith(".parquet") and "/_temporary/" not in file.path]


def _collect(target: WriteTarget, found: Iterable[StoredFile]) -> WrittenFiles:
    found = sorted(found, key=lambda file: file.path)
    footers = in_parallel(partial(_footer, target.store), found)
    empty = [file.path for file, footer in zip(found, footers, strict=True) if not footer.num_rows]
    target.store.delete(empty)
    kept = [(file, footer, NOTHING_KNOWN) for file, footer in zip(found, footers, strict=True) if footer.num_rows]
    return _with_statistics(target, kept, values_written)


def _with_statistics(
    target: WriteTarget, kept: Sequence[tuple[StoredFile, pq.FileMetaData, _Nan]], values_of: ValuesOf
) -> WrittenFiles:
    schema = physical_schema(target.log_schema, target.mode)
    indexed = IndexedColumns.of(schema, target.partition_columns, target.configuration)
    now = now_ms()

    def added(file: StoredFile, footer: pq.FileMetaData, has_nan: _Nan) -> AddFile:
        return AddFile(
            path=encode_path(file.path),
            partition_values=values_of(file.path, target.physical_partition_columns),
            size=file.size,
            modification_time=file.modification_time or now,
            data_change=True,
            stats=statistics_of(target.store, file, footer, schema, indexed, has_nan),
        )

    files = tuple(in_parallel(added, *zip(*kept, strict=True))) if kept else ()
    return WrittenFiles(files, tuple(footer.num_rows for _, footer, _ in kept), ())


def statistics_of(
    store: Store,
    file: StoredFile,
    footer: pq.FileMetaData,
    schema: LogSchema,
    indexed: IndexedColumns,
    has_nan: _Nan = NOTHING_KNOWN,
) -> str:
    """Return the statistics of a data file, from its footer as far as that has them.

    Args:
        has_nan: What is known of the file's NaN: only of one that a task of this job has written, since another one
            may have got a footer's record together with other rows.
    """

    def counted(path: tuple[str, ...], leaves: tuple[int, ...]) -> int | None:
        with store.open_input(file.path) as source:
            opened = pq.ParquetFile(source, metadata=footer, buffer_size=_READ_BYTES, pre_buffer=False)
            return count_nulls(opened, path, leaves)

    return parquet_statistics(footer, schema, indexed, counted, has_nan)


def _footer(store: Store, file: StoredFile) -> pq.FileMetaData:
    return pq.ParquetFile(store.open_input(file.path)).metadata
