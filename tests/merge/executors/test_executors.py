"""How merges run: both executors agree, sources are kept, files are skipped, logs and job descriptions tell."""

from __future__ import annotations

import logging
import os
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.exceptions import DeltaRuntimeException
from merge.tables import VECTORS, actions, changes, files_below, folders_below, frame, people, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions

CONNECT = os.environ.get("DELTAMERGE_TEST_MODE") == "connect"
MATERIALIZE = "spark.databricks.delta.merge.materializeSource"
EXECUTOR = "spark.deltamerge.merge.executor"
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.mark.parametrize("executor", ["auto", "classic", "insert_only"])
@pytest.mark.parametrize("clauses", ["one", "several"])
def test_insert_only_by_every_executor(spark: SparkSession, tmp_path: Path, executor: str, clauses: str) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set("spark.deltamerge.merge.executor", executor)
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (5, "five", 5), (6, "six", 6), (7, "sev", 7)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    if clauses == "one":
        merge = merge.whenNotMatchedInsertAll("s.id <> 7")
    else:
        merge = merge.whenNotMatchedInsertAll("s.id = 5").whenNotMatchedInsert(
            "s.id = 6", {"id": "6", "name": "name", "age": "6"}
        )
    report = merge.run()
    assert report.outcome.executor == ("key_lookup" if executor == "auto" else executor)
    assert rows(DeltaTable.forPath(spark, path).toDF())[3:] == [(5, "five", 5), (6, "six", 6)]
    assert report.metrics["numSourceRows"] == 4
    assert report.metrics["numTargetRowsInserted"] == 2
    assert sum(clause.rows for clause in report.clauses) == 2
    assert not actions(path, report.version, "remove"), "an insert-only merge rewrites nothing"


@pytest.mark.parametrize("setting", ["auto", "all", "none"])
def test_materialization_settings(spark: SparkSession, tmp_path: Path, setting: str) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set(MATERIALIZE, setting)
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (9, "y", 9)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert ("materialize_source" in [step.name for step in report.steps]) == (setting != "none")
    assert len(rows(DeltaTable.forPath(spark, path).toDF())) == 4


