"""Small tables that delta-spark makes and both engines merge into in turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpus.canonical import canonical_lines
from corpus.delta_rs import frame_read_by_delta_rs
from deltamerge import DeltaTable, merge_sql

from .client import LineProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPSERT = (
    "MERGE INTO delta.`{path}` t USING (SELECT * FROM VALUES {values} AS x(k, v)) s ON t.k = s.k "
    "WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
    "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)"
)

FIRST = {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}


def asked(oracle: LineProcess, *statements: str) -> list[dict[str, Any]]:
    """Has delta-spark run statements; gives the last one's rows."""
    return oracle.ask("sql", statements=list(statements))


def made(oracle: LineProcess, path: Path, columns: str, options: str = "") -> str:
    """Has delta-spark make a table with five rows in one file."""
    asked(
        oracle,
        f"CREATE TABLE delta.`{path}` ({columns}) USING delta {options}",
        f"INSERT INTO delta.`{path}` (k, v) SELECT /*+ COALESCE(1) */ * FROM VALUES "
        "(1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e')",
    )
    return str(path)


def all_read(oracle: LineProcess, spark: SparkSession, path: str, values: dict[int, str]) -> list[str]:
    """Compares what all engines read with what must be there; gives it."""
    lines = list(canonical_lines(DeltaTable.forPath(spark, path).toDF()))
    assert {row["k"]: row["v"] for row in map(json.loads, lines)} == values
    assert len(lines) == len(values)
    assert oracle.ask("lines", path=path) == lines
    return lines


def delta_rs_reads(spark: SparkSession, path: str, lines: list[str], folder: Path) -> None:
    """Compares what delta-rs reads, too."""
    assert canonical_lines(frame_read_by_delta_rs(spark, path, folder / "read.parquet")) == lines


def merged_in_turn(oracle: LineProcess, spark: SparkSession, path: str, before: dict[int, str]) -> list[str]:
    """Merges by deltamerge, by delta-spark and by deltamerge again: a row updated, deleted and inserted by each."""
    values = dict(before)
    all_read(oracle, spark, path, values)
    for number, (deleted, updated, text) in enumerate([(1, 2, "B"), (2, 3, "C"), (3, 4, "D")]):
        rows = f"({deleted}, NULL), ({updated}, '{text}'), ({number + 10}, '{number}')"
        statement = UPSERT.format(path=path, values=rows)
        if number == 1:
            asked(oracle, statement)
        else:
            merge_sql(spark, statement)
        values.pop(deleted, None)
        values |= {updated: text, number + 10: str(number)}
        lines = all_read(oracle, spark, path, values)
    return lines
