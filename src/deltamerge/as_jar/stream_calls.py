"""PySpark's calls on streams: ``readStream`` and ``writeStream``."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from importlib import import_module
from typing import Any, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from deltamerge.api.load_frame import Load, check_stream
from deltamerge.api.save_frame import Save, create_empty, find_table, save_batch
from deltamerge.as_jar.recorded import Original, asked_of, session_of
from deltamerge.as_jar.served import is_delta, is_served, register_now, table_of
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.recipes.foreach_batch import query_id
from deltamerge.spark.connectors import has_connector
from deltamerge.spark.session import conf_value, is_connect
from deltamerge.spark.table import open_table

_CALLS = "_deltamerge_calls"
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
# The last of these calls says where a stream goes.
_SINKS = ("format", "foreach", "foreachBatch")
_CallOf: TypeAlias = tuple[str, tuple[Any, ...], dict[str, Any]]


def format_of_stream(original: Original, self: Any, /, source: str) -> Any:  # noqa: ANN401
    _note(self, "format", (source,), {})
    if source.lower() == "delta":
        spark = session_of(self)
        if is_served(spark):
            register_now(spark)
    return original(self, source)


def note_call(name: str, original: Original, self: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Remember a call on a stream's writer for another writer of the same rows."""
    _note(self, name, args, kwargs)
    return original(self, *args, **kwargs)


def _note(writer: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ANN401
    setattr(writer, _CALLS, [*getattr(writer, _CALLS, ()), (name, args, kwargs)])


def start(original: Original, self: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Start a stream: on classic Spark each batch is written as `df.write` writes it, else by the source in Python."""
    given = inspect.signature(original).bind(self, *args, **kwargs).arguments
    named = {name: given.get(name) for name in ("format", "partitionBy")}
    asked = asked_of(self, Save(), named, given.get("options", {}))
    spark, path = session_of(self), given.get("path") or asked.options.get("path")
    calls: list[_CallOf] = getattr(self, _CALLS, [])
    sinks = [name for name, _, _ in calls if name in _SINKS]
    if not is_delta(spark, asked.source) or sinks[-1:] not in ([], ["format"]):
        return original(self, *args, **kwargs)
    # Without a checkpoint foreachBatch would begin anew each time; for others it is an error.
    has_checkpoint = "checkpointlocation" in asked.options or conf_value(spark, _CHECKPOINTS) is not None
    by_batches = has_checkpoint and not (is_connect(spark) or asked.is_of_source)
    if path is not None and by_batches and has_connector(spark, str(path)):
        here: list[_CallOf] = [(name, (given[name],), {}) for name in ("outputMode", "queryName") if given.get(name)]
        return _start_batches(self, str(path), asked, [*(call for call in calls if call[0] not in _SINKS), *here])
    if asked.partition_by:
        # Spark gives a source in Python no partition columns.
        self.option("partitionBy", json.dumps(asked.partition_by))
    return original(self, *args, **kwargs)


def _start_batches(writer: Any, path: str, asked: Save, calls: list[_CallOf]) -> Any:  # noqa: ANN401
    modes = [str([*args, *kwargs.values()][0]).lower() for name, args, kwargs in calls if name == "outputMode"]
    if modes[-1:] == ["update"]:
        raise DeltaAnalysisException(
            "DELTA_UNSUPPORTED_OUTPUT_MODE",
            "Data source delta does not support Update output mode. Use append or complete, or foreachBatch with a "
            "merge, such as deltamerge.streaming.upsert_into.",
            parameters={"dataSource": "delta", "mode": "Update"},
        )
    batches = _frame(writer).writeStream.options(**{k: v for k, v in asked.options.items() if k != "path"})
    for name, args, kwargs in calls:
        batches = getattr(batches, name)(*args, **kwargs)
    to_table = replace(asked, mode="overwrite" if modes[-1:] == ["complete"] else "append")

    def write(frame: DataFrame, batch: int) -> None:
        spark = frame.sparkSession
        save_batch(frame, open_table(spark, path), to_table, query_id(spark), batch)

    return batches.foreachBatch(write).start()


def load(
    original: Original,
    self: Any,  # noqa: ANN401
    /,
    path: str | None = None,
    format: str | None = None,  # noqa: A002
    schema: Any = None,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> DataFrame:
    spark = session_of(self)
    asked = asked_of(self, Load(), {"format": format, "schema": schema}, options)
    place = asked.options.get("path") if path is None else path
    # A store with options of its own only the source in Python opens.
    if isinstance(place, str) and is_delta(spark, asked.source) and not asked.has_store_options:
        check_stream(spark, place, asked)
    stream: DataFrame = original(self, path, format, schema, **options)
    return stream


def read_table(original: Original, self: Any, /, tableName: str) -> DataFrame:  # noqa: ANN401
    found = table_of(session_of(self), tableName)
    stream: DataFrame = (
        original(self, tableName) if found is None else self.format("delta").load(found.table.store.absolute(""))
    )
    return stream


def to_table(original: Original, self: Any, /, tableName: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Start a stream into the table of a name, which is made where there is none."""
    spark, given = session_of(self), inspect.signature(original).bind(self, tableName, *args, **kwargs).arguments
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
