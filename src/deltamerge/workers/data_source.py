"""The data source ``delta`` as Spark's Python workers have it.

Spark runs a part of it in a Python worker beside its driver, which must have this package: there
`deltamerge.data_source` reads and writes the log. Tasks read and write files by what travels with them, and executors
need not have the package. The package's import is therefore a call.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from deltamerge.workers.table_files import RowsToWrite, WrittenPart
from deltamerge.workers.table_rows import FilePart, RowsOfTable

# Spark says from 4.2 on where a batch of a stream begins, and how much it wants.
limits: Any = None
with suppress(ImportError):
    limits = importlib.import_module("pyspark.sql.streaming.datasource")

PUSHES_FILTERS = "spark.sql.python.filterPushdown.enabled"
_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
_TIME_ZONE = "spark.sql.session.timeZone"
_UTC = frozenset({"UTC", "GMT", "UCT", "ZULU", "UNIVERSAL", "GREENWICH", "Z", "+00:00"})
_QUERY_ID = "sql.streaming.queryId"


class DeltaSource(datasource.DataSource):
    """The data source of a session.

    Attributes:
        settings: The session's settings, as they were when the source was registered; they may be secret.
        pinned: The version whose schema a frame has, and which it reads unless it is a stream; None where it was not
            asked for its schema.
    """

    settings: ClassVar[Mapping[str, str]] = {}
    pinned: int | None = None

    @classmethod
    def name(cls) -> str:
        return "delta"

    def schema(self) -> StructType:
        found, self.pinned = _beside_driver("reading").schema_of(self._options, self.settings)
        schema: StructType = found
        return schema

    def reader(self, schema: StructType) -> TableReader:
        rows, plan = _beside_driver("reading").plan_read(self._options, self.settings, schema, self.pinned)
        pushes = self.settings.get(PUSHES_FILTERS, "").lower() == "true"
        return FilteringReader(rows, plan) if pushes else TableReader(rows, plan)

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:
        return TableWriter(*_beside_driver("writing").plan_write(self._options, self.settings, schema, overwrite))

    def streamReader(self, schema: StructType) -> TableStreamReader:
        stream = _beside_driver("stream_reading").open_stream(self._options, self.settings, schema, self.pinned)
        kind = TableStreamReader if limits is None else LimitedStreamReader
        return kind(stream.rows, stream)

    def streamWriter(self, schema: StructType, overwrite: bool) -> datasource.DataSourceStreamWriter:
        planned = _beside_driver("writing").plan_write(self._options, self.settings, schema, overwrite, streams=True)
        return StreamWriter(*planned)

    @property
    def _options(self) -> dict[str, str]:
        return {key.lower(): str(value) for key, value in self.options.items()}


class FileGroup(datasource.InputPartition):
    """What one task reads."""

    def __init__(self, parts: Sequence[FilePart]) -> None:
        self.parts = parts

    def __repr__(self) -> str:
        return f"FileGroup({', '.join(part.path for part in self.parts)})"


class TableReader(datasource.DataSourceReader):
    """Read a version of a table.

    Args:
        plan: Returns what each task reads, of the files that may have rows for which some filters hold.
    """

    def __init__(self, rows: RowsOfTable, plan: Callable[[Sequence[Any]], list[Sequence[FilePart]]] | None) -> None:
        self._rows = rows
        self._plan = plan
        self._filters: list[Any] = []

    def partitions(self) -> list[datasource.InputPartition]:
        assert self._plan is not None
        return [FileGroup(parts) for parts in self._plan(self._filters)]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._rows, partition)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None, "_filters": []}


class FilteringReader(TableReader):
    """Read a version of a table, but no files in which no row can pass Spark's filters."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        self._filters = filters
        # Spark filters the rows of the files that are read.
        return filters


class TableStreamReader(datasource.DataSourceStreamReader):
    """Read a table as it grows.

    Args:
        stream: The log's part of it, beside the driver.
    """

    def __init__(self, rows: RowsOfTable, stream: Any) -> None:  # noqa: ANN401
        self._rows = rows
        self._stream = stream

    def initialOffset(self) -> dict[str, Any]:
        return dict(self._stream.initial_offset())

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        return dict(self._stream.latest_offset())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[datasource.InputPartition]:
        return [FileGroup(parts) for parts in self._stream.parts(start, end)]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._rows, partition)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}


