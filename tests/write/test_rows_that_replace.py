"""Rows that were read from the table that they go into: what others have committed since is read again, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from conftest import CONNECT
from deltamerge import DeltaTable, sql, write_delta
from deltamerge.api.write_delta import write_frame
from deltamerge.exceptions import DeltaConcurrentModificationException
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.spark.table import open_table
from deltamerge.sql.merge_ast import Expression
from deltamerge.write.table_writer import FrameWrite
from merge.test_transactions import Once

KINDS = {
    "overwrite": FrameWrite("overwrite"),
    "dynamic": FrameWrite("dynamic"),
    "where": FrameWrite("replace_where", Expression("id >= 0")),
    "schema": FrameWrite("overwrite_schema", partition_columns=("p",)),
}


def write(rows: DataFrame, path: Path, kind: str) -> None:
    write_frame(open_table(rows.sparkSession, str(path)), rows, KINDS[kind])


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> DeltaTable:
    write_delta(spark.range(3).selectExpr("id", "0 AS p", "'a' AS v"), str(tmp_path), partition_by="p")
    return DeltaTable.forPath(spark, str(tmp_path))


def append(spark: SparkSession, path: Path) -> None:
    write_delta(spark.range(7, 8).selectExpr("id", "0 AS p", "'b' AS v"), str(path), mode="append")


@pytest.mark.sessions
def test_another_writers_rows(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    """As in delta-spark a frame follows its table: what was read before another commit is read again."""
    for kind in KINDS:
        rows = table.toDF().where("id < 9")
        append(spark, tmp_path)
        before = sorted(table.toDF().collect())
        write(rows, tmp_path, kind)
        assert sorted(table.toDF().collect()) == before


@pytest.mark.quick
def test_merges_and_appends_of_what_was_read_before(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    rows, path = table.toDF(), str(tmp_path)
    new = spark.range(8).selectExpr("id", "0 AS p", "'c' AS v").join(rows.select("id"), "id", "left_anti")
    append(spark, tmp_path)
    expected = sorted(table.toDF().collect())
    merge = table.alias("t").merge(rows.where("id < 9").alias("s"), "t.id = s.id")
    merge.whenNotMatchedBySourceDelete().execute()
    assert sorted(table.toDF().collect()) == expected
    for _ in range(2):
        write_delta(new, path, mode="append")
        assert sorted(row["id"] for row in table.toDF().collect()) == list(range(8))


@pytest.mark.sessions
def test_one_frame_in_several_merges(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    rows = table.toDF()
    both = rows.alias("a").join(rows.alias("b"), F.col("a.id") == F.col("b.id")).groupBy(F.col("a.id").alias("key"))
    source = both.agg(F.first("a.p").alias("p"), F.max("b.v").alias("v")).where(F.length("v") < 4)
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.key")
    for _ in range(5):
        merge.whenMatchedUpdate(set={"v": F.concat("t.v", "s.v")}).execute()
    assert {row["v"] for row in table.toDF().collect()} == {"aaaa"}


@pytest.mark.sessions
def test_a_view_in_several_merges(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    table.toDF().where("id < 2").createOrReplaceTempView("view_of_target")
    statement = (
        f"MERGE INTO delta.`{tmp_path}` t USING view_of_target s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = concat(t.v, s.v)"
    )
    try:
        sql(spark, statement)
        if CONNECT:
            # What a view reads is not seen there, so that its rows are those of the version that it was made from.
            return
        sql(spark, statement)
        assert sorted(row["v"] for row in table.toDF().collect()) == ["a", "aaaa", "aaaa"]
    finally:
        spark.catalog.dropTempView("view_of_target")


@pytest.mark.sessions
def test_a_merge_of_the_tables_own_rows_runs_again(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    source = table.toDF().where("id < 5").withColumn("v", F.concat("v", F.lit("+")))
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id").whenMatchedUpdateAll()
    other = Once("commit", lambda: DeltaTable.forPath(spark, str(tmp_path)).update("id = 1", {"v": "'other'"}))
    if CONNECT:
        with pytest.raises(DeltaConcurrentModificationException):
            merge.run(progress=other)
        return
    report = merge.run(progress=other)
    assert len(report.outcome.lost_to) == 1
    assert sorted(row["v"] for row in table.toDF().collect()) == ["a+", "a+", "other+"]


@pytest.mark.sessions
def test_a_table_with_other_columns_since(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    rows = table.toDF()
    wider = spark.sql("SELECT 7L AS id, 0 AS p, 'b' AS v, 1 AS further")
    write_frame(open_table(spark, str(tmp_path)), wider, FrameWrite("append", merges_schema=True))
    for kind in ("overwrite", "where"):
        with pytest.raises(DeltaConcurrentModificationException, match="Read the table again"):
            write(rows, tmp_path, kind)
    with pytest.raises(DeltaConcurrentModificationException, match="Read the table again"):
        table.alias("t").merge(rows.alias("s"), "t.id = s.id").whenNotMatchedBySourceDelete().execute()
    assert table.toDF().count() == 4


def test_a_table_that_was_empty(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    """Its frame has no file that could tell the table."""
    table.delete()
    path, new = str(tmp_path), spark.range(8).selectExpr("id", "0 AS p", "'c' AS v")
    rows = table.toDF()
    assert rows.columns == new.columns and not rows.collect()
    missing = new.join(rows.select("id"), "id", "left_anti")
    for _ in range(2):
        write_delta(missing, path, mode="append")
        assert table.toDF().count() == 8
    assert table.history().first()["isBlindAppend"] is False  # type: ignore[index]
    table.alias("t").merge(rows.alias("s"), "t.id = s.id").whenNotMatchedBySourceDelete().execute()
    assert table.toDF().count() == 8


def test_row_ids_that_were_read_before(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path)
    write_delta(spark.range(3), path, properties={"delta.enableRowTracking": "true"})
    table = DeltaTable.forPath(spark, path)
    rows = table.with_row_ids().select("id")
    write_delta(spark.range(7, 8), path, mode="append")
    with pytest.raises(DeltaConcurrentModificationException, match="Read the table again"):
        write_delta(rows, path, mode="overwrite")


def test_tables_within_tables_and_clones(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    """The mark tells the table, not its files' folder."""
    within, cloned = str(tmp_path / "_within"), tmp_path / "_clone"
    write_delta(spark.range(2).selectExpr("id", "0 AS p", "'x' AS v"), within)
    rows = DeltaTable.forPath(spark, within).toDF()
    append(spark, tmp_path)
    table.alias("t").merge(rows.alias("s"), "t.id = s.id").whenMatchedUpdateAll().execute()
    clone = table.clone(str(cloned), isShallow=True)
    write_delta(clone.toDF().where("id = 7").selectExpr("id + 1 AS id", "p", "v"), str(cloned), mode="append")
    assert clone.history().first()["isBlindAppend"] is False  # type: ignore[index]
    assert sorted(row["id"] for row in clone.toDF().collect()) == [0, 1, 2, 7, 8]


