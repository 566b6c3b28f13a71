"""PySpark's own calls on Delta tables, as they are with delta-spark's JAR."""

from __future__ import annotations

import functools
import inspect
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter, DataFrameWriterV2
from pyspark.sql.session import SparkSession as PySparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from deltamerge.api.arguments import condition_of
from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.load_frame import Load, load_path, load_table
from deltamerge.api.merge_writer import MergeIntoWriter
from deltamerge.api.register import ON_DEMAND, register_source, registered_on_demand
from deltamerge.api.run_sql import formatted_sql, sql
from deltamerge.api.save_frame import (
    Save,
    create_as,
    find_table,
    insert_into,
    save_as_table,
    save_to_path,
    save_to_table,
)
from deltamerge.as_delta import install_as_delta
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.spark import columns as F
from deltamerge.spark.connectors import has_connector
from deltamerge.spark.data_source import drop_missing_catalog, has_source_of_jar, is_default_source
from deltamerge.spark.session import effective_value, session_identity

_STATE, _TABLE = "_deltamerge_asked", "_deltamerge_table"
_MARK = "_deltamerge_installed"
_USES_SOURCE = re.compile(r"\busing\s+delta\b", re.IGNORECASE)
_State = TypeVar("_State", Load, Save)
_Original: TypeAlias = Callable[..., Any]
_Frames: TypeAlias = Callable[..., DataFrame]
_thread = threading.local()
_TIME_ZONE = "spark.sql.session.timeZone"
# Set where this library takes the place of a JAR's source, too: by `install_in_pyspark`.
_replaces_jars = threading.Event()
_has_jar: dict[str, bool] = {}
# The time zone that each session had when its source was registered.
_registered: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()


def install_in_pyspark() -> None:
    """Let a script written for delta-spark's JAR run unchanged, on classic Spark and over Connect.

    A script needs this call before its other imports and nothing else:

    - ``import delta`` and ``delta.tables`` mean this package; see `deltamerge.install_as_delta`.
    - ``spark.sql`` runs Delta's statements by `deltamerge.sql`, also with values between braces.
    - ``spark.read`` and ``spark.table`` return the frames of `DeltaTable.toDF`, `DeltaTable.at` and
      `DeltaTable.changes`.
    - ``df.write`` takes every save mode, ``partitionBy``, ``saveAsTable`` and ``insertInto``; ``df.writeTo`` and
      ``df.mergeInto`` all of their calls.
    - A session gets the source of `deltamerge.register` as soon as a stream or the catalog needs it; a stream takes the
      settings that the session has when it begins.
    - ``spark.sql.catalog.spark_catalog`` is unset if it names delta-spark's class and there is no such class.

    Calls that do not concern a Delta table go to PySpark as before. This replaces methods of PySpark's classes.

    Raises:
        ImportError: delta-spark's own package is imported already.
    """
    install_as_delta()
    _replaces_jars.set()
    _replace_calls()
    active = PySparkSession.getActiveSession()
    if active is not None:
        drop_missing_catalog(active)


def register(spark: SparkSession) -> bool:
    """Let PySpark's own calls read and write Delta tables: ``format("delta")``, ``spark.sql`` and the catalog.

    This does for a script whose imports name this package what `install_in_pyspark` does for one that imports
    delta-spark: the calls are those listed there. If a JAR already provides a data source named ``delta``, that one
    stays, and this call only warns.

    Streams, and reads with a schema or with options ``fs.*``, are done by a data source in Python, which keeps the
    settings that the session has now (its time zone, Delta's settings, the credentials of ``spark.hadoop.fs.*``); call
    this again when they have changed. Spark runs a part of it in a Python worker next to its driver, where this package
    must be installed (over Spark Connect on the server); executors need only PyArrow. On Spark 4.1 and later
    ``spark.sql.python.filterPushdown.enabled`` is turned on, also where that is false.

    Args:
        spark: The session that gets the data source. In the other sessions of the process calls on Delta tables are
            this library's, too, unless they have a JAR's source.

    Returns:
        Whether the source is this library's; False if a JAR provides it.
    """
    if not register_source(spark):
        return False
    _registered[spark] = effective_value(spark, _TIME_ZONE)
    _has_jar[session_identity(spark)] = False
    _replace_calls()
    return True


