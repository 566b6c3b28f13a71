"""delta-rs as a second reader of what deltamerge wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from .outcome import schema_string
from .runner import canonical_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


LACKS = frozenset({"typeWidening"})
"""Reader features that delta-rs refuses a table for."""


def is_read_by_delta_rs(path: str) -> bool:
    """Tells whether delta-rs reads tables with a table's features."""
    return LACKS.isdisjoint(DeltaTable(path).protocol().reader_features or ())


def rows_read_by_delta_rs(spark: SparkSession, path: str, file: Path) -> tuple[str, ...]:
    """Reads a table with delta-rs; gives its rows as canonical JSON, sorted.

    Args:
        spark: Writes the JSON.
        path: The table's folder.
        file: Where the rows go as Parquet, from delta-rs to Spark.
    """
    return canonical_rows(frame_read_by_delta_rs(spark, path, file))


def frame_read_by_delta_rs(spark: SparkSession, path: str, file: Path) -> DataFrame:
    """Reads a table with delta-rs; gives its rows as a frame.

    Args:
        spark: The session.
        path: The table's folder.
        file: Where the rows go as Parquet, from delta-rs to Spark.
    """
    from pyspark.sql.types import StructType

    table = DeltaTable(path)
    rows = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t"))
    # A query gives views of strings and TIMESTAMP_NTZ with a zone: its values count here, not its types.
    arrow = pa.schema(table.schema().to_arrow())
    pq.write_table(rows.select(arrow.names).cast(arrow), file)
    schema = StructType.fromJson(json.loads(schema_string(path)))
    return spark.read.schema(schema).parquet(str(file))
