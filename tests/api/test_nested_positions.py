"""Fields of structs that INSERT and insertInto place, as delta-spark 4.4.0 placed them: by position, also BY NAME."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deltamerge
from deltamerge import DeltaTable
from deltamerge.api.save_frame import Save, insert_into
from deltamerge.exceptions import DeltaAnalysisException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions

STRUCT = "STRUCT<a: INT, b: STRING>"
AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"


def inserted(spark: SparkSession, path: Path, column: str, statement: str) -> list[Mapping[str, Any]]:
    table = f"delta.`{path}`"
    deltamerge.sql(spark, f"CREATE TABLE {table} (id INT, s {column}) USING delta")
    deltamerge.sql(spark, statement.replace("@t", table))
    return [row.asDict(recursive=True) for row in deltamerge.sql(spark, f"SELECT * FROM {table} ORDER BY id").collect()]


@pytest.mark.parametrize(
    ("column", "statement", "found"),
    [
        (STRUCT, "INTO @t VALUES (1, struct(1, 'q')), (2, NULL)", [{"a": 1, "b": "q"}, None]),
        (STRUCT, "INTO @t VALUES (1, struct(NULL, 'q'))", [{"a": None, "b": "q"}]),
        (STRUCT, "INTO @t SELECT 1, named_struct('b', '7', 'a', 'q')", [{"a": 7, "b": "q"}]),
        (STRUCT, "INTO @t (s, id) SELECT named_struct('b', 7, 'a', 8), 2", [{"a": 7, "b": "8"}]),
        (STRUCT, "INTO @t BY NAME SELECT named_struct('b', 7, 'a', 8) AS S, 2 AS id", [{"a": 7, "b": "8"}]),
        (STRUCT, "OVERWRITE @t VALUES (1, struct(1, 'q'))", [{"a": 1, "b": "q"}]),
        (STRUCT, "INTO @t REPLACE WHERE id = 1 VALUES (1, struct(1, 'q'))", [{"a": 1, "b": "q"}]),
        (f"ARRAY<{STRUCT}>", "INTO @t VALUES (1, array(struct(1, 'q')))", [[{"a": 1, "b": "q"}]]),
        (
            f"MAP<STRING, {STRUCT}>",
            "INTO @t SELECT 1, map('k', named_struct('b', 7, 'a', 8))",
            [{"k": {"a": 7, "b": "8"}}],
        ),
        (
            "STRUCT<n: STRUCT<x: INT, y: INT>, b: STRING>",
            "INTO @t SELECT 1, named_struct('n', named_struct('y', 1, 'x', 2), 'b', 'q')",
            [{"n": {"x": 1, "y": 2}, "b": "q"}],
        ),
    ],
)
def test_insert(spark: SparkSession, tmp_path: Path, column: str, statement: str, found: list[Any]) -> None:
    assert [row["s"] for row in inserted(spark, tmp_path / "t", column, f"INSERT {statement}")] == found


def test_further_fields_are_added_by_their_names(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set(AUTO_MERGE, "true")
    try:
        rows = inserted(
            spark, tmp_path / "t", STRUCT, "INSERT INTO @t SELECT 1, named_struct('x', 1, 'y', 'q', 'c', 2)"
        )
    finally:
        spark.conf.unset(AUTO_MERGE)
    assert rows == [{"id": 1, "s": {"a": 1, "b": "q", "c": 2}}]


@pytest.mark.parametrize(
    ("value", "condition", "named"),
    [
        ("struct(1)", "DELTA_INSERT_COLUMN_ARITY_MISMATCH", "column s"),
        ("struct(1, 'q', 2)", "DELTA_METADATA_MISMATCH", "s.col3"),
    ],
)
def test_fields_that_are_too_few_or_too_many(
    spark: SparkSession, tmp_path: Path, value: str, condition: str, named: str
) -> None:
    with pytest.raises(DeltaAnalysisException, match=named) as caught:
        inserted(spark, tmp_path / "t", STRUCT, f"INSERT INTO @t VALUES (1, {value})")
    assert caught.value.getCondition() == condition
    assert DeltaTable.forPath(spark, str(tmp_path / "t")).history().count() == 1


def test_a_further_field_with_the_name_of_another_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DeltaAnalysisException, match=r"DELTA_DUPLICATE_COLUMNS_FOUND.*: a\."):
        inserted(spark, tmp_path / "t", STRUCT, "INSERT INTO @t SELECT 1, named_struct('x', 1, 'y', 'q', 'a', 2)")


def test_insert_into_of_a_writer(spark: SparkSession, tmp_path: Path) -> None:
    deltamerge.sql(spark, f"CREATE TABLE delta.`{tmp_path}/t` (id INT, s {STRUCT}) USING delta")
    found = DeltaTable.forPath(spark, str(tmp_path / "t"))
    insert_into(spark.sql("SELECT 1 AS q, named_struct('b', 7, 'a', 8) AS z"), found, Save())
    assert found.toDF().collect()[0]["s"].asDict() == {"a": 7, "b": "8"}
