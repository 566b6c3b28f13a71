"""What ``spark.read`` asks for of a Delta table, read by Spark's own scan of its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from deltamerge.api.arguments import asked_options
from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.statements.tables import Tables, twice_travelled
from deltamerge.data_source.reading import reads_changes, travelled_changes
from deltamerge.data_source.request import Request
from deltamerge.data_source.stream_reading import travelling_stream
from deltamerge.exceptions import DeltaAnalysisException, DeltaTableNotFoundException
from deltamerge.spark import columns as F
from deltamerge.spark.connectors import has_connector
from deltamerge.spark.frame_columns import with_table_name
from deltamerge.sql.names import parse_table_name, quote
from deltamerge.sql.statements.ast import TableName, TimeTravel
from deltamerge.workers.partition_names import split_partition


@dataclass(frozen=True)
class Load:
    """The calls on a reader.

    Args:
        source: The data source, in lower case; empty for the session's default.
        options: By their names in lower case.
        has_schema: Whether the columns to read were named.
    """

    source: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    has_schema: bool = False

    def with_call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Load:
        if name in ("options", "option"):
            given = {key.lower(): value for key, value in asked_options(name, args, kwargs).items()}
            return replace(self, options={**self.options, **given})
        values = [*args, *kwargs.values()]
        if name == "schema":
            return replace(self, has_schema=True)
        return replace(self, source=str(values[0]).lower())

    @property
    def is_of_source(self) -> bool:
        """Whether only the data source in Python reads this: some columns, or a store with options of its own."""
        return self.has_schema or self.has_store_options

    @property
    def has_store_options(self) -> bool:
        return any(name.startswith("fs.") for name in self.options)


def load_path(spark: SparkSession, path: str, asked: Load) -> DataFrame:
    """Read the table at a path, which may end in ``@v3`` or in ``@`` and a timestamp."""
    of_partition = _partition(spark, path, asked)
    if of_partition is not None:
        return of_partition
    tables = Tables(spark)
    base, at = tables.travelled(path)
    return load_with(tables, _at(spark, base), asked.options, at)


def _at(spark: SparkSession, path: str) -> DeltaTable:
    """Open a table to read it, for which the error that there is none has a class of its own in delta-spark."""
    try:
        return DeltaTable.forPath(spark, path)
    except DeltaTableNotFoundException as error:
        raise DeltaTableNotFoundException(
            "DELTA_PATH_DOES_NOT_EXIST", error.message, parameters={"path": path}
        ) from None


def _partition(spark: SparkSession, path: str, asked: Load) -> DataFrame | None:
    """Read the partition whose folder is named; None where a path is no such folder. Delta: parsePathIdentifier."""
    root, values = split_partition(path)
    tables = Tables(spark)
    if not values or tables.has_table_at(path) or not tables.has_table_at(root):
        return None
    table = tables.at(root)
    if not values.keys() <= set(table.table.snapshot().metadata.partition_columns):
        return None
    frame = load_with(tables, table, asked.options)
    for name, value in values.items():
        column = F.col(quote(name))
        frame = frame.where(column.isNull() if value is None else column == F.lit(value))
    return frame


def load_table(spark: SparkSession, name: str, asked: Load) -> DataFrame | None:
    """Read the table of a name; None where it is no Delta table, or in a store that Spark cannot open."""
    named = TableName.of(parse_table_name(name))
    if named.path is not None:
        return load_path(spark, named.path, asked)
    tables = Tables(spark)
    found = tables.called(named.parts)
    if found is None or not has_connector(spark, found.table.location):
        return None
    return with_table_name(load_with(tables, found, asked.options), found.table.entry or named.parts)


def check_stream(spark: SparkSession, path: str, asked: Load) -> None:
    """Refuse a stream of a table as it was, or of one that is not there or has no columns.

    The data source would refuse it in a Python worker, whose errors have no class of their own in Spark.
    """
    tables = Tables(spark)
    at = tables.travelled(path)[1]
    if at is not None or not asked.options.keys().isdisjoint(("versionasof", "timestampasof")):
        raise travelling_stream()
    try:
        snapshot = tables.at(path).table.snapshot()
    except DeltaTableNotFoundException as error:
        raise _schema_not_set(error.message) from None
    if not snapshot.schema.fields:
        raise _schema_not_set(f"The Delta table {path} has no columns.")


def _schema_not_set(why: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTA_SCHEMA_NOT_SET",
        f"Table schema is not set. {why} Write data into it or use CREATE TABLE to set the schema.",
    )


def load_with(tables: Tables, table: DeltaTable, options: Mapping[str, str], at: TimeTravel | None = None) -> DataFrame:
    """Read a table with a reader's options.

    Args:
        options: By their names in lower case.
        at: The time travel that stands beside them, after the table's name or in its path.
    """
    # Spark reads the timestamps, so that no setting is needed here.
    request = Request(options, {})
    version, timestamp = request.version, options.get("timestampasof")
    if at is not None and not (version is None and timestamp is None):
        raise twice_travelled(table.table.name)
    if reads_changes(request):
        if not (at is None and version is None and timestamp is None):
            raise travelled_changes()
        return table.changes(
            startingVersion=request.boundary("startingVersion"),
            endingVersion=request.boundary("endingVersion"),
            startingTimestamp=options.get("startingtimestamp"),
            endingTimestamp=options.get("endingtimestamp"),
        )
    if version is None and timestamp is None:
        return tables.version(table, at)
    return table.at(version=version, timestamp=timestamp)
