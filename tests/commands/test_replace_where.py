"""replaceWhere on columns of data: what goes, what comes, and what the log says of it."""

from __future__ import annotations

from dataclasses import replace as replaced
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.errors import AnalysisException

import deltamerge
from deltamerge import DeltaTable
from deltamerge.api.save_frame import Save, save_to_path
from deltamerge.api.write_delta import write_frame
from deltamerge.exceptions import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    InvariantViolationException,
)
from deltamerge.merge import command as merge_command
from deltamerge.spark.table import open_table
from deltamerge.sql.merge_ast import Expression
from deltamerge.txn.application import ApplicationTransaction
from deltamerge.write.table_writer import CommitNotes, FrameWrite
from merge.tables import actions, commit_info, edited

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oracle.client import LineProcess

pytestmark = [pytest.mark.slow, pytest.mark.sessions]


def make(spark: SparkSession, path: str, **properties: str) -> None:
    frame = spark.range(10, numPartitions=2).selectExpr("id", "id % 2 AS p", "CAST(id AS STRING) AS s")
    deltamerge.write_delta(frame, path, partition_by="p", properties=properties)


def replace(spark: SparkSession, path: str, where: str, query: str, **options: str) -> None:
    save = Save().with_call("format", ("delta",), {}).with_call("mode", ("overwrite",), {})
    save_to_path(spark.sql(query), path, save.with_call("options", (), {"replaceWhere": where, **options}))


def rows(spark: SparkSession, path: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, DeltaTable.forPath(spark, path).toDF().collect()))


NEW = "SELECT 8L AS id, 0L AS p, 'new' AS s UNION ALL SELECT 20L, 1L, 'newer'"
KEPT = [(i, i % 2, str(i)) for i in range(7)]
AFTER = [*KEPT, (8, 0, "new"), (20, 1, "newer")]


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("feed", ["true", "false"])
def test_rows_that_match_are_replaced_in_one_commit(
    spark: SparkSession, tmp_path: Path, vectors: str, feed: str
) -> None:
    path = str(tmp_path / "t")
    make(spark, path, **{"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": feed})
    replace(spark, path, "id >= 7", NEW, userMetadata="again", txnAppId="app", txnVersion="1")
    replace(spark, path, "id >= 7", "SELECT 9L AS id, 1L AS p, 'no' AS s", txnAppId="app", txnVersion="1")
    assert rows(spark, path) == AFTER
    (entry, *_) = DeltaTable.forPath(spark, path).history(1).collect()
    assert (entry["version"], entry["operation"], entry["userMetadata"]) == (1, "WRITE", "again")
    assert entry["operationParameters"]["mode"] == "Overwrite"
    assert entry["operationParameters"]["predicate"] == "id >= 7"
    assert entry["operationMetrics"]["numDeletedRows"] == "3"
    if vectors == "false":
        read = DeltaRs(path).to_pyarrow_table().to_pylist()
        assert sorted((row["id"], row["p"], row["s"]) for row in read) == AFTER
    if feed == "true":
        changes = DeltaTable.forPath(spark, path).changes(startingVersion=1).select("id", "s", "_change_type")
        gone = [(i, str(i), "delete") for i in (7, 8, 9)]
        come = [(8, "new", "insert"), (20, "newer", "insert")]
        assert sorted(map(tuple, changes.collect())) == sorted([*gone, *come])


def test_a_damaged_partition_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """Its files are not opened for what the history counts."""
    path = str(tmp_path / "t")
    make(spark, path)
    edited(path, 0, lambda add: add.pop("stats"))
    for file in Path(path).rglob("p=1/*.parquet"):
        file.unlink()
    replace(spark, path, "p = 1", "SELECT 1L AS id, 1L AS p, 'new' AS s")
    assert rows(spark, path) == [
        *((i, 0, str(i)) for i in (0,)),
        (1, 1, "new"),
        *((i, 0, str(i)) for i in (2, 4, 6, 8)),
    ]
    assert "numDeletedRows" not in commit_info(path, 1)["operationMetrics"]


