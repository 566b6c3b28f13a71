"""Names of new tables, and what a failed CREATE leaves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

import deltamerge
from deltamerge import write_delta
from deltamerge.api import new_tables
from deltamerge.api.new_tables import Place, create, find_place
from deltamerge.exceptions import DeltaAnalysisException, DeltaTableNotFoundException
from deltamerge.spark.catalog import delta_location, table_location, warehouse_location
from deltamerge.sql.statements.ast import TableName
from deltamerge.storage.store import open_store
from deltamerge.write.definition import TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("is_there", [False, True])
def test_a_failed_create_leaves_the_table_of_another_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    statements: list[str] = []
    store = open_store(str(tmp_path))

    def failing(*_: Any, **__: Any) -> None:
        if is_there:
            store.put("_delta_log/00000000000000000000.json", b"{}")
        raise RuntimeError("another was first")

    monkeypatch.setattr(new_tables, "_record", lambda *_, **__: True)
    monkeypatch.setattr(new_tables, "create_table", failing)
    monkeypatch.setattr(new_tables, "auto_compaction", lambda _: None)
    table: Any = SimpleNamespace(store=store, spark=SimpleNamespace(sql=statements.append))
    with pytest.raises(RuntimeError, match="another was first"):
        create(Place(table, ("db", "t")), TableDefinition(StructType()), "create")
    assert statements == ([] if is_there else ["DROP TABLE IF EXISTS `db`.`t`"])


@pytest.mark.sessions
def test_a_table_of_another_catalog_is_not_the_warehouses(spark: SparkSession) -> None:
    location = warehouse_location(spark, "catalog_names")
    write_delta(spark.range(3), location)
    try:
        assert delta_location(spark, ("SPARK_CATALOG", "default", "catalog_names")) == location
        assert delta_location(spark, ("lake", "default", "catalog_names")) is None
        with pytest.raises(DeltaTableNotFoundException, match=r"does not know it as a Delta table\. Open"):
            table_location(spark, "lake.default.catalog_names")
        with pytest.raises(DeltaAnalysisException, match="not a Delta table of the session's catalog"):
            find_place(spark, TableName(("lake", "default", "catalog_names")), None)
        with pytest.raises(Exception, match="lake"):
            deltamerge.sql(spark, "DROP TABLE lake.default.catalog_names")
        assert deltamerge.sql(spark, "SELECT * FROM catalog_names").count() == 3
    finally:
        deltamerge.sql(spark, "DROP TABLE IF EXISTS catalog_names")
    assert delta_location(spark, ("catalog_names",)) is None
    assert delta_location(spark, ("no_such_database", "t")) is None
    assert delta_location(spark, ("parquet", "/no/such/path")) is None


@pytest.mark.sessions
def test_a_table_of_a_database_with_a_location(spark: SparkSession, tmp_path: Path) -> None:
    deltamerge.sql(spark, f"CREATE DATABASE placed LOCATION '{tmp_path}/else where'")
    try:
        deltamerge.sql(spark, "CREATE TABLE placed.T USING delta AS SELECT 1 AS id")
        assert (tmp_path / "else where" / "t" / "_delta_log").is_dir()
        assert deltamerge.sql(spark, "SELECT * FROM placed.t").count() == 1
        assert warehouse_location(spark, "no_such_database.t").endswith("/no_such_database.db/t")
        deltamerge.sql(spark, "DROP TABLE placed.t")
    finally:
        spark.sql("DROP DATABASE placed CASCADE")


@pytest.mark.parametrize(
    ("column", "named"),
    [
        ("a ARRAY<STRUCT<x: INT NOT NULL>>", "element type of the field a"),
        ("s STRUCT<m: MAP<STRING, STRUCT<x: INT NOT NULL>>>", "value type of the field s.m"),
    ],
)
def test_not_null_that_nothing_enforces(spark: SparkSession, tmp_path: Path, column: str, named: str) -> None:
    table = f"delta.`{tmp_path / 't'}`"
    with pytest.raises(DeltaAnalysisException, match=named) as caught:
        deltamerge.sql(spark, f"CREATE TABLE {table} (b INT, {column}) USING delta")
    assert caught.value.getCondition() == "DELTA_NESTED_NOT_NULL_CONSTRAINT"
    deltamerge.sql(spark, f"CREATE TABLE {table} (b INT, s0 STRUCT<x: INT NOT NULL>, c ARRAY<INT>) USING delta")
    with pytest.raises(DeltaAnalysisException, match=named):
        deltamerge.sql(spark, f"ALTER TABLE {table} ADD COLUMNS ({column})")


def test_statistics_of_a_column_whose_name_has_a_comma(spark: SparkSession, tmp_path: Path) -> None:
    table = f"delta.`{tmp_path / 't'}`"
    properties = "'delta.columnMapping.mode' = 'name', 'delta.dataSkippingStatsColumns' = '`x,y`,id'"
    deltamerge.sql(spark, f"CREATE TABLE {table} (id INT, `x,y` INT) USING delta TBLPROPERTIES ({properties})")
    deltamerge.sql(spark, f"ALTER TABLE {table} RENAME COLUMN id TO key")
    found = deltamerge.sql(spark, f"SHOW TBLPROPERTIES {table} ('delta.dataSkippingStatsColumns')").collect()
    assert [row.value for row in found] == ["`x,y`,key"]
