"""MATCHED conditions that look at the target's row: key lookup asks them of each pair of rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import WriterProperties, convert_to_deltalake, write_deltalake

from deltamerge import DeltaTable, MergeReport, write_delta
from deltamerge.exceptions import MultipleSourceRowsException
from merge.tables import VECTORS, frame, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.quick

SCHEMA = "id BIGINT, at TIMESTAMP, v STRING"


def at(spark: SparkSession, *some: tuple[int, int | None, str]) -> DataFrame:
    """Makes rows with a time that is so many microseconds after 2024."""
    made = frame(spark, "id BIGINT, after BIGINT, v STRING", list(some))
    start = "unix_micros(TIMESTAMP'2024-01-01 00:00:00')"
    return made.selectExpr("id", f"timestamp_micros({start} + after) AS at", "v")


def merge_newer(spark: SparkSession, path: str, new: DataFrame) -> MergeReport:
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedDelete("s.at > t.at AND s.v = 'gone'").whenMatchedUpdateAll("s.at > t.at")
    return merge.whenNotMatchedInsertAll("s.v <> 'gone'").run()


@pytest.mark.parametrize("properties", [{}, VECTORS])
@pytest.mark.parametrize("in_files", [False, True])
def test_only_newer_rows(spark: SparkSession, tmp_path: Path, properties: dict[str, str], in_files: bool) -> None:
    path = str(tmp_path / "t")
    old = at(spark, (1, 5, "a"), (2, 5, "b"), (3, 5, "c"), (4, None, "d"), (5, 5, "e"), (6, 5, "f"))
    write_delta(old, path, properties=properties)
    new = at(
        spark,
        (1, 6, "A"),
        (2, 5, "B"),
        (3, 4, "C"),
        (4, 9, "D"),
        (5, None, "E"),
        (6, 6, "gone"),
        (7, 1, "G"),
        (8, 1, "gone"),
    )
    if in_files:
        new.write.parquet(str(tmp_path / "new"))
        new = spark.read.parquet(str(tmp_path / "new"))
    report = merge_newer(spark, path, new)
    assert report.outcome.executor == "key_lookup"
    assert [clause.rows for clause in report.clauses] == [1, 1, 1]
    found = rows(DeltaTable.forPath(spark, path).toDF().select("id", "v"))
    assert found == [(1, "A"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (7, "G")]


@pytest.mark.slow
def test_rows_that_compete(spark: SparkSession, tmp_path: Path) -> None:
    """Several source rows may have a target row's key, as long as a clause takes one of them at most."""
    path = str(tmp_path / "t")
    write_delta(at(spark, (1, 5, "a"), (2, 5, "b")), path)
    report = merge_newer(spark, path, at(spark, (1, 4, "old"), (1, 6, "new"), (1, 5, "same")))
    assert report.outcome.executor == "key_lookup"
    assert rows(DeltaTable.forPath(spark, path).toDF().select("id", "v")) == [(1, "new"), (2, "b")]
    with pytest.raises(MultipleSourceRowsException):
        merge_newer(spark, path, at(spark, (2, 6, "one"), (2, 7, "other")))
    assert DeltaTable.forPath(spark, path).history().count() == 2


