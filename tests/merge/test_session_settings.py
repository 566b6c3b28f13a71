"""What settings of the session change of a merge, as its table, its report and Spark's own status show it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.storagelevel import StorageLevel

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.exceptions import DeltaIllegalArgumentException, DeltaRuntimeException
from deltamerge.spark.config import CHOICES

from .tables import actions, commit_info, files_below, folders_below, frame, people, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltamerge.api.merge_builder import DeltaMergeBuilder

pytestmark = pytest.mark.sessions

CONNECT = os.environ.get("DELTAMERGE_TEST_MODE") == "connect"
KEY = "spark.databricks.delta."
EXECUTOR = "spark.deltamerge.merge.executor"
LEVEL = KEY + "merge.materializeSource.rddStorageLevel"


def upsert(spark: SparkSession, path: str) -> DeltaMergeBuilder:
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (9, "y", 9)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()


def test_commits_without_metrics(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set(KEY + "history.metricsEnabled", "false")
    report = upsert(spark, path).run()
    assert not commit_info(path, report.version).get("operationMetrics")
    assert not DeltaTable.forPath(spark, path).history(1).collect()[0].operationMetrics
    assert report.metrics["numTargetRowsUpdated"] == 1
    spark.conf.set(KEY + "history.metricsEnabled", "true")
    assert commit_info(path, upsert(spark, path).run().version)["operationMetrics"]["numSourceRows"] == "2"


def test_inserts_without_the_fast_route(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (9, "y", 9), (9, "y", 9)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge = merge.whenNotMatchedInsertAll()
    spark.conf.set(KEY + "merge.optimizeInsertOnlyMerge.enabled", "false")
    report = merge.run()
    assert report.outcome.executor == "classic"
    assert "find_touched_files" in [step.name for step in report.steps]
    assert not actions(path, report.version, "remove")
    assert rows(DeltaTable.forPath(spark, path).toDF())[3:] == [(9, "y", 9), (9, "y", 9)]
    spark.conf.set(KEY + "merge.optimizeInsertOnlyMerge.enabled", "true")
    assert merge.run().outcome.executor == "key_lookup"


def test_every_merge_evolves_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    wider = frame(spark, "id INT, name STRING, age INT, town STRING", [(1, "x", 1, "Oslo")])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(wider.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().execute()
    assert DeltaTable.forPath(spark, path).toDF().columns == ["id", "name", "age"]
    spark.conf.set(KEY + "schema.autoMerge.enabled", "true")
    merge.whenMatchedUpdateAll().execute()
    expected = [(1, "x", 1, "Oslo"), (2, "bob", 40, None), (3, "cy", 50, None)]
    assert rows(DeltaTable.forPath(spark, path).toDF()) == expected


def test_the_storage_levels_are_sparks() -> None:
    levels = {name for name, level in vars(StorageLevel).items() if isinstance(level, StorageLevel)}
    assert CHOICES["rdd_storage_level"] == levels


@pytest.mark.parametrize("which", ["", "FirstRetry", "Retry"])
def test_a_storage_level_that_does_not_exist(spark: SparkSession, tmp_path: Path, which: str) -> None:
    path = people(spark, tmp_path / "t")
    before = files_below(path), folders_below(path)
    spark.conf.set(LEVEL + which, "ON_PAPER")
    with pytest.raises(DeltaIllegalArgumentException, match="ON_PAPER") as caught:
        upsert(spark, path).execute()
    assert LEVEL + which in str(caught.value)
    assert "DISK_ONLY_2" in str(caught.value)
    assert (files_below(path), folders_below(path)) == before
    spark.conf.set(LEVEL + which, "memory_and_disk")
    assert upsert(spark, path).run().version == 2


if not CONNECT:

    def test_where_the_source_is_kept_in_each_attempt(spark: SparkSession, tmp_path: Path) -> None:
        path = people(spark, tmp_path / "t")
        spark.conf.set(EXECUTOR, "classic")
        spark.conf.set(LEVEL, "MEMORY_ONLY")
        spark.conf.set(LEVEL + "FirstRetry", "DISK_ONLY")
        spark.conf.set(LEVEL + "Retry", "DISK_ONLY_2")
        lost = LosesTheSource(spark, times=3)
        assert upsert(spark, path).run(lost).version == 2
        # Spark adds the disk to what is to replace a frame's lineage.
        assert lost.levels == [
            "Disk Memory Serialized 1x Replicated",
            "Disk Serialized 1x Replicated",
            "Disk Serialized 2x Replicated",
            "Disk Serialized 2x Replicated",
        ]
        assert not lost.kept(), "the merge lets go of what it kept"

    def test_how_often_a_lost_source_is_computed_again(spark: SparkSession, tmp_path: Path) -> None:
        path = people(spark, tmp_path / "t")
        before = files_below(path), folders_below(path)
        spark.conf.set(EXECUTOR, "classic")
        spark.conf.set(KEY + "merge.materializeSource.maxAttempts", "2")
        lost = LosesTheSource(spark, times=99)
        with pytest.raises(DeltaRuntimeException, match="failed 2 times") as caught:
            upsert(spark, path).run(lost)
        assert caught.value.getCondition() == "DELTA_MERGE_MATERIALIZE_SOURCE_FAILED_REPEATEDLY"
        assert len(lost.levels) == 2
        assert (files_below(path), folders_below(path)) == before
        spark.conf.set(KEY + "merge.materializeSource.maxAttempts", "3")
        assert upsert(spark, path).run(LosesTheSource(spark, times=2)).version == 2

    def test_jobs_say_what_they_are_for(spark: SparkSession, tmp_path: Path) -> None:
        path = people(spark, tmp_path / "t")
        # What the driver does by itself needs no jobs.
        spark.conf.set("spark.deltamerge.merge.driverBytes", "0")
        merge = upsert(spark, path)
        spark.sparkContext.setJobDescription("the user's own")
        before = jobs(spark)
        report = merge.run()
        during = {job: text for job, text in jobs(spark).items() if job not in before}
        spark.range(3).collect()
        (after,) = [text for job, text in jobs(spark).items() if job not in {**before, **during}]
        spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]
        assert during
        told = {f"MERGE operation - {step.description}" for step in report.steps}
        assert set(during.values()) <= told
        assert "MERGE operation - scanning files for matches" in during.values()
        assert after == "the user's own"

    def test_a_wrong_statement_starts_no_job(spark: SparkSession, tmp_path: Path) -> None:
        path = people(spark, tmp_path / "t")
        source = frame(spark, "id INT, name STRING", [(1, "x")])
        source.createOrReplaceTempView("changes_that_start_no_job")
        target = DeltaTable.forPath(spark, path).alias("t")
        merge = target.merge(source.alias("s"), "t.id = s.id")
        text = f"MERGE INTO delta.`{path}` t USING changes_that_start_no_job s ON t.id = s.id "
        wrong: list[Callable[[], object]] = [
            merge.execute,
            target.merge(source.alias("s"), "t.id = s.idd").whenMatchedDelete().execute,
            merge.whenMatchedDelete("s.name IN (SELECT 'x')").execute,
            merge.whenMatchedDelete("max(s.id) = 1").execute,
            merge.whenMatchedUpdate(set={"nmae": "s.name"}).execute,
            merge.whenMatchedUpdate(set={"age": "array(1)"}).execute,
            merge.whenMatchedUpdate(set={"age": "1", "AGE": "2"}).execute,
            merge.whenMatchedUpdateAll().execute,
            merge.whenNotMatchedInsert(values={"id": "t.id"}).execute,
            merge.whenMatchedDelete().whenMatchedDelete("s.id = 1").execute,
            lambda: merge_sql(spark, text + "WHEN MATCHED THEN UPDATE SET age = s.age"),
            lambda: merge_sql(spark, text + "WHEN MATCHED THEN REMOVE"),
        ]
        before = job_ids(spark)
        for call in wrong:
            with pytest.raises(PySparkException):
                call()
        assert job_ids(spark) <= before
        merge.whenMatchedDelete().execute()
        # Of a thousand jobs Spark forgets the first ones.
        assert job_ids(spark) - before


def job_ids(spark: SparkSession) -> set[int]:
    """Gives the jobs that Spark has started so far."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def jobs(spark: SparkSession) -> dict[int, str | None]:
    """Gives the descriptions of the jobs that Spark has run so far."""
    context: Any = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    found = context.statusStore().jobsList(None)
    each = [found.apply(i) for i in range(found.size())]
    return {job.jobId(): job.description().get() if job.description().isDefined() else None for job in each}


