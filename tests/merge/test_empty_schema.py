"""Merges into a table that has no columns yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from deltamerge import DeltaTable, merge_sql
from deltamerge.exceptions import DeltaAnalysisException

from .tables import files_below, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "(SELECT * FROM VALUES (1, 'a'), (2, 'b') AS v(id, name)) AS s"


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    DeltaTable.create(spark).location(path).execute()
    return path


def merge(path: str, clauses: str, evolution: bool = False) -> str:
    words = "WITH SCHEMA EVOLUTION " if evolution else ""
    return f"MERGE {words}INTO delta.`{path}` AS t USING {SOURCE} ON false {clauses}"


def test_an_error_without_evolution(spark: SparkSession, path: str) -> None:
    before = files_below(path)
    with pytest.raises(DeltaAnalysisException) as caught:
        merge_sql(spark, merge(path, "WHEN NOT MATCHED THEN INSERT *"))
    assert caught.value.getCondition() == "DELTA_MERGE_INTO_EMPTY_SCHEMA_TARGET"
    assert caught.value.getSqlState() == "428GU"
    assert files_below(path) == before


@pytest.mark.parametrize("by_session", [False, True])
def test_evolution_adopts_the_sources_schema(spark: SparkSession, path: str, by_session: bool) -> None:
    spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", str(by_session).lower())
    report = merge_sql(spark, merge(path, "WHEN NOT MATCHED THEN INSERT *", evolution=not by_session))
    assert report.metrics["numTargetRowsInserted"] == 2
    table = DeltaTable.forPath(spark, path).toDF()
    assert table.schema.simpleString() == "struct<id:int,name:string>"
    assert rows(table) == [(1, "a"), (2, "b")]
    assert (
        merge_sql(
            spark, f"MERGE INTO delta.`{path}` AS t USING {SOURCE} ON t.id = s.id WHEN MATCHED THEN DELETE"
        ).metrics["numTargetRowsDeleted"]
        == 2
    )


def test_without_the_check_spark_refuses_the_rows(spark: SparkSession, path: str) -> None:
    spark.conf.set("spark.databricks.delta.merge.emptySchemaTargetCheck.enabled", "false")
    before = files_below(path)
    with pytest.raises(AnalysisException) as caught:
        merge_sql(spark, merge(path, "WHEN NOT MATCHED THEN INSERT *"))
    assert caught.value.getCondition() == "EMPTY_SCHEMA_NOT_SUPPORTED_FOR_DATASOURCE"
    assert files_below(path) == before
