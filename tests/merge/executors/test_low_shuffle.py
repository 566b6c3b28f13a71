"""The low-shuffle route: it agrees with the classic one on rows, change data, metrics; rows that stay are patched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.errors import PySparkException

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.exceptions import DeltaAnalysisException, MultipleSourceRowsException
from deltamerge.merge.limits import Limits
from deltamerge.workers.parquet_patch import own_metadata
from merge.tables import (
    CONNECT,
    EXECUTOR,
    actions,
    changes,
    claim_rows,
    delete_checksums,
    files_below,
    folders_below,
    frame,
    made_once,
    people,
    rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


CHANGE_DATA = {"delta.enableChangeDataFeed": "true"}

EVERY_KIND = (
    "WHEN MATCHED AND t.id % 4 = 0 THEN DELETE "
    "WHEN MATCHED AND t.id > 60 THEN UPDATE SET x = t.x + 1, st.b = 'z' "
    "WHEN MATCHED AND s.id < 55 THEN DO NOTHING "
    "WHEN MATCHED THEN UPDATE SET * "
    "WHEN NOT MATCHED AND s.id > 505 THEN INSERT (id, p) VALUES (s.id, 7) "
    "WHEN NOT MATCHED THEN INSERT * "
    "WHEN NOT MATCHED BY SOURCE AND t.id < 5 THEN DELETE "
    "WHEN NOT MATCHED BY SOURCE AND t.id > 95 THEN UPDATE SET p = t.p + 10"
)
MERGES = {
    "upsert": "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "every kind": EVERY_KIND,
    "delete": "WHEN MATCHED THEN DELETE",
    "by source": "WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "values": "WHEN MATCHED AND s.id > 60 THEN UPDATE SET x = s.x, d = s.d + 1, ts = current_timestamp()",
    "from the source": "WHEN MATCHED THEN UPDATE SET id = s.id, p = s.p, st = s.st, arr = null, d = 1, ts = s.ts, "
    "x = s.x * 2, m = s.m",
    "insert": "WHEN NOT MATCHED THEN INSERT *",
}
COLUMNS = (
    "id",
    "id % 3 AS p",
    "named_struct('a', nullif(id, -1), 'b', nullif(cast(id AS string), '')) AS st",
    "array(id, null) AS arr",
    "cast(id AS decimal(12,2)) AS d",
    "timestamp_micros(id * 1000000) AS ts",
    "if(id % 7 = 0, double('NaN'), double(id)) AS x",
    "map('k', nullif(id, -1)) AS m",
)


def table(spark: SparkSession, path: Path, **options: Any) -> str:
    def make(folder: str) -> None:
        numbers = spark.range(0, 100).selectExpr(*COLUMNS)
        write_delta(numbers.where("id < 50").coalesce(1), folder, **options)
        write_delta(numbers.where("id >= 50").coalesce(1), folder, mode="append")

    return made_once(path, f"low shuffle {options}", make)


def source(spark: SparkSession) -> DataFrame:
    some = spark.range(45, 90, 3).union(spark.range(500, 510))
    new = some.selectExpr(*COLUMNS)
    return new.selectExpr("id", "0L AS p", "st", "array(1L) AS arr", "d", "ts", "-0.0D AS x", "null AS m")


def outcome(spark: SparkSession, path: str, executor: str, statement: str) -> dict[str, Any]:
    """Merges, and gives all that two executors must agree on."""
    spark.conf.set(EXECUTOR, executor)
    report = merge_sql(spark, statement)
    assert report.outcome.executor == executor, report.outcome.executor_reason
    counted = {k: v for k, v in report.metrics.items() if k.startswith(("numTargetRows", "numSource"))}
    found = {
        "rows": sorted(map(repr, DeltaTable.forPath(spark, path).toDF().drop("ts").collect())),
        "metrics": counted,
        "clauses": [clause.rows for clause in report.clauses],
    }
    if CHANGE_DATA.items() <= DeltaRs(path).metadata().configuration.items():
        found["changes"] = sorted(
            repr({k: v for k, v in row.items() if k not in ("_commit_timestamp", "ts")})
            for row in changes(path, report.version)
        )
    assert DeltaRs(path).to_pyarrow_table().num_rows == len(found["rows"])
    return found


# Each merge with or without change data, by turns; those with the most parts both with and without, and over Connect
# these alone.
MOST_PARTS = ("upsert", "every kind")
AGREEING = [
    (merge, change_data)
    for number, merge in enumerate(MERGES)
    for change_data in (False, True)
    if merge in MOST_PARTS or (number % 2 == change_data and not CONNECT)
]


@pytest.mark.sessions
@pytest.mark.parametrize(("merge", "change_data"), AGREEING)
def test_both_executors_agree(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    merge: str,
    change_data: bool,
) -> None:
    source(spark).createOrReplaceTempView("changes_to_merge")
    options: dict[str, Any] = {"properties": CHANGE_DATA} if change_data else {"partition_by": ["p"]}
    found = []
    for executor in ("classic", "low_shuffle"):
        path = table(spark, tmp_path / executor, **options)
        statement = f"MERGE INTO delta.`{path}` t USING changes_to_merge s ON t.id = s.id {MERGES[merge]}"
        found.append(outcome(spark, path, executor, statement))
    assert found[0] == found[1]
    assert not caplog.records, "no step was done in another way than planned"


def test_files_that_pyarrow_does_not_read_are_copied(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nested columns with more than 2 GiB of strings are no fault of the file, and Spark reads them."""

    def refuse(*_: object) -> None:
        raise pa.ArrowNotImplementedError("Nested data conversions not implemented for chunked array outputs")

    refuse.__module__ = "__main__"
    monkeypatch.setattr("deltamerge.workers.parquet_patch.read_rows", refuse)
    path = table(spark, tmp_path / "t")
    spark.conf.set(EXECUTOR, "low_shuffle")
    one = frame(spark, "id BIGINT", [(60,)])
    report = DeltaTable.forPath(spark, path).alias("t").merge(one.alias("s"), "t.id = s.id").whenMatchedDelete().run()
    assert report.metrics["numTargetRowsCopied"] == 49
    assert report.plan is not None
    unchanged = report.plan.unchanged_rows
    assert unchanged.choice == "rewrite"
    (declined,) = (each for each in unchanged.declined if each.choice == "patch")
    assert "PyArrow leaves the rows of" in declined.reason