class LosesTheSource:
    """Takes the kept rows of the source away before they are read, as a lost executor does; notes where they lay."""

    def __init__(self, spark: SparkSession, times: int) -> None:
        self.spark, self.times = spark, times
        self.levels: list[str] = []
        self.before = set(self._persistent())

    def _persistent(self) -> dict[int, Any]:
        return dict(self.spark.sparkContext._jsc.getPersistentRDDs())

    def kept(self) -> list[Any]:
        """Gives what Spark keeps besides what it kept before."""
        return [rdd for number, rdd in self._persistent().items() if number not in self.before]

    def step(self, name: str, description: str) -> None:
        if name != "find_touched_files":
            return
        (kept,) = self.kept()
        self.levels.append(kept.getStorageLevel().description())
        if self.times:
            self.times -= 1
            kept.unpersist(True)


def test_properties_of_new_tables(spark: SparkSession, tmp_path: Path) -> None:
    def properties(path: str) -> dict[str, str]:
        found: dict[str, str] = DeltaTable.forPath(spark, path).detail().collect()[0].properties
        return found

    default, old = KEY + "properties.defaults.", people(spark, tmp_path / "old")
    spark.conf.set(default + "enableChangeDataFeed", "true")
    spark.conf.set(default + "logRetentionDuration", "interval 3 days")
    asked = {"delta.logRetentionDuration": "interval 5 days"}
    written, created = str(tmp_path / "written"), str(tmp_path / "created")
    write_delta(spark.range(1), written, properties=asked)
    DeltaTable.create(spark).location(created).addColumn("id", "BIGINT").execute()
    write_delta(spark.createDataFrame([(9, "x", 1)], "id INT, name STRING, age INT"), old, "append")
    assert properties(written) == {"delta.enableChangeDataFeed": "true", **asked}
    assert properties(created) == {
        "delta.enableChangeDataFeed": "true",
        "delta.logRetentionDuration": "interval 3 days",
    }
    assert properties(old) == {}
    assert "changeDataFeed" in actions(written, 0, "protocol")[0]["writerFeatures"]


