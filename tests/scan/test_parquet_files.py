"""``parquet.`path` `` as a source: the same columns and rows as Spark's, read without a job where that is safe."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge import DeltaTable, merge_sql
from deltamerge.scan.parquet_files import read_parquet
from deltamerge.spark.table import open_table
from merge.tables import CONNECT, people, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions

PLAIN = pa.table(
    {
        "a": pa.array([1, None], pa.int8()),
        "b": pa.array([1, 2], pa.int16()),
        "c": pa.array([1, 2], pa.int32()),
        "d": pa.array([1, None], pa.int64()),
        "e": pa.array([1.5, float("nan")], pa.float32()),
        "f": [1.5, None],
        "g": [True, None],
        "h": ["x", None],
        "i": pa.array([0, 1], pa.timestamp("us", "UTC")),
        "j": pa.array([0, 1], pa.date32()),
        "k": [Decimal("1.25"), None],
        "with.a dot": [1, 2],
        "É": ["x", "y"],
    }
)
NOT_PLAIN = {
    "binary": pa.table({"a": [b"x"]}),
    "unsigned": pa.table({"a": pa.array([1], pa.uint32())}),
    "local time": pa.table({"a": pa.array([0], pa.timestamp("us"))}),
    "milliseconds": pa.table({"a": pa.array([0], pa.timestamp("ms", "UTC"))}),
    "list": pa.table({"a": [[1]]}),
    "struct": pa.table({"a": [{"b": 1}]}),
    "two cases": pa.table({"a": [1], "A": [2]}),
}


def write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def as_spark_reads(spark: SparkSession, path: Path) -> tuple[object, ...]:
    frame = spark.sql(f"SELECT * FROM parquet.`{path}`")
    return frame.schema, frame.toArrow()


def check_same(spark: SparkSession, path: Path) -> None:
    found = read_parquet(open_table(spark, "/nowhere"), str(path), {})
    assert found is not None
    schema, table = as_spark_reads(spark, path)
    assert found.schema == schema
    assert str(found.toArrow().to_pylist()) == str(table.to_pylist())  # type: ignore[attr-defined]


@pytest.mark.parametrize("decimals_as_integers", [False, True])
def test_files_of_pyarrow(spark: SparkSession, tmp_path: Path, decimals_as_integers: bool) -> None:
    pq.write_table(PLAIN, tmp_path / "f", store_decimal_as_integer=decimals_as_integers)
    check_same(spark, tmp_path / "f")


def test_folder_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "f"
    columns = (
        "id",
        "timestamp_seconds(id) AS ts",
        "cast(id AS decimal(9, 2)) AS d",
        "'' AS s",
        "tinyint(id) AS b",
    )
    spark.range(0, 40, 1, 3).selectExpr(*columns).write.parquet(str(folder))
    (folder / "_logs").mkdir()
    (folder / "._hidden").write_text("no Parquet")
    (folder / "z._COPYING_").write_text("no Parquet")
    check_same(spark, folder)


def test_first_file_says_which_columns_there_are(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "f" / "b.parquet", pa.table({"x": [1], "y": [2]}))
    write(tmp_path / "f" / "a.parquet", pa.table({"x": [3]}))
    check_same(spark, tmp_path / "f")


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_rare_columns_are_spark_s(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    write(tmp_path / "f" / "a.parquet", NOT_PLAIN[kind])
    assert read_parquet(open_table(spark, "/nowhere"), str(tmp_path / "f"), {}) is None


FOLDERS = {
    "partitions": "day=1/a.parquet",
    "hidden partitions": "_day=1/a.parquet",
    "folders": "sub/a.parquet",
    "summary": "_metadata",
    "é": "a.parquet",
    "accents": "é.parquet",
    "glob*": "a.parquet",
}


@pytest.mark.parametrize("name", FOLDERS)
def test_other_folders_are_spark_s(spark: SparkSession, tmp_path: Path, name: str) -> None:
    write(tmp_path / name / "plain.parquet", PLAIN)
    write(tmp_path / name / FOLDERS[name], PLAIN)
    assert read_parquet(open_table(spark, "/nowhere"), str(tmp_path / name), {}) is None


def test_what_is_no_folder_of_parquet_files_is_spark_s(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.parquet").write_text("no Parquet")
    write(tmp_path / "f" / "a.parquet", PLAIN)
    for path in (f"{tmp_path}/empty", f"{tmp_path}/text", f"{tmp_path}/missing", f"file://{tmp_path}/f", "f"):
        assert read_parquet(open_table(spark, "/nowhere"), path, {}) is None, path


@pytest.mark.parametrize(
    ("key", "value"), [("spark.sql.parquet.mergeSchema", "true"), ("spark.sql.runSQLOnFiles", "false")]
)
def test_settings_that_change_what_a_path_is(spark: SparkSession, tmp_path: Path, key: str, value: str) -> None:
    write(tmp_path / "f", PLAIN)
    spark.conf.set(key, value)
    assert read_parquet(open_table(spark, "/nowhere"), str(tmp_path / "f"), {}) is None


if not CONNECT:

    def test_merge_of_files_needs_no_job(spark: SparkSession, tmp_path: Path) -> None:
        path = people(spark, tmp_path / "t")
        schema = pa.schema([("id", pa.int32()), ("name", pa.string()), ("age", pa.int32())])
        new = [{"id": 3, "name": "CY", "age": 51}, {"id": 1, "name": "gone"}, {"id": 9, "name": "new"}]
        write(tmp_path / "s" / "a.parquet", pa.Table.from_pylist(new, schema))
        before = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
        report = merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` t USING parquet.`{tmp_path}/s` s ON t.id = s.id "
            "WHEN MATCHED AND s.name = 'gone' THEN DELETE WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED AND s.id % 2 = 1 THEN INSERT *",
        )
        assert report.outcome.executor == "key_lookup"
        assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == before
        merged = rows(DeltaTable.forPath(spark, path).toDF())
        assert merged == [(2, "bob", 40), (3, "CY", 51), (9, "new", None)]
