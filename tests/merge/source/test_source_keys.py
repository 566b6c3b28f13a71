"""The report tells of source rows whose keys are seldom meant as they are: NULLs and repetitions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltamerge import DeltaTable, MergeReport, write_delta
from merge.tables import EXECUTOR, made_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SCHEMA = "a INT, b STRING, v INT"
MATCHED = (5, "z", 0)
NULLS = [(2, None, 0), (None, "y", 0), (None, "y", 1), (None, None, 0)]
REPEATED = [(1, "x", 0), (1, "x", 1), (1, "x", 2), (1, "y", 0), (2, "x", 0)]
EXECUTORS = ("key_lookup", "low_shuffle", "classic")


def table(spark: SparkSession, path: Path) -> str:
    return made_once(path, "source keys", lambda folder: write_delta(_frame(spark, [MATCHED]), folder))


def _frame(spark: SparkSession, rows: list[tuple[object, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, SCHEMA).coalesce(2)


def keys_told(report: MergeReport) -> list[str]:
    """Gives what a report tells of the source's keys."""
    return [note for note in report.to_dict()["notes"] if " source row" in note]


def upsert(spark: SparkSession, path: str, source: DataFrame, on: str) -> MergeReport:
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), on)
    return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()


@pytest.mark.sessions
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("lies_in_files", [False, True])
def test_nulls_and_repetitions(spark: SparkSession, tmp_path: Path, executor: str, lies_in_files: bool) -> None:
    """All of these rows are inserted, as MERGE has it; who did not mean them reads of them."""
    spark.conf.set(EXECUTOR, executor)
    path, source = table(spark, tmp_path / "t"), _frame(spark, [MATCHED, *NULLS, *REPEATED])
    if lies_in_files:
        source.write.parquet(str(tmp_path / "source"))
        source = spark.read.parquet(str(tmp_path / "source"))
    report = upsert(spark, path, source, "t.a = s.a AND t.b = s.b")
    assert report.to_dict()["executor"] == executor
    assert report.metrics["numTargetRowsInserted"] == 9
    assert keys_told(report) == [
        "4 source rows have NULL in a key, so they match nothing.",
        "2 source rows repeat the key of another source row.",
    ]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_keys_as_they_should_be(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    spark.conf.set(EXECUTOR, executor)
    source = _frame(spark, [MATCHED, (5, "y", 1), (6, "z", 1)])
    assert keys_told(upsert(spark, table(spark, tmp_path / "t"), source, "t.a = s.a AND t.b = s.b")) == []


def test_null_is_a_key_where_it_is_compared_as_one(spark: SparkSession, tmp_path: Path) -> None:
    source = _frame(spark, [MATCHED, *NULLS])
    report = upsert(spark, table(spark, tmp_path / "t"), source, "t.a <=> s.a AND t.b = s.b")
    assert keys_told(report) == [
        "2 source rows have NULL in a key, so they match nothing.",
        "1 source row repeats the key of another source row.",
    ]


@pytest.mark.sessions
@pytest.mark.parametrize("lies_in_files", [False, True])
def test_inserts_of_some_rows(spark: SparkSession, tmp_path: Path, lies_in_files: bool) -> None:
    """Where not all rows are looked at, nothing is said of them."""
    source = _frame(spark, [MATCHED, *NULLS, *REPEATED])
    if lies_in_files:
        source.write.parquet(str(tmp_path / "source"))
        source = spark.read.parquet(str(tmp_path / "source"))
    target = DeltaTable.forPath(spark, table(spark, tmp_path / "t")).alias("t")
    merge = target.merge(source.alias("s"), "t.a = s.a AND t.b = s.b").whenNotMatchedInsertAll("s.v = 0")
    told = keys_told(merge.run())
    assert told in (
        [],
        [
            "4 source rows have NULL in a key, so they match nothing.",
            "2 source rows repeat the key of another source row.",
        ],
    )
    assert bool(told) == lies_in_files


def test_nulls_in_different_places_are_different_keys(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.createDataFrame([(1, None, 0), (None, 1, 0), (None, 1, 1)], "a INT, c INT, v INT")
    path = str(tmp_path / "t")
    write_delta(spark.createDataFrame([(5, 5, 5)], "a INT, c INT, v INT"), path)
    report = upsert(spark, path, source, "t.a <=> s.a AND t.c <=> s.c")
    assert keys_told(report) == ["1 source row repeats the key of another source row."]


@pytest.mark.parametrize("more", ["t.v < s.v", "s.v > 0", "(t.v = 1 OR s.v = 1)"])
def test_what_is_not_all_of_the_key(spark: SparkSession, tmp_path: Path, more: str) -> None:
    source = _frame(spark, [MATCHED, *REPEATED])
    report = upsert(spark, table(spark, tmp_path / "t"), source, f"t.a = s.a AND {more}")
    assert keys_told(report) == []


@pytest.mark.parametrize("executor", ["key_lookup", "insert_only"])
def test_inserts_alone(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    spark.conf.set(EXECUTOR, executor)
    source = _frame(spark, [MATCHED, (None, "y", 0), *REPEATED[:2]])
    source.write.parquet(str(tmp_path / "source"))
    source = spark.read.parquet(str(tmp_path / "source"))
    merge = DeltaTable.forPath(spark, table(spark, tmp_path / "t")).alias("t")
    report = merge.merge(source.alias("s"), "t.a = s.a AND t.b = s.b").whenNotMatchedInsertAll().run()
    assert report.metrics["numTargetRowsInserted"] == 3
    if executor == "key_lookup":
        assert keys_told(report) == [
            "1 source row has NULL in a key, so it matches nothing.",
            "1 source row repeats the key of another source row.",
        ]


@pytest.mark.sessions
@pytest.mark.slow
def test_repetitions_of_many_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's rows are not put in order for a count: NULLs are counted, and repetitions estimated."""
    spark.conf.set(EXECUTOR, "classic")
    source = spark.range(0, 20_000, 1, 2).selectExpr("cast(nullif(id, 7) AS INT) AS a", "'y' AS b", "1 AS v")
    path = table(spark, tmp_path / "t")
    report = upsert(spark, path, source.union(source.where("a < 100")), "t.a = s.a AND t.b = s.b")
    assert keys_told(report) == ["1 source row has NULL in a key, so it matches nothing."]
    source = source.where("a >= 100 OR a IS NULL")
    four = source.union(source).union(source).union(source)
    [told_nulls, told_share] = keys_told(upsert(spark, path, four, "t.a = s.a + 50000 AND t.b = s.b"))
    assert told_nulls == "4 source rows have NULL in a key, so they match nothing."
    share = re.fullmatch(r"About (\d+)% of the source rows repeat the key of another.", told_share)
    assert share is not None
    assert 72 <= int(share[1]) <= 78
