"""Rows of files of a snapshot as a DataFrame, with each row's file and position."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from deltamerge.log.actions import AddFile
from deltamerge.log.paths import decode_path
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.char_padding import length, metadata_in_scan, padded, with_length
from deltamerge.scan.column_mapping import as_logical, physical_field
from deltamerge.scan.field_ids import fields_of_files
from deltamerge.scan.missing_files import (
    naming_missing_files,
    refuse_hidden_files,
    refuse_other_spelling,
    refuse_replaced_files,
)
from deltamerge.scan.paths import spark_path, spark_spellings
from deltamerge.scan.undeleted_rows import without_deleted_rows
from deltamerge.spark import columns as F
from deltamerge.spark.field_metadata import MetadataOf, frame_metadata, no_metadata
from deltamerge.spark.required_columns import not_null, with_required
from deltamerge.spark.session import conf_value, empty_frame, is_connect
from deltamerge.spark.table import Table
from deltamerge.sql.names import free_prefix, quote
from deltamerge.storage.stored_file import uri_of
from deltamerge.workers.partition_names import NULL_PARTITION, partition_folder

# Types that Spark reads from a folder's name as the same value as the log's.
_TYPES_IN_FOLDERS = (
    T.StringType,
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.DateType,
)

# Spark checks the checksums of pages only where it is asked to.
_CHECKSUMS = "parquet.page.verify-checksum.enabled"
# More scans than these are not put together; the files' values are looked up by path instead.
_MOST_SCANS = 16
# ``s3://bucket`` split at its slashes.
_PARTS_OF_A_STORE = 3


NO_MARKS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class ScanColumns:
    """The names of a scan's additional columns.

    Args:
        file_name: The data file's URI as Spark spells it (STRING).
        row_index: The row's position in its file (BIGINT).
    """

    file_name: str
    row_index: str

    @staticmethod
    def beside(names: Iterable[str]) -> ScanColumns:
        prefix = free_prefix(names)
        return ScanColumns(prefix + "file", prefix + "row")


def target_frame(
    table: Table,
    snapshot: Snapshot,
    schema: T.StructType,
    files: Sequence[AddFile],
    extra: ScanColumns,
    *,
    as_declared: bool = False,
    marks: Mapping[str, str] = NO_MARKS,
) -> DataFrame:
    """Read files of a table without the rows that deletion vectors delete.

    Args:
        schema: The columns to read; data files may contain more than the version's.
        files: The files to read; none makes a frame without rows.
        extra: Names for the file and position of each row.
        as_declared: Whether columns and their fields have the schema's comments and other metadata of frames, and
            columns are not nullable where it says so and the session is a classic one. Spark then relies on there being
            no NULL.
        marks: Options of Spark's reader that mean nothing to it, by which the frame's plan is known later.

    Returns:
        The table's columns in the schema's order, then file name and row index.
    """
    partition_columns, mode = snapshot.metadata.partition_columns, snapshot.mapping_mode
    columns = _FileColumns(schema, partition_columns, mode, (), as_declared, marks)
    if not files:
        expected = tuple(physical_field(f, mode, columns.metadata) for f in columns.data_fields)
        return _no_rows(table, replace(columns, data=expected), extra)
    refuse_replaced_files(table, files)
    refuse_hidden_files(table, files)
    frames = [
        _frame_of(table, replace(columns, data=found), group, extra)
        for found, group in fields_of_files(table, snapshot, schema, files, columns.metadata)
    ]
    return reduce(lambda left, right: left.union(right), frames)


@dataclass(frozen=True)
class _FileColumns:
    """A table's columns as some of its files and its log name them.

    Args:
        data: The columns that data files contain, as they name them, in the schema's order.
    """

    schema: T.StructType
    partition_columns: tuple[str, ...]
    mode: str
    data: tuple[T.StructField, ...]
    as_declared: bool
    marks: Mapping[str, str]

    @property
    def metadata(self) -> MetadataOf:
        """What scans have of the metadata of columns and their fields."""
        return metadata_in_scan if self.as_declared else no_metadata

    @property
    def data_fields(self) -> list[T.StructField]:
        """The columns that data files contain, as the table names them."""
        return [f for f in self.schema.fields if f.name not in self.partition_columns]

    @property
    def partition(self) -> list[T.StructField]:
        """The columns whose values are in the log, in its order, as it names them."""
        by_name = {f.name: f for f in self.schema.fields}
        return [physical_field(by_name[name], self.mode) for name in self.partition_columns]

    @property
    def named(self) -> list[tuple[T.StructField, T.StructField]]:
        """Each column as the table names it, and as files or the log name it."""
        by_name = {f.name: f for f in self.schema.fields}
        partition = zip((by_name[name] for name in self.partition_columns), self.partition, strict=True)
        return [*zip(self.data_fields, self.data, strict=True), *partition]

    @property
    def required(self) -> frozenset[str]:
        """The columns without NULL, as files and the log name them."""
        return frozenset(found.name for f, found in self.named if self.as_declared and not f.nullable)

    def logical(self) -> dict[str, Column]:
        """Each column's value by its name in the table."""
        return {
            f.name: F.lit(None).alias(f.name)
            if isinstance(f.dataType, T.NullType)
            else as_logical(F.col(quote(found.name)), f, self.mode, self.metadata)
            for f, found in self.named
        }

    def selected(self) -> list[Column]:
        """Return the columns of a frame of files whose values all are in the frame, in the schema's order."""
        logical = self.logical()
        return [self.named_as(f, logical[f.name]) for f in self.schema.fields]

    def partition_value(self, field: T.StructField, stored: Column) -> Column:
        """Return a partition column's value from that in the log."""
        value = partition_value(stored, field.dataType)
        return not_null(value) if self.as_declared and not field.nullable else value

    def named_as(self, field: T.StructField, value: Column) -> Column:
        """Return a column's value by its name in the table, CHAR padded."""
        return with_length(padded(value, field), field, frame_metadata if self.as_declared else length)


