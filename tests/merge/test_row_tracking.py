"""Row ids: rows keep them through merges, and say which version changed them last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltamerge import DeltaTable, merge_sql, sql, write_delta
from deltamerge.exceptions import DeltaAnalysisException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRACKED = {"delta.enableRowTracking": "true"}
FED_AND_MAPPED = {**TRACKED, "delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "id"}


def tracked(spark: SparkSession, path: str) -> dict[int, tuple[Any, ...]]:
    """Gives each row by its key: its value, its id and the version that last changed it."""
    rows = DeltaTable.forPath(spark, path).with_row_ids()
    return {r.k: (r.v, r._metadata.row_id, r._metadata.row_commit_version) for r in rows.collect()}


def merge(spark: SparkSession, path: str, values: str, clauses: str) -> None:
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT * FROM VALUES {values} AS x(k, v, p)) s ON t.k = s.k {clauses}",
    )


@pytest.mark.parametrize("properties", [TRACKED, FED_AND_MAPPED])
def test_rows_keep_their_ids_through_two_merges(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    path = str(tmp_path / "t")
    rows = spark.sql("SELECT id AS k, 'a' AS v, id % 2 AS p FROM range(4)").coalesce(1)
    write_delta(rows, path, partition_by="p", properties=properties)
    before = tracked(spark, path)
    assert sorted(row[1] for row in before.values()) == [0, 1, 2, 3]
    assert {row[2] for row in before.values()} == {0}
    upsert = "WHEN MATCHED AND s.v = 'gone' THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    # Row 0 moves to another partition, row 1 is copied, row 2 stays in a file that is written again.
    merge(spark, path, "(0, 'b', 1), (3, 'gone', 1), (9, 'new', 0)", upsert)
    first = tracked(spark, path)
    assert first[0] == ("b", before[0][1], 1)
    assert first[1] == ("a", before[1][1], 0)
    assert first[2] == ("a", before[2][1], 0)
    assert first[9][0] == "new"
    assert first[9][1] > 3
    assert first[9][2] == 1
    # What the files now hold of ids and versions is read back, and kept once more.
    merge(spark, path, "(2, 'c', 0), (1, 'c', 1)", upsert)
    second = tracked(spark, path)
    assert second == {**first, 1: ("c", before[1][1], 2), 2: ("c", before[2][1], 2)}
    snapshot = DeltaTable.forPath(spark, path).table.snapshot()
    mark = json.loads(snapshot.domain_metadata["delta.rowTracking"].configuration)["rowIdHighWaterMark"]
    assert all(row[1] <= mark for row in second.values())
    columns = {"k", "v", "p", "_metadata"}
    assert set(DeltaTable.forPath(spark, path).with_row_ids().columns) == columns
    assert set(DeltaTable.forPath(spark, path).toDF().columns) == columns - {"_metadata"}


@pytest.mark.parametrize("columns", ["(k INT, v STRING) USING delta", "USING delta AS SELECT 7 AS k, 'x' AS v"])
def test_a_table_that_is_replaced_goes_on_tracking_its_rows(spark: SparkSession, tmp_path: Path, columns: str) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS id UNION ALL SELECT 2"), path, properties=TRACKED)
    before = DeltaTable.forPath(spark, path).table.snapshot().metadata.configuration
    sql(spark, f"REPLACE TABLE delta.`{path}` {columns}")
    assert DeltaTable.forPath(spark, path).table.snapshot().metadata.configuration == before
    sql(spark, f"INSERT INTO delta.`{path}` VALUES (8, 'y')")
    assert all(row[1] > 1 for row in tracked(spark, path).values())
    sql(spark, f"REPLACE TABLE delta.`{path}` (k INT) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'false')")
    after = DeltaTable.forPath(spark, path).table.snapshot().metadata.configuration
    assert after["delta.enableRowTracking"] == "false"


def test_ids_of_a_table_without_row_tracking_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_delta(spark.range(1), str(tmp_path / "t"))
    with pytest.raises(DeltaAnalysisException, match=r"delta\.enableRowTracking"):
        DeltaTable.forPath(spark, str(tmp_path / "t")).with_row_ids()