@pytest.mark.sessions
@pytest.mark.parametrize("in_subquery", [False, True])
def test_a_query_of_sql_over_frames(spark: SparkSession, tmp_path: Path, table: DeltaTable, in_subquery: bool) -> None:
    ids = "SELECT id FROM {t}" if in_subquery else "VALUES 0L, 1L, 2L"
    rows = spark.sql(f"SELECT id, p, v FROM {{t}} WHERE id IN ({ids})", t=table.toDF())
    append(spark, tmp_path)
    merge = table.alias("t").merge(rows.alias("s"), "t.id = s.id").whenMatchedDelete()
    if CONNECT:
        # Over Connect a query of SQL is a message that the server has answered.
        with pytest.raises(DeltaConcurrentModificationException, match="Read the table again"):
            merge.execute()
    else:
        merge.execute()
        assert [row["id"] for row in table.toDF().collect()] == ([] if in_subquery else [7])


def test_a_merge_that_was_done_already(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    rows = table.toDF()
    for _ in range(2):
        merge = table.alias("t").merge(rows.alias("s"), "t.id = s.id").whenMatchedUpdate(set={"v": "'once'"})
        merge.run(txn_app_id="a", txn_version=1)
    assert table.history().count() == 2


def test_commits_that_were_cleaned_up(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    """What nothing tells any more may have changed rows."""
    # A frame with its files' metadata is not read again.
    rows = table.toDF().where("_metadata.file_name IS NOT NULL")
    append(spark, tmp_path)
    snapshot = open_table(spark, str(tmp_path)).snapshot()
    write_checkpoint(snapshot, snapshot.timestamp_ms)
    for version in range(2):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(DeltaConcurrentModificationException, match="Read the table again"):
        write(rows, tmp_path, "overwrite")


def test_rows_of_the_newest_version(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    for kind in KINDS:
        write(table.toDF().where("id <> 1"), tmp_path, kind)
        assert sorted(row["id"] for row in table.toDF().collect()) == [0, 2]


def test_an_earlier_version_is_put_back(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    rows = table.at(version=0)
    append(spark, tmp_path)
    write_delta(rows, str(tmp_path), mode="overwrite")
    assert sorted(row["id"] for row in table.toDF().collect()) == [0, 1, 2]


def test_partitions_that_others_have_not_changed(spark: SparkSession, tmp_path: Path) -> None:
    """One frame may replace one partition after the other."""
    write_delta(spark.range(6).selectExpr("id", "id % 3 AS p"), str(tmp_path), partition_by="p")
    table = DeltaTable.forPath(spark, str(tmp_path))
    rows = table.toDF()
    for p in range(3):
        asked = FrameWrite("replace_where", Expression(f"p = {p}"))
        of_partition = rows.where(f"p = {p}").selectExpr("id + 10 AS id", "p")
        write_frame(open_table(spark, str(tmp_path)), of_partition, asked)
    assert sorted(row["id"] for row in table.toDF().collect()) == list(range(10, 16))
    write_frame(open_table(spark, str(tmp_path)), rows.where("p = 0"), FrameWrite("dynamic"))
    assert sorted(row["id"] for row in table.toDF().collect()) == list(range(10, 16))


def test_a_partition_that_another_writer_has_emptied(spark: SparkSession, tmp_path: Path) -> None:
    write_delta(spark.range(6).selectExpr("id", "id % 3 AS p"), str(tmp_path), partition_by="p")
    table = DeltaTable.forPath(spark, str(tmp_path))
    moved = table.toDF().where("p = 0").selectExpr("id", "1L AS p")
    table.delete("p = 0")
    write_frame(open_table(spark, str(tmp_path)), moved, FrameWrite("replace_where", Expression("p IN (0, 1)")))
    assert sorted(row["id"] for row in table.toDF().collect()) == [2, 5]


def test_rows_with_metadata_of_their_files(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path)
    write_delta(spark.range(3), path)
    rows = DeltaTable.forPath(spark, path).toDF().select("*", "_metadata.file_name").select("id")
    write_delta(spark.range(7, 8), path, mode="append")
    with pytest.raises(DeltaConcurrentModificationException, match="Read the table again"):
        write_delta(rows, path, mode="overwrite")


if CONNECT:

    @pytest.mark.sessions
    def test_a_plan_that_holds_others_twice(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
        """Each join of Connect's client has its left side in two places; a session does not read a table for each."""
        rows = table.toDF()
        for i in range(20):
            rows = rows.join(spark.range(3).withColumn(f"c{i}", F.lit(i)), "id")
        append(spark, tmp_path)
        write(rows.select("id", "p", "v"), tmp_path, "overwrite")
        assert table.toDF().count() == 3
        assert b"deltamerge.scan" not in cloudpickle.dumps(rows)  # type: ignore[no-untyped-call]


@pytest.mark.sessions
def test_an_earlier_version_in_a_query(spark: SparkSession, tmp_path: Path, table: DeltaTable) -> None:
    path = tmp_path
    table.delete("id = 0")
    append(spark, path)
    sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT * FROM delta.`{path}` VERSION AS OF 0) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE",
    )
    assert sorted(row["id"] for row in table.toDF().collect()) == [0, 1, 2]
