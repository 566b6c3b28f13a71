"""Expressions that look as if PyArrow or the statistics had their values, and do not: rows are as Spark has them."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from deltamerge import DeltaTable, merge_sql, sql, write_delta
from deltamerge.exceptions import DeltaRuntimeException
from merge.tables import changes, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.sessions


@pytest.fixture
def without_ansi(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    yield
    spark.conf.unset("spark.sql.ansi.enabled")


def merged(spark: SparkSession, path: Path, source: DataFrame, clauses: str, on: str = "t.id = s.id") -> list[Any]:
    source.createOrReplaceTempView("only_spark_knows")
    merge_sql(spark, f"MERGE INTO delta.`{path}` t USING only_spark_knows s ON {on} {clauses}")
    return sorted(rows(DeltaTable.forPath(spark, str(path)).toDF()), key=str)


def test_a_column_that_a_file_spells_in_another_case(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.mkdir()
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "v": [10], "total": [0]}), path / "a.parquet")
    pq.write_table(pa.table({"id": pa.array([2], pa.int32()), "V": [20], "total": [0]}), path / "b.parquet")
    DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    source = spark.createDataFrame([(2, 5)], "id INT, d BIGINT")
    found = merged(spark, path, source, "WHEN MATCHED THEN UPDATE SET total = t.v + s.d")
    assert found == [(1, 10, 0), (2, 20, 25)]


@pytest.mark.parametrize("then", ["UPDATE SET total = s.d", "DELETE"])
def test_change_data_of_a_file_that_spells_a_column_in_another_case(
    spark: SparkSession, tmp_path: Path, then: str
) -> None:
    path = tmp_path / "t"
    path.mkdir()
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32()), "V": [10, 20], "total": [0, 0]}), path / "b.parquet")
    pq.write_table(pa.table({"id": pa.array([3], pa.int32()), "v": [30], "total": [0]}), path / "a.parquet")
    DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    sql(spark, f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    merged(spark, path, spark.createDataFrame([(2, 5)], "id INT, d BIGINT"), f"WHEN MATCHED THEN {then}")
    assert {row["v"] for row in changes(path, 2)} == {20}


@pytest.mark.usefixtures("without_ansi")
@pytest.mark.parametrize("condition", ["t.ts IN ('2024-01-01')", "t.ts IN (DATE'2024-01-01', '2024-01-02')"])
def test_times_that_are_compared_as_strings(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    path = tmp_path / "t"
    given = spark.createDataFrame([(1, datetime(2024, 1, 1)), (2, datetime(2024, 1, 2))], "id INT, ts TIMESTAMP")
    write_delta(given, str(path))
    expected = {row.id for row in given.alias("t").where(f"NOT ({condition})").collect()}
    found = merged(spark, path, spark.range(5), f"WHEN MATCHED AND {condition} THEN DELETE")
    assert {row[0] for row in found} == expected


@pytest.mark.usefixtures("without_ansi")
def test_numbers_that_are_compared_as_strings(spark: SparkSession, tmp_path: Path) -> None:
    """By numbers the file of partition 5 could be skipped."""
    path = tmp_path / "t"
    given = spark.createDataFrame([(1, 5), (2, 6)], "id INT, p INT")
    write_delta(given, str(path), partition_by=["p"])
    on = "t.id = s.id AND t.p NOT IN ('05')"
    expected = {row.id for row in given.alias("t").where("t.p NOT IN ('05')").collect()}
    deleted = {1, 2} - {row[0] for row in merged(spark, path, spark.range(5), "WHEN MATCHED THEN DELETE", on)}
    assert deleted == expected == {1, 2}


def test_a_variant_that_is_null(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    sql(spark, f"CREATE TABLE delta.`{path}` (id INT, v VARIANT) USING delta")
    write_delta(spark.sql("SELECT 1 AS id, parse_json('1') AS v"), str(path), mode="append")
    source = spark.createDataFrame([(1,), (2,)], "id INT")
    source.createOrReplaceTempView("only_spark_knows")
    on = "t.id = s.id AND t.v IS NULL"
    insert = "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    merge_sql(spark, f"MERGE INTO delta.`{path}` t USING only_spark_knows s ON {on} {insert}")
    assert sorted(row.id for row in DeltaTable.forPath(spark, str(path)).toDF().select("id").collect()) == [1, 1, 2]


@pytest.mark.parametrize("value", ["a.b", "a.b + 1"])
def test_a_field_of_the_source_that_looks_like_the_targets_column(
    spark: SparkSession, tmp_path: Path, value: str
) -> None:
    path = tmp_path / "t"
    write_delta(spark.createDataFrame([(1, 1)], "id INT, b INT"), str(path))
    spark.createDataFrame([(2, (7,))], "id INT, a STRUCT<b: INT>").createOrReplaceTempView("only_spark_knows")
    insert = f"WHEN NOT MATCHED THEN INSERT (id, b) VALUES (s.id, {value})"
    merge_sql(spark, f"MERGE INTO delta.`{path}` a USING only_spark_knows s ON a.id = s.id {insert}")
    found = rows(DeltaTable.forPath(spark, str(path)).toDF())
    assert sorted(found) == [(1, 1), (2, 7 if value == "a.b" else 8)]


@pytest.fixture
def months(spark: SparkSession) -> Iterator[None]:
    """A session whose function ``month`` is its own, where Spark lets it be."""
    order = "spark.sql.functionResolution.sessionOrder"
    try:
        spark.conf.set(order, "first")
    except PySparkException:
        pytest.skip("this Spark puts its own functions first")
    spark.udf.register("month", lambda _: 77, "int")
    yield
    spark.sql("DROP TEMPORARY FUNCTION IF EXISTS month")
    spark.conf.unset(order)


@pytest.mark.usefixtures("months")
def test_a_function_that_takes_the_place_of_sparks(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_delta(spark.createDataFrame([(1, 0)], "id INT, m INT"), str(path))
    source = spark.createDataFrame([(1, date(2024, 5, 1))], "id INT, d DATE")
    expected = source.selectExpr("month(d) AS m").collect()[0].m
    found = merged(spark, path, source, "WHEN MATCHED THEN UPDATE SET m = month(s.d)")
    assert found == [(1, expected)]


@pytest.mark.usefixtures("months")
def test_a_function_of_the_session_in_a_constraint(spark: SparkSession, tmp_path: Path) -> None:
    """Spark evaluates the constraint, as for the rows of an append."""
    path = tmp_path / "t"
    write_delta(spark.createDataFrame([(1, date(2024, 5, 1))], "id INT, d DATE"), str(path))
    sql(spark, f"ALTER TABLE delta.`{path}` ADD CONSTRAINT late CHECK (month(d) >= 5)")
    source = spark.createDataFrame([(1, date(2024, 1, 1))], "id INT, d DATE")
    has_own = source.selectExpr("month(d) AS m").collect()[0].m == 77
    with nullcontext() if has_own else pytest.raises(DeltaRuntimeException, match="late"):
        merged(spark, path, source, "WHEN MATCHED THEN UPDATE SET *")


def test_a_function_in_python_of_the_name_of_sparks(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_delta(spark.createDataFrame([(1, 0)], "id INT, m INT"), str(path))
    source = spark.createDataFrame([(1, date(2024, 5, 1))], "id INT, d DATE")

    def month(value: date) -> int:
        return value.month + 100

    of_user = F.udf(month, "int", useArrow=False)
    merge = DeltaTable.forPath(spark, str(path)).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate(set={"m": of_user(source["d"])}).execute()
    assert rows(DeltaTable.forPath(spark, str(path)).toDF()) == [(1, 105)]
