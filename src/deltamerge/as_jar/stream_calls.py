"""PySpark's calls on streams: ``readStream`` and ``writeStream``."""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from deltamerge.api.save_frame import Save, create_empty, find_table
from deltamerge.as_jar.recorded import Original, asked_of
from deltamerge.as_jar.served import is_delta, is_served, register_now, table_of


def format_of_stream(original: Original, self: Any, /, source: str) -> Any:  # noqa: ANN401
    if source.lower() == "delta":
        spark = _session_of(self)
        if is_served(spark):
            register_now(spark)
    return original(self, source)


def _session_of(stream: Any) -> SparkSession:  # noqa: ANN401
    session: SparkSession = next(
        getattr(stream, name) for name in ("_spark", "_client", "_session") if hasattr(stream, name)
    )
    return session


def start(original: Original, self: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Start a stream; its partition columns go into an option, since Spark gives a source in Python no others."""
    given = inspect.signature(original).bind(self, *args, **kwargs).arguments
    asked = asked_of(self, Save(), {name: given.get(name) for name in ("format", "partitionBy")}, {})
    if asked.partition_by and is_delta(_session_of(self), asked.source):
        self.option("partitionBy", json.dumps(asked.partition_by))
    return original(self, *args, **kwargs)


def read_table(original: Original, self: Any, /, tableName: str) -> DataFrame:  # noqa: ANN401
    found = table_of(_session_of(self), tableName)
    stream: DataFrame = (
        original(self, tableName) if found is None else self.format("delta").load(found.table.store.absolute(""))
    )
    return stream


def to_table(original: Original, self: Any, /, tableName: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Start a stream into the table of a name, which is made where there is none."""
    spark, given = _session_of(self), inspect.signature(original).bind(self, tableName, *args, **kwargs).arguments
    options = given.get("options", {})
    asked = asked_of(self, Save(), {name: given.get(name) for name in ("format", "partitionBy")}, options)
    found = table_of(spark, tableName)
    if found is None:
        if not is_delta(spark, asked.source) or not create_empty(spark, tableName, _frame(self).schema, asked):
            return original(self, tableName, *args, **kwargs)
        found = find_table(spark, tableName)
        assert found is not None
    if asked.partition_by:
        self.partitionBy(*asked.partition_by)
    of_query = {name: given.get(name) for name in ("outputMode", "queryName")}
    self.format("delta").options(**{**options, "path": found.table.store.absolute("")})
    return self.start(**of_query)


def _frame(writer: Any) -> DataFrame:  # noqa: ANN401
    """Return what a stream writes; over Connect a writer has only its plan."""
    if isinstance(writer, DataStreamWriter):
        return writer._df
    plan: Any = writer._write_stream._child
    frame: DataFrame = import_module("pyspark.sql.connect.dataframe").DataFrame(plan, writer._session)
    return frame
