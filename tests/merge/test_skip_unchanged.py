"""skip_unchanged: rows that an UPDATE would leave as they are stay where they are, and the report counts them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from deltamerge import DeltaTable, merge_sql, plan_sql, write_delta

from .tables import EXECUTOR, actions, commit_info, frame, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltamerge import MergeReport

pytestmark = pytest.mark.sessions

PLANS = ["key_lookup", "low_shuffle", "classic"]
FEED = {"delta.enableChangeDataFeed": "true"}


def upsert(spark: SparkSession, path: str, source: DataFrame, *, evolution: bool = False) -> MergeReport:
    table = DeltaTable.forPath(spark, path).alias("t")
    merge = table.merge(source.alias("s"), "t.id = s.id", skip_unchanged=True)
    merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()
    return (merge.withSchemaEvolution() if evolution else merge).run()


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("properties", [{}, {"delta.enableDeletionVectors": "true", **FEED}])
def test_only_rows_that_change(spark: SparkSession, tmp_path: Path, plan: str, properties: dict[str, str]) -> None:
    path, schema = str(tmp_path / "t"), "id INT, v STRING, d DOUBLE"
    known: list[Any] = [(1, "a", 0.0), (2, None, None), (3, "c", float("nan")), (4, "d", 1.5)]
    write_delta(spark.createDataFrame(known, schema).coalesce(1), path, properties=properties)
    spark.conf.set(EXECUTOR, plan)
    given: list[Any] = [(1, "a", -0.0), (2, None, None), (3, "c", float("nan")), (4, "d", None), (5, "e", None)]
    report = upsert(spark, path, frame(spark, schema, given))
    assert repr(rows(DeltaTable.forPath(spark, path).toDF())) == repr(rows(spark.createDataFrame(given, schema)))
    names = ("numTargetRowsUpdated", "numTargetRowsInserted", "numTargetRowsSkipped")
    assert [report.metrics[name] for name in names] == [2, 1, 2]
    assert [(clause.rows, clause.skipped) for clause in report.clauses] == [(2, 2), (1, 0)]
    assert "2 unchanged rows skipped" in str(report)
    assert '"actionType":"update"' in commit_info(path, report.version)["operationParameters"]["matchedPredicates"]
    if properties:
        changes = DeltaTable.forPath(spark, path).changes(report.version).where("_change_type LIKE 'update%'")
        assert sorted(row.id for row in changes.collect()) == [1, 1, 4, 4]
    again = upsert(spark, path, frame(spark, schema, given))
    assert (again.version, again.metrics["numTargetRowsSkipped"]) == (None, 5)


def test_fields_are_compared(spark: SparkSession, tmp_path: Path) -> None:
    path, schema = str(tmp_path / "t"), "id INT, s STRUCT<a: INT, b: ARRAY<DOUBLE>>"
    write_delta(spark.createDataFrame([(1, (1, [0.0])), (2, None), (3, (None, None))], schema), path)
    given: list[Any] = [(1, (1, [-0.0])), (2, None), (3, None)]
    report = upsert(spark, path, frame(spark, schema, given))
    assert (report.metrics["numTargetRowsUpdated"], report.metrics["numTargetRowsSkipped"]) == (2, 1)
    assert rows(DeltaTable.forPath(spark, path).toDF()) == sorted(given, key=repr)


def test_a_later_clause_does_not_see_what_is_skipped(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.createDataFrame([(1, "a"), (2, "b"), (3, "c"), (4, "d")], "id INT, v STRING"), path)
    frame(spark, "id INT, v STRING", [(1, "a"), (2, "x"), (3, "c")]).createOrReplaceTempView("skip_source")
    statement = f"""MERGE INTO delta.`{path}` t USING skip_source s ON t.id = s.id
        WHEN MATCHED AND s.id < 3 THEN UPDATE SET v = s.v
        WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED BY SOURCE AND t.id > 0 THEN UPDATE SET v = upper('d')
        WHEN NOT MATCHED BY SOURCE THEN DELETE"""
    forecast = plan_sql(spark, statement, skip_unchanged=True, analyze=True).forecast
    assert forecast is not None and [clause.rows for clause in forecast.clauses] == [1, 1, 1, 0]
    report = merge_sql(spark, statement, skip_unchanged=True)
    assert [(clause.rows, clause.skipped) for clause in report.clauses] == [(1, 1), (1, 0), (1, 0), (0, 0)]
    spark.conf.set("spark.deltamerge.merge.skipUnchanged", "true")
    report = merge_sql(spark, statement)
    assert (report.version, [clause.skipped for clause in report.clauses]) == (None, [2, 0, 1, 0])
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "a"), (2, "x"), (4, "D")]


def test_a_new_column_is_a_change_only_with_a_value(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.createDataFrame([(1, (1,)), (2, (2,)), (3, (3,))], "id INT, s STRUCT<a: INT>"), path)
    given: list[Any] = [(1, (1, None), None), (2, (2, "b"), None), (3, (3, None), "n")]
    report = upsert(spark, path, frame(spark, "id INT, s STRUCT<a: INT, b: STRING>, n STRING", given), evolution=True)
    assert (report.metrics["numTargetRowsUpdated"], report.metrics["numTargetRowsSkipped"]) == (2, 1)
    assert rows(DeltaTable.forPath(spark, path).toDF()) == sorted(given, key=repr)


def test_what_cannot_be_compared_counts_as_changed(spark: SparkSession, tmp_path: Path) -> None:
    path, schema = str(tmp_path / "t"), "id INT, m MAP<STRING, INT>, v DOUBLE"
    write_delta(spark.createDataFrame([(1, {"a": 1}, 1.0)], schema), path)
    assert upsert(spark, path, frame(spark, schema, [(1, {"a": 1}, 1.0)])).metrics["numTargetRowsUpdated"] == 1
    table = DeltaTable.forPath(spark, path).alias("t")
    merge = table.merge(frame(spark, "id INT", [(1,)]).alias("s"), "t.id = s.id", skip_unchanged=True)
    report = merge.whenMatchedUpdate(set={"v": "rand()"}).run()
    assert report.metrics["numTargetRowsUpdated"] == 1
    report = merge.whenMatchedUpdate(set={"v": "t.v + 0"}).run()
    assert report.metrics["numTargetRowsSkipped"] == 1


def test_a_source_without_an_alias_and_other_types(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.createDataFrame([(1, 5, "01"), (2, 6, "2")], "id INT, v INT, w STRING"), path)
    table = DeltaTable.forPath(spark, path).alias("t")
    source = frame(spark, "id BIGINT, v STRING, w INT", [(1, "5", 1), (2, "6", 2)])
    merge = table.merge(source, F.col("t.id") == source["id"], skip_unchanged=True).whenMatchedUpdateAll()
    report = merge.run()
    assert (report.metrics["numTargetRowsUpdated"], report.metrics["numTargetRowsSkipped"]) == (1, 1)
    assert rows(table.toDF()) == [(1, 5, "1"), (2, 6, "2")]


def test_generated_columns_follow_the_others(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumn("v", "INT")
    builder.addColumn("g", "INT", generatedAlwaysAs="v + 1").execute()
    write_delta(spark.createDataFrame([(1, 1), (2, 2)], "id INT, v INT"), path, mode="append")
    table = DeltaTable.forPath(spark, path).alias("t")
    merge = table.merge(frame(spark, "id INT, v INT", [(1, 1), (2, 5)]).alias("s"), "t.id = s.id", skip_unchanged=True)
    report = merge.whenMatchedUpdate(set={"v": "s.v"}).run()
    assert rows(table.toDF()) == [(1, 1, 2), (2, 5, 6)]
    assert report.metrics["numTargetRowsSkipped"] == 1
    assert len(actions(path, report.version, "add")) >= 1


@pytest.mark.parametrize("plan", PLANS)
def test_values_of_rows_that_another_clause_takes(spark: SparkSession, tmp_path: Path, plan: str) -> None:
    """They are not computed: here they would be errors."""
    path = str(tmp_path / "t")
    write_delta(spark.createDataFrame([(1, 100), (2, 7), (3, 5), (4, 6)], "id INT, v INT"), path)
    source = frame(spark, "id INT, v INT", [(1, 1), (2, 0), (3, 50), (4, None)])
    spark.conf.set(EXECUTOR, plan)
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id", skip_unchanged=True)
    merge = merge.whenMatchedDelete("s.v = 0")
    report = merge.whenMatchedUpdate("s.v <> 0", {"v": "CAST(100 DIV s.v AS INT)"}).run()
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, 100), (3, 2), (4, 6)]
    assert (report.metrics["numTargetRowsUpdated"], report.metrics["numTargetRowsSkipped"]) == (1, 1)
