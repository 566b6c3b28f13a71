"""Filters on partition columns keep Spark from reading other partitions, however many writes made them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from deltamerge import DeltaTable, write_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.sessions]

WRITES = 18
DAY = "date_add(DATE'2024-01-01', {}) AS day"


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    # Spark would take the table's own folder for a partition's.
    path = str(tmp_path / "env=test" / "a table")
    for i in range(WRITES):
        rows = spark.sql(f"SELECT id, {DAY.format(i)}, if(id = 0, NULL, 'a/b') AS kind FROM range(2)")
        write_delta(rows, path, mode="append", partition_by=["day", "kind"])
    return path


def plan_of(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    frame.explain()
    return capsys.readouterr().out


def test_many_writes(spark: SparkSession, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = DeltaTable.forPath(spark, path)
    found = table.toDF().where("day = '2024-01-05' AND kind IS NULL")
    assert [tuple(row) for row in found.selectExpr("id", "CAST(day AS STRING)").collect()] == [(0, "2024-01-05")]
    plan = plan_of(found, capsys)
    assert plan.count("FileScan") == 1
    assert "Join" not in plan
    assert "PartitionFilters: [isnotnull(day" in plan
    assert table.toDF().count() == 2 * WRITES


def test_clones(spark: SparkSession, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A clone's files are those of other tables and its own."""
    clone = DeltaTable.forPath(spark, path).clone(str(tmp_path / "clone"), isShallow=True)
    write_delta(spark.sql(f"SELECT 7L AS id, {DAY.format(4)}, 'c=d' AS kind"), str(tmp_path / "clone"), mode="append")
    found = clone.toDF().where("day = '2024-01-05'")
    assert sorted(row["id"] for row in found.collect()) == [0, 1, 7]
    assert plan_of(found, capsys).count("FileScan") == 2
    assert clone.toDF().count() == 2 * WRITES + 1


def test_files_whose_folders_do_not_name_the_values(
    spark: SparkSession, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """These files alone are read beside a list of their values."""
    log = Path(path, "_delta_log", "00000000000000000004.json")
    adds = (line["add"] for line in map(json.loads, log.read_text().splitlines()) if "add" in line)
    (added,) = (each for each in adds if each["partitionValues"]["kind"] is None)
    shutil.copy(Path(path, unquote(unquote(added["path"]))), Path(path, "odd.parquet"))
    commit = json.dumps({"add": {**added, "path": "odd.parquet"}})
    log.with_name(f"{WRITES:020}.json").write_text(commit)
    found = DeltaTable.forPath(spark, path).toDF().where("day = '2024-01-05'")
    plan = plan_of(found, capsys)
    assert sorted(str((row["id"], row["kind"])) for row in found.collect()) == ["(0, None)"] * 2 + ["(1, 'a/b')"]
    assert plan.count("FileScan") == 2
    assert "PartitionFilters: [isnotnull(day" in plan


def test_column_mapping(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t")
    properties = {"delta.columnMapping.mode": "name"}
    for i in range(WRITES):
        rows = spark.sql(f"SELECT id, {i} AS `the part` FROM range(2)")
        write_delta(rows, path, mode="append", partition_by=["the part"], properties=properties if i == 0 else None)
    found = DeltaTable.forPath(spark, path).toDF().where("`the part` = 3")
    assert [tuple(row) for row in found.collect()] == [(0, 3), (1, 3)]
    assert "PartitionFilters: [isnotnull(" in plan_of(found, capsys)
