"""Texts, names and files that Spark reads in other ways than they look: every executor finds the same rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import convert_to_deltalake
from pyspark.sql import functions as F

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.exceptions import MultipleSourceRowsException
from deltamerge.scan.parquet_files import read_parquet
from deltamerge.spark.table import open_table

from .tables import EXECUTOR, frame, rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


OLD_SPARK = {"org.apache.spark.version": "2.4.8", "org.apache.spark.legacyDateTime": ""}


def write(path: Path, metadata: dict[str, str] | None = None, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"], **columns})
    pq.write_table(table.replace_schema_metadata(metadata), path)


def merged(spark: SparkSession, folder: Path, source: DataFrame, condition: str | Column) -> list[Any]:
    """Merges by each executor; gives the rows, which must be the same."""
    found = []
    for executor in ("classic", "auto"):
        path = str(folder / executor)
        write_delta(frame(spark, "id INT, v STRING", [(1, "old"), (2, "old")]), path)
        spark.conf.set(EXECUTOR, executor)
        merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdate(condition, {"v": "s.v"}).execute()
        found.append(rows(DeltaTable.forPath(spark, path).toDF()))
    assert found[0] == found[1]
    return [id_ for id_, v in found[1] if v != "old"]


@pytest.mark.sessions
def test_variables_in_texts(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "s")
    spark.conf.set("my.var", "b")
    source = spark.read.parquet(str(tmp_path / "s"))
    assert merged(spark, tmp_path, source, "s.v = '${my.var}'") == [2]
    assert merged(spark, tmp_path / "not", source, "s.v <> '${my.var}'") == [1]


@pytest.mark.sessions
def test_names_that_are_computed(spark: SparkSession, tmp_path: Path) -> None:
    """A column that no expression spells out is read all the same."""
    write(tmp_path / "s")
    source = spark.read.parquet(str(tmp_path / "s"))
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id INT, v STRING", [(1, "old"), (2, "old")]), path)
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate(set={"v": "concat(IDENTIFIER('s.' || 'v'), '!')"}).execute()
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "a!"), (2, "b!")]


@pytest.mark.sessions
def test_a_view_that_was_made_anew_since_it_was_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    """Columns are taken by their names as the source has them when the merge runs, as delta-spark does."""
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id INT, a STRING, b STRING", [(1, "old", "old")]), path)
    frame(spark, "id INT, a STRING, b STRING", [(1, "a", "b")]).createOrReplaceTempView("staged")
    source = spark.table("staged")
    assert source.schema.names == ["id", "a", "b"]
    frame(spark, "b STRING, id INT, a STRING", [("b", 1, "a")]).createOrReplaceTempView("staged")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().execute()
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "a", "b")]


@pytest.mark.sessions
@pytest.mark.parametrize("executor", ["classic", "auto"])
def test_variables_in_on(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id INT, v STRING", [(1, "old"), (2, "other")]), path)
    frame(spark, "id INT, more INT", [(1, 5), (2, 6)]).createOrReplaceTempView("changes")
    spark.conf.set(EXECUTOR, executor)
    spark.conf.set("my.var", "old")
    spark.conf.set("my.column", "s.more")
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING changes s ON t.id = s.id AND t.v = '${{my.var}}' "
        "WHEN MATCHED THEN UPDATE SET v = ${my.column}",
    )
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "5"), (2, "other")]


NAMES: dict[str, Callable[[], Column]] = {
    "a number": lambda: F.col("0") > 5,
    "a number in a list": lambda: F.col("0").isin(10, 12),
    "a date": lambda: F.col("2020-01-01") == date(2020, 1, 1),
    "a truth value": lambda: F.col("true"),
    "not a number": lambda: F.col("nan") == 1.0,
    "a remainder": lambda: F.col("id % 2") == 5,
    "a comparison": lambda: F.col("id > 0"),
    "a comparison behind an alias": lambda: F.col("s.`id > 0`"),
    "two names": lambda: F.col("`id, 0`").isin(1),
    "a dot": lambda: F.col("`s.id`") == 2,
}


@pytest.mark.sessions
@pytest.mark.parametrize("name", NAMES)
def test_names_that_print_like_something_else(spark: SparkSession, tmp_path: Path, name: str) -> None:
    columns = {
        "0": [1, 10],
        "2020-01-01": pa.array([date(2020, 1, 2), date(2020, 1, 1)]),
        "true": [False, True],
        "nan": [0.0, 1.0],
        "id % 2": [4, 5],
        "id > 0": [False, True],
        "id, 0": [0, 1],
        "s.id": [1, 2],
    }
    write(tmp_path / "s", **columns)
    source = spark.read.parquet(str(tmp_path / "s"))
    assert merged(spark, tmp_path, source, NAMES[name]()) == [2]


@pytest.mark.sessions
@pytest.mark.parametrize("executor", ["classic", "auto"])
def test_key_that_prints_like_a_number(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id INT, v STRING", [(1, "a"), (2, "b")]), path)
    spark.conf.set(EXECUTOR, executor)
    source = frame(spark, "`9` INT, w STRING", [(1, "x"), (7, "y")])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, F.col("t.id") == F.col("9"))
    merge.whenMatchedUpdate(set={"v": "w"}).execute()
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "x"), (2, "b")]


@pytest.mark.sessions
@pytest.mark.parametrize("reserved", ["true", "false"])
def test_columns_with_names_of_functions(spark: SparkSession, tmp_path: Path, reserved: str) -> None:
    write(tmp_path / "s", current_date=pa.array([date(2000, 1, 1)] * 2), current_user=["zz", "zz"])
    spark.conf.set("spark.sql.ansi.enabled", "true")
    spark.conf.set("spark.sql.ansi.enforceReservedKeywords", reserved)
    source = spark.read.parquet(str(tmp_path / "s"))
    found = merged(spark, tmp_path, source, "current_date = DATE'2000-01-01' AND current_user = 'zz'")
    assert found == ([] if reserved == "true" else [1, 2])


@pytest.mark.sessions
@pytest.mark.parametrize("condition", ["s.k = 7", "abs(s.k) = 7"])
def test_folder_says_otherwise_than_the_file(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    write(tmp_path / "s" / "k=7" / "a.parquet", k=pa.array([1, 1], pa.int32()))
    source = spark.read.parquet(str(tmp_path / "s"))
    assert merged(spark, tmp_path, source, condition) == [1, 2]


@pytest.mark.parametrize("option", [None, "LEGACY"])
@pytest.mark.parametrize("metadata", [None, OLD_SPARK, {"org.apache.spark.version": "2.4.8"}])
def test_days_before_1582(
    spark: SparkSession, tmp_path: Path, metadata: dict[str, str] | None, option: str | None
) -> None:
    write(tmp_path / "s", metadata, day=pa.array([date(1000, 1, 1), date(2000, 1, 1)]))
    reader = spark.read if option is None else spark.read.option("datetimeRebaseMode", option)
    moved = metadata is not None or option is not None
    source = reader.parquet(str(tmp_path / "s"))
    assert merged(spark, tmp_path, source, "s.day = DATE'1000-01-01'") == ([] if moved else [1])
    # What Spark computes, it computes of the same days.
    computed = merged(spark, tmp_path / "computed", source, "substr(cast(s.day AS string), 1, 7) = '1000-01'")
    assert computed == ([] if moved else [1])


def merged_into_old_days(spark: SparkSession, folder: Path, metadata: dict[str, str] | None, vectors: str) -> list[Any]:
    """Merges into a file with days before 1582 by each executor; gives the rows, which must be the same."""
    spark.conf.set("spark.databricks.delta.properties.defaults.enableDeletionVectors", vectors)
    found = []
    for executor in ("classic", "auto"):
        path = folder / executor
        write(path / "a.parquet", metadata, day=pa.array([date(1000, 1, 1), date(1000, 1, 1)]))
        convert_to_deltalake(path)
        spark.conf.set(EXECUTOR, executor)
        source = spark.sql("SELECT 1 AS id, 'new' AS v, DATE'0900-01-01' AS day UNION ALL SELECT 3, 'z', NULL")
        merge = DeltaTable.forPath(spark, str(path)).alias("t").merge(source.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        days = DeltaTable.forPath(spark, str(path)).toDF().selectExpr("id", "v", "cast(day AS string)")
        found.append(rows(days))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_target_files_without_a_calendar(spark: SparkSession, tmp_path: Path, vectors: str) -> None:
    """A session may take their days for those of the old calendar; new rows stand in files that tell."""
    for mode in ("CORRECTED", "LEGACY"):
        spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", mode)
        found = merged_into_old_days(spark, tmp_path / mode, None, vectors)
        assert found[0] == (1, "new", "0900-01-01")


@pytest.mark.parametrize("mode", ["CORRECTED", "LEGACY"])
def test_new_files_tell_their_calendar(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id INT, day DATE", [(1, date(2020, 1, 1))]), path)
    source = spark.sql("SELECT 2 AS id, DATE'0900-01-01' AS day")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    assert merge.whenNotMatchedInsertAll().run().outcome.executor == "key_lookup"
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", mode)
    days = DeltaTable.forPath(spark, path).toDF().selectExpr("id", "cast(day AS string)")
    assert rows(days) == [(1, "2020-01-01"), (2, "0900-01-01")]


@pytest.mark.sessions
@pytest.mark.parametrize("executor", ["classic", "auto"])
@pytest.mark.parametrize("as_columns", [False, True])
def test_keys_that_fail_in_rows_that_on_leaves_out(
    spark: SparkSession, tmp_path: Path, executor: str, as_columns: bool
) -> None:
    """A join asks what ON says of the source alone before it computes the keys."""
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id INT, n INT, x DOUBLE", [(1, 10, 2.0), (2, 20, 5.0)]), path)
    spark.conf.set(EXECUTOR, executor)
    spark.conf.set("spark.sql.ansi.enabled", "true")
    source = frame(spark, "kind STRING, txt STRING, z INT", [("num", "10", 5), ("x", "abc", 0)])
    for key in ("t.n = CAST(s.txt AS INT)", "t.x = 10 / s.z"):
        on: Any = f"s.kind = 'num' -- numbers\nAND {key} -- the key"
        if as_columns:
            on = (F.col("s.kind") == "num") & F.expr(key)
        merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), on)
        report = merge.whenMatchedUpdate(set={"n": "t.n"}).run()
        assert report.metrics["numTargetRowsUpdated"] == 1


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_target_files_of_spark_2(spark: SparkSession, tmp_path: Path, vectors: str) -> None:
    found = merged_into_old_days(spark, tmp_path, OLD_SPARK, vectors)
    assert found == [(1, "new", "0900-01-01"), (2, "b", "0999-12-27"), (3, "z", None)]


def test_a_path_that_is_named_twice(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "s")
    source = spark.read.parquet(str(tmp_path / "s"), str(tmp_path / "s"))
    with pytest.raises(MultipleSourceRowsException):
        merged(spark, tmp_path, source, "s.id > 0")


def test_files_that_spell_a_column_in_two_cases(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "s", V=["c", "d"])
    source = spark.read.schema("id INT, v STRING").parquet(str(tmp_path / "s"))
    with pytest.raises(Exception, match="FAILED_READ_FILE"):
        merged(spark, tmp_path, source, "s.id > 0")


def test_columns_by_field_ids(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.types import IntegerType, StringType, StructType

    fields = [("id", pa.int32(), b"1"), ("v", pa.string(), b"3"), ("w", pa.string(), b"2")]
    schema = pa.schema([pa.field(n, t, metadata={b"PARQUET:field_id": i}) for n, t, i in fields])
    pq.write_table(pa.table({"id": [1, 2], "v": ["a", "b"], "w": ["W", None]}, schema), tmp_path / "s")
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    by_id = StructType().add("id", IntegerType(), metadata={"parquet.field.id": 1})
    source = spark.read.schema(by_id.add("v", StringType(), metadata={"parquet.field.id": 2}))
    assert merged(spark, tmp_path, source.parquet(str(tmp_path / "s")), "s.v IS NOT NULL") == [1]


SCHEMAS = [
    "3", "[]", "null", "no JSON", '{"type":"struct","fields":[3]}', '{"type":"struct","fields":{}}',
    '{"type":"struct","fields":[{"name":"id","type":5,"nullable":true,"metadata":{}}]}',
    '{"type":"struct","fields":[{"name":5,"type":"integer","nullable":true,"metadata":{}}]}',
    '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":null}]}',
    '{"type":"struct","fields":[{"name":"id","type":"decimal(50,2)","nullable":true,"metadata":{}}]}',
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS)
def test_footers_that_tell_no_schema(spark: SparkSession, tmp_path: Path, schema: str) -> None:
    write(tmp_path / "s", {"org.apache.spark.sql.parquet.row.metadata": schema})
    assert read_parquet(open_table(spark, "/nowhere"), str(tmp_path / "s"), {}) is None
