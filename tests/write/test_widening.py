"""Writes that widen a table's columns, as schema evolution of a merge does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deltamerge
from deltamerge import DeltaTable
from deltamerge.api.register import register_source
from deltamerge.api.save_frame import Save, save_to_path
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BIG = 2**40
WIDENS = "'delta.enableTypeWidening' = 'true'"


def made(spark: SparkSession, path: Path, properties: str = WIDENS) -> None:
    columns = "a INT, s STRUCT<b: SMALLINT, c: STRING>, l ARRAY<FLOAT>"
    deltamerge.sql(spark, f"CREATE TABLE delta.`{path}` ({columns}) USING delta TBLPROPERTIES ({properties})")
    deltamerge.sql(spark, f"INSERT INTO delta.`{path}` VALUES (1, struct(1, 'x'), array(1))")


def wide(spark: SparkSession) -> DataFrame:
    return spark.sql(f"SELECT {BIG}L AS a, named_struct('b', 70000, 'c', 'y') AS s, array(2D) AS l")


def append(frame: DataFrame, path: Path, how: str) -> None:
    spark = frame.sparkSession
    if how == "mergeSchema":
        save_to_path(frame, str(path), Save("delta", "append", options={"mergeschema": "true"}))
    elif how == "source":
        register_source(spark)
        frame.write.format("delta").mode("append").option("mergeSchema", "true").save(str(path))
    else:
        name = path.name.replace("-", "_")
        frame.createOrReplaceTempView(name)
        deltamerge.sql(spark, f"INSERT WITH SCHEMA EVOLUTION INTO delta.`{path}` SELECT * FROM {name}")


def found(spark: SparkSession, path: Path) -> tuple[str, list[Any]]:
    frame = DeltaTable.forPath(spark, str(path)).toDF()
    return frame.schema.simpleString(), [row.a for row in frame.orderBy("a").collect()]


@pytest.mark.parametrize("how", ["mergeSchema", "source", "sql"])
def test_wider_columns(spark: SparkSession, tmp_path: Path, how: str) -> None:
    path = tmp_path / f"widened_{how}"
    made(spark, path)
    append(wide(spark), path, how)
    wider = "struct<a:bigint,s:struct<b:int,c:string>,l:array<double>>"
    assert found(spark, path) == (wider, [1, BIG])
    schema = load_snapshot(open_store(str(path))).schema
    changes = {".".join(at): field.metadata.get("delta.typeChanges") for at, field in schema.walk()}
    assert changes["a"] == [{"fromType": "integer", "toType": "long"}]
    assert changes["s.b"] == [{"fromType": "short", "toType": "integer"}]
    assert changes["l"] == [{"fromType": "float", "toType": "double", "fieldPath": "element"}]
    # Narrower values go into the wider columns.
    append(wide(spark).selectExpr("2 AS a", "s", "l"), path, how)
    assert found(spark, path) == (wider, [1, 2, BIG])


@pytest.mark.parametrize(
    ("properties", "setting"),
    [("'delta.enableTypeWidening' = 'false'", "always"), (WIDENS, "never")],
)
def test_tables_and_sessions_that_do_not_widen(
    spark: SparkSession, tmp_path: Path, properties: str, setting: str
) -> None:
    made(spark, tmp_path / "t", properties)
    key = "spark.databricks.delta.typeWidening.allowAutomaticWidening"
    spark.conf.set(key, setting)
    try:
        with pytest.raises(DeltaAnalysisException, match=r"DELTA_FAILED_TO_MERGE_FIELDS.*column a is bigint"):
            append(spark.sql("SELECT 5L AS a"), tmp_path / "t", "mergeSchema")
    finally:
        spark.conf.unset(key)
    assert found(spark, tmp_path / "t") == ("struct<a:int,s:struct<b:smallint,c:string>,l:array<float>>", [1])


def test_a_column_that_a_constraint_names(spark: SparkSession, tmp_path: Path) -> None:
    made(spark, tmp_path / "t")
    deltamerge.sql(spark, f"ALTER TABLE delta.`{tmp_path}/t` ADD CONSTRAINT positive CHECK (a > 0)")
    with pytest.raises(DeltaAnalysisException) as caught:
        append(wide(spark), tmp_path / "t", "mergeSchema")
    assert caught.value.getCondition() == "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH"
    assert found(spark, tmp_path / "t")[1] == [1]
