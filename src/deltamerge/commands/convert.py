"""CONVERT TO DELTA: a log for a folder of Parquet files, which stay as they are."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import BinaryType, CharType, StringType, StructType, VarcharType

from deltamerge.commands.committing import commit_command
from deltamerge.exceptions import (
    DeltaAnalysisException,
    DeltaRuntimeException,
    DeltaTableException,
    DeltaTableNotFoundException,
    DeltaUnsupportedOperationException,
)
from deltamerge.log.actions import Action, AddFile, Metadata, compact_json
from deltamerge.log.features.column_mapping import ID, NONE, mapping_mode, with_column_ids, with_own_names
from deltamerge.log.features.row_tracking import with_column_names
from deltamerge.log.paths import encode_path
from deltamerge.log.schema import StructType as LogSchema
from deltamerge.log.schema import parse_schema, schema_to_json
from deltamerge.log.snapshot import table_exists
from deltamerge.scan.paths import spark_path
from deltamerge.skipping.indexed import IndexedColumns
from deltamerge.spark import columns as F
from deltamerge.spark.failed_jobs import cause_in
from deltamerge.spark.session import SPARK_ERRORS, settings_below
from deltamerge.spark.table import Table
from deltamerge.storage.store import StoredFile, in_parallel, without_markers
from deltamerge.txn.transaction import now_ms
from deltamerge.workers.file_systems import is_of_machine
from deltamerge.workers.parquet_footer import footer_bytes, rows_by_footer
from deltamerge.workers.partition_names import NULL_PARTITION, unescape_path_name
from deltamerge.write.char_varchar import as_strings
from deltamerge.write.data_files import statistics_of
from deltamerge.write.definition import TableDefinition, check_definition
from deltamerge.write.property_names import DEFAULTS, default_properties
from deltamerge.write.table_features import protocol_for, stored_properties

_STREAM_LOG = "_spark_metadata/"
# Every string is a value of these.
_STRINGS = (StringType, CharType, VarcharType, BinaryType)


def convert_to_delta(table: Table, partition_schema: StructType) -> None:
    """Make a table of a folder's Parquet files; nothing is done where it is one. Delta: ConvertToDeltaCommand."""
    if table_exists(table.store):
        return
    table.store.check_commits()
    partition_schema = as_strings(partition_schema)
    found = without_markers(table.store, table.store.list())
    _check_no_stream(table, found)
    files = [file for file in found if _is_data(file.path, partition_schema.names)]
    if not files:
        raise DeltaTableNotFoundException(
            "DELTA_EMPTY_DIRECTORY",
            f"No file found in the directory: {table.location}.",
            parameters={"directory": table.location},
        )
    values = [_partition_values(table, file, partition_schema.names) for file in files]
    _check_values(table, files, values, partition_schema)
    schema = _schema(table, files, partition_schema)
    properties = default_properties(settings_below(table.spark, DEFAULTS))
    _check_mapping(table, properties)
    check_definition(TableDefinition(schema, tuple(partition_schema.names), properties))
    logged: LogSchema = parse_schema(schema.json())
    indexed = IndexedColumns.of(logged, partition_schema.names, properties)

    def added(file: StoredFile, of_file: dict[str, str | None]) -> AddFile:
        # Read again: kept, the footers of many files would take gigabytes.
        footer = _footer(table, file)
        if isinstance(footer, pq.FileMetaData):
            stats: str | None = statistics_of(table.store, file, footer, logged, indexed)
        else:
            stats = None if footer is None else compact_json({"numRecords": footer})
        return AddFile(
            path=encode_path(file.path),
            partition_values=of_file,
            size=file.size,
            modification_time=file.modification_time,
            stats=stats,
        )

    adds = in_parallel(added, files, values)
    is_mapped = mapping_mode(properties) != NONE
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schema_string=schema_to_json(with_own_names(logged)) if is_mapped else json.dumps(schema.jsonValue()),
        partition_columns=tuple(partition_schema.names),
        configuration=with_column_names(stored_properties(properties)),
        created_time=now_ms(),
    )
    parameters = {
        "numFiles": len(adds),
        "partitionedBy": compact_json(partition_schema.names),
        "collectStats": True,
        "sourceFormat": "parquet",
    }
    actions: list[Action] = [protocol_for(schema, properties), with_column_ids(metadata), *adds]
    commit_command(table, None, "CONVERT", parameters, actions, metrics={"numConvertedFiles": len(adds)})


def _is_data(path: str, columns: Sequence[str]) -> bool:
    parts = path.split("/")
    of_partitions = tuple(f"{name}=" for name in columns)
    return not any(part.startswith((".", "_")) and not part.startswith(of_partitions) for part in parts)


def _check_mapping(table: Table, properties: Mapping[str, str]) -> None:
    if mapping_mode(properties) == ID:
        raise DeltaAnalysisException(
            "DELTA_ILLEGAL_USAGE",
            f"The files of {table.location} cannot become a table that finds their columns by ids, which they do not "
            f"have, as {DEFAULTS}columnMapping.mode = id asks for. Set it to name.",
        )


