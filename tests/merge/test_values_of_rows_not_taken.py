"""Values are computed only for rows that a clause takes, also where Spark compiles no stages, as for wide rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltamerge import DeltaTable, merge_sql, write_delta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

CLAUSES = {
    "insert": "WHEN NOT MATCHED AND s.id <=> 3 THEN INSERT (id, v) VALUES (s.id, CAST(s.text AS INT))",
    "inserts": "WHEN NOT MATCHED AND s.id <=> 3 THEN INSERT (id, v) VALUES (s.id, CAST(s.text AS INT)) "
    "WHEN NOT MATCHED AND s.id = 100 THEN INSERT (id) VALUES (s.id)",
    "update": "WHEN MATCHED AND s.id <=> 3 THEN UPDATE SET v = CAST(s.text AS INT)",
    "both": "WHEN MATCHED AND s.id <=> 3 THEN UPDATE SET v = CAST(s.text AS INT) "
    "WHEN NOT MATCHED AND s.id <=> 3 THEN INSERT (id, v) VALUES (s.id, CAST(s.text AS INT))",
}


@pytest.fixture
def interpreted(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield
    spark.conf.unset("spark.sql.codegen.wholeStage")


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("plan", ["auto", "classic"])
@pytest.mark.parametrize("clauses", CLAUSES)
@pytest.mark.parametrize("feed", ["true", "false"])
def test_conditions_come_first(spark: SparkSession, tmp_path: Path, plan: str, clauses: str, feed: str) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS id, 1 AS v"), path, properties={"delta.enableChangeDataFeed": feed})
    rows = "(1, 'x'), (2, 'x'), (3, '3')"
    source = f"(SELECT id, text FROM VALUES {rows} AS v(id, text))"
    spark.conf.set("spark.deltamerge.merge.executor", plan)
    try:
        merge_sql(spark, f"MERGE INTO delta.`{path}` t USING {source} s ON t.id = s.id {CLAUSES[clauses]}")
    finally:
        spark.conf.unset("spark.deltamerge.merge.executor")
    found = sorted((row.id, row.v) for row in DeltaTable.forPath(spark, path).toDF().collect())
    assert found == ([(1, 1)] if clauses == "update" else [(1, 1), (3, 3)])


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("clauses", ["insert", "inserts"])
def test_conditions_come_first_without_keys(spark: SparkSession, tmp_path: Path, clauses: str) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS id, 1 AS v"), path, properties={"delta.enableChangeDataFeed": "true"})
    source = "(SELECT id, text FROM VALUES (2, 'x'), (3, '3') AS v(id, text))"
    merge_sql(spark, f"MERGE INTO delta.`{path}` t USING {source} s ON s.id IS NULL {CLAUSES[clauses]}")
    assert sorted((row.id, row.v) for row in DeltaTable.forPath(spark, path).toDF().collect()) == [(1, 1), (3, 3)]
