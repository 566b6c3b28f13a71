"""The tables that a statement names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, IntegralType, StringType, TimestampType

from deltamerge.api.delta_table import DeltaTable, open_by_name
from deltamerge.exceptions import DeltaAnalysisException, DeltaTableNotFoundException
from deltamerge.log.commit_times import as_datetime
from deltamerge.log.snapshot import table_exists
from deltamerge.scan.time_travel import expression_ms
from deltamerge.scan.views import table_of_view
from deltamerge.spark import columns as F
from deltamerge.spark.catalog import (
    catalog_entry,
    delta_location,
    named,
    names_another_catalog,
    qualified,
    refuse_temporary_view,
)
from deltamerge.spark.table import Table, open_table
from deltamerge.sql.names import parse_table_name, quote_name, shown_name
from deltamerge.sql.relations import at_suffix
from deltamerge.sql.statements.ast import TableName, TimeTravel
from deltamerge.storage.credentials import StoreOptions


@dataclass(frozen=True)
class Tables:
    """Delta tables by their paths and names.

    Args:
        given: Tables by the names that the caller gave them.
        passing: Views that are there for one statement, by their names in lower case.
    """

    spark: SparkSession
    options: StoreOptions = field(default_factory=dict, repr=False)
    given: Mapping[str, DeltaTable] = field(default_factory=dict)
    passing: frozenset[str] = frozenset()

    def at(self, path: str) -> DeltaTable:
        return DeltaTable.forPath(self.spark, path, dict(self.options))

    def has_table_at(self, path: str) -> bool:
        return table_exists(open_table(self.spark, path, self.options).store)

    def travelled(self, path: str) -> tuple[str, TimeTravel | None]:
        """Return a path without ``@v3`` or ``@`` and a timestamp at its end, and these; a table goes before."""
        base, version, timestamp = at_suffix(path)
        if (version is None and timestamp is None) or self.has_table_at(path):
            return path, None
        return base, TimeTravel(version, timestamp)

    def called(self, parts: Sequence[str]) -> DeltaTable | None:
        """Open a table by its name, without regard to case; None where the name is not one of a Delta table."""
        folded = tuple(part.lower() for part in parts)
        for name, table in self.given.items():
            if tuple(part.lower() for part in parse_table_name(name)) == folded:
                return table
        location = delta_location(self.spark, parts, self.options)
        if location is None:
            return None
        return DeltaTable(named(open_table(self.spark, location, self.options, ".".join(parts)), parts))

    def shown_by(self, parts: Sequence[str]) -> DeltaTable | None:
        """Open the table that a temporary view is the whole of; None where a name is no such view."""
        entry = catalog_entry(self.spark, parts)
        if entry is None or not entry.is_temporary:
            return None
        read = table_of_view(self.spark.table(quote_name(parts)))
        return None if read is None else self.at(read.root)

    def is_forgotten(self, parts: Sequence[str], path: str) -> bool:
        """Return whether there is a Delta table at a path, of whose name the catalog knows nothing."""
        return self.has_table_at(path) and catalog_entry(self.spark, qualified(self.spark, parts)) is None

    def is_of_another_provider(self, parts: Sequence[str]) -> bool:
        entry = catalog_entry(self.spark, parts)
        return entry is not None and not entry.is_temporary and entry.provider != "delta"

    def has_other_table(self, name: TableName) -> bool:
        if name.path is not None or names_another_catalog(self.spark, name.parts):
            return False
        return self.is_of_another_provider(name.parts)

    def find(self, name: TableName) -> DeltaTable | None:
        return self.at(name.path) if name.path is not None else self.called(name.parts)

    def open(self, name: TableName) -> DeltaTable:
        found = self.find(name)
        if found is not None:
            return found
        refuse_temporary_view(self.spark, name.parts)
        return DeltaTable(open_by_name(self.spark, quote_name(name.parts), self.options))

    def open_for(self, name: TableName, operation: str) -> DeltaTable:
        """Open the table of a statement that Delta alone has; another provider's table has an error of its own."""
        found = self.find(name)
        entry = catalog_entry(self.spark, name.parts) if found is None else None
        if entry is not None and entry.location is not None and entry.provider != "delta":
            raise DeltaAnalysisException(
                "DELTA_ONLY_OPERATION",
                f"{operation} is only supported for Delta tables, and {shown_name(name.parts)} is none. CONVERT TO "
                "DELTA makes one of Parquet files.",
                parameters={"operation": operation},
            )
        return found or self.open(name)

    def to_change(self, name: TableName) -> Table:
        """Return the Delta table that a statement changes; one that is named by a path is not looked at yet."""
        return self.open(name).table if name.path is None else open_table(self.spark, name.path, self.options)

    def version(self, table: DeltaTable, at: TimeTravel | None) -> DataFrame:
        if at is None:
            return table.toDF()
        if at.version is not None:
            return table.at(version=at.version)
        assert at.timestamp is not None
        return table.at_milliseconds(expression_ms(self.spark, at.timestamp))

    def changes(self, table: DeltaTable, boundaries: Sequence[str]) -> DataFrame:
        """Read a table's change feed from a version or timestamp, perhaps to another; these are SQL."""
        read: dict[str, Any] = {}
        for name, sql in zip(("starting", "ending"), boundaries, strict=False):
            value = self.spark.range(1).select(F.expr(sql))
            kind = value.schema.fields[0].dataType
            if isinstance(kind, IntegralType):
                read[f"{name}Version"] = value.collect()[0][0]
            elif isinstance(kind, (StringType, TimestampType)):
                read[f"{name}Timestamp"] = as_datetime(expression_ms(self.spark, sql))
            else:
                raise _no_boundary(name, sql, kind)
        return table.changes(**read)


def twice_travelled(path: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS",
        f"Cannot specify time travel in multiple formats: leave out the other one, or what follows {path}.",
    )


def _no_boundary(name: str, sql: str, found: DataType) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTA_UNSUPPORTED_EXPRESSION",
        f"Unsupported expression type({found.simpleString()}) for the {name} option, {sql}. A version is an INT or "
        "BIGINT, a timestamp a TIMESTAMP or STRING.",
        parameters={"expType": found.simpleString(), "causedBy": f"{name} option"},
    )


def only_of_delta(path: str, operation: str, error: DeltaTableNotFoundException) -> DeltaTableNotFoundException:
    """Return the error of a path without a table as statements have it that Delta alone has."""
    return DeltaTableNotFoundException(
        "DELTA_TABLE_ONLY_OPERATION",
        f"{error.message} {operation} is only supported for Delta tables.",
        parameters={"tableName": path, "operation": operation},
    )
