"""Forms of statements and calls that jobs use: first runs, names by variables, queries without an alias."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from deltamerge.exceptions import DeltaParseException
from deltamerge.tables import DeltaTable
from merge.tables import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.sessions, pytest.mark.slow]


def test_a_table_that_the_first_run_makes(installed: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    is_missing = r"DELTA_MISSING_DELTA_TABLE.* is not a Delta table"
    with pytest.raises(AnalysisException, match=is_missing):
        DeltaTable.forPath(installed, path)
    with pytest.raises(AnalysisException, match=is_missing):
        DeltaTable.forName(installed, "no_such_table")
    with pytest.raises(AnalysisException, match=r"DELTA_PATH_DOES_NOT_EXIST.*doesn't exist, or is not a Delta table"):
        installed.read.format("delta").load(path)
    with pytest.raises(AnalysisException, match="Path does not exist"):
        installed.read.format("delta").load(path)
    with pytest.raises(AnalysisException, match="Path does not exist"):
        installed.sql(f"SELECT * FROM delta.`{path}`")
    installed.range(1).write.format("delta").save(path)
    of_versions = "Cannot time travel Delta table to version 999. Available versions: \\[0, 0\\]\\."
    with pytest.raises(AnalysisException, match=of_versions):
        installed.read.format("delta").option("versionAsOf", 999).load(path)


def test_a_folder_that_is_vacuumed_is_a_table(installed: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "files")
    installed.range(1).write.parquet(path)
    only_delta = "DELTA_TABLE_ONLY_OPERATION.*is not a Delta table.*VACUUM is only supported for Delta tables"
    with pytest.raises(AnalysisException, match=only_delta):
        installed.sql(f"VACUUM '{path}'")
    with pytest.raises(AnalysisException, match="DELTA_MISSING_DELTA_TABLE"):
        installed.sql(f"VACUUM delta.`{path}`")


def test_statements_that_only_delta_tables_take(installed: SparkSession, database: str, tmp_path: Path) -> None:
    installed.sql("CREATE TABLE files USING parquet AS SELECT 1 AS id")
    installed.sql("CREATE VIEW of_files AS SELECT * FROM files")
    for operation in ("DESCRIBE HISTORY", "OPTIMIZE", "VACUUM"):
        said = f"DELTA_ONLY_OPERATION.*{operation} is only supported for Delta tables"
        with pytest.raises(AnalysisException, match=said) as caught:
            installed.sql(f"{operation} files")
        assert caught.value.getSqlState() == "0AKDD"
        for name in ("of_files", "nothing"):
            with pytest.raises(AnalysisException, match="DELTA_TABLE_NOT_FOUND"):
                installed.sql(f"{operation} {name}")
    said = "DELTA_TABLE_ONLY_OPERATION.*DESCRIBE HISTORY is only supported for Delta tables"
    with pytest.raises(AnalysisException, match=said):
        installed.sql(f"DESCRIBE HISTORY delta.`{tmp_path / 'nowhere'}`")


def test_streams_of_what_is_no_table(installed: SparkSession, database: str, tmp_path: Path) -> None:
    """A stream is refused as it is loaded, not as it runs."""
    path, reader = str(tmp_path / "t"), installed.readStream.format("delta")
    (tmp_path / "t").mkdir()
    for place in (path, str(tmp_path / "nowhere")):
        with pytest.raises(AnalysisException, match="DELTA_SCHEMA_NOT_SET"):
            reader.load(place)
        with pytest.raises(AnalysisException, match="DELTA_SCHEMA_NOT_SET"):
            installed.readStream.load(place, format="delta", schema="id BIGINT")
    installed.sql("CREATE TABLE empty USING delta")
    with pytest.raises(AnalysisException, match=r"DELTA_SCHEMA_NOT_SET.*has no columns"):
        installed.readStream.table("empty")
    installed.range(1).write.format("delta").save(path)
    assert reader.load(path).isStreaming
    for options in ({"versionAsOf": "0"}, {"timestampAsOf": "2020-01-01"}):
        with pytest.raises(AnalysisException, match="DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"):
            installed.readStream.format("delta").options(**options).load(path)
    with pytest.raises(AnalysisException, match="DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"):
        installed.readStream.format("delta").load(f"{path}@v0")


def test_external_tables(installed: SparkSession, database: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    installed.sql(f"CREATE EXTERNAL TABLE IF NOT EXISTS e (id BIGINT) USING DELTA LOCATION '{path}'")
    installed.sql("INSERT INTO e VALUES (1)")
    assert (path / "_delta_log").is_dir()
    assert rows(DeltaTable.forPath(installed, str(path)).toDF()) == [(1,)]
    copy = f"CREATE EXTERNAL TABLE e2 USING delta CLUSTER BY (id) LOCATION '{tmp_path / 'u'}' AS SELECT * FROM e"
    installed.sql(copy)
    assert rows(installed.table("e2")) == [(1,)]
    with pytest.raises(DeltaParseException, match="needs a LOCATION"):
        installed.sql("CREATE EXTERNAL TABLE e3 (id BIGINT) USING delta")


def test_options_after_a_name(installed: SparkSession, database: str, tmp_path: Path) -> None:
    """``WITH (…)`` after a table's name holds a reader's or a writer's options."""
    installed.sql("CREATE TABLE w (id INT) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    installed.sql("INSERT INTO w VALUES (1)")
    installed.sql("INSERT INTO w VALUES (2)")
    changes = installed.sql("SELECT id, _change_type FROM w WITH ('readChangeFeed' = 'true', startingVersion = 2) c")
    assert rows(changes) == [(2, "insert")]
    assert rows(installed.sql("SELECT w.id FROM w WITH ('versionAsOf' = '1')")) == [(1,)]
    location = DeltaTable.forName(installed, "w").detail().collect()[0]["location"]
    joined = f"SELECT a.id FROM w a JOIN delta.`{location}` WITH (versionAsOf = 1) b ON a.id = b.id"
    assert rows(installed.sql(joined)) == [(1,)]
    with pytest.raises(AnalysisException, match="DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS"):
        installed.sql("SELECT * FROM w VERSION AS OF 1 WITH ('versionAsOf' = '1')")
    installed.sql("INSERT INTO w WITH ('mergeSchema' = 'true') BY NAME SELECT 3 AS id, 'x' AS s")
    assert rows(installed.sql("SELECT s FROM w WHERE id = 3")) == [("x",)]
    with pytest.raises(DeltaParseException, match=r"only option of an INSERT.*df\.write"):
        installed.sql("INSERT INTO w WITH ('txnAppId' = 'a') SELECT 4, 'y'")


def test_a_table_like_one_of_another_format(installed: SparkSession, database: str) -> None:
    installed.sql("CREATE TABLE p (id INT) USING parquet COMMENT 'of parquet' TBLPROPERTIES ('owned.by' = 'me')")
    installed.sql("CREATE TABLE d LIKE p USING delta")
    detail = DeltaTable.forName(installed, "d").detail().collect()[0]
    assert detail["description"] == "of parquet"
    assert detail["properties"]["owned.by"] == "me"


def test_properties_among_the_options(installed: SparkSession, database: str) -> None:
    installed.sql("CREATE TABLE o (id INT) USING delta OPTIONS ('delta.enableChangeDataFeed' = 'true')")
    assert DeltaTable.forName(installed, "o").detail().collect()[0].properties["delta.enableChangeDataFeed"] == "true"


def test_a_database_that_is_called_delta(
    installed: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    installed.sql(f"CREATE DATABASE IF NOT EXISTS delta LOCATION '{tmp_path / 'delta.db'}'")
    try:
        installed.sql("CREATE TABLE delta.departments (id INT, name STRING) USING delta")
        installed.sql("INSERT INTO delta.departments VALUES (1, 'a')")
        installed.sql(
            "MERGE INTO delta.departments t USING (SELECT 1 AS id, 'b' AS name) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET *"
        )
        assert rows(installed.sql("SELECT * FROM delta.departments")) == [(1, "b")]
        assert rows(DeltaTable.forName(installed, "delta.departments").toDF()) == [(1, "b")]
        assert not (tmp_path / "departments").exists()
    finally:
        installed.sql("DROP DATABASE delta CASCADE")


def test_a_query_without_an_alias(installed: SparkSession, database: str) -> None:
    installed.sql("CREATE TABLE t (id INT, v STRING) USING delta")
    installed.sql("INSERT INTO t VALUES (1, 'a')")
    view = f"source_{uuid.uuid4().hex}"
    installed.sql("SELECT 1 AS id, 'b' AS v UNION SELECT 2, 'c'").createOrReplaceTempView(view)
    installed.sql(
        f"MERGE INTO t USING (SELECT * FROM {view}) ON t.id = {view}.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(installed.table("t")) == [(1, "b"), (2, "c")]
    installed.sql(
        f"WITH w AS (SELECT * FROM {view}) MERGE INTO t USING (SELECT id, v FROM w) ON t.id = w.id "
        "WHEN MATCHED AND w.v = 'c' THEN DELETE"
    )
    assert rows(installed.table("t")) == [(1, "b")]


def test_names_that_are_put_together(installed: SparkSession, database: str) -> None:
    named = {"db": database}
    installed.sql("CREATE TABLE IDENTIFIER(:db || '.t') (id INT) USING delta", args=named)
    installed.sql("INSERT INTO IDENTIFIER(concat(:db, '.', 't')) VALUES (1)", args=named)
    installed.sql("DELETE FROM IDENTIFIER(:db || '.' || 't') WHERE id = 2", args=named)
    assert rows(installed.sql("SELECT * FROM IDENTIFIER(:db || '.t')", args=named)) == [(1,)]
    with pytest.raises(DeltaParseException, match=r"a name in quotes"):
        installed.sql("DELETE FROM IDENTIFIER(upper('t'))")


def test_variables_of_the_session(installed: SparkSession, database: str) -> None:
    installed.conf.set("my.db", database)
    installed.conf.set("my.name", "${my.db}.t")
    installed.sql("CREATE TABLE ${my.db}.t (id INT, v STRING) USING delta")
    installed.sql("INSERT INTO ${spark:my.name} VALUES (1, '${my.db}'), (2, '${my.nothing}${system:x}')")
    installed.sql("UPDATE ${hiveconf:my.name} SET id = 3 WHERE id = 1")
    installed.sql("MERGE INTO ${my.name} t USING (SELECT 3 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = 4")
    assert rows(installed.table("t")) == [(2, "${system:x}"), (4, database)]
    installed.conf.unset("my.db")
    installed.conf.unset("my.name")


def test_a_new_table_has_its_name(installed: SparkSession, database: str, tmp_path: Path) -> None:
    people = DeltaTable.createIfNotExists(installed).tableName("people").addColumn("id", "INT").execute()
    source = installed.range(2).withColumn("id", F.col("id").cast("int")).alias("s")
    people.merge(source, "people.id = s.id").whenNotMatchedInsertAll().execute()
    assert people.toDF().count() == 2
    assert people.detail().collect()[0].name.endswith("people")
    at_path = DeltaTable.create(installed).location(str(tmp_path / "t")).addColumn("id", "INT").execute()
    assert at_path.toDF().count() == 0


def test_defaults_in_a_query(installed: SparkSession, database: str) -> None:
    features = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    installed.sql(f"CREATE TABLE d (id BIGINT, v STRING DEFAULT 'none', n INT DEFAULT 7) USING delta {features}")
    installed.sql("INSERT INTO d (n, v, id) SELECT DEFAULT, DEFAULT, id FROM range(1)")
    installed.sql("INSERT INTO d SELECT 1, DEFAULT, 2")
    installed.sql("INSERT INTO d SELECT id, default, 3 FROM (SELECT 2 AS id, 'x' AS default)")
    assert rows(installed.table("d")) == [(0, "none", 7), (1, "none", 2), (2, "x", 3)]


def test_calls_of_the_catalog(installed: SparkSession, database: str) -> None:
    installed.sql("CREATE TABLE c (id INT, v STRING) USING delta")
    catalog = installed.catalog
    catalog.refreshTable("c")
    assert [column.name for column in catalog.listColumns("c")] == ["id", "v"]
    assert catalog.getTable("c").name == "c"


@pytest.mark.parametrize("source", ["delta", "parquet"])
def test_parameters_that_are_columns(installed: SparkSession, database: str, source: str) -> None:
    installed.sql(f"CREATE TABLE p (a ARRAY<INT>, m MAP<STRING, INT>) USING {source}")
    values = {"a": F.array(F.lit(1), F.lit(2)), "m": F.create_map(F.lit("k"), F.lit(1))}
    installed.sql("INSERT INTO p VALUES (:a, :m)", args=values)
    installed.sql("INSERT INTO p SELECT a, :m FROM {before}", args=values, before=installed.table("p"))
    assert installed.table("p").collect() == [([1, 2], {"k": 1})] * 2


def test_functions_whose_body_reads_a_table(installed: SparkSession, database: str) -> None:
    installed.sql("CREATE TABLE t USING delta AS SELECT id FROM range(3)")
    for function, query, kind in (
        ("one_value", "SELECT one_value()", "TEMPORARY FUNCTION one_value() RETURNS BIGINT"),
        ("stored_value", "SELECT stored_value()", "FUNCTION stored_value() RETURNS BIGINT"),
        ("some_rows", "SELECT max(n) FROM some_rows()", "FUNCTION IF NOT EXISTS some_rows() RETURNS TABLE (n BIGINT)"),
    ):
        body = "SELECT id FROM t" if "TABLE" in kind else "(SELECT max(id) FROM t)"
        installed.sql(f"CREATE {kind} RETURN {body}")
        before = installed.sql(query).collect()[0][0]
        installed.sql("INSERT INTO t SELECT max(id) + 1 FROM t")
        assert (function, installed.sql(query).collect()[0][0]) == (function, before + 1)
    installed.sql("DROP TEMPORARY FUNCTION one_value")
