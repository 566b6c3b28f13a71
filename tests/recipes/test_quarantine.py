"""Rows that a table cannot take go to another one, once, and the others are merged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltamerge import DeltaTable, upsert
from deltamerge.exceptions import DeltaAnalysisException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.sessions
def test_rows_that_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    table = (
        DeltaTable.create(spark)
        .location(str(tmp_path / "t"))
        .addColumn("id", "INT", nullable=False)
        .addColumn("amount", "DECIMAL(5,2)")
        .addColumn("day", "DATE")
        .addColumn("code", "VARCHAR(3)")
        .addColumn("place", "STRUCT<city: STRING>")
        .property("delta.constraints.positive", "amount > 0")
        .execute()
    )
    source = spark.createDataFrame(
        [
            ("1", "10.5", "2024-01-31", "abc", ("Oslo",), "I"),
            ("x", "10.5", "2024-01-31", "abc", None, "I"),
            (None, "1", None, None, None, "I"),
            ("3", "-1", "2024-13-01", "abcd", None, "I"),
            ("4", "1000.5", None, None, None, "I"),
            ("9", None, None, None, None, "D"),
        ],
        "id STRING, amount STRING, day STRING, code STRING, place STRUCT<city: STRING>, op STRING",
    )
    bad = str(tmp_path / "bad")
    report = upsert(table, source, "id", delete_when="s.op = 'D'", quarantine=bad)
    assert "4 source rows that the table cannot take" in str(report)
    assert [(row.id, str(row.amount), row.code) for row in table.toDF().collect()] == [(1, "10.50", "abc")]
    rejected = DeltaTable.forPath(spark, bad)
    reasons = {row.id: row._reason for row in rejected.toDF().collect()}
    assert reasons == {
        "x": "id: x is no INT; id: NULL in a NOT NULL column",
        None: "id: NULL in a NOT NULL column",
        "3": "day: 2024-13-01 is no DATE; code: longer than 3 characters; CHECK positive: amount > 0",
        "4": "amount: 1000.5 is no DECIMAL(5,2); CHECK positive: amount > 0",
    }
    versions = rejected.history().count()
    upsert(table, source, "id", delete_when="s.op = 'D'", quarantine=bad)
    assert rejected.toDF().count() == 4
    assert rejected.history().count() == versions
    assert table.toDF().count() == 1


def test_the_rejected_rows_of_each_call_with_one_transaction(spark: SparkSession, tmp_path: Path) -> None:
    table = (
        DeltaTable.create(spark)
        .location(str(tmp_path / "t"))
        .addColumn("id", "INT", nullable=False)
        .addColumn("n", "INT")
        .execute()
    )
    bad = str(tmp_path / "bad")
    for rejected in (2, 2, 3):
        source = spark.createDataFrame([(1, 1), (None, rejected)], "id INT, n INT")
        upsert(table, source, "id", quarantine=bad, txn_app_id="load", txn_version=3)
    assert DeltaTable.forPath(spark, str(tmp_path / "t")).table.snapshot().set_transactions["load"].version == 3
    assert sorted(row.n for row in DeltaTable.forPath(spark, bad).toDF().collect()) == [2, 3]


def test_rejected_rows_that_differ_in_a_microsecond(spark: SparkSession, tmp_path: Path) -> None:
    new = DeltaTable.create(spark).location(str(tmp_path / "t"))
    table = new.addColumn("id", "INT").addColumn("at", "TIMESTAMP").execute()
    bad = str(tmp_path / "bad")
    source = spark.sql("SELECT 'x' AS id, TIMESTAMP_MICROS(1700000000000000 + id) AS at FROM range(2)")
    upsert(table, source, "id", quarantine=bad)
    assert DeltaTable.forPath(spark, bad).toDF().count() == 2


def test_values_are_not_judged(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(spark).location(str(tmp_path / "t")).addColumn("id", "INT").execute()
    source = spark.createDataFrame([(1,)], "id INT")
    with pytest.raises(DeltaAnalysisException, match="give `update` and `insert` columns"):
        upsert(table, source, "id", update={"id": "s.id"}, quarantine=str(tmp_path / "bad"))
