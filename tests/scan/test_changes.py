"""The change data feed and time travel, read back from real tables."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import Row

from deltamerge import DeltaTable, merge_sql, sql, write_delta
from deltamerge.exceptions import DeltaAnalysisException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


FEED = {"delta.enableChangeDataFeed": "true"}


def rows(frame: DataFrame, *columns: str) -> list[tuple[object, ...]]:
    chosen = frame.select(*columns) if columns else frame
    return sorted((tuple(row) for row in chosen.collect()), key=str)


def upsert(spark: SparkSession, path: str, values: str) -> None:
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT * FROM VALUES {values} AS v(id, p, v)) s ON t.id = s.id "
        "WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )


@pytest.fixture
def changed(spark: SparkSession, tmp_path: Path) -> DeltaTable:
    """Inserts by a plain append, changes by a merge, and an overwrite: the table's three kinds of commits."""
    path = str(tmp_path / "a table [1]")
    first = spark.sql("SELECT * FROM VALUES (1, 'a b', 10), (2, 'ø', 20), (3, NULL, 30) AS v(id, p, v)")
    write_delta(first, path, partition_by="p", properties=FEED)
    upsert(spark, path, "(1, 'a b', NULL), (2, 'ø', 21), (9, 'x', 90)")
    write_delta(spark.sql("SELECT 7 AS id, 'a b' AS p, 70 AS v"), path, mode="append")
    write_delta(spark.sql("SELECT 8 AS id, 'y' AS p, 80 AS v"), path, mode="overwrite")
    return DeltaTable.forPath(spark, path)


@pytest.mark.sessions
def test_changes_of_every_kind_of_commit(changed: DeltaTable) -> None:
    feed = changed.changes(startingVersion=0)
    assert feed.columns == ["id", "p", "v", "_change_type", "_commit_version", "_commit_timestamp"]
    assert rows(feed, "_commit_version", "_change_type", "id", "p", "v") == [
        (0, "insert", 1, "a b", 10),
        (0, "insert", 2, "ø", 20),
        (0, "insert", 3, None, 30),
        (1, "delete", 1, "a b", 10),
        (1, "insert", 9, "x", 90),
        (1, "update_postimage", 2, "ø", 21),
        (1, "update_preimage", 2, "ø", 20),
        (2, "insert", 7, "a b", 70),
        (3, "delete", 2, "ø", 21),
        (3, "delete", 3, None, 30),
        (3, "delete", 7, "a b", 70),
        (3, "delete", 9, "x", 90),
        (3, "insert", 8, "y", 80),
    ]
    history = {(row.version, row.timestamp) for row in changed.history().collect()}
    assert set(rows(feed, "_commit_version", "_commit_timestamp")) == history
    assert rows(changed.changes(2, 2), "id", "_change_type") == [(7, "insert")]


def test_ranges_by_timestamp(changed: DeltaTable) -> None:
    at = {row.version: row.timestamp for row in changed.history().collect()}
    between = changed.changes(startingTimestamp=at[1], endingTimestamp=str(at[2]))
    assert {row[0] for row in rows(between, "_commit_version")} == {1, 2}
    with pytest.raises(DeltaAnalysisException) as raised:
        changed.changes(startingTimestamp=at[3] + dt.timedelta(seconds=1))
    assert raised.value.getErrorClass() == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
    with pytest.raises(DeltaAnalysisException) as raised:
        changed.changes(startingTimestamp="the day before yesterday")
    assert raised.value.getErrorClass() == "DELTA_TIMESTAMP_INVALID"


@pytest.mark.quick
def test_changes_that_were_not_recorded(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(3), path)
    write_delta(spark.range(3, 5), path, mode="overwrite", properties=FEED)
    table = DeltaTable.forPath(spark, path)
    for first in (0, 1):
        if first == 1:
            assert len(rows(table.changes(1))) == 5
            continue
        with pytest.raises(DeltaAnalysisException, match=r"version\s+\[0\]") as raised:
            table.changes(first)
        assert raised.value.getErrorClass() == "DELTA_MISSING_CHANGE_DATA"
    with pytest.raises(IllegalArgumentException, match="DELTA_INVALID_CDC_RANGE"):
        table.changes(startingVersion=1, endingVersion=0)


@pytest.mark.sessions
def test_older_versions_as_frames_and_as_sources_in_sql(changed: DeltaTable, spark: SparkSession) -> None:
    path = changed.table.name
    at = {row.version: row.timestamp for row in changed.history().collect()}
    assert rows(changed.at(version=0), "id") == [(1,), (2,), (3,)]
    assert rows(changed.at(timestamp=at[1]), "id") == [(2,), (3,), (9,)]
    assert rows(changed.at(timestamp=str(at[2])), "id") == [(2,), (3,), (7,), (9,)]
    assert changed.toDF().collect() == [Row(id=8, p="y", v=80)]
    for number, clause in enumerate((f"TIMESTAMP AS OF '{at[0]}'", "VERSION AS OF 0")):
        merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` t USING delta.`{path}` {clause} s ON t.id = s.id "
            f"WHEN MATCHED THEN UPDATE SET v = s.v + {number} WHEN NOT MATCHED THEN INSERT *",
        )
        expected = [(1, 10 + number), (2, 20 + number), (3, 30 + number), (8, 80)]
        assert rows(DeltaTable.forPath(spark, path).toDF(), "id", "v") == expected
    with pytest.raises(DeltaAnalysisException) as raised:
        changed.at()
    assert raised.value.getErrorClass() == "DELTA_ONEOF_IN_TIMETRAVEL"


def test_rows_that_deletion_vectors_delete_without_change_files(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    properties = {**FEED, "delta.enableDeletionVectors": "true"}
    write_delta(spark.range(10).coalesce(1), str(path), properties=properties)
    write_delta(spark.range(20, 23).coalesce(1), str(path), mode="append")
    for ids in ("1, 2, 20", "4", "21, 22"):
        merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` t USING (SELECT explode(array({ids})) AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN DELETE",
        )
    # Other writers leave the change files of such deletes out: the vectors say the same.
    copy = Path(shutil.copytree(path, tmp_path / "copy"))
    for version in range(2, 5):
        commit = copy / "_delta_log" / f"{version:020d}.json"
        lines = commit.read_text().splitlines(keepends=True)
        commit.write_text("".join(line for line in lines if not line.startswith('{"cdc"')))
    table = DeltaTable.forPath(spark, str(copy))
    said = rows(DeltaTable.forPath(spark, str(path)).changes(2), "_commit_version", "_change_type", "id")
    assert rows(table.changes(2), "_commit_version", "_change_type", "id") == said
    assert said == [(2, "delete", i) for i in (1, 2, 20)] + [(3, "delete", 4)] + [(4, "delete", i) for i in (21, 22)]