def _replace_calls() -> None:
    ON_DEMAND.set()
    for found in _classes():
        if not hasattr(found.session, _MARK):
            setattr(found.session, _MARK, True)
            _install(found)


@dataclass(frozen=True)
class _Classes:
    """PySpark's classes, of classic Spark or of Connect."""

    session: Any
    frame: Any
    reader: Any
    writer: Any
    writer_v2: Any
    stream_reader: Any
    stream_writer: Any


def _classes() -> list[_Classes]:
    classic = _Classes(
        PySparkSession,
        ClassicDataFrame,
        DataFrameReader,
        DataFrameWriter,
        DataFrameWriterV2,
        DataStreamReader,
        DataStreamWriter,
    )
    try:
        session, frames, batch, streams = (
            import_module(f"pyspark.sql.connect.{name}")
            for name in ("session", "dataframe", "readwriter", "streaming.readwriter")
        )
    except ImportError:
        # Without Connect's packages.
        return [classic]
    connect = _Classes(
        session.SparkSession,
        frames.DataFrame,
        batch.DataFrameReader,
        batch.DataFrameWriter,
        batch.DataFrameWriterV2,
        streams.DataStreamReader,
        streams.DataStreamWriter,
    )
    return [classic, connect]


def _install(found: _Classes) -> None:
    _replace(found.session, "sql", _sql)
    _replace(found.session, "table", _session_table)
    _replace(found.session.Builder, "getOrCreate", _get_or_create)
    _replace(found.frame, "mergeInto", _merge_into)
    recorded = {
        (found.reader, Load): ("format", "option", "options", "schema"),
        (found.writer, Save): ("format", "mode", "partitionBy", "option", "options", "clusterBy"),
        (found.writer_v2, Save): ("using", "partitionedBy", "option", "options", "clusterBy", "tableProperty"),
        (found.stream_writer, Save): ("format", "partitionBy"),
    }
    for (of, state), names in recorded.items():
        for name in names:
            _replace(of, name, functools.partial(_record, name, state))
    _replace(found.reader, "load", _load)
    _replace(found.reader, "table", _reader_table)
    _replace(found.writer, "save", _save)
    _replace(found.writer, "saveAsTable", _save_as_table)
    _replace(found.writer, "insertInto", _insert_into)
    _replace(found.writer_v2, "__init__", _keep_name)
    for name, mode in (("create", "create"), ("replace", "replace"), ("createOrReplace", "create_or_replace")):
        _replace(found.writer_v2, name, functools.partial(_create, mode))
    _replace(found.writer_v2, "append", functools.partial(_change, {}))
    dynamic = {"partitionOverwriteMode": "dynamic"}
    _replace(found.writer_v2, "overwritePartitions", functools.partial(_change, dynamic))
    _replace(found.writer_v2, "overwrite", _overwrite)
    for of in (found.stream_reader, found.stream_writer):
        _replace(of, "format", _stream_format)
    for name in ("start", "toTable"):
        _replace(found.stream_writer, name, _start)


def _replace(of: Any, name: str, call: Callable[..., Any]) -> None:  # noqa: ANN401
    """Replace a method by a function that gets the original one before its arguments."""
    original = getattr(of, name)

    @functools.wraps(original)
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return call(original, self, *args, **kwargs)

    setattr(of, name, method)