def test_nothing_to_replace_and_nothing_to_write(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    make(spark, path)
    none = spark.sql(NEW).where("false")
    table, asked = open_table(spark, path), FrameWrite("replace_where", condition=Expression("id >= 70"))
    assert write_frame(table, none, asked) == 0
    asked = replaced(asked, notes=CommitNotes(ApplicationTransaction("app", 1)))
    assert [write_frame(table, none, asked) for _ in range(2)] == [1, None]


def test_without_a_row_that_matches_rows_are_appended(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    make(spark, path, **{"delta.enableChangeDataFeed": "true"})
    replace(spark, path, "id > 100", "SELECT 200L AS id, 0L AS p, 'x' AS s")
    assert len(rows(spark, path)) == 11
    changes = DeltaTable.forPath(spark, path).changes(startingVersion=1)
    assert [(row["id"], row["_change_type"]) for row in changes.collect()] == [(200, "insert")]
    assert not any(Path(path).glob("_change_data/*"))
    replace(spark, path, "id > 100", "SELECT 1L AS id, 0L AS p, 'x' AS s WHERE false")
    assert len(rows(spark, path)) == 10


def test_what_follows_the_commit_does_not_take_its_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails once a version names the new files, they stay."""
    path = str(tmp_path / "t")
    make(spark, path)
    spark.conf.set("spark.databricks.delta.autoCompact.enabled", "sometimes")
    with pytest.raises(DeltaIllegalArgumentException, match=r"autoCompact\.enabled"):
        replace(spark, path, "id >= 7", NEW)
    assert DeltaRs(path).version() == 0
    spark.conf.unset("spark.databricks.delta.autoCompact.enabled")

    def broken(*_: object) -> None:
        raise RuntimeError("the session has ended")

    monkeypatch.setattr(merge_command, "reset_transaction", broken)
    with pytest.raises(RuntimeError, match="has ended"):
        replace(spark, path, "id >= 7", NEW)
    assert rows(spark, path) == AFTER


def test_a_column_brings_the_feature_of_its_type(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    make(spark, path)
    wider = "SELECT 9L AS id, 1L AS p, 'x' AS s, parse_json('{\"a\": 5}') AS n"
    replace(spark, path, "id = 9", wider, mergeSchema="true")
    (protocol,) = actions(path, 1, "protocol")
    assert "variantType" in protocol["writerFeatures"]
    found = DeltaTable.forPath(spark, path).toDF().selectExpr("id", "variant_get(n, '$.a', 'INT')").collect()
    assert sorted(map(tuple, found))[-2:] == [(8, None), (9, 5)]


def test_columns_are_added_and_an_insert_replaces_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    make(spark, path)
    wider = "SELECT 9L AS id, 1L AS p, 'x' AS s, 5 AS n"
    with pytest.raises(DeltaAnalysisException, match="lacks: n"):
        replace(spark, path, "s = '9'", wider)
    replace(spark, path, "id = 9", wider, mergeSchema="true")
    assert rows(spark, path)[-1] == (9, 1, "x", 5)
    deltamerge.sql(spark, f"INSERT INTO delta.`{path}` REPLACE WHERE n = 5 SELECT 30L, 0L, 'y', 5")
    assert rows(spark, path)[-2:] == [(8, 0, "8", None), (30, 0, "y", 5)]


def test_functions_of_the_session_choose_rows(spark: SparkSession, tmp_path: Path) -> None:
    make(spark, path := str(tmp_path / "t"))
    spark.udf.register("is_late", lambda i: i > 6, "BOOLEAN")
    replace(spark, path, "is_late(id)", NEW)
    assert rows(spark, path) == AFTER
    with pytest.raises(InvariantViolationException, match="DELTA_REPLACE_WHERE_MISMATCH"):
        replace(spark, path, "is_late(id)", "SELECT 1L AS id, 0L AS p, 'no' AS s")


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    make(spark, path, **{"delta.constraints.positive": "id >= 0"})
    before = sorted(Path(path).rglob("*.parquet"))
    for query in ("SELECT 1L AS id, 0L AS p, 'x' AS s", "SELECT CAST(NULL AS BIGINT) AS id, 0L AS p, 'x' AS s"):
        with pytest.raises(InvariantViolationException, match=r"DELTA_REPLACE_WHERE_MISMATCH.*'id >= 7'"):
            replace(spark, path, "id >= 7", query)
    with pytest.raises(InvariantViolationException, match="positive"):
        replace(spark, path, "s = 'x'", "SELECT -1L AS id, 0L AS p, 'x' AS s")
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        replace(spark, path, "nothing = 1", NEW)
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        replace(spark, path, "nothing = 1 AND id = 8", NEW)
    assert sorted(Path(path).rglob("*.parquet")) == before
    assert DeltaRs(path).version() == 0


def test_partitions_and_rows_in_one_condition(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    make(spark, path)
    replace(spark, path, "p = 1 AND id > 4", "SELECT 5L AS id, 1L AS p, 'five' AS s")
    assert rows(spark, path) == sorted([(i, i % 2, str(i)) for i in (0, 1, 2, 3, 4, 6, 8)] + [(5, 1, "five")])


@pytest.mark.oracle
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_delta_spark_replaces_the_same_rows(
    spark: SparkSession, oracle: LineProcess, tmp_path: Path, vectors: str
) -> None:
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    for path in (ours, theirs):
        make(spark, path, **{"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"})
    replace(spark, ours, "id >= 7", NEW)
    oracle.ask("sql", statements=[f"INSERT INTO delta.`{theirs}` REPLACE WHERE id >= 7 {NEW}"])
    metrics = []
    for path in (ours, theirs):
        assert rows(spark, path) == AFTER
        read = oracle.ask("sql", statements=[f"SELECT id, p, s FROM delta.`{path}` ORDER BY id"])
        assert [(row["id"], row["p"], row["s"]) for row in read] == AFTER
        feed = f"SELECT id, s, _change_type AS t FROM table_changes_by_path('{path}', 1)"
        changed = oracle.ask("sql", statements=[feed])
        gone = [(i, str(i), "delete") for i in (7, 8, 9)]
        come = [(8, "new", "insert"), (20, "newer", "insert")]
        assert sorted((row["id"], row["s"], row["t"]) for row in changed) == sorted([*gone, *come])
        metrics.append(DeltaTable.forPath(spark, path).history(1).collect()[0]["operationMetrics"])
    assert set(metrics[0]) >= {"numFiles", "numOutputRows", "numDeletedRows", "numCopiedRows", "numRemovedFiles"}
    for name in ("numDeletedRows", "numRemovedFiles"):
        assert metrics[0][name] == metrics[1][name], (name, metrics)