def test_rows_that_a_restore_brings_back(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    properties = {**FEED, "delta.enableDeletionVectors": "true"}
    write_delta(spark.range(10).coalesce(1), str(path), properties=properties)
    merge_sql(spark, f"MERGE INTO delta.`{path}` t USING (SELECT 3 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    log = path / "_delta_log"
    first, second = (
        [json.loads(line) for line in (log / f"{version:020d}.json").read_text().splitlines()] for version in (0, 1)
    )
    (whole,) = (line["add"] for line in first if "add" in line)
    (marked,) = (line["add"] for line in second if "add" in line)
    remove = {k: v for k, v in marked.items() if k not in ("stats", "modificationTime")}
    actions = [{"remove": {**remove, "deletionTimestamp": 1}}, {"add": whole}]
    (log / f"{2:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    table = DeltaTable.forPath(spark, str(path))
    assert rows(table.changes(2), "_change_type", "id") == [("insert", 3)]
    assert rows(table.toDF(), "id") == [(i,) for i in range(10)]


@pytest.mark.sessions
@pytest.mark.parametrize("change", ["RENAME COLUMN v TO w", "DROP COLUMN v", "ADD COLUMN (w BIGINT)"])
def test_changes_before_columns_changed(spark: SparkSession, tmp_path: Path, change: str) -> None:
    """They are read with the schema of the last version that is asked for."""
    path = str(tmp_path)
    mapped = {**FEED, "delta.columnMapping.mode": "name"}
    write_delta(spark.range(2).selectExpr("id", "id + 10 AS v"), path, properties=mapped)
    sql(spark, f"ALTER TABLE delta.`{path}` {change}")
    table = DeltaTable.forPath(spark, path)
    assert rows(table.changes(0, 0), "id", "v") == [(0, 10), (1, 11)]
    assert table.changes(0, 0).columns[:-3] == ["id", "v"]
    if change.startswith("ADD"):
        assert table.changes(0).columns[:-3] == ["id", "v", "w"]
    else:
        with pytest.raises(DeltaAnalysisException, match="Ask for the changes before and after that change separately"):
            table.changes(0)


def test_columns_that_are_not_null(spark: SparkSession, tmp_path: Path) -> None:
    """They are not nullable, unless they were in one of the versions that are read."""
    path = str(tmp_path / "t")
    sql(spark, f"CREATE TABLE delta.`{path}` (id BIGINT, p INT NOT NULL, v INT) USING delta PARTITIONED BY (p)")
    table = DeltaTable.forPath(spark, path)
    sql(spark, f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    sql(spark, f"INSERT INTO delta.`{path}` VALUES (NULL, 1, 1), (2, 1, 2)")
    table.update("id = 2", {"v": "3"})
    table.delete("id IS NULL")
    sql(spark, f"ALTER TABLE delta.`{path}` ALTER COLUMN id SET NOT NULL")
    sql(spark, f"INSERT INTO delta.`{path}` VALUES (5, 1, 5)")

    def nullable(frame: DataFrame) -> list[str]:
        return [field.name for field in frame.schema.fields if field.nullable]

    feed = ["_change_type", "_commit_version", "_commit_timestamp"]
    assert nullable(table.changes(6)) == ["v", *feed]
    assert rows(table.changes(6), "id", "_change_type") == [(5, "insert")]
    assert nullable(table.changes(1)) == ["id", "v", *feed]
    assert rows(table.changes(1).where("id IS NULL"), "_change_type") == [("delete",), ("insert",)]
    read = f"SELECT * FROM table_changes_by_path('{path}', 6)"
    assert nullable(sql(spark, read)) == ["v", *feed]
    assert nullable(table.changes(4, 5)) == ["id", "v", *feed]


def test_a_commit_that_replaces_a_table_deletes_rows_of_another_schema(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    with_feed = "USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    sql(spark, f"CREATE TABLE delta.`{path}` (id BIGINT) {with_feed}")
    sql(spark, f"INSERT INTO delta.`{path}` VALUES (NULL)")
    sql(spark, f"CREATE OR REPLACE TABLE delta.`{path}` (id BIGINT NOT NULL) {with_feed}")
    changes = DeltaTable.forPath(spark, path).changes(2)
    assert rows(changes.where("id IS NULL"), "_change_type", "id") == [("delete", None)]
