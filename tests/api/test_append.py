"""Rows appended to a table: columns and fields go by name, values as an assignment of MERGE stores them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import ArithmeticException, PySparkException

from deltamerge import DeltaTable, sql, write_delta
from deltamerge.exceptions import DeltaAnalysisException, InvariantViolationException
from merge.tables import files_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions


def test_fields_go_by_name_at_any_depth(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(
        spark.sql(
            "SELECT named_struct('a', 1, 'b', 2) AS s, array(named_struct('a', 1, 'b', 2)) AS l, "
            "map('k', named_struct('a', 1, 'b', 2)) AS m"
        ),
        path,
    )
    other = (
        "SELECT map('k', named_struct('B', 4L, 'a', 3)) AS m, array(named_struct('b', 4, 'a', 3)) AS l, "
        "named_struct('b', 4, 'a', 3) AS s"
    )
    write_delta(spark.sql(other), path, mode="append")
    write_delta(spark.sql("SELECT CAST(NULL AS STRUCT<b: INT, a: INT>) AS s"), path, mode="append")
    read = DeltaTable.forPath(spark, path).toDF().where("s.a = 3 OR s IS NULL").orderBy("s")
    assert [(row.s, row.l, row.m) for row in read.collect()] == [
        (None, None, None),
        ((3, 4), [(3, 4)], {"k": (3, 4)}),
    ]


def test_fields_that_the_frame_lacks_are_null_and_others_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT named_struct('a', 1, 'b', named_struct('c', 2, 'd', 3)) AS s"), path)
    write_delta(spark.sql("SELECT named_struct('b', named_struct('d', 5)) AS s"), path, mode="append")
    read = DeltaTable.forPath(spark, path).toDF().where("s.a IS NULL").select("s.a", "s.b.c", "s.b.d")
    assert [tuple(row) for row in read.collect()] == [(None, None, 5)]
    before = files_below(path)
    with pytest.raises(DeltaAnalysisException, match=r"s\.b\.e") as caught:
        write_delta(spark.sql("SELECT named_struct('b', named_struct('e', 5)) AS s"), path, mode="append")
    assert caught.value.getCondition() == "DELTA_METADATA_MISMATCH"
    assert files_below(path) == before


@pytest.mark.parametrize(
    ("policy", "value", "stored"),
    [
        ("ANSI", "'abc'", "CAST_INVALID_INPUT"),
        ("ANSI", "3000000000", "CAST_OVERFLOW_IN_TABLE_INSERT"),
        ("LEGACY", "'abc'", None),
        ("LEGACY", "3000000000", -1294967296),
        ("STRICT", "3L", "CANNOT_UP_CAST_DATATYPE"),
    ],
)
def test_values_that_do_not_fit(
    spark: SparkSession, tmp_path: Path, policy: str, value: str, stored: str | int | None
) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS v"), path)
    before = files_below(path)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.sql.storeAssignmentPolicy", policy)
    frame = spark.sql(f"SELECT {value} AS v")
    if isinstance(stored, str):
        with pytest.raises(PySparkException) as caught:
            write_delta(frame, path, mode="append")
        assert caught.value.getCondition() == stored
        assert files_below(path) == before
    else:
        write_delta(frame, path, mode="append")
        assert {row.v for row in DeltaTable.forPath(spark, path).toDF().collect()} == {1, stored}


def test_the_column_of_a_value_that_does_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS v, CAST(1 AS SMALLINT) AS w, CAST(1 AS DECIMAL(5,2)) AS d, 'x' AS s"), path)
    before = files_below(path)
    values = {"v": ("3000000000L", "BIGINT", "INT"), "w": ("70000", "INT", "SMALLINT"), "d": ("1234.5BD", None, None)}
    for column, (value, given, wanted) in values.items():
        with pytest.raises(ArithmeticException, match="in column `" + column) as caught:
            write_delta(spark.sql(f"SELECT {value} AS {column} FROM range(1)"), path, mode="append")
        assert (caught.value.getCondition(), caught.value.getSqlState()) == ("CAST_OVERFLOW_IN_TABLE_INSERT", "22003")
        parameters = caught.value.getMessageParameters() or {}
        assert parameters["columnName"] == f"`{column}`"
        assert given is None or (parameters["sourceType"], parameters["targetType"]) == (f'"{given}"', f'"{wanted}"')
    # A cast of the user's own is Spark's to tell of.
    with pytest.raises(ArithmeticException) as caught:
        write_delta(spark.sql("SELECT CAST(id + 3000000000 AS INT) AS v, 7 AS w FROM range(1)"), path, mode="append")
    assert caught.value.getCondition() == "CAST_OVERFLOW"
    both = spark.sql("SELECT CAST(id + 3000000000 AS INT) AS v, 7L AS w FROM range(1)")
    with pytest.raises(ArithmeticException) as caught:
        write_delta(both.selectExpr("v", "'x' AS s"), path, mode="append")
    assert caught.value.getCondition() == "CAST_OVERFLOW"
    assert files_below(path) == before


def test_an_empty_string_is_no_partition(spark: SparkSession, tmp_path: Path) -> None:
    path, required = str(tmp_path / "t"), str(tmp_path / "required")
    builder = DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumn("p", "STRING")
    builder = builder.addColumn("g", "STRING", generatedAlwaysAs="trim(p)").partitionedBy("p", "g")
    builder.property("delta.constraints.known", "id = 0 OR p IS NOT NULL").execute()
    write_delta(spark.sql("SELECT 0 AS id, '' AS p UNION ALL SELECT 1, ' '"), path, mode="append")
    table = DeltaTable.forPath(spark, path)
    assert [tuple(row) for row in table.toDF().orderBy("id").collect()] == [(0, None, None), (1, " ", None)]
    unknown = spark.sql("SELECT 2 AS id, '' AS p")
    with pytest.raises(InvariantViolationException, match="known"):
        write_delta(unknown, path, mode="append")
    with pytest.raises(InvariantViolationException, match="known"):
        merge = table.alias("t").merge(unknown.alias("s"), "s.id = t.id")
        merge.whenNotMatchedInsert(values={"id": "s.id", "p": "s.p"}).execute()
    assert table.toDF().count() == 2
    DeltaTable.create(spark).location(required).addColumn("id", "INT").addColumn(
        "p", "STRING", nullable=False
    ).partitionedBy("p").execute()
    with pytest.raises(InvariantViolationException, match="NOT_NULL"):
        write_delta(unknown, required, mode="append")


def test_constraints_hold_beside_a_column_without_a_type(spark: SparkSession, tmp_path: Path) -> None:
    """A VOID column is not written: what would raise must not stand in its place."""
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT NULL AS note, 1 AS id"), path, properties={"delta.constraints.pos": "id > 0"})
    with pytest.raises(InvariantViolationException, match="pos"):
        write_delta(spark.sql("SELECT NULL AS note, -1 AS id"), path, mode="append")
    source = spark.sql("SELECT 2 AS id").alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    with pytest.raises(InvariantViolationException, match="pos"):
        merge.whenNotMatchedInsert(values={"id": "-s.id"}).execute()
    assert [row.id for row in DeltaTable.forPath(spark, path).toDF().select("id").collect()] == [1]


def test_names_are_a_tables_whatever_their_case(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS id, named_struct('a', 1) AS s"), path)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        write_delta(spark.sql("SELECT 2 AS ID, named_struct('A', 2) AS S"), path, mode="append")
        with pytest.raises(DeltaAnalysisException, match="DELTA_DUPLICATE_COLUMNS_FOUND"):
            write_delta(spark.sql("SELECT 3 AS ID, 4 AS id"), path, mode="append")
        with pytest.raises(DeltaAnalysisException, match="DELTA_DUPLICATE_COLUMNS_FOUND"):
            write_delta(spark.sql("SELECT 3 AS id, named_struct('a', 3, 'A', 4) AS s"), path, mode="append")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert sorted((row.id, row.s.a) for row in DeltaTable.forPath(spark, path).toDF().collect()) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_values_that_change_their_type(spark: SparkSession, tmp_path: Path, ansi: str) -> None:
    """They are stored as ANSI assigns them, whatever the session's own casts do."""
    path = str(tmp_path / "t")
    columns = "s STRING, i INT, d ARRAY<DOUBLE>, m MAP<BIGINT, STRING>, t TIMESTAMP, n INT"
    sql(spark, f"CREATE TABLE delta.`{path}` ({columns}) USING delta")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        values = "CAST(0.0000000123 AS DECIMAL(20,10)) AS s, 7L AS i, array(0.5F) AS d, map(1, 2.50) AS m"
        write_delta(spark.sql(f"SELECT {values}, DATE'2024-01-02' AS t, parse_json('null') AS n"), path, mode="append")
        wrong = {"array('x') AS d": "CAST_INVALID_INPUT", "array(1e300D) AS x, 3000000000L AS i": None}
        for value, condition in wrong.items():
            with pytest.raises(PySparkException) as caught:
                write_delta(spark.sql(f"SELECT {value} FROM range(1)").drop("x"), path, mode="append")
            assert caught.value.getCondition() == condition or condition is None
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    (row,) = DeltaTable.forPath(spark, path).toDF().selectExpr("s", "i", "d", "m", "string(t) AS t", "n").collect()
    assert tuple(row) == ("0.0000000123", 7, [0.5], {1: "2.50"}, "2024-01-02 00:00:00", None)
