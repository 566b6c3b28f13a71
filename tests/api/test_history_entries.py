"""What the history says of tables that are made and written, as delta-spark 4.4.0's does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import deltamerge
from deltamerge import DeltaTable
from deltamerge.api.register import register_source
from deltamerge.api.save_frame import Save, save_as_table, save_to_path
from deltamerge.api.statements.tables import Tables
from deltamerge.exceptions import DeltaAnalysisException
from merge.tables import commit_info

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def names(spark: SparkSession) -> Iterator[None]:
    register_source(spark)
    yield
    for name in ("history_made", "history_placed", "history_clone"):
        deltamerge.sql(spark, f"DROP TABLE IF EXISTS {name}")


def last(table: DeltaTable) -> dict[str, Any]:
    return table.history(1).collect()[0].asDict()


def test_json_without_blanks(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    deltamerge.sql(
        spark,
        f"CREATE TABLE delta.`{path}` (a INT, p INT, q INT) USING delta PARTITIONED BY (p, q) "
        "TBLPROPERTIES ('one' = '1', 'zwei' = 'ß')",
    )
    parameters = commit_info(path, 0)["operationParameters"]
    assert (parameters["partitionBy"], parameters["properties"]) == ('["p","q"]', '{"one":"1","zwei":"ß"}')
    rows = spark.createDataFrame([(1, 2, 3)], "a INT, p INT, q INT")
    deltamerge.write_delta(rows, path, "overwrite", ["p", "q"])
    assert commit_info(path, 1)["operationParameters"]["partitionBy"] == '["p","q"]'
    rows.write.partitionBy("p", "q").parquet(str(tmp_path / "files"))
    DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path}/files`", "p INT, q INT")
    assert commit_info(str(tmp_path / "files"), 0)["operationParameters"]["partitionedBy"] == '["p","q"]'


@pytest.mark.sessions
@pytest.mark.usefixtures("names")
def test_managed_tables(spark: SparkSession, tmp_path: Path) -> None:
    made = DeltaTable.create(spark).tableName("history_made").addColumn("id", "INT").execute()
    assert last(made)["operationParameters"]["isManaged"] == "true"
    for statement in ("REPLACE TABLE history_made (id INT)", "CREATE OR REPLACE TABLE default.history_made (id INT)"):
        deltamerge.sql(spark, f"{statement} USING delta")
        assert last(made)["operationParameters"]["isManaged"] == "true"
    placed = f"history_placed USING delta LOCATION '{tmp_path}/placed' AS SELECT 1 AS id"
    deltamerge.sql(spark, f"CREATE TABLE {placed}")
    table = DeltaTable.forName(spark, "history_placed")
    assert last(table)["operationParameters"]["isManaged"] == "false"
    deltamerge.sql(spark, "CREATE OR REPLACE TABLE history_placed USING delta AS SELECT 2 AS id")
    assert last(table)["operationParameters"]["isManaged"] == "false"
    at_path = DeltaTable.create(spark).location(f"{tmp_path}/path").addColumn("id", "INT").execute()
    assert last(at_path)["operationParameters"]["isManaged"] == "false"


def test_a_write_says_what_it_may_change(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = spark.createDataFrame([(1, 2)], "id INT, p INT")
    deltamerge.write_delta(rows, path)
    merges = {"mergeschema": "true"}
    save_to_path(rows, path, Save(mode="append", options=merges))
    save_to_path(rows, path, Save(mode="overwrite", options={"overwriteschema": "true"}, partition_by=("p",)))
    save_to_path(rows, path, Save(mode="overwrite", options={**merges, "replacewhere": "id = 1"}))
    assert [commit_info(path, version)["operationParameters"] for version in range(4)] == [
        {"mode": "ErrorIfExists", "partitionBy": "[]"},
        {"mode": "Append", "partitionBy": "[]", "canMergeSchema": True},
        {"mode": "Overwrite", "partitionBy": '["p"]', "canOverwriteSchema": True},
        {"mode": "Overwrite", "partitionBy": "[]", "predicate": "id = 1", "canMergeSchema": True},
    ]


@pytest.mark.usefixtures("names")
def test_an_overwrite_by_name(spark: SparkSession) -> None:
    """As delta-spark's Spark has it: what replaces rows by name replaces the table, though it stays the same one."""
    name, rows = "history_made", spark.createDataFrame([(1, 2)], "id INT, p INT")
    save_as_table(rows, name, Save(partition_by=("p",), properties={"own": "1"}))
    made = DeltaTable.forName(spark, name)
    before = made.detail().collect()[0]["id"]
    overwrite = {"isManaged": "true", "description": None, "clusterBy": "[]", "isV1SaveAsTableOverwrite": "true"}
    save_as_table(rows, name, Save(mode="overwrite"))
    assert last(made)["operation"] == "CREATE OR REPLACE TABLE AS SELECT"
    assert last(made)["operationParameters"] == {**overwrite, "partitionBy": '["p"]', "properties": "{}"}
    save_as_table(rows, name, Save(mode="overwrite", options={"overwriteschema": "true"}))
    changed = {"partitionBy": "[]", "properties": "{}", "canOverwriteSchema": "true"}
    assert last(made)["operationParameters"] == {**overwrite, **changed}
    save_as_table(rows, name, Save(mode="overwrite", options={"replacewhere": "id = 1"}))
    assert last(made)["operation"] == "WRITE"
    assert made.detail().collect()[0]["id"] == before


