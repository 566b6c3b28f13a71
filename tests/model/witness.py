"""What makes the tables of the model and reads them again: delta-rs, or deltamerge where delta-rs cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from deltalake import DeltaTable as DeltaRsTable
from deltalake import QueryBuilder, write_deltalake

from deltamerge import DeltaTable, write_delta

from .language import Row
from .strategies import STRUCT, Example, rows_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARROW = {
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "STRING": pa.string(),
    "DOUBLE": pa.float64(),
    "DECIMAL(10,2)": pa.decimal128(10, 2),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "BOOLEAN": pa.bool_(),
    STRUCT: pa.struct([("a", pa.int32()), ("b", pa.string())]),
}


class Witness(Protocol):
    """Makes a table and reads it."""

    def make(self, spark: SparkSession, example: Example, path: str) -> None:
        """Makes the target; each write is a file a partition."""

    def rows(self, spark: SparkSession, path: str) -> list[Row]:
        """Reads the table's rows."""

    def changes(self, spark: SparkSession, path: str, version: int) -> list[tuple[str, Row]]:
        """Reads a version's change data: kind of change and row."""


class DeltaRs:
    """delta-rs."""

    def make(self, spark: SparkSession, example: Example, path: str) -> None:
        """Makes the target; each write is a file a partition."""
        schema = pa.schema([(name, ARROW[kind]) for name, kind in example.types.items()])
        for rows in [[], *example.files]:
            write_deltalake(
                path,
                pa.Table.from_pylist(rows, schema),
                mode="append",
                partition_by=list(example.partition_by) or None,
                configuration=example.properties if not rows else None,
            )

    def rows(self, spark: SparkSession, path: str) -> list[Row]:
        """Reads the table's rows."""
        table = DeltaRsTable(path)
        rows = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t"))
        return rows.cast(pa.schema(table.schema().to_arrow())).to_pylist()

    def changes(self, spark: SparkSession, path: str, version: int) -> list[tuple[str, Row]]:
        """Reads a version's change data: kind of change and row."""
        feed = DeltaRsTable(path).load_cdf(starting_version=version, ending_version=version)
        return _changes(pa.table(feed.read_all()))


class Deltamerge:
    """deltamerge: its own writing and reading of tables, which are no merges."""

    def make(self, spark: SparkSession, example: Example, path: str) -> None:
        """Makes the target; each write is a file a partition."""
        empty = spark.sql(rows_query(example.types, []))
        write_delta(empty, path, partition_by=example.partition_by, properties=example.properties)
        for rows in example.files:
            write_delta(spark.sql(rows_query(example.types, rows)).coalesce(1), path, mode="append")

    def rows(self, spark: SparkSession, path: str) -> list[Row]:
        """Reads the table's rows."""
        return DeltaTable.forPath(spark, path).toDF().toArrow().to_pylist()

    def changes(self, spark: SparkSession, path: str, version: int) -> list[tuple[str, Row]]:
        """Reads a version's change data: kind of change and row."""
        feed = DeltaTable.forPath(spark, path).changes(startingVersion=version, endingVersion=version)
        return _changes(feed.toArrow())


def _changes(feed: pa.Table) -> list[tuple[str, Row]]:
    return [
        (row["_change_type"], {name: value for name, value in row.items() if not name.startswith("_c")})
        for row in feed.to_pylist()
    ]


def witness_of(properties: Mapping[str, str]) -> Witness:
    """Chooses who makes and reads a table with some properties.

    delta-rs makes no tables with row tracking, and tables with column mapping only where nothing else needs features
    by name; it reads no change data under physical names.
    """
    mapped = "delta.columnMapping.mode" in properties
    if "delta.enableRowTracking" in properties or (mapped and len(properties) > 1):
        return Deltamerge()
    return DeltaRs()
