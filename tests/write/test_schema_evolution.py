"""What new columns keep of the rows that bring them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import ArrayType, IntegerType, LongType, NullType, StructField, StructType

from deltamerge import DeltaTable, sql, write_delta
from deltamerge.api.save_frame import Save, save_to_path
from deltamerge.write.frame_rows import new_schema
from deltamerge.write.schema_evolution import evolved_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMITED = "__CHAR_VARCHAR_TYPE_STRING"


def logged(spark: SparkSession, path: str) -> dict[str, Any]:
    """The fields of a table's schema in its log, by their names."""
    schema = DeltaTable.forPath(spark, path).table.snapshot().schema
    return {".".join(names): dict(field.metadata) for names, field in schema.walk()}


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "source")
    columns = (
        "id INT, v VARCHAR(5) COMMENT 'short', c CHAR(4), s STRUCT<a: INT COMMENT 'inner', b: INT> COMMENT 'outer', "
        "n INT NOT NULL, g INT GENERATED ALWAYS AS (id + 1), d INT DEFAULT 7"
    )
    properties = "'delta.columnMapping.mode' = 'name', 'delta.feature.allowColumnDefaults' = 'supported'"
    sql(spark, f"CREATE TABLE delta.`{path}` ({columns}) USING delta TBLPROPERTIES ({properties})")
    given = "1 AS id, 'ab' AS v, 'x' AS c, named_struct('a', 1, 'b', 2) AS s, 3 AS n"
    write_delta(spark.sql(f"SELECT {given}"), path, mode="append")
    return path


@pytest.mark.parametrize("how", ["merge", "append", "insert"])
def test_new_columns_keep_their_comments_and_limits(spark: SparkSession, tmp_path: Path, source: str, how: str) -> None:
    path, auto_merge = str(tmp_path / "t"), "spark.databricks.delta.schema.autoMerge.enabled"
    sql(spark, f"CREATE TABLE delta.`{path}` (id INT) USING delta")
    if how == "merge":
        merge = f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` t USING delta.`{source}` s ON t.id = s.id"
        sql(spark, f"{merge} WHEN NOT MATCHED THEN INSERT *")
    elif how == "append":
        rows = DeltaTable.forPath(spark, source).toDF()
        save_to_path(rows, path, Save(mode="append", options={"mergeschema": "true"}))
    else:
        spark.conf.set(auto_merge, "true")
        try:
            sql(spark, f"INSERT INTO delta.`{path}` BY NAME SELECT * FROM delta.`{source}`")
        finally:
            spark.conf.unset(auto_merge)
    assert logged(spark, path) == {
        "id": {},
        "v": {"comment": "short", LIMITED: "varchar(5)"},
        "c": {LIMITED: "char(4)"},
        "s": {"comment": "outer"},
        "s.a": {"comment": "inner"},
        "s.b": {},
        "n": {},
        "g": {},
        "d": {},
    }
    (row,) = DeltaTable.forPath(spark, path).toDF().collect()
    assert (row.v, row.c, row.s.a, row.n, row.g, row.d) == ("ab", "x   ", 1, 3, 2, 7)


def test_the_limit_of_a_new_column_holds_in_the_merge_that_adds_it(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(1), path)
    long = spark.sql("SELECT 5L AS id, 'abcd' AS v")
    given = long.withMetadata("v", {LIMITED: "varchar(3)"})
    merge = DeltaTable.forPath(spark, path).alias("t").merge(given.alias("s"), "t.id = s.id").withSchemaEvolution()
    with pytest.raises(Exception, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
        merge.whenNotMatchedInsertAll().execute()
    assert DeltaTable.forPath(spark, path).toDF().columns == ["id"]


def test_fields_of_new_columns_keep_their_comments_and_nothing_of_their_table() -> None:
    of_table = {
        "delta.columnMapping.id": 3,
        "deltamerge.location": "/other",
        "CURRENT_DEFAULT": "1",
        "EXISTS_DEFAULT": "1",
        "__metadata_col": "true",
    }
    inner = StructType([StructField("a", IntegerType(), False, {"comment": "inner", **of_table})])
    given = StructType([StructField("s", ArrayType(inner, False), False, {"comment": "outer", **of_table})])
    kept = StructType([StructField("a", IntegerType(), True, {"comment": "inner"})])
    expected = StructType([StructField("s", ArrayType(kept, True), True, {"comment": "outer"})])
    found = evolved_schema(StructType([]), given, [("s",)], case_sensitive=False)
    assert found.json() == expected.json()


def test_a_new_table_has_nothing_of_another_one() -> None:
    changes = [{"fromType": "integer", "toType": "long"}]
    of_table = {"delta.typeChanges": changes, "delta.columnMapping.id": 3, "parquet.field.id": 3}
    inner = StructType([StructField("a", LongType(), False, {"comment": "inner", "ours": 1, **of_table})])
    given = StructType([StructField("s", ArrayType(inner, False), False, {"ours": 2, **of_table})])
    kept = StructType([StructField("a", LongType(), True, {"comment": "inner", "ours": 1})])
    assert new_schema(given) == StructType([StructField("s", ArrayType(kept), True, {"ours": 2})])


def test_a_column_of_the_source_that_only_has_the_name_of_a_struct() -> None:
    """``SET a.x = s.x`` says nothing of the source's column a."""
    table = StructType([StructField("a", StructType([StructField("x", IntegerType())]))])
    given = StructType([StructField("a", IntegerType()), StructField("x", IntegerType())])
    assert evolved_schema(table, given, [("a", "x")], case_sensitive=False) == table


def test_a_string_is_compared_with_char_as_it_is_padded(spark: SparkSession, source: str) -> None:
    assert DeltaTable.forPath(spark, source).toDF().where("c = 'x'").count() == 1


def test_a_column_without_a_type_gets_one_as_a_new_column_does() -> None:
    of_another_table = {"comment": "inner", "delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "col-x"}
    inner = StructType([StructField("a", IntegerType(), False, of_another_table)])
    source = StructType([StructField("n", ArrayType(inner, False), False, {"comment": "the frame's"})])
    target = StructType([StructField("n", NullType(), True, {"comment": "the table's"})])
    found = evolved_schema(target, source, [("n",)], case_sensitive=False)
    expected = StructType([StructField("a", IntegerType(), True, {"comment": "inner"})])
    assert found == StructType([StructField("n", ArrayType(expected, True), True, {"comment": "the table's"})])
