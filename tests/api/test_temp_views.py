"""Temporary views that read no Delta table are Spark's: it keeps their text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import deltamerge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions


@pytest.fixture
def views(spark: SparkSession) -> Iterator[None]:
    yield
    for name in ("below_view", "text_view"):
        spark.catalog.dropTempView(name)


def rows(spark: SparkSession, sql: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in deltamerge.sql(spark, sql).collect())


@pytest.mark.usefixtures("views")
def test_a_view_follows_what_its_text_names(spark: SparkSession, tmp_path: Path) -> None:
    deltamerge.sql(spark, "CREATE TEMP VIEW below_view AS SELECT 1 AS id")
    deltamerge.sql(spark, "CREATE TEMP VIEW text_view (n COMMENT 'c') AS SELECT id FROM below_view")
    deltamerge.sql(spark, "CREATE OR REPLACE TEMP VIEW below_view AS SELECT 2 AS id")
    assert rows(spark, "SELECT n FROM text_view") == [(2,)]
    folder = f"parquet.`{tmp_path}/files`"
    spark.range(1).write.parquet(f"{tmp_path}/files")
    deltamerge.sql(spark, f"CREATE OR REPLACE TEMP VIEW text_view AS SELECT * FROM {folder}")
    spark.range(1, 2).write.mode("append").parquet(f"{tmp_path}/files")
    assert rows(spark, "SELECT id FROM text_view") == [(0,), (1,)]


@pytest.mark.usefixtures("views")
def test_parameters_are_values_of_a_views_text(spark: SparkSession) -> None:
    deltamerge.sql(spark, "CREATE TEMP VIEW text_view AS SELECT :v AS v", {"v": "it's"})
    assert rows(spark, "SELECT v FROM text_view") == [("it's",)]
