"""Rows of the target that nothing matches: key lookup deletes those that BY SOURCE clauses take, and no others."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import convert_to_deltalake

from combinations import combinations
from deltamerge import DeltaTable, MergeReport, merge_sql, write_delta
from merge.tables import EXECUTOR, VECTORS, claim_rows, frame, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")


def table(spark: SparkSession, path: Path, **options: object) -> str:
    """Makes a table with a file for each of three days, five rows in each."""
    for number, day in enumerate(DAYS):
        some = spark.range(5).selectExpr(f"id + {10 * number} AS id", f"DATE'{day}' AS day", "id AS v")
        write_delta(some.coalesce(1), str(path), mode="append", **options)  # type: ignore[arg-type]
    return str(path)


def snapshot_of_a_day(spark: SparkSession, path: str, condition: str) -> MergeReport:
    """Merges three rows of the second day, one of them new."""
    new = frame(spark, "id BIGINT, day DATE, v BIGINT", [(10, None, -1), (11, None, 0), (15, None, 5)])
    new = new.selectExpr("id", "DATE'2024-01-02' AS day", "v")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsertAll()
    return merge.whenNotMatchedBySourceDelete(condition).run()


@pytest.mark.parametrize("partition_by", [[], ["day"]])
@pytest.mark.parametrize("properties", [{}, VECTORS])
def test_the_snapshot_of_a_day(
    spark: SparkSession, tmp_path: Path, partition_by: list[str], properties: dict[str, str]
) -> None:
    path = table(spark, tmp_path / "t", partition_by=partition_by, properties=properties)
    report = snapshot_of_a_day(spark, path, "t.day = DATE'2024-01-02'")
    assert report.outcome.executor == "key_lookup"
    assert report.metrics["numTargetFilesAfterSkipping"] == 1
    assert report.metrics["numTargetRowsNotMatchedBySourceDeleted"] == 3
    assert report.metrics["numTargetRowsUpdated"] == 2
    assert [clause.rows for clause in report.clauses] == [2, 1, 3]
    found = rows(DeltaTable.forPath(spark, path).toDF().where("day = DATE'2024-01-02'").select("id", "v"))
    assert found == [(10, -1), (11, 0), (15, 5)]
    assert DeltaTable.forPath(spark, path).toDF().count() == 13


def test_files_that_lose_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t")
    report = snapshot_of_a_day(spark, path, "t.day <> DATE'2024-01-02'")
    assert report.outcome.executor == "key_lookup"
    assert report.metrics["numTargetRowsNotMatchedBySourceDeleted"] == 10
    assert report.metrics["numTargetFilesRemoved"] == 3
    assert rows(DeltaTable.forPath(spark, path).toDF().select("id")) == [
        (10,),
        (11,),
        (12,),
        (13,),
        (14,),
        (15,),
    ]


@pytest.mark.slow
def test_days_of_spark_2(spark: SparkSession, tmp_path: Path) -> None:
    """Such files have other days than it seems, here 1000-01-01 for what is 0999-12-27 today."""
    path = tmp_path / "t"
    days = pa.table({"id": [1, 2, 3], "day": pa.array([date(1000, 1, 1)] * 3)})
    path.mkdir()
    pq.write_table(days.replace_schema_metadata({"org.apache.spark.version": "2.4.8"}), path / "a.parquet")
    convert_to_deltalake(path)
    new = frame(spark, "id BIGINT", [(1,)])
    merge = DeltaTable.forPath(spark, str(path)).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = merge.whenNotMatchedBySourceDelete("t.day < DATE'1000-01-01'").run()
    assert report.metrics["numTargetRowsNotMatchedBySourceDeleted"] == 2


def test_rows_without_a_key_match_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id BIGINT, v STRING", [(1, "a"), (None, "b"), (None, None), (2, "c")]), path)
    new = frame(spark, "id BIGINT, v STRING", [(1, "new"), (None, "x")])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll().whenNotMatchedBySourceDelete("t.v < 'z'").run()
    assert report.outcome.executor == "key_lookup"
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "new"), (None, None)]


@pytest.mark.slow
def test_rows_that_were_deleted_before(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t", properties=VECTORS)
    for deleted in (3, 4):
        report = snapshot_of_a_day(spark, path, f"t.id = {deleted}")
        assert report.metrics["numTargetRowsNotMatchedBySourceDeleted"] == 1
    report = snapshot_of_a_day(spark, path, "t.id <= 4")
    assert report.outcome.executor == "key_lookup"
    assert report.metrics["numTargetRowsNotMatchedBySourceDeleted"] == 3


def test_a_source_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t")
    none = frame(spark, "id BIGINT, day DATE, v BIGINT", [])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(none.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll().whenNotMatchedBySourceDelete("t.id >= 11").run()
    assert report.metrics["numTargetRowsNotMatchedBySourceDeleted"] == 9
    left = DeltaTable.forPath(spark, path).toDF().select("id").collect()
    assert {row.id for row in left} == {0, 1, 2, 3, 4, 10}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("matched", "moves"),
    [("UPDATE SET v = t.v + s.v, name = concat(s.tags[0], s.place.city)", False), ("DELETE", True)],
)
def test_updates_by_a_source_without_rows(spark: SparkSession, tmp_path: Path, matched: str, moves: bool) -> None:
    """Its columns are NULL beside the rows that a BY SOURCE clause updates, also those of nested types."""
    path = str(tmp_path / "t")
    days = spark.range(4).selectExpr("id", "id % 2 AS day", "id AS v", "concat('n', id) AS name").coalesce(1)
    write_delta(days, path, partition_by=["day"] if moves else None)
    columns = "id BIGINT, v BIGINT, d DECIMAL(9, 2), at TIMESTAMP, tags ARRAY<STRING>, place STRUCT<city: STRING>"
    frame(spark, columns, []).createOrReplaceTempView("nothing")
    spark.conf.set(EXECUTOR, "key_lookup")
    report = merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING nothing s ON t.id = s.id WHEN MATCHED AND t.v + s.v > 1 THEN {matched} "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 3 THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE AND t.v > 0 THEN UPDATE SET v = t.v * 10, day = 7",
    )
    assert report.outcome.plan is not None
    assert (report.outcome.executor, report.outcome.plan.changed_rows.choice) == ("key_lookup", "pair_values")
    found = rows(DeltaTable.forPath(spark, path).toDF())
    assert found == [(0, 0, 0, "n0"), (1, 7, 10, "n1"), (2, 7, 20, "n2")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "condition",
    [
        "t.v + 1 = 3",
        "t.day = '2024-1-2'",
        "t.v > 1.5D",
        "upper(string(t.v)) = '2'",
    ],
)
def test_conditions_that_are_left_to_spark(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    path = table(spark, tmp_path / "t")
    target = DeltaTable.forPath(spark, path)
    before = target.toDF().alias("t").where(f"({condition}) AND id NOT IN (10, 11)").count()
    report = snapshot_of_a_day(spark, path, condition)
    assert report.outcome.executor != "key_lookup"
    assert report.metrics["numTargetRowsNotMatchedBySourceDeleted"] == before


@pytest.mark.slow
@pytest.mark.parametrize("condition", [None, "t.v >= 0"])
def test_more_rows_than_may_leave(spark: SparkSession, tmp_path: Path, condition: str | None) -> None:
    path = table(spark, tmp_path / "t", properties=VECTORS)
    for version in range(len(DAYS)):
        claim_rows(path, version, 10_000_000)
    new = frame(spark, "id BIGINT, v BIGINT", [(10, -1)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedBySourceDelete(condition).run()
    assert report.outcome.executor != "key_lookup"
    assert rows(DeltaTable.forPath(spark, path).toDF().select("id", "v")) == [(10, -1)]


BY_SOURCE_UPDATES = (
    (
        "WHEN MATCHED THEN UPDATE SET v = t.v + s.v WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND t.id % 5 = 4 THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE AND t.day < DATE'2024-01-03' THEN UPDATE SET v = v * 10, name = concat(name, '!') "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 20 THEN UPDATE SET v = -1"
    ),
    (
        "WHEN MATCHED AND length(t.name) + s.v > 3 THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = 'gone'"
    ),
    # The same values in all rows that a clause takes.
    (
        "WHEN MATCHED THEN UPDATE SET v = s.v, name = 'seen' "
        "WHEN NOT MATCHED BY SOURCE AND t.id % 3 = 1 THEN UPDATE SET v = -1, name = NULL "
        "WHEN NOT MATCHED BY SOURCE AND t.id <> 21 THEN UPDATE SET day = DATE'2024-01-02', name = 'gone', v = 0"
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clauses", "feed", "vectors"),
    combinations(BY_SOURCE_UPDATES, ["true", "false"], ["true", "false", "false", "true"]),
)
def test_updates_by_source(spark: SparkSession, tmp_path: Path, vectors: str, feed: str, clauses: str) -> None:
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": feed}
    some = spark.sql("SELECT * FROM VALUES (1, 5), (11, 6), (12, NULL), (40, 7) AS u(id, v)")
    some.createOrReplaceTempView("updates")
    found: dict[str, list[object]] = {}
    for executor in ("classic", "key_lookup"):
        path = str(tmp_path / executor)
        for number, day in enumerate(DAYS):
            of_day = spark.range(5).selectExpr(
                f"id + {10 * number} AS id", f"DATE'{day}' AS day", "id AS v", "concat('n', id) AS name"
            )
            write_delta(of_day.coalesce(1), path, mode="append", partition_by=["day"], properties=properties)
        spark.conf.set(EXECUTOR, executor)
        source = "(SELECT cast(id AS BIGINT) id, DATE'2024-01-02' day, cast(v AS BIGINT) v, 's' name FROM updates)"
        report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING {source} s ON t.id = s.id {clauses}")
        assert report.outcome.plan is not None
        counted = {name: count for name, count in report.metrics.items() if name.startswith("numTargetRows")}
        counted.pop("numTargetRowsCopied")
        found[executor] = [rows(DeltaTable.forPath(spark, path).toDF()), counted, [c.rows for c in report.clauses]]
        if feed == "true":
            found[executor].append(rows(DeltaTable.forPath(spark, path).changes(3).drop("_commit_timestamp")))
        made_by = report.outcome.plan.changed_rows.choice
    assert made_by == ("arrow" if clauses == BY_SOURCE_UPDATES[0] else "pair_values")
    assert found["key_lookup"] == found["classic"]
