"""Columns that become wider: files of all their types are read as the widest, and skipped by their statistics."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.exceptions import DeltaAnalysisException

from .tables import actions, latest_version, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WIDENING = {"delta.enableTypeWidening": "true"}
NARROW = (
    "SELECT 1 AS k, CAST(7 AS TINYINT) AS b, CAST(8 AS SMALLINT) AS s, 9 AS i, CAST(0.1 AS FLOAT) AS f, "
    "CAST(1.25 AS DECIMAL(5,2)) AS d, DATE'2020-01-01' AS day, array(named_struct('x', 3, 'm', map(1, 2))) AS n, "
    "CAST(5 AS INT) AS p"
)
WIDE = (
    "SELECT 2 AS k, 70.5D AS b, CAST(8.5 AS DECIMAL(12,2)) AS s, 9000000000L AS i, 0.7D AS f, "
    "CAST(1.2345 AS DECIMAL(12,4)) AS d, TIMESTAMP_NTZ'2020-01-02 03:04:05' AS day, "
    "array(named_struct('x', 3000000000L, 'm', map(1L, 2.5D))) AS n, 5000000000L AS p"
)


@pytest.mark.parametrize("mode", ["none", "id"])
def test_every_type_at_once(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    path = str(tmp_path / "t")
    properties = {**WIDENING, "delta.columnMapping.mode": mode, "delta.feature.timestampNtz": "supported"}
    narrow = spark.sql(NARROW).coalesce(1)
    write_delta(narrow, path, partition_by="p", properties=properties)
    write_delta(narrow.withColumn("k", narrow.k + 100), path, mode="append")
    spark.sql(WIDE).createOrReplaceTempView("src")
    merged = merge_sql(
        spark,
        f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` t USING src s ON t.k = s.k AND t.b < 0.5 "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )
    assert merged.metrics["numTargetRowsInserted"] == 1
    found = DeltaTable.forPath(spark, path).toDF()
    assert [f.dataType.simpleString() for f in found.schema.fields] == [
        "int",
        "double",
        "decimal(12,2)",
        "bigint",
        "double",
        "decimal(12,4)",
        "timestamp_ntz",
        "array<struct<x:bigint,m:map<bigint,double>>>",
        "bigint",
    ]
    as_text = found.where("k < 100").selectExpr(
        "k", "b", "CAST(s AS STRING)", "i", "f", "CAST(d AS STRING)", "day", "n[0].x", "n[0].m", "p"
    )
    assert rows(as_text) == [
        (1, 7.0, "8.00", 9, 0.10000000149011612, "1.2500", dt.datetime(2020, 1, 1), 3, {1: 2.0}, 5),
        (2, 70.5, "8.50", 9000000000, 0.7, "1.2345", dt.datetime(2020, 1, 2, 3, 4, 5), 3 * 10**9, {1: 2.5}, 5 * 10**9),
    ]  # fmt: skip
    for condition in (
        "b = 7",
        "s < 8.25",
        "i = 9",
        "d = 1.25",
        "day = TIMESTAMP_NTZ'2020-01-01 00:00:00'",
        "p = 5",
    ):
        assert found.where(condition).count() == 2, condition
    # The rows that were there are copied and read under the new types, in files of both kinds.
    again = merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS k UNION ALL SELECT 2) s "
        "ON t.k = s.k AND t.f > 0.1D AND t.day < TIMESTAMP_NTZ'2020-01-01 00:00:01' "
        "WHEN MATCHED THEN UPDATE SET i = t.i + 1",
    )
    assert again.metrics["numTargetRowsUpdated"] == 1
    assert rows(DeltaTable.forPath(spark, path).toDF().select("k", "i")) == [
        (1, 10),
        (101, 9),
        (2, 9000000000),
    ]


def test_statistics_of_floats_bound_the_doubles_they_are_read_as(spark: SparkSession, tmp_path: Path) -> None:
    """0.1 stands for a FLOAT in the statistics; as a DOUBLE it is 0.10000000149011612."""
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS k, CAST(0.1 AS FLOAT) AS f"), path, properties=WIDENING)
    evolve = "WHEN NOT MATCHED THEN INSERT *"
    target = f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` t"
    merge_sql(spark, f"{target} USING (SELECT 2 AS k, 0.7D AS f) s ON t.k = s.k {evolve}")
    merged = merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS k) s ON t.k = s.k AND t.f > 0.1D AND t.f < 0.2D "
        "WHEN MATCHED THEN DELETE",
    )
    assert merged.metrics["numTargetRowsDeleted"] == 1


@pytest.mark.quick
def test_what_refers_to_a_column_keeps_its_type(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).addColumn("k", "INT")
    builder = builder.addColumn("x", "STRUCT<a: INT, b: INT>").property("delta.constraints.c", "x.a > 0")
    builder.property("delta.enableTypeWidening", "true").execute()
    merge = (
        f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` t "
        "USING (SELECT 1 AS k, named_struct('a', {}, 'b', {}) AS x) s ON t.k = s.k WHEN NOT MATCHED THEN INSERT *"
    )
    with pytest.raises(DeltaAnalysisException) as caught:
        merge_sql(spark, merge.format("1L", "1"))
    assert caught.value.getErrorClass() == "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH"
    assert "x.a has data type INT and cannot be altered to data type BIGINT" in str(caught.value)
    assert latest_version(path) == 0
    merge_sql(spark, merge.format("1", "1L"))
    schema = json.loads(actions(path, 1, "metaData")[0]["schemaString"])
    inner = schema["fields"][1]["type"]["fields"]
    assert [(f["type"], f["metadata"]) for f in inner] == [
        ("integer", {}),
        ("long", {"delta.typeChanges": [{"toType": "long", "fromType": "integer"}]}),
    ]
