"""PySpark's calls of the catalog, of Delta tables and of others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.catalog import Catalog

from conftest import SERVER
from deltamerge.exceptions import DeltaTableNotFoundException
from deltamerge.tables import DeltaTable
from merge.tables import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.sessions, pytest.mark.slow]


@pytest.fixture
def fresh(installed: SparkSession) -> Iterator[Any]:
    """Another session, which has no source yet; over Connect it is another client's."""
    session: Any = installed
    # Over Connect PySpark 4.0 to 4.2 have no such call.
    has_call = hasattr(session, "newSession")
    made = session.newSession() if has_call else session.builder.remote(os.environ[SERVER]).create()
    yield made
    if type(made).__module__.startswith("pyspark.sql.connect"):
        made.stop()


@pytest.mark.filterwarnings("ignore:`dbName` has been deprecated")
def test_tables_that_are_there(installed: SparkSession, database: str, fresh: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "a.b")
    installed.range(2).write.format("delta").save(path)
    installed.range(1).write.format("delta").saveAsTable("t")
    installed.range(1).createOrReplaceTempView("seen")
    there = fresh.catalog.tableExists
    assert there(f"{database}.t")
    assert there("t", database)
    assert there(f"spark_catalog.{database}.t")
    assert not there(f"{database}.u")
    assert there(f"delta.`{path}`")
    assert there(path, "delta")
    assert not there(f"delta.`{path}/none`")
    assert not there(f"delta.`{tmp_path}`")
    assert not there("delta.none")
    assert not there("seen")
    assert installed.catalog.tableExists("seen")
    installed.catalog.dropTempView("seen")


def test_types_and_comments_of_tables(installed: SparkSession, database: str, fresh: Any, tmp_path: Path) -> None:
    comment = "one: a\nType: VIEW\n\nlast"
    installed.sql("CREATE TABLE managed (id BIGINT) USING delta COMMENT 'of orders'")
    installed.sql(f"CREATE TABLE placed (id BIGINT) USING delta COMMENT '{comment}' LOCATION '{tmp_path / 'placed'}'")
    installed.sql(f"CREATE TABLE plain (id BIGINT) USING parquet COMMENT '{comment}' LOCATION '{tmp_path / 'plain'}'")
    installed.sql("CREATE VIEW shown COMMENT 'seen' AS SELECT id FROM placed")
    fresh.range(1).createOrReplaceTempView("managed")
    expected = [
        ("managed", "spark_catalog", [database], "of orders", "MANAGED", False),
        ("placed", "spark_catalog", [database], comment, "EXTERNAL", False),
        ("plain", "spark_catalog", [database], comment, "EXTERNAL", False),
        ("shown", "spark_catalog", [database], "seen", "VIEW", False),
        ("managed", None, [], None, "TEMPORARY", True),
    ]
    catalog = fresh.catalog
    assert list(map(tuple, catalog.listTables(database))) == expected
    assert list(map(tuple, catalog.listTables(f"spark_catalog.{database}", "pl*|none"))) == expected[1:3]
    assert [tuple(catalog.getTable(f"{database}.{name}")) for name, *_ in expected[:-1]] == expected[:-1]
    assert tuple(catalog.getTable("managed")) == expected[-1]
    installed.sql("COMMENT ON TABLE placed IS 'new'")
    assert catalog.getTable(f"{database}.placed").description == "new"
    names = [name for name, *_ in expected[:-1]]
    assert [table.name for table in installed.catalog.listTables() if not table.isTemporary] == names


def use_another_catalog(spark: SparkSession, folder: Path) -> None:
    derby = f"jdbc:derby:{folder / 'derby'};create=true"
    of_jdbc = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
    for key, value in {"": of_jdbc, ".url": derby, ".driver": "org.apache.derby.jdbc.EmbeddedDriver"}.items():
        spark.conf.set(f"spark.sql.catalog.other{key}", value)


def test_names_of_the_sessions_catalog_while_another_is_current(
    installed: SparkSession, database: str, fresh: Any, tmp_path: Path
) -> None:
    use_another_catalog(fresh, tmp_path)
    installed.sql("CREATE TABLE t USING delta AS SELECT 1 AS a")
    name = f"spark_catalog.{database}.t"
    for use in ("spark_catalog", "other"):
        fresh.sql(f"USE {use}")
        # The session has its source from here on.
        fresh.catalog.refreshTable(name)
        fresh.sql(f"INSERT INTO {name} VALUES (2)")
        fresh.sql("SELECT 3 AS a").write.format("delta").mode("append").saveAsTable(name)
        assert DeltaTable.forName(fresh, name).history(1).collect()[0]["operation"] == "WRITE"
        assert fresh.catalog.getTable(name).tableType == "MANAGED"
        assert [table.name for table in fresh.catalog.listTables(f"spark_catalog.{database}")] == ["t"]
        fresh.sql(f"DELETE FROM {name} WHERE a > 1")
        assert rows(fresh.table(name)) == rows(fresh.sql(f"SELECT * FROM {name}")) == [(1,)]
    with pytest.raises(DeltaTableNotFoundException):
        DeltaTable.forName(fresh, f"{database}.t")
    assert fresh.catalog.listTables("APP") == []


