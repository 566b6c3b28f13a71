"""Keys and values that the target stores otherwise than the source has them: the second call finds what it wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deltamerge
from deltamerge import DeltaTable, apply_changes, scd2, upsert

from .searching import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The key's type in the target, the rest of the definition, the key in the source, as the target has it, two others.
KEYS = {
    "CHAR": ("CHAR(5)", "", "'ab'", "ab   ", ("'ab '", "'c'")),
    "empty partition": ("STRING", "PARTITIONED BY (k)", "''", None, ("NULL", "'c'")),
    "partition of CHAR": ("CHAR(3)", "PARTITIONED BY (k)", "'a'", "a  ", ("'a  '", "''")),
    "day of a timestamp": ("STRING", "", "DATE'2024-01-01'", "2024-01-01", ("'2024-01-01'", "DATE'2024-01-02'")),
    "whole part": ("INT", "", "1.5D", 1, ("1", "2.5D")),
    "fewer decimals": ("DECIMAL(4, 1)", "", "1.25", "1.3", ("1.3", "1.41")),
    "FLOAT": ("FLOAT", "", "0.1D", "0.10000000149011612", ("0.1F", "0.2D")),
    "string of a number": ("STRING", "", "7", "7", ("'7'", "8")),
}


def read(spark: SparkSession, path: str, *columns: str) -> list[tuple[Any, ...]]:
    return rows_of(DeltaTable.forPath(spark, path).toDF().select(*columns))


def made(spark: SparkSession, path: str, kind: str, rest: str, more: str = "") -> None:
    deltamerge.sql(spark, f"CREATE TABLE delta.`{path}` (k {kind}, v CHAR(3), n INT{more}) USING delta {rest}")


@pytest.mark.parametrize("key", KEYS)
def test_an_upsert_finds_its_own_rows(spark: SparkSession, tmp_path: Path, key: str) -> None:
    kind, rest, given, stored, (same, other) = KEYS[key]
    path = str(tmp_path / "t")
    made(spark, path, kind, rest)
    for n in (1, 2):
        upsert(path, spark.sql(f"SELECT {given} AS k, 'x' AS v, {n} AS n"), "k")
    assert [(row[0] if row[0] is None else str(row[0]), *row[1:]) for row in read(spark, path, "k", "v", "n")] == [
        (None if stored is None else str(stored), "x  ", 2)
    ]
    upsert(path, spark.sql(f"SELECT {same} AS k, 'y' AS v, 3 AS n"), "k", skip_unchanged=True)
    upsert(path, spark.sql(f"SELECT {other} AS k, 'z' AS v, 4 AS n"), "k", quarantine=str(tmp_path / "rejected"))
    assert sorted(row[1:] for row in read(spark, path, "k", "v", "n")) == [("y  ", 3), ("z  ", 4)]


def test_an_upsert_by_days_of_timestamps(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made(spark, path, "DATE", "")
    source = spark.sql("SELECT TIMESTAMP'2024-01-01 10:00:00' AS k, 'x' AS v, 1 AS n")
    for _ in range(2):
        upsert(path, source, ["k"], update={"n": "t.n + hour(s.k)"})
    assert read(spark, path, "n") == [(11,)]


@pytest.mark.parametrize("key", KEYS)
def test_changes_find_their_own_rows(spark: SparkSession, tmp_path: Path, key: str) -> None:
    kind, rest, given, _, (same, _) = KEYS[key]
    path, history = str(tmp_path / "t"), str(tmp_path / "h")
    made(spark, path, kind, rest)
    of_history = ", valid_from INT, valid_to INT, is_current BOOLEAN"
    made(spark, history, kind, rest, of_history)
    for n, value in ((2, given), (3, same), (1, given)):
        source = spark.sql(f"SELECT {value} AS k, 'x' AS v, {n} AS n")
        apply_changes(path, source, "k", "n")
        scd2(history, source, "k", ["v"], effective_at="n")
    assert read(spark, path, "v", "n") == [("x  ", 3)]
    assert read(spark, history, "v", "valid_from", "valid_to") == [("x  ", 1, None)]
    # All values are compared as they are stored: nothing is left to change.
    again = spark.sql(f"SELECT {same} AS k, 'x' AS v, 3 AS n")
    assert apply_changes(path, again, "k", "n").version is None
    assert scd2(history, again, "k", ["v"], effective_at="n").version is None