def test_a_source_that_is_not_kept_is_computed_by_many_tasks(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set(MATERIALIZE, "none")
    task = F.udf(lambda _: TaskContext.get().partitionId(), "int")  # type: ignore[union-attr]
    source = spark.range(0, 40, 1, 4).select(
        F.col("id").cast("int").alias("id"), F.lit("x").alias("name"), task("id").alias("age")
    )
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert {age for _, _, age in rows(DeltaTable.forPath(spark, path).toDF())} == {0, 1, 2, 3}


def test_a_source_that_changes_between_scans(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(1000).selectExpr("id", "0 AS v"), path)
    changing = spark.range(1000).where(F.rand() < 0.5).selectExpr("id", "1 AS v")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(changing.alias("s"), "t.id = s.id").whenMatchedUpdateAll()
    report = merge.run()
    updated = DeltaTable.forPath(spark, path).toDF().where("v = 1").count()
    assert report.metrics["numTargetRowsUpdated"] == updated
    deleting = DeltaTable.forPath(spark, path).alias("t").merge(changing.alias("s"), "t.id = s.id").whenMatchedDelete()
    spark.conf.set(MATERIALIZE, "none")
    try:
        report = deleting.run()
    except DeltaRuntimeException as error:
        assert error.getCondition() == "DELTA_MERGE_SOURCE_CHANGED"
    assert DeltaTable.forPath(spark, path).toDF().count() == 1000 - report.metrics["numTargetRowsDeleted"]


def test_a_source_made_from_the_target(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    target = DeltaTable.forPath(spark, path)
    source = target.toDF().withColumn("id", F.col("id") + 1).alias("s")
    target.alias("t").merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert rows(target.toDF()) == [(1, "ann", 30), (2, "ann", 30), (3, "bob", 40), (4, "cy", 50)]


def test_a_scalar_subquery_in_the_source(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    target = DeltaTable.forPath(spark, path)
    target.toDF().createOrReplaceTempView("people_before")
    query = "SELECT id, (SELECT max(age) FROM people_before) AS oldest FROM range(2, 5)"
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING ({query} WHERE id > (SELECT min(id) FROM people_before)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET age = s.oldest "
        "WHEN NOT MATCHED THEN INSERT (id, age) VALUES (s.id, s.oldest)",
    )
    assert rows(target.toDF()) == [(1, "ann", 30), (2, "bob", 50), (3, "cy", 50), (4, None, 50)]


def test_an_update_that_writes_the_same_values(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t", properties={"delta.enableChangeDataFeed": "true"})
    target = DeltaTable.forPath(spark, path)
    before = rows(target.toDF())
    merge = target.alias("t").merge(target.toDF().alias("s"), "t.id = s.id").whenMatchedUpdateAll()
    assert merge.run().metrics["numTargetRowsUpdated"] == 3
    assert rows(target.toDF()) == before
    told = sorted((row["_change_type"], row["id"], row["age"]) for row in changes(path, 2))
    assert told == [(change, key, age) for change in ("update_postimage", "update_preimage") for key, _, age in before]


def test_files_out_of_the_sources_range_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for start in range(0, 100, 20):
        write_delta(spark.range(start, start + 20).coalesce(1).selectExpr("id", "0 AS v"), path, mode="append")
    source = frame(spark, "id BIGINT, v INT", [(45, 1), (52, 1)])
    target = DeltaTable.forPath(spark, path).alias("t")
    report = target.merge(source.alias("s"), "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert report.metrics["numTargetFilesBeforeSkipping"] == 5
    assert report.metrics["numTargetFilesAfterSkipping"] == 1
    assert report.metrics["numTargetRowsCopied"] == 18
    by_day = target.merge(source.alias("s"), "t.id = s.id").whenNotMatchedBySourceDelete("t.id < 5").run()
    assert by_day.metrics["numTargetFilesAfterSkipping"] == 2
    assert by_day.metrics["numTargetRowsNotMatchedBySourceDeleted"] == 5


def test_an_insert_only_merge_keeps_its_source_and_reads_what_it_can_meet(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for start in range(0, 100, 20):
        write_delta(spark.range(start, start + 20).coalesce(1).selectExpr("id", "0 AS v"), path, mode="append")
    # The keys come in random order and number, but only from one file; NULL matches nothing; 900 comes twice.
    source = spark.sql(
        "SELECT CAST(id AS BIGINT) AS id, CAST(rand() * 100 AS INT) + 1 AS v FROM VALUES (41), (59), (59), (60.5), "
        "(null), (900), (900) AS s(id)"
    )
    spark.conf.set(MATERIALIZE, "all")
    spark.conf.set(EXECUTOR, "insert_only")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    report = merge.whenNotMatchedInsertAll("s.id <> 60").whenNotMatchedInsert(values={"v": "-1"}).run()
    assert [step.name for step in report.steps][2:5] == ["materialize_source", "plan", "write_only_inserts"]
    assert report.metrics["numTargetFilesAfterSkipping"] == 2
    assert report.metrics["numSourceRows"] == 7
    assert report.metrics["numTargetRowsInserted"] == 3
    new = DeltaTable.forPath(spark, path).toDF().where("v <> 0").select("id", F.expr("v > 0"))
    assert rows(new) == [(900, True), (900, True), (None, False)]


def test_inserts_into_large_files_look_up_their_keys(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(0, 1_000_000, 2).coalesce(1).selectExpr("id", "rand() AS v", "array(id) AS a"), path)
    assert sum(file.stat().st_size for file in Path(path).glob("**/*.parquet")) > 4 << 20
    source = spark.range(999_990, 1_000_004).selectExpr("id", "1D AS v", "array(id) AS a")
    spark.conf.set(MATERIALIZE, "all")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    report = merge.whenNotMatchedInsertAll().run()
    assert report.outcome.executor == "key_lookup"
    new = DeltaTable.forPath(spark, path).toDF().where("id > 999990 AND v = 1").orderBy("id").collect()
    assert [row.id for row in new] == [
        999_991,
        999_993,
        999_995,
        999_997,
        999_999,
        *range(1_000_000, 1_000_004),
    ]
    assert report.metrics["numTargetRowsInserted"] == 9


@pytest.mark.parametrize("condition", ["t.id = s.id", "t.id <=> s.id", "t.id < s.id AND t.id > s.id - 2"])
def test_every_way_to_insert_agrees(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    found = []
    for setting in ("none", "all"):
        path = str(tmp_path / setting)
        values = [(1, "a"), (2, "b"), (None, "c"), (5, "d")]
        write_delta(frame(spark, "id INT, v STRING", values), path)
        source = frame(spark, "id INT, v STRING", [(2, "x"), (3, "y"), (None, "z"), (9, "w"), (9, "w")])
        spark.conf.set(MATERIALIZE, setting)
        merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), condition)
        report = merge.whenNotMatchedInsertAll().run()
        found.append((rows(DeltaTable.forPath(spark, path).toDF()), report.metrics["numTargetRowsInserted"]))
    assert found[0] == found[1]


def test_matches_that_change_nothing_cost_no_rewrite(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 0), (3, "y", 0), (9, "n", 9)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll("s.age > 100").whenNotMatchedInsertAll().run()
    assert "write_all_changes" not in [step.name for step in report.steps]
    assert report.metrics["numTargetFilesRemoved"] == 0
    assert rows(DeltaTable.forPath(spark, path).toDF())[3:] == [(9, "n", 9)]


def test_one_source_row_fires_of_several_that_match(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t", properties={"delta.enableChangeDataFeed": "true"})
    source = frame(
        spark,
        "id INT, name STRING, age INT",
        [(1, "no", 0), (1, "yes", 1), (2, "no", 0), (2, "no", 0), (9, "n", 9)],
    )
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll("s.age = 1").whenNotMatchedInsertAll().run()
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [
        (1, "yes", 1),
        (2, "bob", 40),
        (3, "cy", 50),
        (9, "n", 9),
    ]
    kinds = sorted((row["_change_type"], row["id"]) for row in changes(path, report.version))
    assert kinds == [("insert", 9), ("update_postimage", 1), ("update_preimage", 1)]


def test_a_random_value_is_computed_once(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t", properties={"delta.enableChangeDataFeed": "true"})
    source = frame(spark, "id INT", [(1,), (9,)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    report = (
        merge.whenMatchedUpdate(set={"name": "uuid()"})
        .whenNotMatchedInsert(values={"id": "s.id", "name": "uuid()"})
        .run()
    )
    table = {row[0]: row[1] for row in rows(DeltaTable.forPath(spark, path).toDF())}
    after = {
        row["id"]: row["name"]
        for row in changes(path, report.version)
        if row["_change_type"] in ("insert", "update_postimage")
    }
    assert after == {1: table[1], 9: table[9]}


@pytest.mark.sessions
@pytest.mark.parametrize(
    ("executor", "properties"),
    [
        ("auto", {}),
        ("auto", VECTORS),
        ("classic", {}),
        ("classic", {"delta.enableChangeDataFeed": "true"}),
        ("low_shuffle", {}),
    ],
    ids=str,
)
def test_deleting_all_rows_leaves_no_folder(
    spark: SparkSession, tmp_path: Path, executor: str, properties: dict[str, str]
) -> None:
    path = people(spark, tmp_path / "t", properties=properties)
    before = folders_below(path)
    spark.conf.set(EXECUTOR, executor)
    source = frame(spark, "id INT", [(1,), (2,), (3,)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    assert merge.whenMatchedDelete().run().metrics["numTargetRowsDeleted"] == 3
    assert {name for name in folders_below(path) if "_change_data" not in name} == before
    assert DeltaTable.forPath(spark, path).toDF().count() == 0


def test_debug_and_trace_logs(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = people(spark, tmp_path / "t")
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (9, "y", 9)])
    target = DeltaTable.forPath(spark, path).alias("t")
    with caplog.at_level(1, logger="deltamerge.merge.MergeIntoCommand"):
        spark.conf.set(EXECUTOR, "classic")
        target.merge(source.alias("s"), "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        spark.conf.set(EXECUTOR, "insert_only")
        target.merge(source.alias("s"), "t.id = s.id + 50").whenNotMatchedInsertAll().execute()
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert "findTouchedFiles: matched files:" in logged
    assert "writeAllChanges using full_outer join:" in logged
    assert "writeAllChanges: join output expressions" in logged
    assert "prepareInsertsOnlyOutputDF: not matched expressions" in logged
    assert "writeInsertsOnlyWhenNoMatchedClauses: output plan:" in logged
    assert logging.getLevelName(5) == "TRACE"


def test_what_spark_has_cached_of_the_table_is_read_again(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    target = DeltaTable.forPath(spark, path)
    before = target.toDF().cache()
    # Every Parquet file of the table's folder, also those that the log does not name any more.
    in_folder = spark.read.option("recursiveFileLookup", "true").parquet(path).cache()
    assert (before.count(), in_folder.count()) == (3, 3)
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1)])
    target.alias("t").merge(source.alias("s"), "t.id = s.id").whenMatchedUpdateAll().execute()
    assert rows(target.toDF())[0] == (1, "x", 1)
    assert rows(in_folder.where("name = 'x'")) == [(1, "x", 1)]
    before.unpersist()
    in_folder.unpersist()


@pytest.mark.quick
def test_session_settings_are_put_back(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    keys = ["spark.sql.sources.parallelPartitionDiscovery.threshold", "spark.sql.parquet.outputTimestampType"]
    before = [spark.conf.get(key) for key in keys]
    target = DeltaTable.forPath(spark, path).alias("t")
    target.merge(frame(spark, "k INT", [(1,)]), "id = k").whenMatchedDelete().execute()
    assert [spark.conf.get(key) for key in keys] == before


@pytest.mark.quick
def test_user_columns_with_the_merges_own_names(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    names = ["__dm_target_0", "__DM_source_row_present_", "_row_id_", "_metadata", "file_path"]
    schema = "id INT, " + ", ".join(f"`{name}` INT" for name in names)
    write_delta(frame(spark, schema, [(1, 1, 1, 1, 1, 1), (2, 2, 2, 2, 2, 2)]), path)
    source = frame(spark, schema, [(2, 20, 20, 20, 20, 20), (3, 30, 30, 30, 30, 30)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().whenNotMatchedBySourceDelete().execute()
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(2, 20, 20, 20, 20, 20), (3, 30, 30, 30, 30, 30)]


@pytest.mark.parametrize(
    "properties", [{}, VECTORS, {"delta.enableChangeDataFeed": "true"}, {**VECTORS, "delta.enableRowTracking": "true"}]
)
@pytest.mark.parametrize("executor", ["auto", "classic", "low_shuffle"])
def test_user_columns_with_the_workers_names(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str], executor: str
) -> None:
    path = str(tmp_path / "t")
    names = ["row", "file", "path", "source", "clause", "values", "row_id", "by_source", "k0", "0", "rows", "number"]
    schema = "id INT, " + ", ".join(f"`{name}` INT" for name in names)
    write_delta(frame(spark, schema, [(n, *[n] * len(names)) for n in range(4)]), path, properties=properties)
    spark.conf.set(EXECUTOR, executor)
    target = DeltaTable.forPath(spark, path)
    for keys in ("id", "row", "file"):
        source = frame(spark, schema, [(n, *[n * 10] * len(names)) for n in (2, 9)])
        source = source.withColumn(keys, F.col("id"))
        merge = target.alias("t").merge(source.alias("s"), f"t.{keys} = s.{keys}")
        merge.whenMatchedUpdate(None, {"values": "s.values + t.row + t.file", "`0`": "s.`0`"}).whenNotMatchedInsert(
            None, {name: f"s.`{name}`" if name == keys else f"s.`{name}` + 1" for name in ("id", "row", "file", "k0")}
        ).execute()
        target.update(f"{keys} = 9", {"row": "row + 1", "path": "file"})
        target.delete(f"id >= 9 AND row + file > 0 AND {keys} > 8")
    assert rows(target.toDF()) == [
        (0, *[0] * len(names)),
        (1, *[1] * len(names)),
        (2, *(24 if name == "values" else 20 if name == "0" else 2 for name in names)),
        (3, *[3] * len(names)),
    ]


def test_numbers_of_rows_of_a_source_that_is_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    """No MATCHED clause fires; read for its keys alone, the source has its rows in another order."""
    path = str(tmp_path / "t")
    write_delta(spark.range(1000).selectExpr("id", "0L AS v", "'old' AS w"), path)
    spark.conf.set(MATERIALIZE, "none")
    spark.conf.set(EXECUTOR, "classic")
    keys = spark.range(1000).selectExpr("id * 7919 % 1000 + 500 AS id").groupBy("id")
    source = keys.agg(F.lit(0).alias("v"), F.max(F.concat(F.lit("new"), "id")).alias("w"))
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll("s.v > t.v").whenNotMatchedInsertAll().run()
    assert report.metrics["numTargetRowsInserted"] == 500
    new = DeltaTable.forPath(spark, path).toDF().where("w <> 'old'")
    assert new.agg(F.min("id"), F.max("id"), F.countDistinct("id")).collect()[0] == (1000, 1499, 500)


@pytest.mark.parametrize(
    ("target", "source", "values"),
    [
        ("INT", "STRING", ["9", "10", "100"]),
        ("STRING", "INT", [9, 10, 100]),
        ("DATE", "STRING", ["2020-01-09", "2020-1-10", "2020-01-11"]),
        ("INT", "DOUBLE", [9.0, 10.0, 11.5]),
        ("BIGINT", "DECIMAL(12,2)", [Decimal("9.00"), Decimal("10.00"), Decimal("10.50")]),
        ("DATE", "DATE", [date(1, 1, 1), date(9999, 12, 31)]),
        ("DOUBLE", "FLOAT", [0.0, -0.0, float("inf"), float("nan")]),
    ],
)
def test_keys_of_different_types_lose_no_match(
    spark: SparkSession, tmp_path: Path, target: str, source: str, values: list[object]
) -> None:
    path = str(tmp_path / "t")
    keys = frame(spark, f"k {source}", [(value,) for value in values])
    for value in values:
        one = frame(spark, f"k {source}", [(value,)]).selectExpr(f"try_cast(k AS {target}) AS k", "0 AS v")
        write_delta(one, path, mode="append")
    table = DeltaTable.forPath(spark, path)
    expected = table.toDF().alias("t").join(keys.alias("s"), F.expr("t.k = s.k"), "left_semi").count()
    once = keys.dropDuplicates().alias("s")
    report = table.alias("t").merge(once, "t.k = s.k").whenMatchedUpdate(set={"v": "1"}).run()
    assert report.metrics["numTargetRowsUpdated"] == expected
    assert table.toDF().where("v = 1").count() == expected


def test_times_beyond_pythons_calendar(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    far = spark.sql("SELECT timestamp_micros(300000000000000000L) AS ts, date_from_unix_date(4000000) AS d, 0 AS v")
    write_delta(far, path)
    table = DeltaTable.forPath(spark, path)
    merge = table.alias("t").merge(far.alias("s"), "t.ts = s.ts AND t.d = s.d").whenMatchedUpdate(set={"v": "1"})
    assert merge.run().metrics["numTargetRowsUpdated"] == 1


def test_defaults_stand_in_for_what_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    default = {"CURRENT_DEFAULT": "concat('x', 'y')"}
    made = DeltaTable.create(spark).location(path).addColumn("id", "INT")
    made.addColumn(StructField("v", StringType(), True, default)).execute()
    write_delta(frame(spark, "id INT", [(1,)]), path, mode="append")
    source = frame(spark, "id INT, v STRING", [(1, "given"), (2, "given")])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenNotMatchedInsert(values={"id": "s.id"}).execute()
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "xy"), (2, "xy")]
    merge.whenMatchedUpdateAll("s.id = 1").whenMatchedUpdate(set={"id": "30", "v": "DEFAULT"}).execute()
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "given"), (30, "xy")]


if not CONNECT:

    def test_a_source_whose_rows_are_lost_is_computed_again(spark: SparkSession, tmp_path: Path) -> None:
        path = people(spark, tmp_path / "t", properties={"delta.enableChangeDataFeed": "true"})
        source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (9, "y", 9)])
        merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
        merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()
        spark.conf.set(EXECUTOR, "classic")
        lost = LosesTheSource(spark, times=2)
        report = merge.run(progress=lost)
        assert [step.name for step in report.steps].count("materialize_source") == 3
        assert rows(DeltaTable.forPath(spark, path).toDF()) == [
            (1, "x", 1),
            (2, "bob", 40),
            (3, "cy", 50),
            (9, "y", 9),
        ]
        logged = {add["path"] for version in range(3) for add in actions(path, version, "add")}
        assert {f for f in files_below(path) if f.endswith(".parquet") and "_change_data" not in f} == logged

    def test_a_source_whose_rows_are_lost_each_time(spark: SparkSession, tmp_path: Path) -> None:
        path = people(spark, tmp_path / "t")
        before = files_below(path)
        source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1)])
        spark.conf.set(EXECUTOR, "classic")
        merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
        with pytest.raises(DeltaRuntimeException) as caught:
            merge.whenMatchedUpdateAll().run(progress=LosesTheSource(spark, times=99))
        assert caught.value.getCondition() == "DELTA_MERGE_MATERIALIZE_SOURCE_FAILED_REPEATEDLY"
        assert "4 times" in caught.value.message
        assert files_below(path) == before


class LosesTheSource:
    """Takes the kept rows of the source away just before files are written, as a lost executor does."""

    def __init__(self, spark: SparkSession, times: int) -> None:
        self.spark, self.times = spark, times

    def step(self, name: str, description: str) -> None:
        if name == "write_all_changes" and self.times:
            self.times -= 1
            for kept in self.spark.sparkContext._jsc.getPersistentRDDs().values():
                kept.unpersist(True)