@pytest.mark.sessions
@pytest.mark.quick
def test_rows_that_stay_are_patched(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t")
    before = {add["path"]: add for version in range(2) for add in actions(path, version, "add")}
    spark.conf.set(EXECUTOR, "low_shuffle")
    one = frame(spark, "id BIGINT", [(60,), (61,)])
    report = DeltaTable.forPath(spark, path).alias("t").merge(one.alias("s"), "t.id = s.id").whenMatchedDelete().run()
    removed = [remove["path"] for remove in actions(path, report.version, "remove")]
    assert len(removed) == 1
    added = actions(path, report.version, "add")
    assert [Path(add["path"]).name for add in added] == ["kept-00000.parquet"]
    old, new = (pq.ParquetFile(Path(path, name)) for name in (removed[0], added[0]["path"]))
    assert new.schema.equals(old.schema)
    assert own_metadata(new) == old.metadata.metadata
    kept = old.read().filter([i not in (10, 11) for i in range(50)])
    assert new.read().drop_columns("x").equals(kept.drop_columns("x"))
    assert repr(new.read()["x"].to_pylist()) == repr(kept["x"].to_pylist())
    assert before[removed[0]]["partitionValues"] == added[0]["partitionValues"]


def test_files_of_which_no_row_stays(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set(EXECUTOR, "low_shuffle")
    everyone = frame(spark, "id INT", [(1,), (2,), (3,)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(everyone.alias("s"), "t.id = s.id")
    report = merge.whenMatchedDelete().run()
    assert report.metrics["numTargetFilesRemoved"] == 2
    assert report.metrics["numTargetFilesAdded"] == 0
    assert rows(DeltaTable.forPath(spark, path).toDF()) == []


def test_one_source_row_updates_several_target_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id INT, v STRING", [(1, "a"), (1, "b"), (2, "c")]), path)
    spark.conf.set(EXECUTOR, "low_shuffle")
    new = frame(spark, "id INT, v STRING", [(1, "new"), (9, "nine")])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "new"), (1, "new"), (2, "c"), (9, "nine")]
    assert report.metrics["numTargetRowsUpdated"] == 2


@pytest.mark.sessions
def test_competing_source_rows_are_named(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    before = files_below(path)
    spark.conf.set(EXECUTOR, "low_shuffle")
    twice = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (1, "y", 2)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(twice.alias("s"), "t.id = s.id")
    with pytest.raises(MultipleSourceRowsException, match="modify 1 target row "):
        merge.whenMatchedUpdateAll().execute()
    assert files_below(path) == before
    report = merge.whenMatchedDelete().run()
    assert report.metrics["numTargetRowsDeleted"] == 1


@pytest.mark.sessions
@pytest.mark.parametrize("change_data", [False, True])
@pytest.mark.parametrize(
    ("value", "said"), [("-1L", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"), ("s.d / 0", "DIVIDE_BY_ZERO")]
)
def test_rows_at_fault_while_files_are_patched(
    spark: SparkSession, tmp_path: Path, value: str, said: str, change_data: bool
) -> None:
    properties = {"delta.constraints.positive": "p >= 0", **(CHANGE_DATA if change_data else {})}
    path = table(spark, tmp_path / "t", properties=properties)
    before = files_below(path), folders_below(path)
    spark.conf.set(EXECUTOR, "low_shuffle")
    steps = Steps()
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source(spark).alias("s"), "t.id = s.id")
    with pytest.raises(PySparkException, match=said):
        merge.whenMatchedUpdate(set={"p": value}).whenNotMatchedInsertAll().run(steps)
    assert steps.said[-1] == "writing new rows, patching 2 of 2 touched files"
    assert (files_below(path), folders_below(path)) == before
    assert merge.whenMatchedUpdateAll().run().outcome.executor == "low_shuffle"


class Steps:
    """Notes what a merge is about to do."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def step(self, name: str, description: str) -> None:
        self.said.append(description)


def test_new_columns_are_written_to_touched_files(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set(EXECUTOR, "low_shuffle")
    wider = frame(spark, "id INT, name STRING, age INT, more STRING", [(1, "x", 1, "m"), (9, "y", 2, "n")])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(wider.alias("s"), "t.id = s.id")
    report = merge.withSchemaEvolution().whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    expected = [(1, "x", 1, "m"), (2, "bob", 40, None), (3, "cy", 50, None), (9, "y", 2, "n")]
    assert rows(DeltaTable.forPath(spark, path).toDF()) == expected
    assert report.outcome.plan is not None
    assert report.outcome.plan.unchanged_rows.choice == "patch"
    assert len(DeltaRs(path).to_pyarrow_table().to_pylist()) == 4


def test_spark_writes_what_pyarrow_cannot(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    old = spark.sql("SELECT id, timestamp_seconds(id) AS ts FROM range(20)").coalesce(1)
    folder = tmp_path / "int96"
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    old.write.parquet(str(folder))
    write_delta(old, path)
    # The file's place is taken by one with INT96, as older writers made them.
    (data,) = Path(path).glob("**/*.parquet")
    (int96,) = folder.glob("*.parquet")
    data.with_name(f".{data.name}.crc").unlink(missing_ok=True)
    before = data.stat().st_size
    int96.replace(data)
    log = Path(path, "_delta_log", f"{0:020d}.json")
    log.write_text(log.read_text().replace(f'"size":{before}', f'"size":{data.stat().st_size}'))
    delete_checksums(path)
    spark.conf.set(EXECUTOR, "low_shuffle")
    one = frame(spark, "id BIGINT", [(3,)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(one.alias("s"), "t.id = s.id")
    report = merge.whenMatchedDelete().run()
    assert [Path(add["path"]).name[:4] for add in actions(path, report.version, "add")] == ["part"]
    left = DeltaTable.forPath(spark, path).toDF().selectExpr("id", "unix_seconds(ts)")
    assert left.collect() == [(i, i) for i in range(20) if i != 3]


@pytest.mark.sessions
@pytest.mark.parametrize("change_data", [False, True])
def test_executors_that_cannot_patch(spark: SparkSession, tmp_path: Path, change_data: bool) -> None:
    path = people(spark, tmp_path / "t", properties=CHANGE_DATA if change_data else {})
    spark.conf.set(EXECUTOR, "low_shuffle")
    spark.conf.set("spark.sql.execution.pyspark.python", "/no/python/here")
    new = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (9, "y", 2)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    spark.conf.unset("spark.sql.execution.pyspark.python")
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [
        (1, "x", 1),
        (2, "bob", 40),
        (3, "cy", 50),
        (9, "y", 2),
    ]


def test_tables_that_are_left_to_classic(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    one = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1)])
    merge = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(one.alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll("s.age <> t.age + 0")
    )
    plan = merge.run().outcome.plan
    assert plan is not None
    assert plan.changed_rows.choice == "pair_values"
    spark.conf.set("spark.databricks.delta.merge.materializeSource", "none")
    assert merge.run().outcome.executor == "classic"
    spark.conf.set(EXECUTOR, "low_shuffle")
    with pytest.raises(DeltaAnalysisException, match="the source is not kept"):
        merge.run()


@pytest.mark.sessions
def test_more_rows_than_the_driver_takes_positions_of(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    claim_rows(path, 1, 1 << 30)
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (3, "z", 3), (9, "y", 2)])
    spark.conf.set(EXECUTOR, "low_shuffle")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdateAll("s.id = 1").whenNotMatchedInsertAll()
    before = files_below(path)
    with pytest.raises(DeltaAnalysisException, match="more rows than the driver takes positions of"):
        merge.run()
    assert files_below(path) == before


def executions(spark: SparkSession) -> dict[int, str]:
    """Gives the plans of the queries that Spark remembers, by their numbers; it forgets those before the last 1,000."""
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    listed = (found.apply(place) for place in range(found.size()))
    return {int(each.executionId()): str(each.physicalPlanDescription()) for each in listed}


def test_only_the_keys_of_long_rows_are_broadcast(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = people(spark, tmp_path / "t")
    monkeypatch.setattr("deltamerge.merge.preparation.LIMITS", Limits(broadcast_key_bytes=1_000, rewritten_bytes=0))
    for name, value in {EXECUTOR: "low_shuffle", "spark.sql.autoBroadcastJoinThreshold": "1"}.items():
        spark.conf.set(name, value)
    before = executions(spark)
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x" * 2_000, 1), (9, "y", 2)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate(set={"name": "concat(s.name, t.age)"}).whenNotMatchedInsertAll().execute()
    assert rows(DeltaTable.forPath(spark, path).toDF())[0] == (1, "x" * 2_000 + "30", 30)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    plans = [plan for number, plan in executions(spark).items() if number not in before]
    finding, writing = (any(kind in plan for plan in plans) for kind in ("BroadcastHashJoin", "SortMergeJoin"))
    assert (finding, writing) == (True, True)


def test_a_key_of_most_rows_does_not_stay_in_one_task(spark: SparkSession, tmp_path: Path) -> None:
    """Spark splits what a task would get of a key; it does so for joins of what matches, and for no full outer one."""
    path = str(tmp_path / "t")
    skewed = spark.range(100_000).selectExpr("IF(id % 10 = 0, id, 7) AS id", "id AS v", "sha1(string(id)) AS x")
    write_delta(skewed.repartition(2), path)
    for name, value in {
        EXECUTOR: "low_shuffle",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        # A partition is large for Spark from 256 MiB on.
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "20kb",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "20kb",
        "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "2",
    }.items():
        spark.conf.set(name, value)
    new = spark.range(20_000).selectExpr("id", "-id AS v", "'new' AS x")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate("t.v % 2 = 0", set={"v": "s.v + t.v"})
    report = merge.whenNotMatchedInsertAll().whenNotMatchedBySourceDelete("t.v >= 99990").run()
    assert report.metrics["numTargetRowsUpdated"] == 42_000
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [executions.apply(i).physicalPlanDescription() for i in range(executions.size())]
    assert any("SortMergeJoin(skew=true)" in plan for plan in plans[-6:])