def _check_no_stream(table: Table, found: Sequence[StoredFile]) -> None:
    if any(file.path.startswith(_STREAM_LOG) for file in found):
        raise DeltaUnsupportedOperationException(
            "DELTA_OPERATION_NOT_ALLOWED",
            f"Operation not allowed: CONVERT TO DELTA of {table.location}, a streaming query's output. Only the files "
            f"that its log {_STREAM_LOG} names belong to it; others may be there. Read it with Spark and write the "
            "rows to a new table.",
            parameters={"operation": "CONVERT TO DELTA"},
        )


def _footer(table: Table, file: StoredFile) -> pq.FileMetaData | int | None:
    """Return a file's footer; its rows alone, or None, where PyArrow does not read what Spark may read.

    Raises:
        DeltaTableException: It is not a Parquet file.
    """
    try:
        with table.store.open_input(file.path) as source:
            length = footer_bytes(source)
            metadata = pq.ParquetFile(source).metadata
        # PyArrow ends the process where it is asked for the metadata of an encrypted column.
        if length <= metadata.serialized_size:
            return metadata
    except (pa.ArrowException, OSError) as error:
        if is_of_machine(error) or isinstance(error, FileNotFoundError):
            raise
    try:
        with table.store.open_input(file.path) as source:
            return rows_by_footer(source)
    except ValueError as error:
        path = table.store.absolute(file.path)
        raise DeltaTableException(
            "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER",
            f"Encountered error while reading file {path}. It is not a Parquet file ({error}). Move it out of the "
            "folder, or give it a name that begins with '_' or '.'.",
            parameters={"path": path},
        ) from error


def _partition_values(table: Table, file: StoredFile, columns: Sequence[str]) -> dict[str, str | None]:
    """Return the values in the names of a file's folders, which must be those of the partition columns."""
    folders = [part.partition("=") for part in file.path.split("/")[:-1] if "=" in part]
    found = {unescape_path_name(name): unescape_path_name(value) for name, _, value in folders}
    if len(found) != len(columns):
        raise DeltaAnalysisException(
            "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME",
            f"Expecting {len(columns)} partition column(s): {list(columns)}, but found {len(found)} partition "
            f"column(s): {list(found)} from parsing the file name: {table.store.absolute(file.path)}.",
            parameters={"path": table.store.absolute(file.path)},
        )
    for expected, name in zip(columns, found, strict=True):
        if expected.lower() != name.lower():
            raise DeltaAnalysisException(
                "DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME",
                f"Expecting partition column {expected}, but found partition column {name} from parsing the file name: "
                f"{table.store.absolute(file.path)}.",
                parameters={"expectedCol": expected, "parsedCol": name},
            )
    plain = zip(columns, found.values(), strict=True)
    return {name: None if value == NULL_PARTITION else value for name, value in plain}


def _check_values(
    table: Table, files: Sequence[StoredFile], values: Sequence[dict[str, str | None]], partition_schema: StructType
) -> None:
    """Refuse values that their columns' types do not have, which would be read as NULL."""
    types = {f.name: f.dataType for f in partition_schema.fields if not isinstance(f.dataType, _STRINGS)}
    folders = {
        (name, value): file.path.rpartition("/")[0]
        for file, of_file in zip(files, values, strict=True)
        for name, value in of_file.items()
        if value and name in types
    }
    if not folders:
        return
    distinct = table.spark.createDataFrame(list(folders), "name STRING, value STRING")
    unfit = [(F.col("name") == F.lit(n)) & F.col("value").try_cast(kind).isNull() for n, kind in types.items()]
    for name, value in distinct.where(reduce(lambda left, right: left | right, unfit)).limit(1).collect():
        raise DeltaRuntimeException(
            "DELTA_PARTITION_COLUMN_CAST_FAILED",
            f"Failed to cast value `{value}` to `{types[name].simpleString().upper()}` for partition column `{name}`, "
            f"of the folder {table.store.absolute(folders[name, value])}. Give the column another type, such as "
            "STRING, or move the folder away.",
            parameters={"value": value, "dataType": types[name].simpleString().upper(), "columnName": name},
        )


def _schema(table: Table, files: Sequence[StoredFile], partition_schema: StructType) -> StructType:
    """Return the columns of all files together, then the partition columns."""
    paths = [spark_path(table, file.path) for file in files]
    try:
        read = table.spark.read.option("mergeSchema", "true").parquet(*paths).schema
    except SPARK_ERRORS as error:
        cause = cause_in(str(error))
        if cause is None or not cause[0].startswith("FAILED_READ_FILE"):
            raise
        raise DeltaTableException(
            cause[0],
            f"{cause[1]} Restore the file if it is damaged, or move it out of the folder. Of encrypted files the "
            "session needs the keys.",
            sqlstate=cause[2],
        ) from error
    partitions = {name.lower() for name in partition_schema.names}
    return StructType([*(f for f in read.fields if f.name.lower() not in partitions), *partition_schema.fields])
