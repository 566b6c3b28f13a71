"""Temporary views read their tables' newest versions, as they do with delta-spark's JAR."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltamerge.tables import DeltaTable
from merge.tables import CONNECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.sessions, pytest.mark.slow]


def counted(spark: SparkSession, view: str) -> tuple[int, int]:
    ((found,),) = map(tuple, spark.sql(f"SELECT count(*) FROM {view}").collect())
    return found, spark.table(view).count()


@pytest.fixture
def path(installed: SparkSession, tmp_path: Path) -> Any:
    path = str(tmp_path / "t")
    installed.range(2).selectExpr("id", "id AS v").write.format("delta").save(path)
    yield path
    for name in ("seen", "seen_too"):
        installed.catalog.dropTempView(name)


def more(spark: SparkSession, path: str, at: int = 10) -> None:
    spark.range(at, at + 1).selectExpr("id", "id AS v").write.format("delta").mode("append").save(path)


def test_views_of_frames(installed: SparkSession, path: str) -> None:
    spark = installed
    frame = spark.read.format("delta").load(path).where("v >= 0")
    frame.createOrReplaceTempView("seen")
    # Other sessions of a server see it, too.
    by_all = f"seen_{uuid.uuid4().hex}"
    frame.createGlobalTempView(by_all)
    for times in range(2):
        for name in ("seen", f"global_temp.{by_all}"):
            assert (name, *counted(spark, name)) == (name, 2 + times, 2 + times)
        more(spark, path, 10 + times)
    assert spark.catalog.dropGlobalTempView(by_all)
    spark.sql(f"MERGE INTO delta.`{path}` t USING seen s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v + 1")
    assert spark.read.format("delta").load(path).selectExpr("sum(v - id)").collect()[0][0] == 4


def test_views_whose_table_is_gone(installed: SparkSession, path: str) -> None:
    spark = installed
    spark.read.format("delta").load(path).createOrReplaceTempView("seen")
    shutil.rmtree(path)
    assert spark.sql("SELECT 1 AS seen").collect()[0][0] == 1
    with pytest.raises(Exception, match=r"(?i)file"):
        spark.sql("SELECT * FROM seen").collect()


def test_views_that_keep_what_they_have(installed: SparkSession, path: str) -> None:
    spark = installed
    spark.read.format("delta").option("versionAsOf", 0).load(path).createOrReplaceTempView("seen")
    spark.read.format("delta").load(path).createOrReplaceTempView("seen_too")
    spark.sql("CACHE TABLE seen_too")
    more(spark, path)
    assert counted(spark, "seen") == counted(spark, "seen_too") == (2, 2)
    spark.sql("UNCACHE TABLE seen_too")
    assert counted(spark, "seen_too") == (3, 3)


WATERMARKS = [
    "id > (SELECT coalesce(max(id), -1) FROM delta.`{}`)",
    "id NOT IN (SELECT id FROM delta.`{}`)",
    "NOT EXISTS (SELECT 1 FROM delta.`{}` g WHERE g.id = n.id)",
    "(id, 1) IN (SELECT max(id) + 1, 1 FROM (SELECT * FROM delta.`{}` WHERE id >= 0))",
]


if not CONNECT:
    # Over Connect only views of frames that SQL did not make follow their tables.

    @pytest.mark.parametrize("condition", WATERMARKS)
    def test_views_with_subqueries(installed: SparkSession, path: str, tmp_path: Path, condition: str) -> None:
        """What a job has not loaded yet, by a query of the table that it loads."""
        spark, source, other = installed, str(tmp_path / "source"), str(tmp_path / "other")
        spark.range(3).selectExpr("id", "id AS v").write.format("delta").save(source)
        spark.sql(
            f"CREATE OR REPLACE TEMP VIEW seen AS SELECT * FROM delta.`{source}` n WHERE {condition.format(path)}"
        )
        spark.sql(f"SELECT * FROM delta.`{source}` n WHERE {condition.format(path)}").createOrReplaceTempView(
            "seen_too"
        )
        spark.sql(f"CREATE TABLE delta.`{other}` (id BIGINT, v BIGINT) USING delta")
        for at in range(2, 5):
            assert [counted(spark, name) for name in ("seen", "seen_too")] == [(1, 1)] * 2
            spark.sql(f"INSERT INTO delta.`{other}` SELECT * FROM seen")
            if at % 2:
                spark.sql(f"INSERT INTO delta.`{path}` SELECT * FROM seen_too")
            else:
                spark.sql(f"MERGE INTO delta.`{path}` t USING seen s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
            assert [counted(spark, name) for name in ("seen", "seen_too")] == [(0, 0)] * 2
            more(spark, source, at + 1)
        for table in (path, other):
            loaded = spark.read.format("delta").load(table).where("id > 1").orderBy("id").collect()
            assert [row["id"] for row in loaded] == [2, 3, 4]


def test_views_of_tables_that_were_empty(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "empty")
    columns = "id INT, n VOID, s STRUCT<a: INT COMMENT 'inner'>, p TIMESTAMP NOT NULL COMMENT 'when'"
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta PARTITIONED BY (p)")
    spark.read.format("delta").load(path).createOrReplaceTempView("seen")
    rows = spark.sql("SELECT 1 AS id, named_struct('a', 1) AS s, TIMESTAMP'2024-01-01' AS p")
    for times in range(2):
        rows.write.format("delta").mode("append").save(path)
        assert counted(spark, "seen") == (times + 1, times + 1)
    merge = f"MERGE INTO delta.`{path}` t USING seen s ON t.id = s.id + 1 WHEN NOT MATCHED THEN INSERT *"
    spark.sql(merge)
    assert counted(spark, "seen") == (4, 4)
    spark.catalog.dropTempView("seen")


def test_names_that_are_other_views_now(installed: SparkSession, path: str) -> None:
    spark = installed
    for name in ("seen", "seen_too"):
        spark.read.format("delta").load(path).createOrReplaceTempView(name)
    spark.sql("CREATE OR REPLACE TEMP VIEW seen AS SELECT 1 AS one")
    spark.sql("DROP VIEW seen_too")
    more(spark, path)
    assert spark.table("seen").columns == ["one"]
    assert not spark.catalog.tableExists("seen_too")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM seen_too").collect()


def test_a_merge_of_a_view_of_its_target(installed: SparkSession, path: str) -> None:
    spark = installed
    spark.read.format("delta").load(path).createOrReplaceTempView("seen")
    more(spark, path)
    target = DeltaTable.forPath(spark, path).alias("t")
    target.merge(spark.table("seen").alias("s"), "t.id = s.id").whenMatchedUpdate(set={"v": "s.v + 1"}).execute()
    assert spark.read.format("delta").load(path).selectExpr("sum(v - id)").collect()[0][0] == 3


def test_statements_that_read_views(installed: SparkSession, database: str, path: str) -> None:
    spark = installed
    frame = spark.read.format("delta").load(path)
    frame.createOrReplaceTempView("seen")
    by_all = f"seen_{uuid.uuid4().hex}"
    frame.createGlobalTempView(by_all)
    spark.sql("CREATE TABLE kept (id BIGINT, v BIGINT) USING delta")
    spark.sql("CREATE TABLE other (id BIGINT, v BIGINT) USING parquet")
    merge = f"MERGE INTO kept t USING global_temp.{by_all} s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    statements = [
        ("INSERT OVERWRITE kept TABLE seen", "kept"),
        ("INSERT OVERWRITE other TABLE seen", "other"),
        (merge, "kept"),
        ("CREATE TABLE made AS TABLE seen", "made"),
        ("CACHE TABLE cached AS TABLE seen", "cached"),
    ]
    for times, (statement, changed) in enumerate(statements):
        more(spark, path, 10 + times)
        spark.sql(statement)
        assert (statement, spark.table(changed).count()) == (statement, 3 + times)
    spark.catalog.dropTempView("cached")
    spark.conf.set("deltamerge.view", "seen")
    queries: list[tuple[str, dict[str, str] | None]] = [
        ("SELECT * FROM IDENTIFIER('seen')", None),
        ("SELECT * FROM IDENTIFIER(:v)", {"v": "seen"}),
        ("SELECT * FROM ${deltamerge.view}", None),
    ]
    for times, (query, args) in enumerate(queries):
        more(spark, path, 20 + times)
        assert (query, spark.sql(query, args).count()) == (query, 8 + times)
    assert spark.catalog.dropGlobalTempView(by_all)


@pytest.mark.parametrize(
    "change",
    [
        "/* c */ CREATE OR REPLACE TEMP VIEW seen USING csv OPTIONS (path '{}')",
        "-- c\nALTER VIEW seen AS SELECT 'x' AS _c0",
        "/* c */ DROP VIEW IDENTIFIER('seen')",
        "DROP TABLE IF EXISTS seen",
    ],
)
def test_views_that_statements_change(installed: SparkSession, path: str, tmp_path: Path, change: str) -> None:
    spark = installed
    (tmp_path / "rows.csv").write_text("x\n")
    spark.read.format("delta").load(path).createOrReplaceTempView("seen")
    with pytest.raises(Exception, match="TEMP_TABLE_OR_VIEW_ALREADY_EXISTS"):
        spark.sql("CREATE TEMP VIEW seen AS SELECT 'x' AS _c0")
    more(spark, path)
    assert counted(spark, "seen") == (3, 3)
    spark.sql(change.format(tmp_path / "rows.csv"))
    more(spark, path, 11)
    if "DROP" in change:
        assert not spark.catalog.tableExists("seen")
    else:
        assert spark.sql("SELECT * FROM seen").columns == ["_c0"]


@pytest.mark.parametrize("statement", ["DROP TABLE seen", "DROP TABLE IDENTIFIER('seen')", "EXECUTE IMMEDIATE {}"])
def test_a_table_of_the_name_of_a_view_that_was(
    installed: SparkSession, database: str, path: str, statement: str
) -> None:
    spark = installed
    spark.read.format("delta").load(path).createOrReplaceTempView("seen")
    more(spark, path)
    spark.sql(statement.format("'DROP TABLE seen'"))
    spark.sql("CREATE TABLE seen (id BIGINT, v BIGINT) USING delta")
    assert counted(spark, "seen") == (0, 0)
    spark.sql("INSERT INTO seen VALUES (1, 1)")
    spark.sql("DELETE FROM seen")
    assert counted(spark, "seen") == (0, 0)
    assert spark.read.format("delta").load(path).count() == 3


def test_global_views_in_other_sessions(installed: SparkSession, path: str) -> None:
    by_all = f"seen_{uuid.uuid4().hex}"
    installed.read.format("delta").load(path).createGlobalTempView(by_all)
    other: Any = installed.newSession()
    more(installed, path)
    assert counted(other, f"global_temp.{by_all}") == (3, 3)
    other.sql(f"DROP VIEW global_temp.{by_all}")
    more(installed, path, 11)
    assert not installed.catalog.tableExists(f"global_temp.{by_all}")


def test_views_over_views(installed: SparkSession, path: str) -> None:
    spark = installed
    spark.read.format("delta").load(path).createOrReplaceTempView("seen")
    spark.sql("CREATE TEMP VIEW seen_too AS SELECT id FROM seen")
    more(spark, path)
    assert counted(spark, "seen_too") == (3, 3)
    spark.sql("CREATE OR REPLACE TEMP VIEW seen AS SELECT 1L AS id")
    spark.sql("CREATE OR REPLACE TEMP VIEW seen_too AS SELECT id FROM seen")
    spark.read.format("delta").load(path).createOrReplaceTempView("seen")
    more(spark, path, 11)
    assert counted(spark, "seen_too") == (4, 4)


@pytest.mark.usefixtures("path")
def test_views_over_frames_that_a_statement_is_given(installed: SparkSession) -> None:
    installed.sql("CREATE TEMP VIEW seen AS SELECT * FROM {rows}", rows=installed.range(3))
    assert counted(installed, "seen") == (3, 3)
