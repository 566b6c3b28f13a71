"""Deletion vectors of deltamerge and of delta-spark: each reads and extends the other's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from corpus.runner import canonical_rows
from deltamerge import DeltaTable, merge_sql, write_delta
from merge.tables import edited
from merge.test_deletion_vectors import VECTORS, holds, respelled

from .client import LineProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.oracle

UPSERT = (
    "MERGE INTO delta.`{}` t USING src s ON t.id = s.id WHEN MATCHED AND s.v IS NULL THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * "
    "WHEN NOT MATCHED BY SOURCE AND t.id % 50 = 49 THEN UPDATE SET v = -t.v"
)
# Ids, and those of them that are deleted, for one merge after the other.
SOURCES = (
    "SELECT id * 7 AS id, IF(id % 3 = 0, NULL, id) AS v FROM range(0, 200)",
    "SELECT id * 5 AS id, IF(id % 2 = 0, NULL, id) AS v FROM range(0, 300)",
    "SELECT id AS id, CAST(NULL AS BIGINT) AS v FROM range(500, 1000)",
    "SELECT id AS id, id AS v FROM range(0, 30)",
)
COUNTED = (
    "numSourceRows", "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted", "numTargetRowsCopied",
    "numTargetRowsMatchedUpdated", "numTargetRowsMatchedDeleted", "numTargetRowsNotMatchedBySourceUpdated",
    "numTargetFilesRemoved", "numTargetDeletionVectorsAdded", "numTargetDeletionVectorsRemoved",
    "numTargetDeletionVectorsUpdated", "numOutputRows",
)  # fmt: skip


def table(spark: SparkSession, path: Path) -> str:
    for number, first in enumerate((0, 500)):
        part = spark.range(first, first + 500).selectExpr("id", "id * 10 AS v").coalesce(1)
        write_delta(part, str(path), mode="append" if number else "error", properties=VECTORS)
    return str(path)


def rows_of(spark: SparkSession, path: str) -> list[str]:
    return list(canonical_rows(DeltaTable.forPath(spark, path).toDF()))


def metrics(path: str, version: int) -> dict[str, str]:
    file = Path(path, "_delta_log", f"{version:020d}.json")
    info = next(line["commitInfo"] for line in map(json.loads, file.read_text().splitlines()) if "commitInfo" in line)
    return {name: info["operationMetrics"][name] for name in COUNTED}


def merged_by(engine: str, spark: SparkSession, oracle: LineProcess, path: str, source: str) -> None:
    if engine == "delta-spark":
        oracle.ask("merge", statement=UPSERT.format(path), queries={"src": f"{source} ORDER BY id"})
        return
    spark.sql(source).createOrReplaceTempView("src")
    try:
        merge_sql(spark, UPSERT.format(path))
    finally:
        spark.catalog.dropTempView("src")


def test_merges_in_turn(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    """One table is merged into by both in turn, a copy by delta-spark alone: all rows and counts are the same."""
    mixed, reference = table(spark, tmp_path / "mixed"), str(tmp_path / "reference")
    shutil.copytree(mixed, reference)
    for number, source in enumerate(SOURCES):
        merged_by(("deltamerge", "delta-spark")[number % 2], spark, oracle, mixed, source)
        merged_by("delta-spark", spark, oracle, reference, source)
        expected = oracle.ask("read", path=reference)["rows"]
        assert oracle.ask("read", path=mixed)["rows"] == expected
        assert rows_of(spark, mixed) == expected
        # Later merges meet other files, as each engine puts new rows into files in its own way.
        if number == 0:
            assert metrics(mixed, 2) == metrics(reference, 2)


@pytest.mark.parametrize("kind", ["i", "p"])
def test_vectors_in_other_places(kind: str, oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    """An inline vector and one at an absolute path are what delta-spark takes them for."""
    path = table(spark, tmp_path / "t t")
    merged_by("deltamerge", spark, oracle, path, "SELECT id, CAST(NULL AS BIGINT) AS v FROM range(0, 500, 3)")

    def change(add: dict[str, Any]) -> None:
        if "deletionVector" in add:
            add["deletionVector"] = respelled(path, add["deletionVector"], kind)

    edited(path, 2, change)
    assert rows_of(spark, path) == oracle.ask("read", path=path)["rows"]
    merged_by("delta-spark", spark, oracle, path, "SELECT id, id AS v FROM range(0, 20)")
    merged_by("deltamerge", spark, oracle, path, "SELECT id, id + 1 AS v FROM range(10, 30)")
    assert rows_of(spark, path) == oracle.ask("read", path=path)["rows"]
    holds(spark, path, {row["id"]: row["v"] for row in map(json.loads, rows_of(spark, path))})
