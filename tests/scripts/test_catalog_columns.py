"""The columns that Spark's catalog has of a table, on classic Spark: over Connect no call changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deltamerge.tables import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()))


def test_views_see_the_columns_of_now(installed: SparkSession) -> None:
    spark = installed
    try:
        spark.sql("CREATE TABLE named_made USING delta AS SELECT 1 AS a")
        spark.sql("CREATE VIEW w_view AS SELECT a FROM named_made")
        spark.sql("ALTER TABLE named_made ADD COLUMNS (b INT)")
        spark.sql("CREATE VIEW w2_view AS SELECT b FROM named_made")
        assert rows(spark.table("w_view")) == [(1,)]
        assert rows(spark.sql("SELECT * FROM w2_view")) == [(None,)]
        spark.sql("CREATE OR REPLACE TABLE named_made USING delta AS SELECT 5 AS a, 'x' AS b, 2 AS c")
        assert rows(spark.table("w_view")) == [(5,)]
        source = spark.sql("SELECT 6 AS a, 7 AS d")
        merge = DeltaTable.forName(spark, "named_made").alias("t").merge(source.alias("s"), "t.a = s.a")
        merge.withSchemaEvolution().whenNotMatchedInsertAll().execute()
        more = spark.sql("SELECT 8 AS a, 9L AS e").write.format("delta").mode("append")
        more.option("mergeSchema", True).saveAsTable("named_made")
        assert [c.name for c in spark.catalog.listColumns("named_made")] == ["a", "b", "c", "d", "e"]
        assert rows(spark.table("w_view")) == [(5,), (6,), (8,)]
        ((shown,),) = rows(spark.sql("SHOW CREATE TABLE named_made"))
        assert "e BIGINT" in shown
    finally:
        spark.sql("DROP VIEW IF EXISTS w_view")
        spark.sql("DROP VIEW IF EXISTS w2_view")
        spark.sql("DROP TABLE IF EXISTS named_made")
