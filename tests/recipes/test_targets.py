"""The tables that a call makes and opens: all get its options, and columns of any name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deltamerge
from deltamerge import DeltaTable, apply_changes, upsert
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.recipes.targets import place_of
from deltamerge.spark import table as tables
from deltamerge.spark.catalog import warehouse_location
from deltamerge.storage.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {"region": "eu-north-1"}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, str]]]:
    """The options with which stores are opened, by the last part of their paths."""
    found: dict[str, list[dict[str, str]]] = {}

    def recorded(root: str, options: Any = None, *others: Any) -> Store:
        found.setdefault(Path(root).name, []).append(dict(options or {}))
        return open_store(root, options, *others)

    monkeypatch.setattr(tables, "open_store", recorded)
    return found


def test_the_change_log_of_a_named_table(spark: SparkSession, opened: dict[str, list[dict[str, str]]]) -> None:
    location = warehouse_location(spark, "followed")
    spark.sql("SELECT 1 AS id, 1 AS n").write.parquet(location)
    try:
        deltamerge.sql(spark, f"CONVERT TO DELTA parquet.`{location}`")
        opened.clear()
        apply_changes("followed", spark.sql("SELECT 1 AS id, 2 AS n"), "id", "n", options=OPTIONS)
        deltamerge.sql(spark, "DELETE FROM followed WHERE n = 2", options=OPTIONS)
    finally:
        deltamerge.sql(spark, "DROP TABLE followed", options=OPTIONS)
    assert set(opened) == {"followed", "_deltamerge_changes"}
    assert all(options == OPTIONS for each in opened.values() for options in each)


def test_the_quarantine_of_a_table_that_was_opened_with_options(
    spark: SparkSession, tmp_path: Path, opened: dict[str, list[dict[str, str]]]
) -> None:
    deltamerge.write_delta(spark.sql("SELECT 1 AS id"), str(tmp_path / "t"))
    opened.clear()
    table = DeltaTable.forPath(spark, str(tmp_path / "t"), OPTIONS)
    upsert(table, spark.sql("SELECT 'x' AS id"), "id", quarantine=str(tmp_path / "bad"))
    assert opened["bad"]
    assert all(options == OPTIONS for each in opened.values() for options in each)


@pytest.mark.parametrize("argument", ["quarantine", "change_log"])
def test_a_table_beside_the_target_that_is_the_target(spark: SparkSession, tmp_path: Path, argument: str) -> None:
    source, path, inside = spark.sql("SELECT 1 AS id, 2 AS n"), str(tmp_path / "t"), str(tmp_path / "t" / "x")

    def call(target: str, other: str) -> None:
        if argument == "quarantine":
            upsert(target, source, "id", quarantine=other)
        else:
            apply_changes(target, source, "id", "n", change_log=other)

    if argument == "change_log":
        for other in (path, inside):
            with pytest.raises(DeltaAnalysisException, match="Nothing was written"):
                call(path, other)
        assert not (tmp_path / "t").exists()
    deltamerge.sql(spark, "CREATE TABLE beside (id INT, n INT) USING delta")
    try:
        location = warehouse_location(spark, "beside")
        for target, other in (("beside", "BESIDE"), (f"{location}/", "beside"), ("beside", f"delta.`{location}`")):
            with pytest.raises(DeltaAnalysisException, match=f"{argument}=.* is the target itself"):
                call(target, other)
        assert DeltaTable.forName(spark, "beside").history().count() == 1
        if argument == "quarantine":
            # No row is rejected.
            call("beside", "no_table_of_this_name")
    finally:
        deltamerge.sql(spark, "DROP TABLE beside")


def test_columns_with_spaces(spark: SparkSession, tmp_path: Path) -> None:
    target, bad = str(tmp_path / "t"), str(tmp_path / "bad")
    spaced = {"delta.columnMapping.mode": "name"}
    deltamerge.write_delta(spark.sql("SELECT 1 AS `cust id`, 10 AS `e mail`"), target, properties=spaced)
    given = spark.sql("SELECT * FROM VALUES ('2', '20'), ('x', '30') AS u(`cust id`, `e mail`)")
    upsert(target, given, "cust id", quarantine=bad)
    assert sorted(map(tuple, DeltaTable.forPath(spark, target).toDF().collect())) == [(1, 10), (2, 20)]
    assert [row["cust id"] for row in DeltaTable.forPath(spark, bad).toDF().collect()] == ["x"]
    fed = str(tmp_path / "fed")
    apply_changes(fed, spark.sql("SELECT 1 AS `cust id`, 7 AS `n o`, 1 AS seq"), "cust id", "seq")
    apply_changes(fed, spark.sql("SELECT 1 AS `cust id`, 8 AS `n o`, 2 AS seq"), "cust id", "seq")
    assert [row["n o"] for row in DeltaTable.forPath(spark, fed).toDF().collect()] == [8]


def test_a_table_that_cannot_be_made_says_why(spark: SparkSession, tmp_path: Path) -> None:
    nothing = spark.sql("SELECT 1 AS id, 1 AS seq, 2 AS `ID `, 3 AS ID").drop("seq")
    with pytest.raises(DeltaAnalysisException, match="DELTA_DUPLICATE_COLUMNS"):
        place_of(spark, str(tmp_path / "t")).open_or_create(nothing.schema)