@pytest.mark.parametrize("key", ["merge.preserveNullSourceStructs", "merge.preserveNullSourceStructs.updateStar"])
def test_switches_for_old_mistakes_are_refused(key: str, spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    before = files_below(path)
    spark.conf.set(KEY + key, "false")
    with pytest.raises(DeltaIllegalArgumentException, match=key):
        upsert(spark, path).run()
    assert files_below(path) == before
    spark.conf.set(KEY + key, "true")
    assert upsert(spark, path).run().version == 2


TIME_CONDITIONS = ["ts > '2024-01-01'", "ts <= '2024-01-01'", "day < '2024-01-01'", "name > '2024'"]


@pytest.mark.parametrize("condition", TIME_CONDITIONS)
def test_times_are_compared_as_strings_where_the_session_does_so(
    spark: SparkSession, tmp_path: Path, condition: str
) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS id, 'a' AS name, TIMESTAMP'2024-01-01' AS ts, DATE'+10000-01-01' AS day"), path)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.sql.legacy.typeCoercion.datetimeToString.enabled", "true")
    expected = DeltaTable.forPath(spark, path).toDF().where(condition).count()
    on = merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS key) s ON t.id = s.key AND t.{condition} "
        "WHEN MATCHED THEN UPDATE SET id = 1",
    )
    assert on.metrics["numTargetRowsUpdated"] == expected
    DeltaTable.forPath(spark, path).delete(condition)
    assert DeltaTable.forPath(spark, path).toDF().count() == 1 - expected
