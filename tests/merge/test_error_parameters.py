"""Errors carry Delta's class, its SQLSTATE and the parameters that its message names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from pyspark.errors import PySparkException

from deltamerge import DeltaTable, merge_sql, write_delta

from .tables import files_below, frame, people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltamerge.api.merge_builder import DeltaMergeBuilder

Wrong: TypeAlias = "Callable[[DeltaMergeBuilder], DeltaMergeBuilder]"

WRONG: dict[str, tuple[Wrong, str, str, dict[str, str]]] = {
    "a column set twice": (
        lambda m: m.whenMatchedUpdate(set={"st": "s.st", "st.a": "1"}),
        "DELTA_CONFLICT_SET_COLUMN",
        "42701",
        {"columnList": "[`st`, `st.a`]"},
    ),
    "a field in INSERT": (
        lambda m: m.whenNotMatchedInsert(values={"k": "s.k", "st.a": "1"}),
        "DELTA_UNSUPPORTED_NESTED_FIELD_IN_OPERATION",
        "0AKDC",
        {"operation": "INSERT clause of MERGE operation", "fieldName": "`st`.`a`"},
    ),
    "a subquery": (
        lambda m: m.whenMatchedDelete("t.k IN (SELECT 1)"),
        "DELTA_UNSUPPORTED_SUBQUERY",
        "0AKDC",
        {"operation": "DELETE condition of MERGE operation", "cond": "t.k IN (SELECT 1)"},
    ),
    "an aggregate": (
        lambda m: m.whenMatchedUpdateAll("max(s.k) > 1"),
        "DELTA_AGGREGATION_NOT_SUPPORTED",
        "42903",
        {"operation": "UPDATE condition of MERGE operation", "predicate": "(condition = max(s.k) > 1)"},
    ),
    "a random condition": (
        lambda m: m.whenNotMatchedInsertAll("rand() > 0.5"),
        "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED",
        "0AKDC",
        {"operation": "INSERT condition of MERGE operation", "expression": "(condition = rand() > 0.5)."},
    ),
    "a value that overflows": (
        lambda m: m.whenMatchedUpdate(set={"v": "s.big"}),
        "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE",
        "22003",
        {
            "sourceType": '"BIGINT"',
            "targetType": '"INT"',
            "columnName": "`v`",
            "storeAssignmentPolicyFlag": "spark.sql.storeAssignmentPolicy",
            "ansiEnabledFlag": "spark.sql.ansi.enabled",
        },
    ),
    "a clause that hides an INSERT": (
        lambda m: m.whenNotMatchedInsertAll().whenNotMatchedInsertAll("s.k > 1"),
        "DELTA_NON_LAST_NOT_MATCHED_CLAUSE_OMIT_CONDITION",
        "42601",
        {},
    ),
    "a clause that hides one by source": (
        lambda m: m.whenNotMatchedBySourceDelete().whenNotMatchedBySourceUpdate(set={"v": "1"}),
        "DELTA_NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION",
        "42601",
        {},
    ),
}


def merge_into(spark: SparkSession, path: str, on: str = "t.k = s.k") -> DeltaMergeBuilder:
    source = spark.sql("SELECT 1 AS k, 2 AS v, named_struct('a', 1) AS st, 3000000000L AS big")
    return DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), on)


def said(call: Callable[[], Any]) -> tuple[str | None, str | None, dict[str, str]]:
    with pytest.raises(PySparkException) as caught:
        call()
    error = caught.value
    return error.getCondition(), error.getSqlState(), dict(error.getMessageParameters() or {})


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_what_errors_of_a_merge_carry(spark: SparkSession, tmp_path: Path, ansi: str) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS k, 1 AS v, named_struct('a', 1) AS st"), path)
    before = files_below(path)
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    for what, (wrong, condition, sqlstate, parameters) in WRONG.items():
        merge = wrong(merge_into(spark, path))
        assert said(merge.execute) == (condition, sqlstate, parameters), what
    in_on = merge_into(spark, path, "t.k = s.k AND rand() > 0.5").whenMatchedDelete()
    assert said(in_on.execute)[2]["operation"] == "search condition of MERGE operation"
    assert files_below(path) == before


def test_what_errors_of_an_append_carry(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS k, 1 AS `a:b`"), path)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    new = spark.sql("SELECT 1 AS k, 3000000000L AS `a:b`")
    condition, sqlstate, parameters = said(lambda: write_delta(new, path, mode="append"))
    assert (condition, sqlstate) == ("CAST_OVERFLOW_IN_TABLE_INSERT", "22003")
    assert parameters["columnName"] == "`a:b`"
    assert (parameters["sourceType"], parameters["targetType"]) == ('"BIGINT"', '"INT"')


def test_what_errors_about_identity_columns_carry(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).addColumn("k", "INT")
    number = DeltaTable.columnBuilder(spark, "n").dataType("BIGINT").generatedAlwaysAsIdentity().build()
    builder.addColumn(number).execute()
    update = merge_into(spark, path).whenMatchedUpdate(set={"n": "1"})
    insert = merge_into(spark, path).whenNotMatchedInsert(values={"k": "s.k", "n": "1"})
    prefix, named = "DELTA_IDENTITY_COLUMNS_", {"colName": "n"}
    assert said(update.execute) == (prefix + "UPDATE_NOT_SUPPORTED", "42808", named)
    assert said(insert.execute) == (prefix + "EXPLICIT_INSERT_NOT_SUPPORTED", "42808", named)


def test_what_errors_about_the_table_carry(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t", properties={"delta.appendOnly": "true"})
    source = frame(spark, "id INT", [(1,)]).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id").whenMatchedDelete()
    only_appends = {"table_name": path, "config": "delta.appendOnly"}
    assert said(merge.execute) == ("DELTA_CANNOT_MODIFY_APPEND_ONLY", "42809", only_appends)

    path = str(tmp_path / "changed")
    write_delta(spark.sql("SELECT 1 AS id, 2 AS v"), path)
    opened = DeltaTable.forPath(spark, path).alias("t")
    write_delta(spark.sql("SELECT 1 AS id"), path, mode="overwrite", overwrite_schema=True)
    condition, sqlstate, parameters = said(opened.merge(source, "t.id = s.id").whenMatchedDelete().execute)
    assert (condition, sqlstate) == ("DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS", "KD007")
    assert parameters.keys() == {"schemaDiff", "legacyFlagMessage"}
    assert "struct<id:int,v:int>" in parameters["schemaDiff"]

    text = "MERGE INTO no_such_table t USING x s ON t.id = s.id WHEN MATCHED THEN DELETE"
    for call, expected in (
        (lambda: DeltaTable.forName(spark, "no_such_table"), "DELTA_MISSING_DELTA_TABLE"),
        (lambda: merge_sql(spark, text), "DELTA_TABLE_NOT_FOUND"),
    ):
        condition, sqlstate, parameters = said(call)
        assert (condition, sqlstate) == (expected, "42P01")
        assert "no_such_table" in parameters["tableName"]
