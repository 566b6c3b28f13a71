"""Which methods of PySpark's classes are replaced, and by what."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.conf import RuntimeConfig
from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter, DataFrameWriterV2
from pyspark.sql.session import SparkSession as PySparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from deltamerge.api.load_frame import Load
from deltamerge.api.register import ON_DEMAND, register_source
from deltamerge.api.save_frame import Save
from deltamerge.as_delta import install_as_delta
from deltamerge.as_jar import catalog_calls, frame_calls, session_calls, stream_calls, temp_views
from deltamerge.as_jar.recorded import Call, record, replace_method
from deltamerge.as_jar.served import REPLACES_JARS, registered
from deltamerge.spark.data_source import drop_missing_catalog

_MARK = "_deltamerge_installed"
_lock = threading.Lock()


def install_in_pyspark() -> None:
    """Let a script written for delta-spark's JAR run unchanged, on classic Spark and over Connect.

    A script needs this call before its other imports and nothing else:

    - ``import delta`` and ``delta.tables`` mean this package; see `deltamerge.install_as_delta`.
    - ``spark.sql`` runs Delta's statements by `deltamerge.sql`, also with values between braces.
    - ``spark.read`` and ``spark.table`` return the frames of `DeltaTable.toDF`, `DeltaTable.at` and
      `DeltaTable.changes`.
    - ``df.write`` takes every save mode, ``partitionBy``, ``saveAsTable`` and ``insertInto``; ``df.writeTo`` and
      ``df.mergeInto`` all of their calls.
    - Streams read and write tables by path and by name.
    - A session gets the source of `deltamerge.register` as soon as a stream, a view or the catalog needs it; a stream
      takes the settings that the session has when it begins.
    - ``spark.sql.catalog.spark_catalog`` is unset if it names delta-spark's class and there is no such class.

    Calls that do not concern a Delta table go to PySpark as before. This replaces methods of PySpark's classes.

    Raises:
        ImportError: delta-spark's own package is imported already.
    """
    install_as_delta()
    REPLACES_JARS.set()
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
    registered(spark)
    _replace_calls()
    return True


def _replace_calls() -> None:
    ON_DEMAND.set()
    with _lock:
        for found in _classes():
            if not hasattr(found.session, _MARK):
                _install(found)
                setattr(found.session, _MARK, True)


_CLASSES = {
    "session": (PySparkSession, "session", "SparkSession"),
    "conf": (RuntimeConfig, "conf", "RuntimeConf"),
    "catalog": (Catalog, "catalog", "Catalog"),
    "frame": (ClassicDataFrame, "dataframe", "DataFrame"),
    "reader": (DataFrameReader, "readwriter", "DataFrameReader"),
    "writer": (DataFrameWriter, "readwriter", "DataFrameWriter"),
    "writer_v2": (DataFrameWriterV2, "readwriter", "DataFrameWriterV2"),
    "stream_reader": (DataStreamReader, "streaming.readwriter", "DataStreamReader"),
    "stream_writer": (DataStreamWriter, "streaming.readwriter", "DataStreamWriter"),
}
"""PySpark's classes: the one of classic Spark, and the module and the name of Connect's."""


_CALLS_SINCE_4_2: Mapping[str, Call] = {
    **dict.fromkeys(("analyzeTable", "getCreateTableString"), catalog_calls.catalog_call),
    "dropTable": catalog_calls.drop_table,
    "getTableProperties": catalog_calls.table_properties,
    "listPartitions": catalog_calls.list_partitions,
    "truncateTable": catalog_calls.truncate_table,
}
"""The catalog's, of PySpark 4.2."""


def _classes() -> list[SimpleNamespace]:
    classic = SimpleNamespace(**{key: of for key, (of, _, _) in _CLASSES.items()})
    try:
        connect = {
            key: getattr(import_module(f"pyspark.sql.connect.{module}"), name)
            for key, (_, module, name) in _CLASSES.items()
        }
    except ImportError:
        # Without Connect's packages.
        return [classic]
    return [classic, SimpleNamespace(**connect)]


def _install(found: SimpleNamespace) -> None:
    recorded = {
        (found.reader, Load): ("format", "option", "options", "schema"),
        (found.stream_reader, Load): ("format", "option", "options", "schema"),
        (found.writer, Save): ("format", "mode", "partitionBy", "bucketBy", "sortBy", "option", "options", "clusterBy"),
        (found.writer_v2, Save): ("using", "partitionedBy", "option", "options", "clusterBy", "tableProperty"),
        (found.stream_writer, Save): ("format", "partitionBy", "option", "options", "clusterBy"),
    }
    for (of, state), names in recorded.items():
        for name in names:
            replace_method(of, name, functools.partial(record, name, state))
    for name in ("outputMode", "queryName", "trigger", "foreach", "foreachBatch"):
        replace_method(found.stream_writer, name, functools.partial(stream_calls.note_call, name))
    dynamic = {"partitionOverwriteMode": "dynamic"}
    replaced: dict[Any, dict[str, Call]] = {
        found.session: {
            "sql": session_calls.run_sql,
            "table": session_calls.table,
            # Sessions over Connect of PySpark 4.0 make no other ones.
            **({"newSession": session_calls.made_session} if hasattr(found.session, "newSession") else {}),
        },
        found.session.Builder: {"getOrCreate": session_calls.made_session},
        found.conf: {"get": session_calls.conf_value},
        found.catalog: {
            "createTable": catalog_calls.create_table,
            **dict.fromkeys(
                ("cacheTable", "isCached", "recoverPartitions", "uncacheTable"),
                catalog_calls.catalog_call,
            ),
            "getTable": catalog_calls.get_table,
            "listColumns": catalog_calls.list_columns,
            "listTables": catalog_calls.list_tables,
            "refreshTable": catalog_calls.refresh_table,
            "tableExists": catalog_calls.has_table,
            "dropTempView": temp_views.drop,
            "dropGlobalTempView": temp_views.drop_global,
            **(_CALLS_SINCE_4_2 if hasattr(found.catalog, "dropTable") else {}),
        },
        found.frame: {
            "mergeInto": frame_calls.merge_into,
            "createTempView": functools.partial(temp_views.create, False),
            "createOrReplaceTempView": functools.partial(temp_views.create, False),
            "createGlobalTempView": functools.partial(temp_views.create, True),
            "createOrReplaceGlobalTempView": functools.partial(temp_views.create, True),
        },
        found.reader: {"load": frame_calls.load, "table": frame_calls.reader_table},
        found.writer: {
            "save": frame_calls.save,
            "saveAsTable": frame_calls.save_as_named,
            "insertInto": frame_calls.insert_into_named,
        },
        found.writer_v2: {
            "__init__": frame_calls.keep_name,
            "create": functools.partial(frame_calls.create, "create"),
            "replace": functools.partial(frame_calls.create, "replace"),
            "createOrReplace": functools.partial(frame_calls.create, "create_or_replace"),
            "append": functools.partial(frame_calls.change, {}),
            "overwritePartitions": functools.partial(frame_calls.change, dynamic),
            "overwrite": frame_calls.overwrite,
        },
        found.stream_reader: {
            "format": stream_calls.format_of_stream,
            "load": stream_calls.load,
            "table": stream_calls.read_table,
        },
        found.stream_writer: {
            "format": stream_calls.format_of_stream,
            "start": stream_calls.start,
            "toTable": stream_calls.to_table,
        },
    }
    for of, calls in replaced.items():
        for name, call in calls.items():
            replace_method(of, name, call)
