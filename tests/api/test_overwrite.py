"""Overwriting a table: what it keeps of its definition, and what it takes from the frame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StringType, StructField

from deltamerge import DeltaTable, write_delta
from deltamerge.api.delta_table import IdentityGenerator
from deltamerge.api.save_frame import Save, save_to_path
from deltamerge.exceptions import DeltaAnalysisException, DeltaIllegalArgumentException, InvariantViolationException
from merge.tables import actions, commit, commit_info, files_below, frame, people, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def orders(spark: SparkSession, path: Path, **properties: str) -> str:
    """Makes a table whose columns are all of a kind of their own, with two rows."""
    builder = DeltaTable.create(spark).location(str(path)).comment("what was ordered")
    builder = builder.addColumn("k", "BIGINT", generatedAlwaysAs=IdentityGenerator(start=10, step=10))
    builder = builder.addColumn("day", "DATE", nullable=False, comment="of the order")
    builder = builder.addColumn("year", "INT", generatedAlwaysAs="year(day)")
    builder = builder.addColumns([StructField("state", StringType(), True, {"CURRENT_DEFAULT": "'open'"})])
    builder = builder.partitionedBy("year")
    for name, value in {
        "delta.constraints.recent": "day IS NULL OR day > '2000-01-01'",
        **properties,
    }.items():
        builder = builder.property(name, value)
    builder.execute()
    write_delta(spark.sql("SELECT DATE'2020-05-05' AS day UNION ALL SELECT DATE'2021-06-06'"), str(path), "append")
    return str(path)


def fields(path: str, version: int) -> dict[str, Any]:
    """Gives the columns that a version commits, by name."""
    (metadata,) = actions(path, version, "metaData")
    return {field["name"]: field for field in json.loads(metadata["schemaString"])["fields"]}


@pytest.mark.sessions
def test_an_overwrite_keeps_what_the_table_says_of_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = orders(spark, tmp_path / "t")
    before = fields(path, 1)
    assert before["k"]["metadata"]["delta.identity.highWaterMark"] == 20
    assert write_delta(spark.sql("SELECT DATE'2022-07-07' AS day"), path, mode="overwrite") == 2
    table = DeltaTable.forPath(spark, path)
    assert rows(table.toDF().selectExpr("k", "year", "state")) == [(30, 2022, "open")]
    after = fields(path, 2)
    assert after["k"]["metadata"].pop("delta.identity.highWaterMark") == 30
    assert before["k"]["metadata"].pop("delta.identity.highWaterMark") == 20
    assert after == before
    assert after["day"]["nullable"] is False
    (metadata,) = actions(path, 2, "metaData")
    assert (metadata["description"], metadata["partitionColumns"]) == ("what was ordered", ["year"])
    assert len(actions(path, 2, "remove")) == 2
    assert [action for action in commit(path, 2) if "protocol" in action] == []
    write_delta(spark.sql("SELECT DATE'2023-08-08' AS day"), path, mode="append")
    assert rows(table.toDF().select("k")) == [(30,), (40,)]


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ("CAST(NULL AS DATE) AS day", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
        ("DATE'1999-01-01' AS day", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
        ("DATE'2020-01-01' AS day, 2021 AS year", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
        ("DATE'2020-01-01' AS day, 1L AS k", "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED"),
        ("DATE'2020-01-01' AS day, 1 AS more", "DELTA_METADATA_MISMATCH"),
    ],
)
def test_rows_that_do_not_fit_leave_the_table_as_it_was(
    values: str, error: str, spark: SparkSession, tmp_path: Path
) -> None:
    path = orders(spark, tmp_path / "t")
    before = files_below(path)
    with pytest.raises((DeltaAnalysisException, InvariantViolationException)) as raised:
        write_delta(spark.sql(f"SELECT {values}"), path, mode="overwrite")
    assert raised.value.getCondition() == error
    assert files_below(path) == before


def test_an_overwritten_schema_is_the_frames(spark: SparkSession, tmp_path: Path) -> None:
    path = orders(spark, tmp_path / "t")
    other = spark.sql("SELECT 1L AS k, DATE'1999-01-01' AS day")
    with pytest.raises(DeltaAnalysisException, match="overwrite_schema=True"):
        write_delta(other, path, mode="overwrite", partition_by="day")
    with pytest.raises(ValueError, match="overwrite_schema"):
        write_delta(other, path, mode="append", overwrite_schema=True)
    properties = {"delta.constraints.recent": "k > 0"}
    write_delta(other, path, "overwrite", "day", properties, overwrite_schema=True)
    assert rows(DeltaTable.forPath(spark, path).toDF().selectExpr("k", "year(day)")) == [(1, 1999)]
    after = fields(path, 2)
    assert list(after) == ["k", "day"]
    assert after["k"]["metadata"] == {}
    (metadata,) = actions(path, 2, "metaData")
    assert (metadata["description"], metadata["partitionColumns"]) == ("what was ordered", ["day"])


def test_an_overwrite_makes_no_metadata_but_for_properties(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    write_delta(frame(spark, "name STRING, ID BIGINT", [("x", 7)]), path, mode="overwrite")
    assert actions(path, 2, "metaData") == []
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(7, "x", None)]
    mapped = {"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"}
    itself = DeltaTable.forPath(spark, path).toDF().selectExpr("id + 1 AS id", "name", "id AS age")
    write_delta(itself, path, mode="overwrite", properties=mapped)
    (metadata,) = actions(path, 3, "metaData")
    assert metadata["configuration"]["delta.columnMapping.maxColumnId"] == "3"
    table = DeltaTable.forPath(spark, path)
    assert rows(table.toDF()) == [(8, "x", 7)]
    assert rows(table.at(version=2)) == [(7, "x", None)]
    assert table.with_row_ids().count() == 1


@pytest.mark.parametrize("replaced", [False, True])
def test_a_table_that_only_takes_appends(replaced: bool, spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t", properties={"delta.appendOnly": "true"})
    before = files_below(path)
    with pytest.raises(DeltaAnalysisException) as raised:
        write_delta(spark.range(2), path, mode="overwrite", overwrite_schema=replaced)
    assert raised.value.getCondition() == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    assert files_below(path) == before
    with pytest.raises(DeltaAnalysisException) as raised:
        DeltaTable.createOrReplace(spark).location(path).addColumn("x", "INT").execute()
    assert raised.value.getCondition() == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    assert files_below(path) == before


@pytest.mark.parametrize("records", ["true", "false"])
def test_the_history_counts_what_an_overwrite_removed(records: str, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    key = "spark.databricks.delta.history.metricsEnabled"
    write_delta(spark.sql("SELECT 1 AS id"), path)
    spark.conf.set(key, records)
    try:
        write_delta(spark.sql("SELECT 1 AS k").where("false"), path, mode="overwrite", overwrite_schema=True)
    finally:
        spark.conf.unset(key)
    metrics = commit_info(path, 1).get("operationMetrics")
    assert (metrics and metrics["numRemovedFiles"]) == ("1" if records == "true" else None)


@pytest.mark.sessions
def test_partitions_of_null_that_a_dynamic_overwrite_leaves(spark: SparkSession, tmp_path: Path) -> None:
    """As in delta-spark, one NULL among the values of a partition is enough."""
    path = str(tmp_path / "t")
    before = spark.sql("VALUES (NULL, 1, 1), ('a', NULL, 2), ('b', 3, 3) AS t(p, q, v)")
    write_delta(before, path, partition_by=["p", "q"])
    option = {"usenullintolerantequalitywithdpo": "true"}
    dynamic = Save("delta", "overwrite", options={**option, "partitionoverwritemode": "dynamic"})
    save_to_path(before.selectExpr("p", "q", "v * 10 AS v"), path, dynamic)
    found = DeltaTable.forPath(spark, path).toDF()
    assert sorted(row[0] for row in found.select("v").collect()) == [1, 2, 10, 20, 30]
    with pytest.raises(DeltaIllegalArgumentException, match="DELTA_ILLEGAL_OPTION"):
        save_to_path(before, path, Save("delta", "overwrite", options=option))
    assert found.count() == 5


@pytest.mark.sessions
@pytest.mark.parametrize("where", ["T.p = 'a'", "t.p = 'a' OR t.v = 10"])
def test_the_alias_in_a_condition(spark: SparkSession, tmp_path: Path, where: str) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("VALUES ('a', 1), ('b', 2) AS t(p, v)"), path, partition_by="p")
    options = {"replacewhere": where, "targetalias": "t"}
    save_to_path(spark.sql("SELECT 'a' AS p, 10 AS v"), path, Save("delta", "overwrite", options=options))
    assert rows(DeltaTable.forPath(spark, path).toDF().select("p", "v")) == [("a", 10), ("b", 2)]


@pytest.mark.sessions
def test_partition_columns_that_no_table_has(spark: SparkSession, tmp_path: Path) -> None:
    path, found = str(tmp_path / "t"), spark.sql("SELECT 1 AS a, 2 AS b, NULL AS n")
    made = DeltaTable.create(spark).location(path).addColumn("a", "INT").addColumn("b", "INT")
    writes = (
        made.partitionedBy("a", "A").execute,
        lambda: write_delta(found, path, partition_by=["a", "A"]),
        lambda: save_to_path(found, path, Save("delta", partition_by=("a", "a"))),
        lambda: save_to_path(found, path, Save("delta", options={"partitionby": "a,a"})),
    )
    for write in writes:
        with pytest.raises(DeltaAnalysisException, match=r"DELTA_DUPLICATE_COLUMNS_FOUND.PARTITION_COLUMNS.*`a`"):
            write()
    with pytest.raises(DeltaAnalysisException, match=r"DELTA_INVALID_PARTITION_COLUMN_TYPE.*VOID"):
        write_delta(found, path, partition_by="n")
    assert not files_below(path)