@pytest.mark.usefixtures("names")
def test_an_overwrite_by_name_of_a_table_that_is_not_there(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, rows = "history_made", spark.createDataFrame([(1, 2)], "id INT, p INT")
    with pytest.raises(DeltaAnalysisException, match="Attempted operation: 'Create a Delta table'"):
        save_as_table(rows, name, Save(mode="overwrite", options={"datachange": "false"}))
    save_as_table(rows, name, Save(mode="overwrite", options={"overwriteschema": "true"}))
    made = DeltaTable.forName(spark, name)
    said = {"isManaged": "true", "description": None, "clusterBy": "[]", "partitionBy": "[]", "properties": "{}"}
    said |= {"isV1SaveAsTableOverwrite": "true"}
    assert last(made)["operation"] == "CREATE OR REPLACE TABLE AS SELECT"
    assert last(made)["operationParameters"] == {**said, "canOverwriteSchema": "true"}
    # As where another session makes the table after it was looked up.
    monkeypatch.setattr(Tables, "called", lambda _, __: None)
    save_as_table(rows.selectExpr("id + 1 AS id"), name, Save(mode="overwrite"))
    assert (last(made)["version"], last(made)["operationParameters"]) == (1, said)
    assert [tuple(row) for row in DeltaTable.forName(spark, name).toDF().collect()] == [(2,)]


@pytest.mark.usefixtures("names")
def test_a_clone_of_a_named_table(spark: SparkSession, tmp_path: Path) -> None:
    made = DeltaTable.create(spark).tableName("history_made").addColumn("id", "INT").execute()
    deltamerge.sql(spark, "CREATE TABLE history_clone SHALLOW CLONE history_made")
    for clone in (DeltaTable.forName(spark, "history_clone"), made.clone(str(tmp_path / "clone"), isShallow=True)):
        assert last(clone)["operationParameters"]["source"] == "spark_catalog.default.history_made"


def test_the_version_before_a_copied_table(spark: SparkSession, tmp_path: Path) -> None:
    """As delta-spark, which says null for other new tables."""
    spark.range(3).write.parquet(str(tmp_path / "files"))
    converted = DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path}/files`")
    clone = converted.clone(str(tmp_path / "clone"), isShallow=True)
    assert (last(converted)["readVersion"], last(clone)["readVersion"]) == (-1, -1)
    deltamerge.write_delta(spark.range(3), str(tmp_path / "rows"))
    assert last(DeltaTable.forPath(spark, str(tmp_path / "rows")))["readVersion"] is None
