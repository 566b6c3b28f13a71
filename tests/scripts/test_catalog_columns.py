"""What on classic Spark follows a table: over Connect no call changes the catalog, and SQL's frames have no plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from deltamerge.spark.data_source import drop_missing_catalog
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
        where = (
            spark.sql("SELECT 8 AS a, 1 AS f").write.format("delta").mode("overwrite").option("replaceWhere", "a = 8")
        )
        where.option("mergeSchema", True).saveAsTable("named_made")
        assert [c.name for c in spark.catalog.listColumns("named_made")] == ["a", "b", "c", "d", "e", "f"]
        assert rows(spark.table("w_view")) == [(5,), (6,), (8,)]
        ((shown,),) = rows(spark.sql("SHOW CREATE TABLE named_made"))
        assert "e BIGINT" in shown
    finally:
        spark.sql("DROP VIEW IF EXISTS w_view")
        spark.sql("DROP VIEW IF EXISTS w2_view")
        spark.sql("DROP TABLE IF EXISTS named_made")


def test_views_of_sql_and_of_views(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    spark.range(2).write.format("delta").save(path)
    try:
        spark.sql(f"CREATE TEMP VIEW seen AS SELECT id + 1 AS n FROM delta.`{path}`")
        spark.range(2, 3).write.format("delta").mode("append").save(path)
        spark.sql("CREATE TEMP VIEW seen_too AS SELECT n FROM seen")
        assert spark.table("seen_too").count() == 3
        further = spark.sql("SELECT 5L AS id, 'x' AS n").write.format("delta").mode("append")
        further.option("mergeSchema", True).save(path)
        assert spark.sql("SELECT count(*) FROM seen_too JOIN seen USING (n)").collect()[0][0] == 4
        assert spark.table("seen").columns == ["n"]
    finally:
        for name in ("seen", "seen_too"):
            spark.catalog.dropTempView(name)


@pytest.mark.parametrize("statement", ["REFRESH TABLE of_jar", "ALTER TABLE of_jar ADD COLUMNS (b INT)"])
def test_views_over_tables_that_the_jar_made(installed: SparkSession, tmp_path: Path, statement: str) -> None:
    """It leaves the columns to the log: their entries have none."""
    spark, path = installed, str(tmp_path / "a t")
    try:
        spark.sql(f"CREATE TABLE of_jar USING delta LOCATION '{path}' AS SELECT 1 AS a")
        spark.sql("CREATE VIEW w_view AS SELECT a FROM of_jar")
        empty_entry(spark, "of_jar")
        with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
            spark.table("w_view").collect()
        spark.sql(statement)
        assert rows(spark.table("w_view")) == rows(spark.sql("SELECT * FROM w_view")) == [(1,)]
        assert "Type: EXTERNAL" in spark.sql("SHOW TABLE EXTENDED LIKE 'of_jar'").collect()[0]["information"]
    finally:
        spark.sql("DROP VIEW IF EXISTS w_view")
        spark.sql("DROP TABLE IF EXISTS of_jar")


def test_views_over_tables_that_were_renamed(installed: SparkSession) -> None:
    """Spark leaves the old location in the metadata of the columns."""
    spark = installed
    try:
        for refresh in (spark.catalog.refreshTable, lambda name: spark.sql(f"REFRESH TABLE {name}")):
            spark.sql("CREATE TABLE named_made USING delta AS SELECT 1 AS a")
            spark.sql("ALTER TABLE named_made RENAME TO named_later")
            spark.sql("CREATE TABLE named_made USING delta AS SELECT 2 AS a")
            refresh("named_later")
            spark.sql("CREATE VIEW w_view AS SELECT a FROM named_later")
            assert rows(spark.table("w_view")) == [(1,)]
            spark.sql("DROP VIEW w_view")
            for name in ("named_made", "named_later"):
                spark.sql(f"DROP TABLE {name}")
    finally:
        spark.sql("DROP VIEW IF EXISTS w_view")
        for name in ("named_made", "named_later"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def empty_entry(spark: Any, table: str) -> None:
    columns = getattr(spark._jvm, "org.apache.spark.sql.types.DataType").fromJson(StructType().json())
    spark._jsparkSession.sharedState().externalCatalog().alterTableDataSchema("default", table, columns)
    # PySpark's own call is this library's.
    spark._jsparkSession.catalog().refreshTable(table)


def test_names_of_another_database(installed: SparkSession) -> None:
    spark = installed
    try:
        for database in ("one_db", "other_db"):
            spark.sql(f"CREATE DATABASE {database}")
        spark.sql("USE one_db")
        spark.sql("CREATE TABLE same USING delta AS SELECT 1 AS a")
        spark.sql("CREATE TABLE other_db.same USING parquet AS SELECT 'x' AS a")
        table = DeltaTable.forName(spark, "same")
        spark.sql("USE other_db")
        merge = table.merge(spark.sql("SELECT 2 AS a, 3 AS b"), "false").withSchemaEvolution()
        merge.whenNotMatchedInsertAll().execute()
        assert rows(spark.table("other_db.same")) == [("x",)]
        assert [c.name for c in spark.catalog.listColumns("one_db.same")] == ["a", "b"]
        assert table.detail().collect()[0]["name"] == "spark_catalog.one_db.same"
    finally:
        spark.sql("USE default")
        for database in ("one_db", "other_db"):
            spark.sql(f"DROP DATABASE IF EXISTS {database} CASCADE")


def test_a_new_session_lets_go_of_the_catalog_of_the_jar(installed: SparkSession, tmp_path: Path) -> None:
    key = "spark.sql.catalog.spark_catalog"
    fresh: Any = installed.newSession()
    fresh.conf.set(key, "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    drop_missing_catalog(fresh)
    assert fresh.conf.get(key, "none") == "none"
    fresh.sql("USE default")
