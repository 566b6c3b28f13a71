"""Dates as keys of a key lookup: it agrees with the classic route, whatever calendar a file's days are of."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import convert_to_deltalake

from deltamerge import DeltaTable, MergeReport, write_delta
from merge.tables import EXECUTOR, VECTORS, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ON = "t.id = s.id AND t.day = s.day"
DAYS = "date_add(DATE'2024-02-26', cast(id % 6 AS int))"


def table(spark: SparkSession, path: Path, **options: object) -> str:
    some = spark.range(60).selectExpr("id", f"nullif({DAYS}, DATE'2024-02-28') AS day", "0 AS v").coalesce(1)
    write_delta(some, str(path), **options)  # type: ignore[arg-type]
    return str(path)


def upsert(spark: SparkSession, path: str, new: DataFrame) -> MergeReport:
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), ON)
    merge = merge.whenMatchedDelete("s.v < 0").whenMatchedUpdateAll().whenNotMatchedInsertAll()
    return merge.whenNotMatchedBySourceDelete("t.day = DATE'2024-02-29'").run()


@pytest.mark.sessions
@pytest.mark.parametrize("partition_by", [[], ["day"]])
@pytest.mark.parametrize("kind", ["query", "files"])
def test_it_agrees_with_the_classic_route(
    spark: SparkSession, tmp_path: Path, partition_by: list[str], kind: str
) -> None:
    new = spark.range(3, 90, 4).selectExpr("id", f"{DAYS} AS day", "cast(id % 5 AS int) - 1 AS v")
    if kind == "files":
        new.write.parquet(str(tmp_path / "new"))
        new = spark.read.parquet(str(tmp_path / "new"))
    found = []
    for executor in ("classic", "key_lookup"):
        properties = VECTORS if kind == "files" else {}
        path = table(spark, tmp_path / executor, partition_by=partition_by, properties=properties)
        spark.conf.set(EXECUTOR, executor)
        report = upsert(spark, path, new)
        assert report.outcome.executor == executor
        metrics = {name: n for name, n in report.metrics.items() if name.startswith("numTargetRows")}
        found.append((rows(DeltaTable.forPath(spark, path).toDF()), metrics))
    assert found[0] == found[1]


def test_gaps_between_days(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    some = spark.range(10).selectExpr("id", "date_add(DATE'2024-01-01', cast(id AS int)) AS day", "0 AS v")
    write_delta(some.repartitionByRange(10, "id"), path)
    new = some.where("id IN (2, 9)").selectExpr("id", "day", "1 AS v")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.day = s.day")
    report = merge.whenMatchedUpdateAll().run()
    assert report.outcome.executor == "key_lookup"
    assert report.metrics["numTargetFilesAfterSkipping"] == 2


@pytest.mark.parametrize("metadata", [None, {"org.apache.spark.version": "2.4.8"}])
def test_files_of_another_calendar(spark: SparkSession, tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "t"
    path.mkdir()
    days = pa.table(
        {
            "id": [1, 2],
            "day": pa.array([date(1000, 1, 1), date(900, 1, 1)]),
            "v": pa.array([0, 0], pa.int32()),
        }
    )
    pq.write_table(days.replace_schema_metadata(metadata), path / "a.parquet")
    convert_to_deltalake(path)
    today = "1000-01-01" if metadata is None else "0999-12-27"
    new = spark.sql(f"SELECT 1L AS id, DATE'{today}' AS day, 7 AS v")
    report = upsert(spark, str(path), new)
    assert (report.outcome.executor == "key_lookup") == (metadata is None)
    assert report.metrics["numTargetRowsUpdated"] == 1


def test_days_that_python_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t")
    new = spark.sql("SELECT 900L AS id, DATE'+12000-01-01' AS day, 7 AS v UNION ALL SELECT 0, DATE'2024-02-26', 8")
    report = upsert(spark, path, new)
    assert (report.metrics["numTargetRowsUpdated"], report.metrics["numTargetRowsInserted"]) == (1, 1)
    new = new.selectExpr("id", "day", "v + 1 AS v")
    assert upsert(spark, path, new).metrics["numTargetRowsUpdated"] == 2
    new.write.parquet(str(tmp_path / "new"))
    assert upsert(spark, path, spark.read.parquet(str(tmp_path / "new"))).metrics["numTargetRowsUpdated"] == 2
