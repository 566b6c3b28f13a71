"""The key lookup in tables with partitions: it agrees with the classic route, file by file where that matters."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.errors import PySparkException

from combinations import combinations
from deltamerge import DeltaTable, merge_sql, write_delta
from merge.tables import (
    CONNECT,
    DRIVER_BYTES,
    EXECUTOR,
    VECTORS,
    actions,
    files_below,
    folders_below,
    frame,
    made_once,
    rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


COLUMNS = (
    "id",
    "element_at(array('a/b', 'x=1 %2F', 'é#漢', cast(null AS string), ''), cast(id % 5 AS int) + 1) AS p",
    "concat('v', id) AS v",
    "if(id % 4 = 3, null, cast(id % 4 AS int)) AS n",
    "if(id % 2 = 0, 'update', 'delete') AS op",
)
BY_ALL = "t.id = s.id AND t.p = s.p AND t.n = s.n"
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
MERGES = {
    "upsert": (BY_ALL, UPSERT),
    "change data": (
        BY_ALL,
        (
            "WHEN MATCHED AND s.op = 'delete' THEN DELETE WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED AND s.op <> 'delete' THEN INSERT *"
        ),
    ),
    "other columns": ("t.id = s.id", "WHEN MATCHED THEN UPDATE SET v = s.op WHEN NOT MATCHED THEN INSERT *"),
    "delete": ("t.id = s.id", "WHEN MATCHED THEN DELETE"),
    "delete of a partition": ("t.n = s.n AND t.p = s.p", "WHEN MATCHED THEN DELETE"),
    "two inserts": (
        BY_ALL,
        (
            "WHEN NOT MATCHED AND s.id % 2 = 0 THEN INSERT (id, p, n) VALUES (s.id, s.p, s.n) "
            "WHEN NOT MATCHED AND s.id > 505 THEN INSERT (id, n, p, v) VALUES (-s.id, s.n, s.p, 'new')"
        ),
    ),
    "by source": (
        "t.id = s.id AND t.p = s.p",
        (
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.n = 1 "
            "THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.p = 'a/b' AND t.v > 'v6' THEN DELETE"
        ),
    ),
    "moved": (
        "t.id = s.id",
        (
            "WHEN MATCHED AND s.op = 'delete' AND s.id > 70 THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET v = s.v, p = s.op, n = 3 WHEN NOT MATCHED THEN INSERT *"
        ),
    ),
    "moved by both": (
        "t.id = s.id",
        (
            "WHEN MATCHED AND t.n = 1 THEN UPDATE SET n = t.n + s.id % 2 "
            "WHEN MATCHED THEN UPDATE SET p = concat(t.p, 'x'), v = s.v WHEN NOT MATCHED THEN INSERT *"
        ),
    ),
    "moved by source": (
        BY_ALL,
        (
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE AND t.n = 1 THEN UPDATE SET p = 'one' "
            "WHEN NOT MATCHED BY SOURCE AND t.n = 2 AND t.p = 'a/b' THEN UPDATE SET n = 2, v = 'stays'"
        ),
    ),
    "one value": ("t.id = s.id", "WHEN NOT MATCHED THEN INSERT (id, p, n) VALUES (s.id, 'one', 1 + 1)"),
}
MOST_PARTS = ("change data", "moved", "moved by both", "moved by source")
AGREEING = [each for each in combinations(MERGES, [False, True]) if not CONNECT or each.values[0] in MOST_PARTS]


def table(spark: SparkSession, path: Path, properties: dict[str, str]) -> str:
    def make(folder: str) -> None:
        numbers = spark.range(0, 100).selectExpr(*COLUMNS)
        for condition in ("id < 50", "id >= 50"):
            write_delta(
                numbers.where(condition).coalesce(1),
                folder,
                mode="append",
                partition_by=["p", "n"],
                properties=properties,
            )

    return made_once(path, f"partitions {properties}", make)


def source(spark: SparkSession, folder: Path, *, in_files: bool) -> None:
    """Makes the view ``changes_to_merge``: some rows of the table, some new ones."""
    some = spark.range(40, 90, 3).union(spark.range(500, 510)).selectExpr(*COLUMNS)
    new = some.selectExpr("id", "p", "concat('new', id) AS v", "n", "op")
    if in_files:
        new.repartition(2).write.parquet(str(folder / "source"))
        new = spark.read.parquet(str(folder / "source"))
    new.createOrReplaceTempView("changes_to_merge")


def outcome(spark: SparkSession, path: str, executor: str, on: str, clauses: str) -> dict[str, Any]:
    """Merges, and gives all that two executors must agree on."""
    spark.conf.set(EXECUTOR, executor)
    report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING changes_to_merge s ON {on} {clauses}")
    assert report.outcome.executor == executor, report.outcome.executor_reason
    spark.conf.unset(EXECUTOR)
    assert report.version is not None
    added = [add for add in actions(path, report.version, "add") if not add.get("deletionVector")]
    assert {Path(name).suffix for name in files_below(path)} <= {".parquet", ".json", ".crc", ".bin"}
    return {
        "rows": rows(DeltaTable.forPath(spark, path).toDF().selectExpr("id", "p", "n", "v", "op")),
        "partitions": {tuple(sorted(add["partitionValues"].items(), key=repr)) for add in added},
        "metrics": {k: v for k, v in report.metrics.items() if k.startswith("numTargetRows")},
        "clauses": [clause.rows for clause in report.clauses],
    }


@pytest.mark.sessions
@pytest.mark.parametrize(("merge", "vectors"), AGREEING)
def test_it_agrees_with_the_classic_route(spark: SparkSession, tmp_path: Path, merge: str, vectors: bool) -> None:
    source(spark, tmp_path, in_files=not vectors)
    found = []
    for executor in ("classic", "key_lookup"):
        path = table(spark, tmp_path / executor, VECTORS if vectors else {})
        spark.conf.set(DRIVER_BYTES, "0")
        first = outcome(spark, path, executor, *MERGES[merge])
        spark.conf.unset(DRIVER_BYTES)
        second = outcome(spark, path, executor, BY_ALL, UPSERT)
        # In which files the first merge put its rows is each executor's own matter.
        del second["metrics"]["numTargetRowsCopied"]
        del second["partitions"]
        found.append([first, second])
    assert found[0] == found[1]
    assert all(any(Path(path, folder).iterdir()) for folder in folders_below(path)), "no empty folders"
    if not vectors:
        read = DeltaRs(path).to_pyarrow_table(columns=["id", "p", "n", "v", "op"])
        assert Counter(tuple(row.values()) for row in read.to_pylist()) == Counter(found[1][1]["rows"])


def test_low_shuffle_looks_keys_of_partitions_up(spark: SparkSession, tmp_path: Path) -> None:
    source(spark, tmp_path, in_files=False)
    found = []
    for executor in ("classic", "low_shuffle"):
        path = table(spark, tmp_path / executor, {"delta.enableChangeDataFeed": "true"})
        found.append(outcome(spark, path, executor, BY_ALL, UPSERT))
    assert found[0] == found[1]


@pytest.mark.sessions
def test_rows_that_change_their_partition(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id INT, p STRING", [(1, "a"), (2, "b")]), path, partition_by=["p"])
    new = frame(spark, "id INT, p STRING", [(1, "b"), (3, "c")])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert report.outcome.plan is not None
    assert report.outcome.plan.changed_rows.choice == "arrow"
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "b"), (2, "b"), (3, "c")]
    counts = [report.metrics[f"numTargetRows{what}"] for what in ("Updated", "Inserted", "Deleted", "Copied")]
    assert counts == [1, 1, 0, 0]


@pytest.mark.sessions
@pytest.mark.parametrize("properties", [{}, {"delta.enableChangeDataFeed": "true"}, VECTORS])
def test_generated_partition_columns_that_change(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumn("at", "TIMESTAMP")
    builder = builder.addColumn("day", "DATE", generatedAlwaysAs="CAST(at AS DATE)").partitionedBy("day")
    for key, value in properties.items():
        builder = builder.property(key, value)
    builder.execute()
    at = "timestamp'2024-02-28 12:00:00' + make_interval(0, 0, 0, cast(id % 3 AS int)) AS at"
    write_delta(spark.range(9).selectExpr("cast(id AS int) AS id", at), path, mode="append")
    spark.range(5, 12).selectExpr("cast(id AS int) AS id", at.replace("id % 3", "id % 4")).createOrReplaceTempView(
        "days"
    )
    report = merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING days s ON t.id = s.id WHEN MATCHED THEN UPDATE SET at = s.at "
        "WHEN NOT MATCHED THEN INSERT (id, at) VALUES (s.id, s.at)",
    )
    assert report.outcome.plan is not None
    assert report.outcome.plan.changed_rows.choice == "arrow"
    found = DeltaTable.forPath(spark, path).toDF().selectExpr("id", "day(at)", "cast(day AS string)")
    days = [(i, i % 3 if i < 5 else i % 4) for i in range(12)]
    spelled = ["2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02"]
    assert sorted(rows(found)) == [(i, int(spelled[day][-2:]), spelled[day]) for i, day in days]
    if "delta.enableChangeDataFeed" in properties:
        feed = DeltaTable.forPath(spark, path).changes(report.version or 0).where("id < 9")
        changed = rows(feed.selectExpr("_change_type", "id", "cast(day AS string)"))
        old = [("update_preimage", i, spelled[i % 3]) for i in range(5, 9)]
        assert sorted(changed) == sorted([("update_postimage", i, spelled[i % 4]) for i in range(5, 9)] + old)


def test_small_files_of_a_partition_are_put_together(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for i in (1, 2, 3):
        write_delta(
            frame(spark, "id INT, p STRING, v INT", [(i, "a", i), (-i, "b", i)]),
            path,
            mode="append",
            partition_by=["p"],
        )
    new = frame(spark, "id INT, p STRING, v INT", [(1, "a", 9), (2, "a", 9), (7, "a", 9), (8, "c", 9)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id AND t.p = s.p")
    report = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert report.outcome.executor == "key_lookup"
    assert report.version is not None
    added = Counter(add["partitionValues"]["p"] for add in actions(path, report.version, "add"))
    assert added == {"a": 1, "c": 1}
    expected = [(1, "a", 9), (2, "a", 9), (3, "a", 3), (7, "a", 9), (8, "c", 9)]
    assert rows(DeltaTable.forPath(spark, path).toDF().where("id > 0")) == expected


def test_each_insert_casts_its_own_partition_value(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id INT, p INT, v STRING", [(0, 7, "x")]), path, partition_by=["p"])
    frame(spark, "id INT, p BIGINT, v STRING, k INT", [(1, 7, "a", 1), (2, 8, "b", 2)]).createOrReplaceTempView("wider")
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING wider s ON t.id = s.id WHEN NOT MATCHED AND s.k = 1 THEN INSERT (id, p) "
        "VALUES (s.id, s.p) WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, s.p, s.v)",
    )
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(0, 7, "x"), (1, 7, None), (2, 8, "b")]


def test_records_per_file(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id INT, p STRING", [(-1, "a")]), path, partition_by=["p"])
    # A partition's rows stand close to one another but for one.
    new = spark.range(0, 1000, 1, 1).selectExpr("cast(id AS int) AS id", "if(id = 0 OR id > 849, 'b', 'c') AS p")
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "100")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = merge.whenNotMatchedInsertAll().run()
    assert report.outcome.executor == "key_lookup"
    assert report.version is not None
    added = actions(path, report.version, "add")
    counts = [(add["partitionValues"]["p"], json.loads(add["stats"])["numRecords"]) for add in added]
    assert max(count for _, count in counts) <= 100
    assert sum(count for p, count in counts if p == "b") == 151
    assert DeltaTable.forPath(spark, path).toDF().distinct().count() == 1001


@pytest.mark.sessions
@pytest.mark.parametrize("properties", [{}, {"delta.enableChangeDataFeed": "true"}])
def test_days(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    path = str(tmp_path / "t")
    days = "date_add(date'2024-02-27', cast(id AS int)) AS day"
    write_delta(spark.range(0, 5).selectExpr("id", days), path, partition_by=["day"], properties=properties)
    new = spark.sql(
        "SELECT * FROM VALUES (1L, date'2024-02-28'), (6L, date'+12000-01-01'), (7L, date'0999-12-31'), "
        "(8L, date'9999-12-31'), (9L, NULL) AS v(id, day)"
    )
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = merge.whenNotMatchedInsertAll().run()
    assert report.outcome.executor == "key_lookup"
    assert report.version is not None
    added = {add["partitionValues"]["day"] for add in actions(path, report.version, "add")}
    assert added == {"+12000-01-01", "0999-12-31", "9999-12-31", None}
    found = DeltaTable.forPath(spark, path).toDF().where("id > 4").selectExpr("id", "cast(day AS string)")
    assert rows(found) == [(6, "+12000-01-01"), (7, "0999-12-31"), (8, "9999-12-31"), (9, None)]
    moved = new.selectExpr("id", "if(id < 8, date_add(day, 1), day) AS day")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(moved.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll().run()
    assert report.outcome.executor == "key_lookup"
    found = DeltaTable.forPath(spark, path).toDF().where("id > 4").selectExpr("id", "cast(day AS string)")
    assert rows(found) == [(6, "+12000-01-02"), (7, "1000-01-01"), (8, "9999-12-31"), (9, None)]
    if properties:
        feed = DeltaTable.forPath(spark, path).changes(report.version or 0).where("id = 6")
        days_of_six = rows(feed.selectExpr("_change_type", "cast(day AS string)"))
        assert days_of_six == [("update_postimage", "+12000-01-02"), ("update_preimage", "+12000-01-01")]


def test_partition_column_that_is_never_null(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).addColumn("id", "INT")
    builder.addColumn("p", "STRING", nullable=False).partitionedBy("p").execute()
    write_delta(frame(spark, "id INT, p STRING", [(1, "a")]), path, mode="append")
    before = files_below(path), folders_below(path)
    new = frame(spark, "id INT, p STRING", [(2, None)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    with pytest.raises(PySparkException, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
        merge.whenNotMatchedInsertAll().execute()
    assert (files_below(path), folders_below(path)) == before


FLAGGED = ("id", "if(id % 7 = 0, null, id % 2 = 0) AS is_current", "concat('v', id) AS v")
OF_FLAGS = {
    "closing": (
        "t.id = s.id AND t.is_current",
        "WHEN MATCHED AND s.v <> t.v THEN UPDATE SET is_current = false WHEN NOT MATCHED THEN INSERT *",
    ),
    "turning": ("t.id = s.id", "WHEN MATCHED THEN UPDATE SET is_current = NOT t.is_current, v = s.v"),
    "keys": ("t.id = s.id AND t.is_current = s.is_current", UPSERT),
    "by source": (
        "t.id = s.id",
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE AND NOT t.is_current THEN DELETE",
    ),
}


@pytest.mark.parametrize(("merge", "feed"), combinations(OF_FLAGS, ["true", "false"]))
def test_partitions_of_a_flag(spark: SparkSession, tmp_path: Path, merge: str, feed: str) -> None:
    on, clauses = OF_FLAGS[merge]
    new = spark.range(40, 120, 3).selectExpr(*FLAGGED).selectExpr("id", "is_current", "concat('new', id) AS v")
    new.createOrReplaceTempView("flags_to_merge")
    found = []
    for executor in ("key_lookup", "classic"):
        path = str(tmp_path / executor)
        write_delta(
            spark.range(100).selectExpr(*FLAGGED).coalesce(1),
            path,
            partition_by=["is_current"],
            properties={"delta.enableChangeDataFeed": feed},
        )
        spark.conf.set(EXECUTOR, executor)
        try:
            report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING flags_to_merge s ON {on} {clauses}")
        finally:
            spark.conf.unset(EXECUTOR)
        assert report.outcome.executor == executor
        merged = DeltaTable.forPath(spark, path)
        changes = merged.changes(1) if feed == "true" else merged.toDF()
        columns = [name for name in changes.columns if name != "_commit_timestamp"]
        assert report.version is not None
        partitions = {add["partitionValues"]["is_current"] for add in actions(path, report.version, "add")}
        counts = [report.metrics[f"numTargetRows{what}"] for what in ("Updated", "Inserted", "Deleted")]
        found.append((rows(merged.toDF()), rows(changes.select(*columns)), counts, partitions))
    assert found[0] == found[1]
