"""Statements and writes that name another place or definition than the table has that is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import deltamerge
from deltamerge import DeltaTable, write_delta
from deltamerge.api import new_tables
from deltamerge.api.register import register_source
from deltamerge.api.save_frame import Save, save_as_table, save_to_path
from deltamerge.exceptions import (
    CommitStateUnknownException,
    DeltaAnalysisException,
    DeltaError,
    DeltaIllegalArgumentException,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions


@pytest.fixture
def name(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """A name of the catalog, dropped afterwards."""
    register_source(spark)
    found = f"place_{abs(hash(request.node.name))}"
    yield found
    deltamerge.sql(spark, f"DROP TABLE IF EXISTS {found}")


def columns(spark: SparkSession, path: Path) -> list[str]:
    return DeltaTable.forPath(spark, str(path)).toDF().columns


@pytest.mark.parametrize("how", ["writer", "rows", "builder", "clone"])
def test_a_relative_location(
    spark: SparkSession, tmp_path: Path, name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the one of `save`, below the working directory, and not one below the database's folder, too."""
    monkeypatch.chdir(tmp_path)
    rows = spark.range(2)
    if how == "writer":
        for _ in range(2):
            save_as_table(rows, name, Save("delta", "append", options={"path": "data/t"}))
    elif how == "rows":
        deltamerge.sql(spark, f"CREATE TABLE {name} USING delta LOCATION 'data/t' AS SELECT id FROM range(4)")
    elif how == "clone":
        write_delta(spark.range(4), str(tmp_path / "of"))
        deltamerge.sql(spark, f"CREATE TABLE {name} SHALLOW CLONE delta.`{tmp_path}/of` LOCATION 'data/t'")
    else:
        DeltaTable.create(spark).tableName(name).location("data/t").addColumn("id", "BIGINT").execute()
        write_delta(spark.range(4), "data/t", "append")
    found = DeltaTable.forName(spark, name)
    assert found.toDF().count() == 4
    assert found.detail().collect()[0]["location"].removeprefix("file:") == f"{tmp_path}/data/t"
    save_as_table(rows, name, Save("delta", "overwrite", options={"path": "data/t"}))
    assert DeltaTable.forPath(spark, str(tmp_path / "data/t")).toDF().count() == 2


