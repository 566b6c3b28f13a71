"""``parquet.`path` `` read without the Spark job that infers the schema.

Spark takes the columns from one file's footer, and runs a job to read it. Where that is a file of the common kind, on
this machine or beside the target in its store, reading the footer here takes less; everything else stays Spark's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from deltamerge.scan.plain_parquet import local_path
from deltamerge.spark.session import conf_value
from deltamerge.spark.table import Table, open_table
from deltamerge.storage.credentials import StoreOptions
from deltamerge.storage.store import Store
from deltamerge.workers.files import LOCAL_FILES, Files
from deltamerge.workers.parquet_patch import SPARK_SCHEMA

GLOB = frozenset("*?[]{}\\,")
"""Characters of paths that Spark takes for patterns."""
_PLAIN: dict[str, T.DataType] = {
    "BOOLEAN": T.BooleanType(),
    "INT32": T.IntegerType(),
    "INT64": T.LongType(),
    "FLOAT": T.FloatType(),
    "DOUBLE": T.DoubleType(),
}
_INTEGERS: dict[int, T.DataType] = {8: T.ByteType(), 16: T.ShortType(), 32: T.IntegerType(), 64: T.LongType()}
_KNOWN = frozenset(
    {
        *map(type, _PLAIN.values()),
        T.ByteType,
        T.ShortType,
        T.StringType,
        T.DateType,
        T.TimestampType,
        T.DecimalType,
    }
)


def read_parquet(table: Table, path: str, options: StoreOptions, opened_by: Files | None = None) -> DataFrame | None:
    """Read a Parquet file or folder as ``SELECT * FROM parquet.`path` `` does.

    None where Spark must infer the schema: the files are neither local nor in the store of a table, are in folders by
    partition, or have columns of a nested or rare type.

    Args:
        opened_by: How its files are opened; None where they are by Spark only.
    """
    spark = table.spark
    if not path.isascii() or GLOB & set(path) or not _is_plain_session(spark):
        return None
    if Path(path).is_absolute():
        files = _local_files(Path(path))
        schema = _schema(LOCAL_FILES, files[0]) if files else None
        if schema is None:
            return None
        frame = spark.read.schema(schema).parquet(path)
        # A path without a scheme may be one of another file system, which has files of the same names.
        return frame if sorted(map(local_path, frame.inputFiles()), key=str) == sorted(files) else None
    if opened_by is None or _bucket(path) != _bucket(table.store.root):
        return None
    files = _stored_files(open_table(spark, path, options).store)
    schema = _schema(opened_by, files[0]) if files else None
    if schema is None:
        return None
    # Spark looks at a file once, at a folder three times as often.
    return spark.read.schema(schema).parquet(files[0] if len(files) == 1 else path)


def _bucket(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])


def _is_plain_session(spark: SparkSession) -> bool:
    on_files, merges = (
        (conf_value(spark, f"spark.sql.{key}") or default).lower()
        for key, default in (("runSQLOnFiles", "true"), ("parquet.mergeSchema", "false"))
    )
    return on_files == "true" and merges == "false"


def _local_files(root: Path) -> list[str]:
    if root.is_file():
        return [str(root)]
    if not root.is_dir():
        return []
    entries = [(entry.name, entry.is_dir()) for entry in root.iterdir()]
    return [str(root / name) for name in _data_files(entries)]


def _stored_files(store: Store) -> list[str]:
    paths = [file.path for file in store.list()]
    entries = {(path.partition("/")[0], "/" in path) for path in paths}
    return [store.absolute(name) for name in _data_files(entries)]


def _data_files(entries: Iterable[tuple[str, bool]]) -> list[str]:
    """List a folder's files in the order in which Spark looks for a footer; none where there are folders."""
    found = []
    for name, is_folder in entries:
        is_hidden = name.startswith(("_", ".")) or name.endswith("._COPYING_")
        is_summary = name.startswith(("_metadata", "_common_metadata"))
        # A name that Spark would take for a pattern is left to Spark.
        if is_summary or not name.isascii() or GLOB & set(name) or (is_folder and (not is_hidden or "=" in name)):
            return []
        if not is_hidden:
            found.append(name)
    return sorted(found)


def _schema(opened_by: Files, path: str) -> T.StructType | None:
    """Return the columns that Spark finds in a file's footer (ParquetFileFormat.readSchemaFromFooter)."""
    try:
        metadata = opened_by.parquet(path, memory_map=False).metadata
    except (OSError, pa.ArrowException):
        return None
    stored = (metadata.metadata or {}).get(SPARK_SCHEMA)
    schema = _of_columns(metadata.schema) if stored is None else _of_spark(stored)
    if schema is None or len({name.lower() for name in schema.names}) < len(schema.names):
        return None
    return schema if all(_is_known(field) for field in schema.fields) else None


def _is_known(field: T.StructField) -> bool:
    kind = field.dataType
    is_sound = not isinstance(kind, T.DecimalType) or 0 <= kind.scale <= kind.precision <= 38
    return type(kind) in _KNOWN and not field.metadata and is_sound


def _of_spark(stored: bytes) -> T.StructType | None:
    """Read the schema that Spark has put into a footer; None where it is not exactly one."""
    try:
        found = json.loads(stored)
        schema = T.StructType.fromJson(found)
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError, PySparkException):
        return None
    return schema if schema.jsonValue() == found else None


def _of_columns(columns: pq.ParquetSchema) -> T.StructType | None:
    fields = []
    for index in range(len(columns)):
        column = columns.column(index)
        kind = _type(column)
        if kind is None or column.path != column.name or column.max_repetition_level:
            return None
        fields.append(T.StructField(column.name, kind))
    return T.StructType(fields)


def _type(column: Any) -> T.DataType | None:  # noqa: ANN401
    """Return the type that Spark reads a column as (ParquetToSparkSchemaConverter), whatever its settings."""
    kind = json.loads(column.logical_type.to_json())
    physical, logical = column.physical_type, kind["Type"]
    if logical == "None":
        return _PLAIN.get(physical)
    if logical == "Int" and kind["isSigned"]:
        return _INTEGERS[kind["bitWidth"]]
    if logical == "String" and physical == "BYTE_ARRAY":
        return T.StringType()
    if logical == "Date":
        return T.DateType()
    if logical == "Decimal" and physical != "BYTE_ARRAY":
        return T.DecimalType(kind["precision"], kind["scale"])
    if logical == "Timestamp" and kind["isAdjustedToUTC"] and kind["timeUnit"] == "microseconds":
        return T.TimestampType()
    return None
