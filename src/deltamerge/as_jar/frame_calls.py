"""PySpark's calls that read and write frames: ``read``, ``write``, ``writeTo`` and ``mergeInto``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2

from deltamerge.api.arguments import condition_of
from deltamerge.api.load_frame import Load, load_path, load_table
from deltamerge.api.merge_writer import MergeIntoWriter
from deltamerge.api.save_frame import Save, create_as, insert_into, save_as_table, save_to_path, save_to_table
from deltamerge.as_jar.recorded import Original, asked_of, session_of
from deltamerge.as_jar.served import is_delta, is_served, register_once, table_of, with_source
from deltamerge.as_jar.temp_views import update_views
from deltamerge.exceptions import DeltaAnalysisException, DeltaIllegalArgumentException
from deltamerge.spark import columns as F
from deltamerge.spark.catalog import names_another_catalog
from deltamerge.spark.connectors import has_connector
from deltamerge.sql.names import parse_table_name
from deltamerge.sql.statements.ast import TableName

_TABLE = "_deltamerge_table"
_Frames: TypeAlias = Callable[..., DataFrame]


def load(
    original: _Frames,
    self: Any,  # noqa: ANN401
    /,
    path: Any = None,  # noqa: ANN401
    format: str | None = None,  # noqa: A002
    schema: Any = None,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> DataFrame:
    spark = session_of(self)
    asked = asked_of(self, Load(), {"format": format, "schema": schema}, options)
    if isinstance(path, list) and path and is_delta(spark, asked.source):
        if len(path) > 1:
            raise _several_paths(path)
        path = path[0]
    place = asked.options.get("path") if path is None else path
    # Without a place it may be the question whether a JAR has the source.
    if isinstance(place, str) and is_delta(spark, asked.source):
        if not asked.is_of_source and has_connector(spark, place):
            return load_path(spark, place, asked)
        register_once(spark)
    return original(self, path, format, schema, **options)


def _several_paths(paths: Sequence[str]) -> DeltaIllegalArgumentException:
    return DeltaIllegalArgumentException(
        "DELTA_TABLE_PATH_NOT_GIVEN",
        f"'path' is not specified: a Delta table has one path, and there are {len(paths)}, of which the first is "
        f"{paths[0]}. Load each by itself and put the frames together by unionByName.",
    )


def reader_table(original: _Frames, self: Any, /, tableName: str) -> DataFrame:  # noqa: ANN401
    spark = session_of(self)
    if not is_served(spark):
        return original(self, tableName)
    update_views(spark, [parse_table_name(tableName)])
    found = load_table(spark, tableName, asked_of(self, Load(), {}, {}))
    return with_source(spark, partial(original, self, tableName)) if found is None else found


def _frame(writer: Any) -> DataFrame:  # noqa: ANN401
    """Return what a writer writes; one of Connect has only its plan."""
    if isinstance(writer, (DataFrameWriter, DataFrameWriterV2)):
        return writer._df
    frame: DataFrame = import_module("pyspark.sql.connect.dataframe").DataFrame(writer._df, writer._spark)
    return frame


def save(
    original: Original,
    self: Any,  # noqa: ANN401
    /,
    path: str | None = None,
    format: str | None = None,  # noqa: A002
    mode: str | None = None,
    partitionBy: Any = None,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> None:
    asked = asked_of(self, Save(), {"format": format, "mode": mode, "partitionBy": partitionBy}, options)
    place = path or asked.options.get("path")
    if not is_delta(self._spark, asked.source):
        original(self, path, format, mode, partitionBy, **options)
    elif place is None:
        raise DeltaIllegalArgumentException(
            "DELTA_TABLE_PATH_NOT_GIVEN",
            "'path' is not specified: save(path) writes a table at a path, saveAsTable(name) one of a name. Nothing "
            "was written.",
        )
    elif not asked.is_of_source and has_connector(self._spark, place):
        save_to_path(_frame(self), place, asked)
    else:
        _refuse_what_source_lacks(asked)
        register_once(self._spark)
        original(self, path, format, mode, partitionBy, **options)


def _refuse_what_source_lacks(asked: Save) -> None:
    """Refuse what Spark does not hand over to a source in Python, with what to write instead."""
    wrong = None
    if asked.mode in ("error", "ignore"):
        wrong = f'the mode {asked.mode}: write .mode("append") or .mode("overwrite")'
    elif asked.partition_by:
        wrong = f'partitionBy: write .option("partitionBy", "{",".join(asked.partition_by)}")'
    if wrong is not None:
        raise DeltaAnalysisException(
            "UNSUPPORTED_DATA_SOURCE_SAVE_MODE",
            "A data source in Python does this write, since Spark has no connector for the store or there are options "
            f"fs.*, and Spark does not allow it {wrong}. Nothing was written.",
        )


def save_as_named(
    original: Original,
    self: Any,  # noqa: ANN401
    /,
    name: str,
    format: str | None = None,  # noqa: A002
    mode: str | None = None,
    partitionBy: Any = None,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> None:
    asked = asked_of(self, Save(), {"format": format, "mode": mode, "partitionBy": partitionBy}, options)
    if _makes_delta(self._spark, asked.source, name):
        save_as_table(_frame(self), name, asked)
        return
    if is_delta(self._spark, asked.source):
        # Spark looks for the source before it hands the source's name to another catalog.
        register_once(self._spark)
    original(self, name, format, mode, partitionBy, **options)


def _makes_delta(spark: SparkSession, source: str, name: str) -> bool:
    """Return whether a table of a name is to be a Delta table; the default source is not that of other catalogs."""
    if not is_delta(spark, source):
        return False
    table = TableName.of(parse_table_name(name))
    return bool(source) or table.path is not None or not names_another_catalog(spark, table.parts)


def insert_into_named(original: Original, self: Any, /, tableName: str, overwrite: bool | None = None) -> None:  # noqa: ANN401
    mode = None if overwrite is None else "overwrite" if overwrite else "append"
    asked = asked_of(self, Save(), {"mode": mode}, {})
    # Spark refuses partitions here.
    found = table_of(self._spark, tableName) if asked.partition_by is None else None
    if found is None:
        original(self, tableName, overwrite)
    else:
        insert_into(_frame(self), found, asked)


def keep_name(original: Original, self: Any, /, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
    """Let a writer keep the name of its table, which it may give to Spark only."""
    original(self, *args, **kwargs)
    setattr(self, _TABLE, inspect.signature(original).bind(self, *args, **kwargs).arguments["table"])


def create(mode: Any, original: Original, self: Any) -> None:  # noqa: ANN401
    asked, name = asked_of(self, Save(), {}, {}), getattr(self, _TABLE)
    if _makes_delta(self._spark, asked.source, name):
        create_as(_frame(self), name, mode, asked)
    else:
        original(self)


def change(options: Mapping[str, str], original: Original, self: Any) -> None:  # noqa: ANN401
    found = table_of(self._spark, getattr(self, _TABLE))
    if found is None:
        original(self)
        return
    mode = "overwrite" if options else "append"
    save_to_table(_frame(self), found.table, asked_of(self, Save(), {"mode": mode}, options))


def overwrite(original: Original, self: Any, /, condition: Any) -> None:  # noqa: ANN401
    found = table_of(self._spark, getattr(self, _TABLE))
    if found is None:
        original(self, condition)
        return
    # A string is a column's name here, not SQL.
    where = condition_of(F.col(condition) if isinstance(condition, str) else condition)
    asked = replace(asked_of(self, Save(), {"mode": "overwrite"}, {}), condition=where)
    save_to_table(_frame(self), found.table, asked)


def merge_into(original: Original, self: DataFrame, /, table: str, condition: Column) -> Any:  # noqa: ANN401
    found = table_of(self.sparkSession, table)
    return original(self, table, condition) if found is None else MergeIntoWriter(self, found, table, condition)