_Limits: Any = object if limits is None else limits.SupportsTriggerAvailableNow


class LimitedStreamReader(TableStreamReader, _Limits):  # type: ignore[misc]
    """Read a table as it grows, so much at a time."""

    _end: dict[str, Any] | None = None

    def getDefaultReadLimit(self) -> Any:  # noqa: ANN401
        return limits.ReadMaxFiles(self._stream.max_files)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # type: ignore[override]  # noqa: ANN401
        is_limited = not isinstance(limit, limits.ReadAllAvailable)
        return dict(self._stream.latest_offset(start, self._end, is_limited=is_limited))

    def prepareForTriggerAvailableNow(self) -> None:
        self._end = dict(self._stream.latest_offset())


class Written(datasource.WriterCommitMessage):
    """What a task has written.

    Args:
        plan: What the write is to commit, for the driver.
        query: The id of the streaming query; None outside of one.
        overwrite_mode: The setting of this name in the session that writes; None where it is not set there.
    """

    def __init__(self, parts: Sequence[WrittenPart], plan: str) -> None:
        self.parts = [dict(vars(part)) for part in parts]
        self.plan = plan
        self.query = _property(_QUERY_ID)
        self.overwrite_mode = _property(_OVERWRITE_MODE)


class _Writer:
    """What writers of batches and of streams have in common.

    Args:
        plan: What the write is to commit, for the driver.
    """

    def __init__(self, rows: RowsToWrite, plan: str, settings: Mapping[str, str]) -> None:
        self._rows = rows
        self._plan = plan
        self._settings = settings

    def abort(self, messages: Sequence[Any], *_: int) -> None:
        """Delete what tasks have written; a stream's writer is told the batch, too."""
        _beside_driver("writing").abort_write(self._plan, self._settings, messages)


class TableWriter(_Writer, datasource.DataSourceArrowWriter):
    """Write rows as files of a table."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        _check_time_zone(self._rows.time_zone, self._rows.table)
        return Written(self._rows.write(iterator), self._plan)

    def commit(self, messages: Sequence[Any]) -> None:
        _beside_driver("writing").commit_write(self._plan, self._settings, messages)


# Spark 4.0 hands rows to writers of streams.
_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)


class StreamWriter(_Writer, _StreamWriter):  # type: ignore[misc]
    """Write batches of a stream as files of a table, each batch once; else as `TableWriter`."""

    def write(self, iterator: Iterator[Any]) -> Written:
        _check_time_zone(self._rows.time_zone, self._rows.table)
        return Written(self._rows.write(self._rows.as_batches(iterator)), self._plan)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        _beside_driver("writing").commit_batch(self._plan, self._settings, messages, batchId)


def _read(rows: RowsOfTable, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
    _check_time_zone(rows.time_zone, rows.table)
    # Spark makes one partition of none. (The class itself may have travelled twice, as two classes.)
    return rows.read(getattr(partition, "parts", ()))


def _property(key: str) -> str | None:
    """Return what the query's session has set: tasks are told all settings of the session, as its planning is not."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(key)


def _zone(name: str) -> str:
    return "UTC" if name.upper().removeprefix("ETC/") in _UTC else name


def _check_time_zone(planned: str | None, table: str) -> None:
    found = _property(_TIME_ZONE)
    if planned is not None and found is not None and _zone(found) != _zone(planned):
        raise ValueError(
            f"[DELTAMERGE_TIME_ZONE_CHANGED] Timestamps of table {table} depend on the session's time zone, which is "
            f"{found}, but was {planned} when the data source delta was registered: call deltamerge.register(spark) "
            "again. SQLSTATE: 55000"
        )


def _beside_driver(module: str) -> Any:  # noqa: ANN401
    try:
        return importlib.import_module(f"deltamerge.data_source.{module}")
    except ModuleNotFoundError as error:
        raise ImportError(
            "the data source delta needs the package deltamerge, and what it depends on, in the Python that Spark runs "
            f"beside its driver, which has no {error.name}: {sys.executable}. PYSPARK_PYTHON and spark.pyspark.python "
            "say which that is; over Spark Connect it is the server's. Executors do not need it."
        ) from error