def _frame_of(table: Table, columns: _FileColumns, files: Sequence[AddFile], extra: ScanColumns) -> DataFrame:
    """Read files that all name their columns alike."""
    vectors = [file for file in files if file.deletion_vector is not None]
    whole = [file for file in files if file.deletion_vector is None]
    frames = [_stored_rows(table, columns, whole, extra)] if whole else []
    if vectors:
        stored = _stored_rows(table, columns, vectors, extra)
        refuse_other_spelling(table, stored, vectors)
        frames.append(without_deleted_rows(table, stored, extra.file_name, extra.row_index, vectors))
    return reduce(lambda left, right: left.union(right), frames)


def _no_rows(table: Table, columns: _FileColumns, extra: ScanColumns) -> DataFrame:
    """Return the frame of no files, with the columns of one of files."""
    stored = [*columns.data, *columns.partition]
    if columns.marks:
        # A read, whose plan tells as much as any other.
        return _select(_read(table, columns, stored, (), None), columns, extra)
    required = frozenset() if is_connect(table.spark) else columns.required
    fields = [T.StructField(f.name, f.dataType, f.name not in required) for f in stored]
    no_position = F.lit(None).cast("string").alias(extra.file_name), F.lit(None).cast("bigint").alias(extra.row_index)
    return empty_frame(table.spark, T.StructType(fields)).select(*columns.selected(), *no_position)


def _stored_rows(table: Table, columns: _FileColumns, files: Sequence[AddFile], extra: ScanColumns) -> DataFrame:
    """Read all rows of files, deleted ones included."""
    if not columns.partition_columns:
        return _select(_read(table, columns, columns.data, files, None), columns, extra)
    by_base, others = _files_by_base(table, columns.partition, files)
    full = [*columns.data, *columns.partition]
    frames = [_select(_read(table, columns, full, group, base), columns, extra) for base, group in by_base.items()]
    if others:
        frames.append(_with_values_by_path(table, columns, others, extra))
    return reduce(lambda left, right: left.union(right), frames)


def _read(
    table: Table,
    columns: _FileColumns,
    fields: Sequence[T.StructField],
    files: Sequence[AddFile],
    base_path: str | None,
) -> DataFrame:
    # Rows that are not read are lost when their file is rewritten, so no file may be passed over.
    reader = table.spark.read.options(ignoreCorruptFiles=False, ignoreMissingFiles=False)
    if conf_value(table.spark, _CHECKSUMS) is None:
        reader = reader.option(_CHECKSUMS, True)
    in_files = [f for f in fields if not isinstance(f.dataType, T.NullType)]
    reader = reader.options(**columns.marks).schema(T.StructType(in_files))
    if base_path is not None:
        # Partitions' folders may be in several folders of the base.
        reader = reader.options(basePath=uri_of(base_path), ignoreInvalidPartitionPaths=True)
    with naming_missing_files(table.name):
        frame = reader.parquet(*(spark_path(table, decode_path(file.path)) for file in files))
    return with_required(frame, columns.required)


def _select(frame: DataFrame, columns: _FileColumns, extra: ScanColumns) -> DataFrame:
    return frame.select(*columns.selected(), *_positions(frame, extra))


def _positions(frame: DataFrame, extra: ScanColumns) -> tuple[Column, Column]:
    metadata = F.untraced(frame.metadataColumn("_metadata"))
    file_path, row_index = metadata.getField("file_path"), metadata.getField("row_index")
    return file_path.alias(extra.file_name), row_index.alias(extra.row_index)


