"""Large sources and wide tables, on classic Spark alone: to the kind of session their size makes no difference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from deltamerge import DeltaTable, merge_sql, write_delta

from .tables import people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("in_files", [False, True], ids=["query", "files"])
def test_source_above_a_hash_table(spark: SparkSession, tmp_path: Path, in_files: bool) -> None:
    path = people(spark, tmp_path / "t")
    if in_files:
        ids = pa.array(range(2, 1_100_002), pa.int32())
        pq.write_table(pa.table({"id": ids, "name": pa.repeat("x", len(ids)), "age": ids}), tmp_path / "s")
        many = spark.read.parquet(str(tmp_path / "s"))
    else:
        many = spark.range(2, 1_100_002, 1, 1).selectExpr("cast(id AS int) AS id", "'x' AS name", "1 AS age")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(many.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll().run()
    assert report.outcome.executor == "key_lookup"
    assert report.metrics["numTargetRowsUpdated"] == 2
    assert report.metrics["numSourceRows"] == 1_100_000


def test_source_of_more_rows_than_spark_estimates(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    ids = spark.sql("SELECT explode(sequence(2, 900000)) AS id").selectExpr("id", "'x' AS name", "id AS age")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(ids.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert report.outcome.executor == "key_lookup"
    assert report.metrics["numSourceRows"] == 899_999
    assert DeltaTable.forPath(spark, path).toDF().filter("id > 1 AND age = id AND name = 'x'").count() == 899_999


def test_three_of_two_thousand_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(4).coalesce(1).select("id", *(F.lit(i).alias(f"c{i}") for i in range(1999))), path)
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING range(3, 5) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET c0 = -1, c999 = -2, c1998 = -3 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
    )
    found = {row.id: row for row in DeltaTable.forPath(spark, path).toDF().collect()}
    old = tuple(range(1999))
    assert tuple(found[0]) == (0, *old)
    assert tuple(found[3]) == (3, -1, *old[1:999], -2, *old[1000:1998], -3)
    assert tuple(found[4]) == (4, *[None] * 1999)
