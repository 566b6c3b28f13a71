"""What frames have of the columns that their table's log declares is the same whatever files there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType, TimestampType

from deltamerge import DeltaTable, sql, write_delta
from deltamerge.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.sessions]

MAPPED = "'delta.columnMapping.mode' = 'name'"
VECTORS = "'delta.enableDeletionVectors' = 'true'"


@pytest.mark.parametrize("properties", ["'a' = 'b'", MAPPED, VECTORS, f"{MAPPED}, {VECTORS}"])
def test_an_empty_table_and_one_with_files(spark: SparkSession, tmp_path: Path, properties: str) -> None:
    path = str(tmp_path / "t")
    columns = (
        "id INT NOT NULL COMMENT 'key', s STRUCT<a: INT NOT NULL COMMENT 'inner', b: ARRAY<STRUCT<c: INT COMMENT "
        "'deep'>>> NOT NULL, c CHAR(3) NOT NULL COMMENT 'short', d INT DEFAULT 3, p TIMESTAMP NOT NULL COMMENT 'when'"
    )
    all_properties = f"{properties}, 'delta.feature.allowColumnDefaults' = 'supported'"
    sql(
        spark,
        f"CREATE TABLE delta.`{path}` ({columns}) USING delta PARTITIONED BY (p) TBLPROPERTIES ({all_properties})",
    )
    may_be_null = is_connect(spark)
    deep = ArrayType(StructType([StructField("c", IntegerType(), True, {"comment": "deep"})]))
    inner = [StructField("a", IntegerType(), True, {"comment": "inner"}), StructField("b", deep)]
    expected = StructType(
        [
            StructField("id", IntegerType(), may_be_null, {"comment": "key"}),
            StructField("s", StructType(inner), may_be_null),
            StructField("c", StringType(), may_be_null, {"comment": "short", "__CHAR_VARCHAR_TYPE_STRING": "char(3)"}),
            StructField("d", IntegerType()),
            StructField("p", TimestampType(), may_be_null, {"comment": "when"}),
        ]
    )
    table = DeltaTable.forPath(spark, path)
    struct = "named_struct('a', 1, 'b', array(named_struct('c', 2)))"
    for _ in range(2):
        assert json.loads(table.toDF().schema.json()) == json.loads(expected.json())
        rows = f"SELECT CAST(id AS INT) AS id, {struct} AS s, 'x' AS c, 4 AS d, TIMESTAMP'2024-01-01' AS p"
        write_delta(spark.sql(f"{rows} FROM range(4)"), path, mode="append")
    table.delete("id = 2")
    assert json.loads(table.toDF().schema.json()) == json.loads(expected.json())
    found = table.toDF().where("p = TIMESTAMP'2024-01-01' AND s.b[0].c = 2 AND id > 1 AND c = 'x  '")
    assert [tuple(row) for row in found.select("id", "s.a", "d").collect()] == [(3, 1, 4)] * 2


def test_the_keys_of_users_stay(spark: SparkSession, tmp_path: Path) -> None:
    path, other = str(tmp_path / "t"), str(tmp_path / "other")
    own = {"ml_attr": {"type": "nominal", "vals": ["x", "y"]}, "ours": 1}
    inner = StructType([StructField("a", IntegerType(), True, {"comment": "inner", **own})])
    schema = StructType([StructField("id", IntegerType(), True, own), StructField("s", ArrayType(inner))])
    write_delta(spark.createDataFrame([(1, [(2,)])], schema), path)
    for properties in (MAPPED, "'delta.feature.timestampNtz' = 'supported'"):
        sql(spark, f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({properties})")
        frame = DeltaTable.forPath(spark, path).toDF()
        assert json.loads(frame.schema.json()) == json.loads(schema.json())
    write_delta(frame, other)
    assert json.loads(DeltaTable.forPath(spark, other).toDF().schema.json()) == json.loads(schema.json())
    stored = DeltaTable.forPath(spark, other).table.snapshot().metadata.schema_string
    assert StructType.fromJson(json.loads(stored or "")) == schema
