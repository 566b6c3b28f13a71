"""Columns that are qualified by a table's whole name, as delta-spark resolves them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import deltamerge
from deltamerge import DeltaTable, merge_sql

from .tables import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions

TARGET, SOURCE = "whole_names_prod.people", "whole_names_staging.people"


@pytest.fixture
def target(spark: SparkSession) -> Iterator[DeltaTable]:
    """Two tables of one name in two databases."""
    for name, values in ((TARGET, "(1, 5), (2, 6)"), (SOURCE, "(1, 50), (3, 70)")):
        spark.sql(f"CREATE DATABASE {name.partition('.')[0]}")
        provider = "delta" if name == TARGET else "parquet"
        deltamerge.sql(spark, f"CREATE TABLE {name} (id INT, v INT) USING {provider}")
        deltamerge.sql(spark, f"INSERT INTO {name} VALUES {values}")
    yield DeltaTable.forName(spark, TARGET)
    for name in (TARGET, SOURCE):
        spark.sql(f"DROP DATABASE {name.partition('.')[0]} CASCADE")


def test_columns_of_frames_of_tables_whose_names_end_alike(spark: SparkSession, target: DeltaTable) -> None:
    source, people = spark.table(SOURCE), target.toDF()
    merge = target.merge(source, people["id"] == source["id"])
    merge.whenMatchedUpdate(set={"v": people["v"] + source["v"]}).whenNotMatchedInsertAll().execute()
    assert rows(target.toDF()) == [(1, 55), (2, 6), (3, 70)]


def test_a_builder_whose_sql_names_both_tables_in_full(spark: SparkSession, target: DeltaTable) -> None:
    merge = target.merge(spark.table(SOURCE), f"{TARGET}.id = {SOURCE}.id")
    merge = merge.whenMatchedUpdate(f"{SOURCE.upper()}.v > 7", {f"{TARGET}.v": f"{TARGET}.v + {SOURCE}.v"})
    merge.whenNotMatchedInsertAll().execute()
    assert rows(target.toDF()) == [(1, 55), (2, 6), (3, 70)]


def test_a_statement_that_names_both_tables_in_full(spark: SparkSession, target: DeltaTable) -> None:
    merge_sql(
        spark,
        f"""MERGE INTO {TARGET} USING {SOURCE} ON {TARGET}.id = {SOURCE}.id
        WHEN MATCHED THEN UPDATE SET {TARGET.upper()}.v = {TARGET}.v + {SOURCE}.v
        WHEN NOT MATCHED THEN INSERT *""",
    )
    assert rows(target.toDF()) == [(1, 55), (2, 6), (3, 70)]


def test_a_name_that_both_tables_have(spark: SparkSession, target: DeltaTable) -> None:
    with pytest.raises(PySparkException, match=rf"people\.id may be a column of {TARGET} and .*{SOURCE}") as caught:
        target.merge(spark.table(SOURCE), "people.id = 1").whenMatchedDelete().execute()
    assert caught.value.getCondition() == "AMBIGUOUS_REFERENCE"
    assert rows(target.toDF()) == [(1, 5), (2, 6)]


def test_delete_and_update(spark: SparkSession, target: DeltaTable) -> None:
    target.update(f"{TARGET}.id = 1", {f"{TARGET}.v": f"{TARGET}.v + people.v"})
    target.delete(f"{TARGET}.id = 2")
    assert rows(target.toDF()) == [(1, 10)]
    deltamerge.sql(spark, f"UPDATE {TARGET} SET {TARGET}.v = {TARGET}.v + 1 WHERE {TARGET}.id = 1")
    deltamerge.sql(spark, f"DELETE FROM {TARGET} WHERE {TARGET}.id = 3")
    assert rows(target.toDF()) == [(1, 11)]


def test_columns_by_whole_names(spark: SparkSession, target: DeltaTable) -> None:
    merge = target.merge(spark.table(SOURCE), F.col(f"{TARGET}.id") == F.col(f"{SOURCE}.id"))
    merge.whenMatchedUpdate(set={"v": F.col(f"{TARGET}.v") + F.expr(f"{SOURCE}.v")}).execute()
    assert rows(target.toDF()) == [(1, 55), (2, 6)]