@pytest.mark.parametrize("how", ["columns", "rows", "builder", "writer"])
def test_another_location(spark: SparkSession, tmp_path: Path, name: str, how: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    deltamerge.sql(spark, f"CREATE TABLE {name} USING delta LOCATION '{old}' AS SELECT 1 AS id")

    def replace(place: Path | str) -> None:
        made = f"CREATE OR REPLACE TABLE {name}"
        if how == "columns":
            deltamerge.sql(spark, f"{made} (x INT) USING delta LOCATION '{place}'")
        elif how == "rows":
            deltamerge.sql(spark, f"{made} USING delta LOCATION '{place}' AS SELECT 2 AS x")
        elif how == "builder":
            DeltaTable.createOrReplace(spark).tableName(name).location(str(place)).addColumn("x", "INT").execute()
        else:
            options = {"path": str(place), "overwriteschema": "true"}
            save_as_table(spark.sql("SELECT 2 AS x"), name, Save("delta", "overwrite", options=options))

    with pytest.raises(DeltaAnalysisException) as caught:
        replace(new)
    assert (caught.value.getCondition(), caught.value.getSqlState()) == ("DELTA_TABLE_LOCATION_MISMATCH", "42613")
    assert (columns(spark, old), new.exists()) == (["id"], False)
    deltamerge.sql(spark, f"CREATE TABLE IF NOT EXISTS {name} (x INT) USING delta LOCATION '{new}'")
    assert not new.exists()
    replace(f"{old}/")
    assert columns(spark, old) == ["x"]


@pytest.mark.parametrize(
    ("definition", "condition"),
    [
        ("(id BIGINT, p INT) USING delta PARTITIONED BY (id)", "WITH_DIFFERENT_PARTITIONING"),
        ("(id BIGINT, p INT) USING delta", "WITH_DIFFERENT_PARTITIONING"),
        ("(id BIGINT, p INT) USING delta CLUSTER BY (id)", "WITH_DIFFERENT_PARTITIONING"),
        ("USING delta PARTITIONED BY (p)", "WITH_DIFFERENT_PARTITIONING"),
        ("USING delta TBLPROPERTIES ('delta.appendOnly' = 'false')", "WITH_DIFFERENT_PROPERTY"),
        ("(id BIGINT NOT NULL, p INT) USING delta PARTITIONED BY (p)", "SCHEME_MISMATCH"),
        ("(id BIGINT COMMENT 'x', p INT) USING delta PARTITIONED BY (p)", "SCHEME_MISMATCH"),
    ],
)
def test_another_definition(spark: SparkSession, tmp_path: Path, name: str, definition: str, condition: str) -> None:
    rows = spark.sql("SELECT 1L AS id, 2 AS p")
    write_delta(rows, str(tmp_path / "t"), partition_by="p", properties={"delta.appendOnly": "true"})
    with pytest.raises(DeltaAnalysisException) as caught:
        deltamerge.sql(spark, f"CREATE TABLE {name} {definition} LOCATION '{tmp_path}/t'")
    assert (caught.value.getCondition(), caught.value.getSqlState()) == (f"DELTA_CREATE_TABLE_{condition}", "42KD7")
    assert not spark.catalog.tableExists(name)


def test_the_same_definition(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path, rows = str(tmp_path / "t"), spark.sql("SELECT 1L AS id, 2 AS p")
    mapped = {"delta.appendOnly": "true", "delta.columnMapping.mode": "name"}
    write_delta(rows, path, partition_by="p", properties=mapped)
    properties = "'delta.appendonly' = 'true', 'delta.columnMapping.mode' = 'name'"
    definition = f"(id BIGINT, p INT) USING delta PARTITIONED BY (p) TBLPROPERTIES ({properties})"
    deltamerge.sql(spark, f"CREATE TABLE {name} {definition} COMMENT 'other' LOCATION '{path}'")
    assert deltamerge.sql(spark, f"SELECT * FROM {name}").count() == 1


def test_a_clone_that_fails_leaves_no_entry(spark: SparkSession, tmp_path: Path, name: str) -> None:
    write_delta(spark.range(1), str(tmp_path / "source"))
    write_delta(spark.range(2), str(tmp_path / "other"))
    clone = f"CREATE TABLE {name} SHALLOW CLONE delta.`{tmp_path}/source`"
    with pytest.raises(DeltaAnalysisException, match="DELTA_PATH_EXISTS"):
        deltamerge.sql(spark, f"{clone} LOCATION '{tmp_path}/other'")
    assert not spark.catalog.tableExists(name)
    assert DeltaTable.forPath(spark, str(tmp_path / "other")).toDF().count() == 2


@pytest.mark.parametrize(
    ("key", "value", "condition"),
    [
        ("delta.deletedFileRetentionDuration", "oops", "DELTA_INVALID_INTERVAL"),
        ("delta.nosuch", "1", "DELTA_UNKNOWN_CONFIGURATION"),
    ],
)
def test_properties_of_a_clone(spark: SparkSession, tmp_path: Path, key: str, value: str, condition: str) -> None:
    write_delta(spark.range(1), str(tmp_path / "source"))
    source, clone = DeltaTable.forPath(spark, str(tmp_path / "source")), str(tmp_path / "clone")
    with pytest.raises(DeltaError, match=condition):
        source.clone(clone, isShallow=True, properties={key: value})
    assert not (tmp_path / "clone").exists()
    cloned = source.clone(clone, isShallow=True, properties={"delta.appendonly": "true"})
    with pytest.raises(DeltaError, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
        cloned.delete()


def test_an_overwritten_schema_has_the_partitions_that_are_named(spark: SparkSession, tmp_path: Path) -> None:
    path, rows = str(tmp_path / "t"), spark.sql("SELECT 1L AS id, 2 AS p")
    save_to_path(rows, path, Save("delta", partition_by=("p",)))
    anew = Save("delta", "overwrite", options={"overwriteschema": "true"})

    def partitions() -> list[str]:
        return list(DeltaTable.forPath(spark, path).detail().collect()[0].partitionColumns)

    save_to_path(rows, path, Save("delta", "overwrite"))
    assert partitions() == ["p"]
    save_to_path(rows.select("id"), path, anew)
    assert partitions() == []
    save_to_path(rows, path, Save("delta", "overwrite", partition_by=("p",), options=anew.options))
    assert partitions() == ["p"]
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)
    assert partitions() == []


def test_properties_are_those_of_a_new_table(spark: SparkSession, tmp_path: Path) -> None:
    path, append_only = str(tmp_path / "t"), {"delta.appendOnly": "true"}
    save_to_path(spark.range(1), path, Save("delta", properties={"delta.checkpointInterval": "3"}))
    for options in ({}, {"overwriteschema": "true"}):
        save_to_path(spark.range(2), path, Save("delta", "overwrite", options=options, properties=append_only))
    properties = DeltaTable.forPath(spark, path).detail().collect()[0].properties
    assert properties == {"delta.checkpointInterval": "3"}


def test_clustering_columns_of_a_table_that_is_there(spark: SparkSession, tmp_path: Path, name: str) -> None:
    deltamerge.sql(spark, f"CREATE TABLE {name} (a INT, b INT) USING delta CLUSTER BY (b) LOCATION '{tmp_path}/t'")
    rows = spark.sql("SELECT 1 AS a, 2 AS b")
    for mode in ("append", "overwrite"):
        with pytest.raises(DeltaIllegalArgumentException, match="DELTA_CLUSTERING_COLUMNS_MISMATCH"):
            save_as_table(rows, name, Save("delta", mode, cluster_by=(("a",),)))
        save_as_table(rows, name, Save("delta", mode, cluster_by=(("B",),)))
    assert DeltaTable.forName(spark, name).detail().collect()[0].clusteringColumns == ["b"]


@pytest.mark.parametrize("error", [CommitStateUnknownException, OSError])
def test_an_entry_stays_where_the_table_may_be_there(
    spark: SparkSession, name: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A managed table's folder goes with its entry, and with it the files of a commit that may have landed."""

    def lost(*_: object, **__: object) -> None:
        raise error("DELTA_UNKNOWN", "no answer") if error is CommitStateUnknownException else error("no answer")

    monkeypatch.setattr(new_tables, "create_table", lost)
    with pytest.raises(error, match="no answer"):
        deltamerge.sql(spark, f"CREATE TABLE {name} USING delta AS SELECT 1 AS id")
    assert spark.catalog.tableExists(name) == (error is CommitStateUnknownException)


def test_an_entry_that_cannot_be_taken_out_hides_no_error(
    spark: SparkSession, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreachable(_: object) -> bool:
        raise OSError("no answer")

    def lost(*_: object, **__: object) -> None:
        monkeypatch.setattr(new_tables, "table_exists", unreachable)
        raise OSError("no space")

    monkeypatch.setattr(new_tables, "create_table", lost)
    with pytest.raises(OSError, match="no space"):
        deltamerge.sql(spark, f"CREATE TABLE {name} USING delta AS SELECT 1 AS id")
    assert "stays in the catalog" in caplog.text


@pytest.mark.parametrize("how", ["statement", "writer"])
def test_a_query_for_a_location_with_a_table(spark: SparkSession, tmp_path: Path, name: str, how: str) -> None:
    path = tmp_path / "t"
    write_delta(spark.range(3), str(path))
    with pytest.raises(DeltaAnalysisException, match=r"DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION.*has a table"):
        if how == "statement":
            made = f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{path}' AS SELECT 'a' AS other"
            deltamerge.sql(spark, made)
        else:
            save_as_table(spark.range(9), name, Save("delta", "ignore", options={"path": str(path)}))
    assert not spark.catalog.tableExists(name)
    assert DeltaTable.forPath(spark, str(path)).toDF().count() == 3