def _files_by_base(
    table: Table, partition_fields: list[T.StructField], files: Sequence[AddFile]
) -> tuple[dict[str, list[AddFile]], list[AddFile]]:
    """Group files by a folder below which Spark reads the log's values from ``name=value`` folders.

    Returns:
        The groups, of which one has the files of the table's own folder, and the files whose values have to be added.
    """
    if not all(isinstance(f.dataType, _TYPES_IN_FOLDERS) for f in partition_fields):
        return {}, list(files)
    groups: dict[tuple[str, ...], list[AddFile]] = defaultdict(list)
    others: list[AddFile] = []
    for file in files:
        parts = table.store.absolute(decode_path(file.path)).split("/")
        tail = parts[-1 - len(partition_fields) : -1]
        expected = [_exact_folder(f.name, file.partition_values.get(f.name)) for f in partition_fields]
        (groups[tuple(parts[: -1 - len(partition_fields)])] if tail == expected else others).append(file)
    by_base: dict[str, list[AddFile]] = defaultdict(list)
    for base, above in _bases(tuple(table.store.absolute("").split("/")), groups).items():
        found = [file for folder in above for file in groups[folder]]
        (by_base["/".join(base)] if len(by_base) < _MOST_SCANS else others).extend(found)
    return by_base, others


def _bases(own: tuple[str, ...], folders: Collection[tuple[str, ...]]) -> dict[tuple[str, ...], list[tuple[str, ...]]]:
    """Group folders above partitions' folders: those in the table's own, and where they are many, those beside another.

    A folder whose name Spark would take for a partition's is a group of its own.
    """
    elsewhere = [folder for folder in folders if folder[: len(own)] != own]
    found: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
    for folder in folders:
        # Not everyone may look at a whole bucket.
        shares = len(elsewhere) >= _MOST_SCANS and len(folder) > _PARTS_OF_A_STORE + 1
        base = own if folder[: len(own)] == own else folder[:-1] if shares else folder
        found[base if folder == base or "=" not in folder[-1] else folder].append(folder)
    return found


def _exact_folder(name: str, value: str | None) -> str | None:
    """Return a partition's folder, None where Spark would read another value from it."""
    return None if value in ("", NULL_PARTITION) else partition_folder(name, value)


def _with_values_by_path(
    table: Table, columns: _FileColumns, files: Sequence[AddFile], extra: ScanColumns
) -> DataFrame:
    frame, logical = _read(table, columns, columns.data, files, None), columns.logical()
    refuse_other_spelling(table, frame, files)
    in_files = (columns.named_as(f, logical[f.name]) for f in columns.data_fields)
    rows = frame.select(*in_files, *_positions(frame, extra))
    stored = [f"{extra.file_name}v{i}" for i in range(len(columns.partition))]
    of_files = ((file, [file.partition_values.get(f.name) for f in columns.partition]) for file in files)
    by_file = _values_by_file(table, extra.file_name, of_files, dict.fromkeys(stored, pa.string()))
    by_name = {f.name: f for f in columns.schema.fields}
    # Spark casts the few values as it optimizes a query. Columns that casts of joined values compute would be
    # written out in each filter on them, and in all that Spark infers from it.
    typed = by_file.select(
        by_file.columns[0],
        *(
            columns.named_as(by_name[name], columns.partition_value(by_name[name], F.col(value)))
            for name, value in zip(columns.partition_columns, stored, strict=True)
        ),
    )
    joined = _joined_by_file(rows, extra.file_name, typed)
    return joined.select(*(F.col(quote(f.name)) for f in columns.schema.fields), extra.file_name, extra.row_index)


def with_values_by_file(
    table: Table,
    rows: DataFrame,
    file_name: str,
    values: Iterable[tuple[AddFile, Sequence[object]]],
    types: Mapping[str, pa.DataType],
) -> DataFrame:
    """Add columns to rows whose values are those of each row's file.

    Args:
        rows: Rows with `ScanColumns.file_name`.
    """
    values = list(values)
    refuse_other_spelling(table, rows, (file for file, _ in values))
    return _joined_by_file(rows, file_name, _values_by_file(table, file_name, values, types))


def _values_by_file(
    table: Table, file_name: str, values: Iterable[tuple[AddFile, Sequence[object]]], types: Mapping[str, pa.DataType]
) -> DataFrame:
    spelled = [(name, *of_file) for file, of_file in values for name in spark_spellings(table, file)]
    columns = {f"{file_name}_key": pa.string(), **types}
    arrays = [pa.array([row[i] for row in spelled], kind) for i, kind in enumerate(columns.values())]
    found = pa.table(arrays, names=list(columns))
    if not spelled:
        # Connect takes no Arrow table without rows.
        return empty_frame(table.spark, from_arrow_schema(found.schema, prefer_timestamp_ntz=True))
    return table.spark.createDataFrame(found)


def _joined_by_file(rows: DataFrame, file_name: str, by_file: DataFrame) -> DataFrame:
    return rows.join(F.broadcast(by_file), F.col(file_name) == F.col(by_file.columns[0]), "inner")


def partition_value(stored: Column, data_type: T.DataType) -> Column:
    """Cast a partition value of the log; the empty string is NULL. Protocol: Partition Value Serialization."""
    return F.when(stored != F.lit(""), stored).cast(data_type)
