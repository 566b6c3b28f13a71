"""What ``spark.read`` asks for of a Delta table, read by Spark's own scan of its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from deltamerge.api.asked_options import asked_options
from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.statements.tables import Tables
from deltamerge.data_source.reading import reads_changes, travelled_changes
from deltamerge.data_source.request import Request
from deltamerge.sql.names import parse_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
        """Return what is asked for after one more call of the reader."""
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
        return self.has_schema or any(name.startswith("fs.") for name in self.options)


def load_path(spark: SparkSession, path: str, asked: Load) -> DataFrame:
    """Read the table at a path.

    Raises:
        DeltaTableNotFoundException: There is no Delta table.
        DeltaAnalysisException: An option is wrong.
    """
    return _frame(DeltaTable.forPath(spark, path), asked)


def load_table(spark: SparkSession, name: str, asked: Load) -> DataFrame | None:
    """Read the table of a name; None where it is no Delta table.

    Raises:
        DeltaAnalysisException: An option is wrong.
    """
    found = Tables(spark).called(parse_name(name))
    return None if found is None else _frame(found, asked)


def _frame(table: DeltaTable, asked: Load) -> DataFrame:
    # Spark reads the timestamps, so that no setting is needed here.
    request = Request(asked.options, {})
    version, timestamp = request.number("versionAsOf"), asked.options.get("timestampasof")
    if reads_changes(request):
        if version is not None or timestamp is not None:
            raise travelled_changes()
        return table.changes(
            startingVersion=request.number("startingVersion"),
            endingVersion=request.number("endingVersion"),
            startingTimestamp=asked.options.get("startingtimestamp"),
            endingTimestamp=asked.options.get("endingtimestamp"),
        )
    if version is None and timestamp is None:
        return table.toDF()
    return table.at(version=version, timestamp=timestamp)