def _sql(original: _Frames, self: SparkSession, /, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:  # noqa: ANN401
    if getattr(_thread, "is_inside", False) or not _is_served(self):
        return original(self, sqlQuery, args, **kwargs)
    _thread.is_inside = True
    try:
        if _USES_SOURCE.search(sqlQuery):
            _register_once(self)
        if not kwargs:
            return sql(self, sqlQuery, args)
        found = formatted_sql(self, sqlQuery, args, kwargs)
        return original(self, sqlQuery, args, **kwargs) if found is None else found
    finally:
        _thread.is_inside = False


def _is_served(spark: SparkSession) -> bool:
    """Return whether Delta tables of a session are this library's: where a JAR has them, only if all were asked for."""
    # Each batch of a stream has a Python object of its own for its session.
    identity = session_identity(spark)
    if identity not in _has_jar:
        drop_missing_catalog(spark)
        _has_jar[identity] = not _replaces_jars.is_set() and has_source_of_jar(spark)
    return _replaces_jars.is_set() or not _has_jar[identity]


def _register_once(spark: SparkSession) -> None:
    if spark not in _registered or _registered[spark] != effective_value(spark, _TIME_ZONE):
        _register(spark)


def _register(spark: SparkSession) -> None:
    registered_on_demand(spark)
    _registered[spark] = effective_value(spark, _TIME_ZONE)


def _get_or_create(original: _Original, self: Any) -> SparkSession:  # noqa: ANN401
    session: SparkSession = original(self)
    drop_missing_catalog(session)
    return session


def _record(name: str, state: type[Load | Save], original: _Original, self: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    setattr(self, _STATE, getattr(self, _STATE, state()).with_call(name, args, kwargs))
    return original(self, *args, **kwargs)


def _is_delta(spark: SparkSession, source: str) -> bool:
    return (source == "delta" if source else is_default_source(spark)) and _is_served(spark)


def _asked(call: Any, asked: _State, given: Mapping[str, Any], options: Mapping[str, Any]) -> _State:  # noqa: ANN401
    """Return what a reader or writer was asked for, by its calls so far and this one."""
    asked = getattr(call, _STATE, asked)
    for name, value in given.items():
        if value is not None:
            asked = asked.with_call(name, (value,), {})
    return asked.with_call("options", (), options)


def _load(
    original: _Frames,
    self: Any,  # noqa: ANN401
    /,
    path: Any = None,  # noqa: ANN401
    format: str | None = None,  # noqa: A002
    schema: Any = None,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> DataFrame:
    spark = _session_of(self)
    asked = _asked(self, Load(), {"format": format, "schema": schema}, options)
    place = asked.options.get("path") if path is None else path
    # Without a place it may be the question whether a JAR has the source.
    if isinstance(place, str) and _is_delta(spark, asked.source):
        if not asked.is_of_source and has_connector(spark, place):
            return load_path(spark, place, asked)
        _register_once(spark)
    return original(self, path, format, schema, **options)


def _session_of(reader: Any) -> SparkSession:  # noqa: ANN401
    session: SparkSession = reader._spark if isinstance(reader, DataFrameReader) else reader._client
    return session


def _reader_table(original: _Original, self: Any, /, tableName: str) -> DataFrame:  # noqa: ANN401
    spark = _session_of(self)
    found = load_table(spark, tableName, getattr(self, _STATE, Load())) if _is_served(spark) else None
    return original(self, tableName) if found is None else found


def _session_table(original: _Original, self: SparkSession, /, tableName: str) -> DataFrame:
    found = load_table(self, tableName, Load()) if isinstance(tableName, str) and _is_served(self) else None
    return original(self, tableName) if found is None else found


def _frame(writer: Any) -> DataFrame:  # noqa: ANN401
    """Return what a writer writes; one of Connect has only its plan."""
    if isinstance(writer, (DataFrameWriter, DataFrameWriterV2)):
        return writer._df
    frame: DataFrame = import_module("pyspark.sql.connect.dataframe").DataFrame(writer._df, writer._spark)
    return frame


def _save(
    original: _Original,
    self: Any,  # noqa: ANN401
    /,
    path: str | None = None,
    format: str | None = None,  # noqa: A002
    mode: str | None = None,
    partitionBy: Any = None,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> None:
    asked = _asked(self, Save(), {"format": format, "mode": mode, "partitionBy": partitionBy}, options)
    place = path or asked.options.get("path")
    if place is None or not _is_delta(self._spark, asked.source):
        original(self, path, format, mode, partitionBy, **options)
    elif not asked.is_of_source and has_connector(self._spark, place):
        save_to_path(_frame(self), place, asked)
    else:
        _refuse_what_source_lacks(asked)
        _register_once(self._spark)
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


def _save_as_table(
    original: _Original,
    self: Any,  # noqa: ANN401
    /,
    name: str,
    format: str | None = None,  # noqa: A002
    mode: str | None = None,
    partitionBy: Any = None,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> None:
    asked = _asked(self, Save(), {"format": format, "mode": mode, "partitionBy": partitionBy}, options)
    if _is_delta(self._spark, asked.source):
        save_as_table(_frame(self), name, asked)
    else:
        original(self, name, format, mode, partitionBy, **options)


def _insert_into(original: _Original, self: Any, /, tableName: str, overwrite: bool | None = None) -> None:  # noqa: ANN401
    mode = None if overwrite is None else "overwrite" if overwrite else "append"
    asked = _asked(self, Save(), {"mode": mode}, {})
    # Spark refuses partitions here.
    found = _table_of(self._spark, tableName) if asked.partition_by is None else None
    if found is None:
        original(self, tableName, overwrite)
    else:
        insert_into(_frame(self), found, asked)


def _table_of(spark: SparkSession, name: str) -> DeltaTable | None:
    return find_table(spark, name) if _is_served(spark) else None


def _merge_into(original: _Original, self: DataFrame, /, table: str, condition: Column) -> Any:  # noqa: ANN401
    found = _table_of(self.sparkSession, table)
    return original(self, table, condition) if found is None else MergeIntoWriter(self, found, table, condition)


def _keep_name(original: _Original, self: Any, /, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
    """Let a writer keep the name of its table, which it may give to Spark only."""
    original(self, *args, **kwargs)
    setattr(self, _TABLE, inspect.signature(original).bind(self, *args, **kwargs).arguments["table"])


def _create(mode: Any, original: _Original, self: Any) -> None:  # noqa: ANN401
    asked = _asked(self, Save(), {}, {})
    if _is_delta(self._spark, asked.source):
        create_as(_frame(self), getattr(self, _TABLE), mode, asked)
    else:
        original(self)


def _change(options: Mapping[str, str], original: _Original, self: Any) -> None:  # noqa: ANN401
    found = _table_of(self._spark, getattr(self, _TABLE))
    if found is None:
        original(self)
        return
    mode = "overwrite" if options else "append"
    save_to_table(_frame(self), found.table, _asked(self, Save(), {"mode": mode}, options))


def _overwrite(original: _Original, self: Any, /, condition: Any) -> None:  # noqa: ANN401
    found = _table_of(self._spark, getattr(self, _TABLE))
    if found is None:
        original(self, condition)
        return
    # A string is a column's name here, not SQL.
    where = condition_of(F.col(condition) if isinstance(condition, str) else condition)
    asked = replace(_asked(self, Save(), {"mode": "overwrite"}, {}), condition=where)
    save_to_table(_frame(self), found.table, asked)


def _stream_format(original: _Original, self: Any, /, source: str) -> Any:  # noqa: ANN401
    if source.lower() == "delta":
        spark = _stream_session(self)
        if _is_served(spark):
            _register(spark)
    return original(self, source)


def _stream_session(stream: Any) -> SparkSession:  # noqa: ANN401
    session: SparkSession = next(
        getattr(stream, name) for name in ("_spark", "_client", "_session") if hasattr(stream, name)
    )
    return session


def _start(original: _Original, self: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Start a stream; its partition columns go into an option, since Spark gives a source in Python no others."""
    given = inspect.signature(original).bind(self, *args, **kwargs).arguments
    asked = _asked(self, Save(), {name: given.get(name) for name in ("format", "partitionBy")}, {})
    if asked.partition_by and _is_delta(_stream_session(self), asked.source):
        self.option("partitionBy", json.dumps(asked.partition_by))
    return original(self, *args, **kwargs)
