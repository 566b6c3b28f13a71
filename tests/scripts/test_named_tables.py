"""Tables by their names in PySpark's own calls: streams, and what the catalog shows."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.ml.linalg import Vectors
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.spark.session import is_connect
from deltamerge.tables import DeltaTable
from merge.tables import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.sessions, pytest.mark.slow]


@pytest.fixture
def in_own_database(installed: SparkSession, database: str) -> SparkSession:
    return installed


@pytest.mark.parametrize("is_there", [True, False])
def test_streams_between_named_tables(in_own_database: SparkSession, tmp_path: Path, is_there: bool) -> None:
    spark = in_own_database
    spark.range(6).selectExpr("id", "id % 2 AS p").write.format("delta").saveAsTable("named_from")
    path = str(tmp_path / "into")
    if is_there:
        spark.sql(f"CREATE TABLE named_into (id BIGINT, p BIGINT) USING delta PARTITIONED BY (p) LOCATION '{path}'")
    stream = spark.readStream.table("named_from").writeStream.format("delta").trigger(availableNow=True)
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream = stream.partitionBy("p") if is_there else stream.option("path", path)
    query = stream.toTable("named_into")
    assert query.awaitTermination(120)
    assert rows(spark.table("named_into").select("id")) == [(i,) for i in range(6)]
    assert DeltaRs(path).metadata().partition_columns == (["p"] if is_there else [])


def test_tables_of_the_catalogs_own_call(in_own_database: SparkSession, tmp_path: Path) -> None:
    spark, path = in_own_database, str(tmp_path / "t")
    schema = StructType([StructField("id", LongType())])
    spark.catalog.createTable("named_made", source="delta", schema=schema, description="made")
    spark.range(3).write.insertInto("named_made")
    assert rows(spark.table("named_made")) == [(0,), (1,), (2,)]
    spark.range(2).write.format("delta").save(path)
    assert rows(spark.catalog.createTable("named_into", path, "delta")) == [(0,), (1,)]
    spark.sql("CREATE TABLE named_from USING parquet AS SELECT 1 AS a")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        spark.catalog.createTable("named_from", source="delta", schema=schema)
    assert [c.name for c in spark.catalog.listColumns("named_into")] == ["id"]
    with pytest.raises(DeltaAnalysisException, match="DELTA_TABLE_ALREADY_EXISTS"):
        spark.catalog.createTable("named_made", source="delta", schema=schema)


def test_what_details_call_a_table(in_own_database: SparkSession, tmp_path: Path) -> None:
    spark, path = in_own_database, str(tmp_path / "t")
    spark.sql(f"CREATE TABLE named_made USING delta LOCATION '{path}' AS SELECT 1 AS a")
    by_name, by_path = DeltaTable.forName(spark, "named_made"), DeltaTable.forPath(spark, path)
    details = (spark.sql("DESCRIBE DETAIL named_made"), by_name.detail(), by_path.detail())
    name = f"spark_catalog.{spark.catalog.currentDatabase()}.named_made"
    assert [rows(each.select("name")) for each in details] == [[(name,)], [(name,)], [(None,)]]


def test_settings_that_are_not_set(installed: SparkSession) -> None:
    """Scripts keep what a setting was, and put it back."""
    key = "spark.databricks.delta.schema.autoMerge.enabled"
    assert installed.conf.get(key) == "false"
    assert installed.conf.get(key, None) is None
    assert installed.conf.get("spark.databricks.delta.optimize.maxFileSize") == str(1 << 30)
    with pytest.raises(Exception, match="SQL_CONF_NOT_FOUND"):
        installed.conf.get("spark.databricks.delta.no.such.setting")


def test_no_partition_columns_are_none_named(installed: SparkSession, tmp_path: Path) -> None:
    path, frame = str(tmp_path / "t"), installed.range(2).selectExpr("id", "id AS p")
    frame.write.format("delta").partitionBy("p").save(path)
    frame.write.format("delta").mode("append").partitionBy().save(path)
    frame.write.format("delta").mode("append").partitionBy([]).save(path)
    assert DeltaRs(path).metadata().partition_columns == ["p"]
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", True).partitionBy([]).save(path)
    assert DeltaRs(path).metadata().partition_columns == []


@pytest.mark.parametrize("options", [{"startingVersion": "2"}, {"startingTimestamp": "2999-01-01"}])
def test_changes_after_the_last_commit(installed: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    spark, path = installed, str(tmp_path / "t")
    key = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"
    spark.range(2).write.format("delta").option("delta.enableChangeDataFeed", "true").save(path)
    spark.range(3).write.format("delta").mode("append").save(path)
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    with pytest.raises((AnalysisException, IllegalArgumentException), match=r"START_VERSION_AFTER|GREATER_THAN_COMMIT"):
        reader.options(**options).load(path)
    spark.conf.set(key, "true")
    try:
        assert reader.options(**options).load(path).count() == 0
        late = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
        assert late.option("endingTimestamp", "2999-01-01").load(path).count() == 3
    finally:
        spark.conf.unset(key)


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_partitions(in_own_database: SparkSession, tmp_path: Path, mapping: str) -> None:
    spark, path = in_own_database, str(tmp_path / "t")
    days = "SELECT * FROM VALUES (1L, DATE'2024-01-01', 'a b'), (2L, DATE'2024-01-02', NULL) AS t(id, day, p)"
    spark.sql(
        f"CREATE TABLE named_made USING delta PARTITIONED BY (day, p) LOCATION '{path}' "
        f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mapping}') AS {days}"
    )
    first, second = (dt.date(2024, 1, 1), "a b"), (dt.date(2024, 1, 2), None)
    assert spark.sql("SHOW PARTITIONS named_made").columns == ["day", "p"]
    assert set(map(tuple, spark.sql(f"SHOW PARTITIONS delta.`{path}`").collect())) == {first, second}
    assert rows(spark.sql("SHOW PARTITIONS named_made PARTITION (day = '2024-01-01')")) == [first]
    with pytest.raises(DeltaAnalysisException, match="DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_TABLE"):
        spark.sql("CREATE TABLE named_into USING delta AS SELECT 1 AS a")
        spark.sql("SHOW PARTITIONS named_into")
    if mapping == "none":
        reader = spark.read.format("delta")
        assert rows(reader.load(f"{path}/day=2024-01-01")) == [(1, *first)]
        assert rows(reader.load(f"{path}/day=2024-01-02/p=__HIVE_DEFAULT_PARTITION__")) == [(2, *second)]


def test_names_that_queries_compute(in_own_database: SparkSession, tmp_path: Path) -> None:
    spark, path = in_own_database, str(tmp_path / "t")
    spark.sql(f"CREATE TABLE named_made USING delta LOCATION '{path}' AS SELECT 1 AS a")
    spark.sql("ALTER TABLE named_made ADD COLUMNS (b INT)")
    whole = f"{spark.catalog.currentDatabase()}.named_made"
    for name in (whole, f"delta.`{path}`"):
        assert rows(spark.sql("SELECT a, b FROM IDENTIFIER(:name) AS n", {"name": name})) == [(1, None)]
        assert rows(spark.sql(f"SELECT n.a FROM IDENTIFIER('{name}') n")) == [(1,)]
    more = {"name": whole, "late": dt.timedelta(days=1)}
    assert rows(spark.sql("SELECT a FROM IDENTIFIER(:name) WHERE :late > INTERVAL '1' HOUR", more)) == [(1,)]
    for no_name in ("named_made n CROSS JOIN named_made", "(SELECT 1)", "'"):
        with pytest.raises(AnalysisException):
            spark.sql("SELECT * FROM IDENTIFIER(:name) WHERE false", {"name": no_name}).collect()
    described = spark.sql(f"DESCRIBE QUERY SELECT b FROM delta.`{path}`")
    assert [row["col_name"] for row in described.collect()] == ["b"]
    spark.sql(f"REFRESH TABLE delta.`{path}`")
    spark.sql("REFRESH TABLE named_made")
    spark.sql("DECLARE OR REPLACE VARIABLE latest INT")
    spark.sql(f"SET VAR latest = (SELECT max(a) FROM delta.`{path}`)")
    assert rows(spark.sql("SELECT latest")) == [(1,)]


def test_columns_of_type_void(installed: SparkSession, tmp_path: Path) -> None:
    """What ``lit(None)`` makes: files lack it, and the first write that knows a type gives it to the column."""
    spark, path = installed, str(tmp_path / "t")
    spark.range(2).withColumn("note", F.lit(None)).write.format("delta").save(path)
    assert {tuple(pq.read_schema(file).names) for file in Path(path).glob("**/*.parquet")} == {("id",)}
    assert rows(spark.read.format("delta").load(path)) == [(0, None), (1, None)]
    spark.sql("SELECT 2L AS id, NULL AS note").write.format("delta").mode("append").save(path)
    typed = spark.sql("SELECT 3L AS id, 'x' AS note").write.format("delta").mode("append")
    typed.option("mergeSchema", True).save(path)
    found = spark.read.format("delta").load(path)
    assert found.schema["note"].dataType == StringType()
    assert set(map(tuple, found.collect())) == {(0, None), (1, None), (2, None), (3, "x")}
    streamed = str(tmp_path / "streamed")
    stream = spark.readStream.format("delta").load(path).drop("note").withColumn("note", F.lit(None)).writeStream
    stream = stream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert stream.trigger(availableNow=True).start(streamed).awaitTermination(120)
    typed.option("mergeSchema", True).save(streamed)
    assert spark.read.format("delta").load(streamed).where("note = 'x'").count() == 1
    merged = str(tmp_path / "merged")
    spark.range(2).withColumn("note", F.lit(None)).write.format("delta").save(merged)
    spark.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{merged}` t USING (SELECT 1L AS id, 'y' AS note) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET *"
    )
    assert set(map(tuple, spark.read.format("delta").load(merged).collect())) == {(0, None), (1, "y")}


def test_columns_of_applications_types(installed: SparkSession, tmp_path: Path) -> None:
    """Vectors of Spark ML."""
    spark, path = installed, str(tmp_path / "t")
    vectors = [(1, Vectors.dense([1.0, 2.0])), (2, Vectors.sparse(3, [1], [5.0]))]
    spark.createDataFrame(vectors, ["id", "f"]).write.format("delta").save(path)
    source = spark.createDataFrame([(2, Vectors.dense([9.0])), (3, Vectors.dense([7.0]))], ["id", "f"])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    DeltaTable.forPath(spark, path).delete("id = 3")
    found = {row["id"]: row["f"].toArray().tolist() for row in spark.read.format("delta").load(path).collect()}
    assert found == {1: [1.0, 2.0], 2: [9.0]}


def test_whole_names_before_columns_of_frames(installed: SparkSession, database: str) -> None:
    spark = installed
    other = f"{database}_too"
    spark.sql(f"CREATE DATABASE {other}")
    try:
        for name in (database, other):
            spark.range(3).selectExpr("id", "id AS v").write.format("delta").saveAsTable(f"{name}.orders")
        mine, theirs = f"{database}.orders", f"{other}.orders"
        if is_connect(spark):
            # Connect's frames take the last part of a name alone.
            with pytest.raises(AnalysisException):
                spark.table(mine).select(f"{mine}.id").collect()
            assert spark.table(mine).select("orders.id").count() == 3
            return
        joined = spark.table(mine).join(spark.table(theirs), F.expr(f"{mine}.id = {theirs}.id"))
        assert joined.select(F.col(f"{theirs}.v"), f"spark_catalog.{mine}.id").count() == 3
        for frame in (
            spark.table(mine),
            spark.read.table(mine),
            spark.read.option("versionAsOf", 0).table(mine),
            DeltaTable.forName(spark, mine).toDF(),
        ):
            assert rows(frame.select(F.col("orders.id"), F.col(f"{mine}.v"), frame["v"])) == [
                (i, i, i) for i in range(3)
            ]
        aliased = DeltaTable.forName(spark, mine).alias("a").toDF()
        with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
            aliased.select("orders.id")
        target = DeltaTable.forName(spark, mine)
        merge = target.merge(spark.table(theirs), f"{mine}.id = {theirs}.id AND {theirs}.id > 0")
        merge.whenMatchedUpdate(set={"v": F.col(f"{theirs}.v") + 10}).execute()
        assert rows(target.toDF()) == [(0, 0), (1, 11), (2, 12)]
        own = spark.table(mine).where("orders.id > 0")
        target.alias("t").merge(own, "t.id = orders.id").whenMatchedUpdate(set={"v": "orders.v + 10"}).execute()
        own.createOrReplaceTempView("own_orders")
        own.select("id", "v").write.format("delta").mode("append").saveAsTable(mine)
        assert rows(spark.table(mine)) == [(0, 0), (1, 21), (1, 21), (2, 22), (2, 22)]
        assert spark.sql("SELECT own_orders.id FROM own_orders").count() == 4
    finally:
        spark.sql(f"DROP DATABASE {other} CASCADE")
