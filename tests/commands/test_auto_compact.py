"""What a commit is followed by where auto compaction is on, and how optimized writes put rows together."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deltamerge
from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.commands import auto_compact
from deltamerge.exceptions import DeltaIllegalArgumentException
from merge.tables import actions, commit_info, frame, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "spark.databricks.delta."
COMPACTS = {"delta.autoOptimize.autoCompact": "true"}
SCHEMA = "id INT, p STRING"


def files_of(spark: SparkSession, path: str) -> list[str]:
    return sorted(
        str(f.partition_values.get("p")) for f in DeltaTable.forPath(spark, path).table.snapshot().files.add_files()
    )


def merge(spark: SparkSession, path: str, given: list[tuple[int, str]]) -> None:
    frame(spark, SCHEMA, given).createOrReplaceTempView("compact_source")
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING compact_source s ON t.id = s.id AND t.p = s.p "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )


def test_a_wrong_setting_is_refused_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, SCHEMA, [(1, "a")]), path)
    spark.conf.set(PREFIX + "autoCompact.minNumFiles", "many")
    writes: tuple[Callable[[], object], ...] = (
        lambda: write_delta(frame(spark, SCHEMA, [(2, "a")]), path, "append"),
        lambda: merge(spark, path, [(2, "a")]),
        lambda: DeltaTable.forPath(spark, path).update(set={"id": "id + 1"}),
    )
    for write in writes:
        with pytest.raises(DeltaIllegalArgumentException, match=r"autoCompact\.minNumFiles"):
            write()
    spark.conf.unset(PREFIX + "autoCompact.minNumFiles")
    assert [tuple(row) for row in DeltaTable.forPath(spark, path).toDF().collect()] == [(1, "a")]


@pytest.mark.parametrize("by_session", [False, True])
def test_partitions_with_enough_small_files(spark: SparkSession, tmp_path: Path, by_session: bool) -> None:
    path = str(tmp_path / "t")
    spark.conf.set(PREFIX + "autoCompact.minNumFiles", "3")
    if by_session:
        spark.conf.set(PREFIX + "autoCompact.enabled", "true")
    properties = {} if by_session else COMPACTS
    write_delta(frame(spark, SCHEMA, [(1, "a"), (2, "b")]).coalesce(1), path, partition_by="p", properties=properties)
    write_delta(frame(spark, SCHEMA, [(3, "a")]).coalesce(1), path, "append")
    assert files_of(spark, path) == ["a", "a", "b"]
    merge(spark, path, [(4, "a"), (5, "c")])
    # Of the partition that got its third file.
    assert files_of(spark, path) == ["a", "b", "c"]
    info = commit_info(path, 3)
    assert (info["operation"], info["operationParameters"]["auto"]) == ("OPTIMIZE", True)
    assert not any(file["dataChange"] for file in actions(path, 3, "add"))
    assert [row.id for row in DeltaTable.forPath(spark, path).toDF().orderBy("id").collect()] == [1, 2, 3, 4, 5]


def test_replaced_rows_and_new_tables(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.conf.set(PREFIX + "autoCompact.minNumFiles", "2")
    table = f"delta.`{path}` USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.autoOptimize.autoCompact' = 'true')"
    values = "SELECT /*+ REPARTITION(3) */ id, p FROM VALUES (1, 'a'), (2, 'a'), (3, 'a') AS v(id, p)"
    deltamerge.sql(spark, f"CREATE TABLE {table} AS {values}")
    assert files_of(spark, path) == ["a"]
    deltamerge.sql(spark, f"INSERT INTO delta.`{path}` REPLACE WHERE id > 1 {values} WHERE id > 1")
    deltamerge.sql(spark, f"INSERT INTO delta.`{path}` REPLACE WHERE id > 2 SELECT 4, 'a'")
    assert files_of(spark, path) == ["a"]
    assert [row.id for row in DeltaTable.forPath(spark, path).toDF().orderBy("id").collect()] == [1, 2, 4]


def test_the_session_may_say_no_and_large_files_stay(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.conf.set(PREFIX + "autoCompact.minNumFiles", "2")
    spark.conf.set(PREFIX + "autoCompact.maxFileSize", "10")
    write_delta(frame(spark, SCHEMA, [(1, "a")]).coalesce(1), path, properties=COMPACTS)
    write_delta(frame(spark, SCHEMA, [(2, "a")]).coalesce(1), path, "append")
    assert len(files_of(spark, path)) == 2
    spark.conf.unset(PREFIX + "autoCompact.maxFileSize")
    spark.conf.set(PREFIX + "autoCompact.enabled", "false")
    write_delta(frame(spark, SCHEMA, [(3, "a")]).coalesce(1), path, "append")
    assert len(files_of(spark, path)) == 3
    spark.conf.unset(PREFIX + "autoCompact.enabled")
    DeltaTable.forPath(spark, path).update("id = 1", {"p": "'z'"})
    assert len(files_of(spark, path)) == 1


def test_a_failed_compaction_is_no_failed_write(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: Any) -> None:
        raise OSError("no space left")

    path = str(tmp_path / "t")
    write_delta(frame(spark, SCHEMA, [(1, "a")]), path, properties=COMPACTS)
    monkeypatch.setattr(auto_compact, "compact", failing)
    with caplog.at_level(logging.WARNING):
        merge(spark, path, [(2, "a")])
    assert "were not compacted" in caplog.text
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "a"), (2, "a")]


@pytest.mark.parametrize("by_session", [False, True])
def test_optimized_writes_put_the_rows_of_partitions_together(
    spark: SparkSession, tmp_path: Path, by_session: bool
) -> None:
    given = spark.range(40).selectExpr("CAST(id AS INT) AS id", "CAST(id % 2 AS STRING) AS p").repartition(4)
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    plain, optimized = str(tmp_path / "plain"), str(tmp_path / "t")
    write_delta(given, plain, partition_by="p")
    assert len(files_of(spark, plain)) > 2
    if by_session:
        spark.conf.set(PREFIX + "optimizeWrite.enabled", "true")
    properties = {} if by_session else {"delta.autoOptimize.optimizeWrite": "true"}
    write_delta(given, optimized, partition_by="p", properties=properties)
    assert files_of(spark, optimized) == ["0", "1"]
    assert rows(DeltaTable.forPath(spark, optimized).toDF()) == rows(given)