@pytest.fixture
def active(installed: SparkSession, fresh: Any) -> Iterator[Any]:
    """The other session as the active one, in which Spark looks for a writer's source; this call makes it that."""
    fresh.createDataFrame([(1,)], "a INT")
    yield fresh
    installed.createDataFrame([(1,)], "a INT")


def test_tables_of_another_catalog_are_not_of_the_default_source(active: Any, database: str, tmp_path: Path) -> None:
    spark = active
    use_another_catalog(spark, tmp_path)
    spark.conf.set("spark.sql.sources.default", "delta")
    frame, path = spark.sql("SELECT 1 AS a"), str(tmp_path / "t")
    frame.writeTo("other.APP.made").create()
    frame.write.mode("append").saveAsTable("other.APP.made")
    assert rows(spark.table("other.APP.made")) == [(1,), (1,)]
    # Spark gives the source's name to the catalog, and this one takes none.
    with pytest.raises(AnalysisException, match="NOT_SUPPORTED_IN_JDBC_CATALOG"):
        frame.write.saveAsTable("other.APP.saved")
    spark.sql("USE other")
    frame.writeTo("APP.made_too").create()
    assert rows(spark.table("other.APP.made_too")) == [(1,)]
    frame.writeTo(f"delta.`{path}`").create()
    frame.writeTo(f"spark_catalog.{database}.made").create()
    assert DeltaTable.isDeltaTable(spark, path)
    assert DeltaTable.forName(spark, f"spark_catalog.{database}.made").history(1).count() == 1


@pytest.mark.skipif(not hasattr(Catalog, "dropTable"), reason="PySpark 4.2 added the calls")
def test_calls_since_4_2(installed: SparkSession, database: str, fresh: Any, tmp_path: Path) -> None:
    name, path, catalog = f"{database}.t", str(tmp_path / "t"), fresh.catalog
    installed.sql(f"CREATE TABLE t (id INT, p STRING, q INT) USING delta PARTITIONED BY (p, q) LOCATION '{path}'")
    installed.sql("INSERT INTO t VALUES (1, 'a/b', 1), (2, NULL, 2)")
    installed.sql("ALTER TABLE t SET TBLPROPERTIES ('of' = 'orders')")
    for named in (name, f"delta.`{path}`"):
        assert catalog.getTableProperties(named)["of"] == "orders"
        found = sorted(each.partition for each in catalog.listPartitions(named))
        assert found == ["p=__HIVE_DEFAULT_PARTITION__/q=2", "p=a%2Fb/q=1"]
    assert "id INT" in catalog.getCreateTableString(name)
    with pytest.raises(AnalysisException, match="NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"):
        catalog.analyzeTable(name)
    catalog.truncateTable(name)
    assert rows(fresh.table(name)) == []
    catalog.dropTable(name)
    catalog.dropTable(name, ifExists=True)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        catalog.dropTable(name)
    assert catalog.tableExists(f"delta.`{path}`")
    installed.sql("CREATE TABLE t USING delta AS SELECT 1 AS a")
    catalog.dropTable(name, purge=True)
    assert not catalog.tableExists(name)
    folder = Path(installed.catalog.getDatabase(database).locationUri.removeprefix("file:")) / "t"
    installed.range(1).write.format("delta").save(str(folder))
    catalog.dropTable(name)
    assert not DeltaTable.isDeltaTable(fresh, str(folder))


@pytest.mark.skipif(not hasattr(Catalog, "dropTable"), reason="PySpark 4.2 added the calls")
def test_calls_since_4_2_of_other_tables(installed: SparkSession, database: str) -> None:
    catalog: Any = installed.catalog
    made = "CREATE TABLE plain USING parquet PARTITIONED BY (p) TBLPROPERTIES (of = 'x')"
    installed.sql(f"{made} AS SELECT 1 AS a, 2 AS p")
    assert catalog.getTableProperties("plain")["of"] == "x"
    assert [each.partition for each in catalog.listPartitions("plain")] == ["p=2"]
    catalog.analyzeTable("plain")
    catalog.truncateTable("plain")
    assert rows(installed.table("plain")) == []
    catalog.dropTable("plain")
    assert not catalog.tableExists("plain")


def test_a_database_whose_name_begins_with_a_digit(installed: SparkSession, database: str, tmp_path: Path) -> None:
    name = f"2024_{database}"
    installed.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path}/d'")
    try:
        installed.sql(f"USE {name}")
        installed.sql("CREATE TABLE t (id BIGINT) USING delta")
        installed.sql("INSERT INTO t VALUES (1)")
        assert DeltaTable.forName(installed, "t").toDF().count() == 1
        assert [table.name for table in installed.catalog.listTables() if not table.isTemporary] == ["t"]
        with pytest.raises(AnalysisException):
            installed.sql(f"DELETE FROM spark_catalog.other.{name}.t")
    finally:
        installed.sql(f"USE {database}")
        installed.sql(f"DROP DATABASE {name} CASCADE")