def test_a_column_that_files_lack(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": [1, 2]}))
    more = pa.table({"id": [3, 4], "v": pa.array([3, 4], pa.int64())})
    write_deltalake(path, more, mode="append", schema_mode="merge")
    new = spark.range(1, 6).selectExpr("id", "10L AS v")
    merge = DeltaTable.forPath(spark, str(path)).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll("t.v IS NULL OR t.v > 3").run()
    assert report.outcome.executor == "key_lookup"
    assert rows(DeltaTable.forPath(spark, str(path)).toDF()) == [(1, 10), (2, 10), (3, 3), (4, 10)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "values"),
    [
        ("s.v > t.v", {"v": "abs(s.v)"}),
        ("s.v + 1 > t.v", {"v": "s.v"}),
        ("s.v > t.small", {"small": "abs(s.v)"}),
        ("s.v > t.v", {"v": "greatest(t.v, s.v)"}),
        ("s.v > t.x", {"v": "s.v"}),
    ],
)
def test_what_is_left_to_spark(spark: SparkSession, tmp_path: Path, condition: str, values: dict[str, str]) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(4).selectExpr("id", "id AS v", "cast(id AS smallint) AS small", "double(id) AS x"), path)
    new = spark.range(4).selectExpr("id", "2L AS v")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdate(condition, values).run()
    assert report.outcome.plan is not None
    assert report.outcome.plan.changed_rows.choice == "pair_values"
    assert report.metrics["numTargetRowsUpdated"] == (3 if "+ 1 >" in condition else 2)


@pytest.mark.slow
@pytest.mark.parametrize("properties", [{}, VECTORS])
def test_partitions_and_texts(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    path = str(tmp_path / "t")
    old = frame(spark, "id BIGINT, day DATE, name STRING", [(i, None, f"n{i % 3}") for i in range(12)])
    old = old.selectExpr(
        "id", "nullif(date_add(DATE'2024-01-01', cast(id % 4 AS int)), DATE'2024-01-04') AS day", "name"
    )
    write_delta(old, path, partition_by=["day"], properties=properties)
    new = spark.range(14).selectExpr("id", "DATE'2024-01-02' AS day", "if(id % 2 = 0, 'n1', 'n0') AS name")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedDelete("t.day IS NULL").whenMatchedUpdate(
        "t.day <= s.day AND t.name <> s.name", {"name": "s.name"}
    )
    report = merge.whenNotMatchedBySourceDelete().run()
    assert report.outcome.executor == "key_lookup"
    expected = []
    for i in range(12):
        day, name, other = i % 4, f"n{i % 3}", "n1" if i % 2 == 0 else "n0"
        if day != 3:
            expected.append((i, other if day <= 1 else name))
    found = DeltaTable.forPath(spark, path).toDF().select("id", "name").collect()
    assert sorted((row.id, row.name) for row in found) == expected


@pytest.mark.slow
def test_many_row_groups(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    ids = pa.array(range(5_000), pa.int64())
    small = WriterProperties(max_row_group_size=300)
    write_deltalake(path, pa.table({"id": ids, "v": ids}), writer_properties=small)
    new = spark.range(0, 6_000, 7).selectExpr("id", "if(id % 2 = 0, id + 1, id) AS v")
    new = new.union(spark.sql("SELECT 4998L AS id, -1L AS v"))
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdateAll("s.v > t.v").whenNotMatchedBySourceDelete("t.v BETWEEN 1000 AND 1999")
    report = merge.run()
    assert report.outcome.executor == "key_lookup"
    kept = [i for i in range(5_000) if i % 7 == 0 or not 1000 <= i <= 1999]
    expected = [(i, i + 1 if i % 14 == 0 else i) for i in kept]
    assert sorted(map(tuple, DeltaTable.forPath(spark, path).toDF().collect())) == expected


def test_times_of_another_type(spark: SparkSession, tmp_path: Path) -> None:
    """A file whose times are not those of the table's type is read by Spark."""
    path = tmp_path / "t"
    path.mkdir()
    some = pa.table({"id": [1, 2], "at": pa.array([10, 20], pa.timestamp("us", "UTC")), "v": ["a", "b"]})
    pq.write_table(some, path / "a.parquet", use_deprecated_int96_timestamps=True)
    convert_to_deltalake(path)
    new = spark.sql("SELECT id, timestamp_micros(15) AS at, 'new' AS v FROM range(1, 3)")
    merge = DeltaTable.forPath(spark, str(path)).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdate("s.at > t.at", {"v": "s.v"}).run()
    assert report.outcome.executor != "key_lookup"
    assert report.metrics["numTargetRowsUpdated"] == 1
