"""PySpark's own calls, ``spark.sql`` and ``DataFrame.write``, on Delta tables, as they are with delta-spark's JAR."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.session import SparkSession as PySparkSession

from deltamerge.api.run_sql import sql
from deltamerge.api.save_frame import Save, save_as_table, save_to_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STATE = "_deltamerge_write"
_MARK = "_deltamerge_installed"
_thread = threading.local()


def install_in_pyspark() -> None:
    """Let PySpark's own calls in this process do what they do with delta-spark's JAR, on classic Spark and Connect.

    ``spark.sql`` runs Delta's statements by `deltamerge.sql`. ``df.write.format("delta")`` takes every save mode,
    ``partitionBy`` and ``saveAsTable``. All else goes to PySpark as before. What reads is the source of
    `deltamerge.register`.
    """
    for session, writer in _classes():
        if not hasattr(session, _MARK):
            setattr(session, _MARK, True)
            session.sql = _sql(session.sql)
            for name in ("format", "mode", "partitionBy", "option", "options", "clusterBy"):
                setattr(writer, name, _recorded(name, getattr(writer, name)))
            writer.save = _saving(writer.save)
            writer.saveAsTable = _saving_as_table(writer.saveAsTable)


def _classes() -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = [(PySparkSession, DataFrameWriter)]
    try:
        session, writer = (import_module(f"pyspark.sql.connect.{name}") for name in ("session", "readwriter"))
    except ImportError:
        # Without Connect's packages.
        return found
    return [*found, (session.SparkSession, writer.DataFrameWriter)]


def _sql(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    @functools.wraps(original)
    def run(self: SparkSession, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:  # noqa: ANN401, N803
        if kwargs or getattr(_thread, "is_inside", False):
            return original(self, sqlQuery, args, **kwargs)
        _thread.is_inside = True
        try:
            return sql(self, sqlQuery, args)
        finally:
            _thread.is_inside = False

    return run


def _recorded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def record(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        before: Save = getattr(self, _STATE, Save())
        setattr(self, _STATE, before.with_call(name, args, kwargs))
        return original(self, *args, **kwargs)

    return record


def _asked(writer: Any, given: Mapping[str, Any], options: Mapping[str, Any]) -> Save:  # noqa: ANN401
    asked: Save = getattr(writer, _STATE, Save())
    for name, value in given.items():
        if value is not None:
            asked = asked.with_call(name, (value,), {})
    return asked.with_call("options", (), options)


def _frame(writer: Any) -> DataFrame:  # noqa: ANN401
    """Return what a writer writes; one of Connect has only its plan."""
    if isinstance(writer, DataFrameWriter):
        return writer._df
    frame: DataFrame = import_module("pyspark.sql.connect.dataframe").DataFrame(writer._df, writer._spark)
    return frame


def _saving(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def save(
        self: Any,  # noqa: ANN401
        path: str | None = None,
        format: str | None = None,  # noqa: A002
        mode: str | None = None,
        partitionBy: Any = None,  # noqa: ANN401, N803
        **options: Any,  # noqa: ANN401
    ) -> None:
        asked = _asked(self, {"format": format, "mode": mode, "partitionBy": partitionBy}, options)
        place = path or asked.options.get("path")
        if asked.source != "delta" or place is None:
            original(self, path, format, mode, partitionBy, **options)
            return
        save_to_path(_frame(self), place, asked)

    return save


def _saving_as_table(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def save_as(
        self: Any,  # noqa: ANN401
        name: str,
        format: str | None = None,  # noqa: A002
        mode: str | None = None,
        partitionBy: Any = None,  # noqa: ANN401, N803
        **options: Any,  # noqa: ANN401
    ) -> None:
        asked = _asked(self, {"format": format, "mode": mode, "partitionBy": partitionBy}, options)
        if asked.source != "delta":
            original(self, name, format, mode, partitionBy, **options)
            return
        save_as_table(_frame(self), name, asked)

    return save_as
