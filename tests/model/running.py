"""Runs a drawn merge by one executor on a table that delta-rs makes and reads."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from deltamerge import merge_sql
from deltamerge.exceptions import MultipleSourceRowsException

from .language import Row
from .strategies import STRUCT, Example, source_query

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


@dataclass(frozen=True)
class Seen:
    """What can be seen of a merge.

    Args:
        rows: The table's rows.
        changes: Its change data, None without a feed.
        metrics: Its counts of rows.
        clause_rows: The rows of its clauses, by kind and action.
    """

    rows: list[Row]
    changes: list[tuple[str, Row]] | None
    metrics: dict[str, int]
    clause_rows: dict[str, int]


def make_table(example: Example, path: str) -> None:
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


def run(spark: SparkSession, example: Example, made: str, path: str, executor: str) -> Seen | None:
    """Merges into a copy of the target.

    Returns:
        What came of it; None where several source rows want one target row.
    """
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(made, path)
    spark.sql(source_query(example)).createOrReplaceTempView("model_source")
    spark.conf.set("spark.deltamerge.merge.executor", executor)
    try:
        report = merge_sql(spark, example.sql(f"delta.`{path}`", "model_source"))
    except MultipleSourceRowsException:
        assert DeltaTable(path).version() == DeltaTable(made).version(), "a failed merge made a version"
        return None
    counts: dict[str, int] = {}
    for clause in report.clauses:
        key = f"{clause.kind} {clause.action}"
        counts[key] = counts.get(key, 0) + clause.rows
    return Seen(
        rows=read(path),
        changes=_changes(path, report.version)
        if "delta.enableChangeDataFeed" in example.properties
        else None,
        metrics=dict(report.metrics),
        clause_rows=counts,
    )


def read(path: str) -> list[Row]:
    """Reads a table with delta-rs."""
    table = DeltaTable(path)
    rows = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t"))
    return rows.cast(pa.schema(table.schema().to_arrow())).to_pylist()


def _changes(path: str, version: int | None) -> list[tuple[str, Row]]:
    """Reads a version's change data with delta-rs."""
    if version is None:
        return []
    found = pa.table(
        DeltaTable(path).load_cdf(starting_version=version, ending_version=version).read_all()
    ).to_pylist()
    changes = []
    for row in found:
        kind = row["_change_type"]
        changes.append((kind, {name: value for name, value in row.items() if not name.startswith("_c")}))
    return changes


def bag(rows: Iterable[Any]) -> list[str]:
    """Makes rows comparable whatever their order; NaN is itself, and -0.0 is not 0.0."""
    return sorted(json.dumps(_plain(row), sort_keys=True) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return f"{type(value).__name__} {value}"


def all_rows(example: Example) -> list[Row]:
    """Gives the rows of all files."""
    return list(itertools.chain.from_iterable(example.files))
