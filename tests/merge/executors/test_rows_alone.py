"""Files that no source row can match are not joined: BY SOURCE clauses take their rows as they stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltamerge import DeltaTable, MergeReport, write_delta
from merge.tables import EXECUTOR, VECTORS, changes, edited, frame, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = {"delta.enableChangeDataFeed": "true"}
TRACKED = {"delta.enableRowTracking": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}
STRUCT = "CAST(named_struct('a', id, 'B', NULL) AS STRUCT<a: BIGINT, B: STRING>) AS st"
# A merge of so many source rows does not run in one task, where nothing is gained.
SOURCE_ROWS = 10_001


def claim_keys(path: str, version: int) -> None:
    """Makes the log say that the keys of a file are 1000 to 1004."""

    def claim(add: dict[str, Any]) -> None:
        stats = json.loads(add["stats"])
        key = next(name for name, least in stats["minValues"].items() if least == 100)
        stats["minValues"][key], stats["maxValues"][key] = 1000, 1004
        add["stats"] = json.dumps(stats)

    edited(path, version, claim)


def table(spark: SparkSession, path: Path, *more: str, **options: Any) -> str:
    """Makes a table of keys 0 to 4 and 100 to 104 in two files, of whose second the log tells other keys.

    Whoever joins the second file finds matches that whoever believes the log does not look for.
    """
    for number in range(2):
        some = spark.range(5).selectExpr(f"id + {100 * number} AS id", "id AS v", f"'p{number}' AS p", *more)
        write_delta(some.coalesce(1), str(path), mode="append", **options)
    claim_keys(str(path), 1)
    return str(path)


def merged(spark: SparkSession, path: str, *, updates: bool) -> MergeReport:
    """Merges rows for all keys of the table, and many for none of them."""
    keys = "CASE WHEN id < 5 THEN id WHEN id < 10 THEN id + 95 ELSE -id END AS id"
    new = spark.range(SOURCE_ROWS).selectExpr(keys, "-id AS v", "'p0' AS p")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedBySourceDelete("t.v = 1")
    if updates:
        merge = merge.whenNotMatchedBySourceUpdate("t.v = 2", set={"v": "t.v * 10"})
    return merge.run()


@pytest.mark.parametrize(
    ("executor", "options"),
    [
        ("classic", {}),
        ("classic", {"properties": VECTORS}),
        ("classic", {"properties": FEED}),
        ("classic", {"properties": TRACKED}),
        ("classic", {"properties": MAPPED}),
        ("classic", {"partition_by": ["p"]}),
        ("low_shuffle", {}),
        ("low_shuffle", {"properties": FEED}),
        ("low_shuffle", {"partition_by": ["p"]}),
        ("auto", {}),
        ("auto", {"properties": VECTORS}),
        ("auto", {"partition_by": ["p"]}),
    ],
    ids=str,
)
def test_they_are_not_joined(spark: SparkSession, tmp_path: Path, executor: str, options: dict[str, Any]) -> None:
    path = table(spark, tmp_path / "t", **options)
    spark.conf.set(EXECUTOR, executor)
    report = merged(spark, path, updates=executor != "auto")
    assert report.outcome.executor == ("key_lookup" if executor == "auto" else executor)
    assert report.metrics["numTargetFilesAfterSkipping"] == 2
    assert report.metrics["numTargetRowsMatchedUpdated"] == 5
    assert report.metrics["numTargetRowsNotMatchedBySourceDeleted"] == 1
    own = [(100, 0), (102, 2 if executor == "auto" else 20), (103, 3), (104, 4)]
    found = rows(DeltaTable.forPath(spark, path).toDF().select("id", "v"))
    assert found == sorted([*((key, -key) for key in range(5)), *own], key=repr)
    if options.get("properties") == FEED:
        kinds = sorted(change["_change_type"] for change in changes(path, 2))
        assert kinds == ["delete", *["update_postimage"] * 6, *["update_preimage"] * 6]


@pytest.mark.parametrize(
    ("executor", "options"),
    [
        ("classic", {}),
        ("classic", {"properties": VECTORS}),
        ("classic", {"properties": FEED}),
        ("classic", {"properties": TRACKED}),
        ("low_shuffle", {}),
        ("low_shuffle", {"properties": FEED}),
    ],
    ids=str,
)
def test_no_file_is_joined(spark: SparkSession, tmp_path: Path, executor: str, options: dict[str, Any]) -> None:
    """All source rows are new, and no file can have their keys."""
    path = table(spark, tmp_path / "t", STRUCT, **options)
    spark.conf.set(EXECUTOR, executor)
    new = spark.range(SOURCE_ROWS).selectExpr("-id - 1 AS id", "id AS v", "'new' AS p", STRUCT)
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()
    report = merge.whenNotMatchedBySourceUpdate("t.v > 2", set={"p": "'old'"}).run()
    assert report.metrics["numTargetRowsInserted"] == SOURCE_ROWS
    assert report.metrics["numTargetRowsNotMatchedBySourceUpdated"] == 4
    counted = DeltaTable.forPath(spark, path).toDF().groupBy("p").count()
    assert rows(counted) == [("new", SOURCE_ROWS), ("old", 4), ("p0", 3), ("p1", 3)]


@pytest.mark.parametrize("materialize", ["auto", "none"])
def test_a_source_that_is_not_kept_is_joined_with_all(spark: SparkSession, tmp_path: Path, materialize: str) -> None:
    """Read a second time it may have other rows, which match."""
    path = table(spark, tmp_path / "t")
    spark.conf.set("spark.databricks.delta.merge.materializeSource", materialize)
    spark.conf.set(EXECUTOR, "classic")
    report = merged(spark, path, updates=True)
    matched = 5 if materialize == "auto" else 10
    assert report.metrics["numTargetRowsMatchedUpdated"] == matched


@pytest.mark.quick
@pytest.mark.parametrize("properties", [{}, VECTORS])
def test_a_source_without_rows_is_computed_once(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    path = table(spark, tmp_path / "t", properties=properties)
    none = frame(spark, "id BIGINT, v BIGINT, p STRING", [])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(none.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll().whenNotMatchedBySourceDelete("t.id >= 103 OR t.id = 1").run()
    assert report.outcome.executor == "key_lookup"
    assert report.metrics["numTargetRowsNotMatchedBySourceDeleted"] == 3
    left = DeltaTable.forPath(spark, path).toDF().select("id")
    assert {row.id for row in left.collect()} == {0, 2, 3, 4, 100, 101, 102}
