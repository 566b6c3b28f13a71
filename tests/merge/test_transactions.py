"""Other writers, application transactions, and merges that change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltamerge import DeltaTable, merge_sql, sql, write_delta
from deltamerge.exceptions import (
    ConcurrentTransactionException,
    DeltaConcurrentModificationException,
    DeltaIllegalArgumentException,
    InvariantViolationException,
    MetadataChangedException,
)
from deltamerge.merge.outcome import LostCommit
from deltamerge.write.data_files import write_files

from .tables import (
    CONNECT,
    EXECUTOR,
    actions,
    commit_info,
    files_below,
    folders_below,
    frame,
    latest_version,
    people,
    rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltamerge import DeltaMergeBuilder

pytestmark = pytest.mark.sessions


@dataclass
class At:
    """Does something of another writer's just as the merge reaches a step."""

    name: str
    what: Callable[[], object]
    seen: list[str] = field(default_factory=list)

    def step(self, name: str, description: str) -> None:
        self.seen.append(name)
        if name == self.name:
            self.what()


def upsert(spark: SparkSession, path: str, source: list[tuple[object, ...]]) -> DeltaMergeBuilder:
    changes = frame(spark, "id INT, name STRING, age INT", source).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(changes, "t.id = s.id")
    return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()


@dataclass
class Once(At):
    """The same, the first time alone."""

    def step(self, name: str, description: str) -> None:
        if name not in self.seen:
            super().step(name, description)


def no_file_is_left_over(path: str) -> bool:
    logged = {a["path"] for v in range(latest_version(path) + 1) for a in actions(path, v, "add")}
    return {f for f in files_below(path) if f.endswith(".parquet")} == logged


def test_two_merges_of_the_same_row(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    other = Once("commit", lambda: upsert(spark, path, [(1, "first", 1), (7, "new", 1)]).execute())
    report = upsert(spark, path, [(1, "second", 2), (7, "newer", 2)]).run(progress=other)
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [
        (1, "second", 2),
        (2, "bob", 40),
        (3, "cy", 50),
        (7, "newer", 2),
    ]
    assert (report.version, report.metrics["numTargetRowsUpdated"]) == (3, 2)
    assert report.outcome.lost_to == (LostCommit(2, "MERGE", "DELTA_CONCURRENT_APPEND"),)
    assert "ran again once" in str(report)
    assert "version 2 (MERGE) added rows that the merge should have read" in " ".join(report.outcome.notes)
    assert no_file_is_left_over(path)


@pytest.mark.parametrize("retries", [0, 4])
def test_a_merge_that_loses_each_time(spark: SparkSession, tmp_path: Path, retries: int) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set("spark.deltamerge.merge.conflictRetries", str(retries))
    other = At("commit", lambda: upsert(spark, path, [(1, "first", 1)]).execute())
    with pytest.raises(DeltaConcurrentModificationException) as raised:
        upsert(spark, path, [(1, "second", 2)]).run(progress=other)
    assert other.seen.count("commit") == retries + 1
    assert other.seen.count("back_off") == retries
    assert (f"The merge ran {retries + 1} times" in str(raised.value)) == (retries > 0)
    assert rows(DeltaTable.forPath(spark, path).toDF())[0] == (1, "first", 1)
    assert no_file_is_left_over(path), "the loser's files are gone, and only they"


@pytest.mark.parametrize("executor", ["key_lookup", "low_shuffle", "classic"])
def test_a_lost_commit_does_not_cost_the_source(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set(EXECUTOR, executor)
    # Computed again, it would have other names.
    source = spark.sql("SELECT id, uuid() AS name, 7 AS age FROM VALUES (1), (9) AS s(id)").alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    other = Once("commit", lambda: upsert(spark, path, [(1, "first", 1)]).execute())
    report = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run(progress=other)
    steps = [step.name for step in report.steps]
    assert (steps.count("commit"), steps.count("materialize_source")) == (2, 1)
    assert report.metrics["numSourceRows"] == 2
    assert [row[0] for row in rows(DeltaTable.forPath(spark, path).toDF())] == [1, 2, 3, 9]
    assert no_file_is_left_over(path)
    assert not any(name.endswith("-source") for name in folders_below(path))


PROPERTIES = ("enableDeletionVectors=true", "enableInCommitTimestamps=true", "checkpointPolicy=v2")


@pytest.mark.parametrize("executor", ["key_lookup", "classic"])
@pytest.mark.parametrize("given", [*PROPERTIES, "columnMapping.mode=name"])
def test_a_property_that_another_writer_sets(spark: SparkSession, tmp_path: Path, given: str, executor: str) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set(EXECUTOR, executor)
    key, value = given.split("=")
    change = f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.{key}' = '{value}')"
    report = upsert(spark, path, [(1, "ANN", 1)]).run(progress=Once("commit", lambda: sql(spark, change)))
    (lost,) = report.outcome.lost_to
    assert (lost.version, lost.operation) == (2, "SET TBLPROPERTIES")
    assert rows(DeltaTable.forPath(spark, path).toDF())[0] == (1, "ANN", 1)
    assert latest_version(path) == 3
    assert no_file_is_left_over(path)


def test_a_constraint_that_another_writer_adds_holds(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    change = f"ALTER TABLE delta.`{path}` ADD CONSTRAINT old CHECK (age > 20)"
    with pytest.raises(InvariantViolationException, match="old"):
        upsert(spark, path, [(1, "ANN", 1)]).run(progress=Once("commit", lambda: sql(spark, change)))
    assert latest_version(path) == 2
    assert no_file_is_left_over(path)


def test_a_merge_does_not_run_again_for_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    sql(spark, f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    other = Once("commit", lambda: sql(spark, f"ALTER TABLE delta.`{path}` ALTER COLUMN age TYPE BIGINT"))
    # Else the table's schema is compared with the one that it was opened with.
    spark.conf.set("spark.databricks.delta.checkLatestSchemaOnRead", "false")
    with pytest.raises(MetadataChangedException, match="which changed age"):
        upsert(spark, path, [(1, "ANN", 1)]).run(progress=other)
    assert latest_version(path) == 3
    assert no_file_is_left_over(path)


def test_a_merge_does_not_run_again_into_another_table(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    statement = f"CREATE OR REPLACE TABLE delta.`{path}` USING delta AS SELECT 1 AS id, 'x' AS name, 1 AS age"
    with pytest.raises(MetadataChangedException, match="which replaced the table"):
        upsert(spark, path, [(1, "ANN", 1)]).run(progress=Once("commit", lambda: sql(spark, statement)))
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "x", 1)]


def test_a_merge_runs_again_beside_a_new_column(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    other = Once("commit", lambda: sql(spark, f"ALTER TABLE delta.`{path}` ADD COLUMN (note STRING)"))
    source = frame(spark, "id INT, name STRING", [(1, "ANN")])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate(set={"name": "s.name"}).run(progress=other)
    assert rows(DeltaTable.forPath(spark, path).toDF())[0] == (1, "ANN", 30, None)


def test_rows_appended_that_the_merge_would_have_seen(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    new = frame(spark, "id INT, name STRING, age INT", [(2, "twin", 1)])
    other = Once("commit", lambda: write_delta(new, path, mode="append"))
    report = upsert(spark, path, [(2, "x", 2), (9, "y", 2)]).run(progress=other)
    assert report.metrics["numTargetRowsUpdated"] == 2
    assert rows(DeltaTable.forPath(spark, path).toDF())[1:3] == [(2, "x", 2), (2, "x", 2)]


def test_a_source_made_from_the_target_is_read_again(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    table = DeltaTable.forPath(spark, path)
    source = table.toDF().selectExpr("id", "name", "age + 1 AS age").alias("s")
    other = Once("commit", lambda: upsert(spark, path, [(1, "first", 1)]).execute())
    merge = table.alias("t").merge(source, "t.id = s.id").whenMatchedUpdateAll()
    if CONNECT:
        # Whether a frame's rows are all of the newest version is not known of its plan.
        with pytest.raises(DeltaConcurrentModificationException):
            merge.run(progress=other)
        return
    report = merge.run(progress=other)
    assert report.outcome.lost_to == (LostCommit(2, "MERGE", "DELTA_CONCURRENT_APPEND"),)
    assert rows(DeltaTable.forPath(spark, path).toDF())[0] == (1, "first", 2)


def test_a_source_of_an_older_version_is_not_taken_again(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    read = spark.read.parquet(*(str(file) for file in Path(path).rglob("*.parquet"))).alias("s")
    other = Once("commit", lambda: upsert(spark, path, [(1, "first", 1)]).execute())
    merge = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(read, "t.id = s.id")
        .whenMatchedUpdate(set={"age": "s.age + 1"})
    )
    with pytest.raises(DeltaConcurrentModificationException):
        merge.run(progress=other)
    assert rows(DeltaTable.forPath(spark, path).toDF())[0] == (1, "first", 1)


@pytest.mark.parametrize("reads", ["source", "value"])
def test_rows_appended_that_a_subquery_would_have_seen(spark: SparkSession, tmp_path: Path, reads: str) -> None:
    """The next number of a sequence: ON reads no file that the other writer's rows could be in."""
    path, name = people(spark, tmp_path / "t"), f"numbers_{reads}"
    new = frame(spark, "id INT, name STRING, age INT", [(100, "far", 60)])
    other = Once("commit", lambda: write_delta(new, path, mode="append"))
    DeltaTable.forPath(spark, path).toDF().createOrReplaceTempView(name)
    maximum = f"(SELECT max(age) + 1 FROM {name})"
    source, value = (maximum, "s.age") if reads == "source" else ("0", maximum)
    merge = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(spark.sql(f"SELECT 9 AS id, {source} AS age").alias("s"), "t.id = s.id")
        .whenNotMatchedInsert(values={"id": "s.id", "age": value})
    )
    if reads == "value" or CONNECT:
        # What a value reads stays as it was; so does a source over Connect.
        with pytest.raises(DeltaConcurrentModificationException, match="DELTA_CONCURRENT_APPEND"):
            merge.run(progress=other)
    else:
        report = merge.run(progress=other)
        assert report.outcome.lost_to == (LostCommit(2, "WRITE", "DELTA_CONCURRENT_APPEND"),)
        assert rows(DeltaTable.forPath(spark, path).toDF().where("id = 9")) == [(9, None, 61)]
    assert no_file_is_left_over(path)


def test_rows_appended_out_of_the_merges_reach(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    new = frame(spark, "id INT, name STRING, age INT", [(100, "far", 1)])
    other = At("commit", lambda: write_delta(new, path, mode="append"))
    report = upsert(spark, path, [(2, "x", 2), (9, "y", 2)]).run(progress=other)
    assert report.version == 3
    assert [row[0] for row in rows(DeltaTable.forPath(spark, path).toDF())] == [1, 100, 2, 3, 9]


@pytest.mark.quick
def test_the_same_application_transaction_is_done_once(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set("spark.databricks.delta.write.txnAppId", "nightly")
    spark.conf.set("spark.databricks.delta.write.txnVersion", "7")
    first = upsert(spark, path, [(9, "x", 1)]).run()
    again = upsert(spark, path, [(10, "y", 1)]).run()
    assert (first.version, again.version) == (2, None)
    assert [(t["appId"], t["version"]) for t in actions(path, 2, "txn")] == [("nightly", 7)]
    assert 10 not in {row[0] for row in rows(DeltaTable.forPath(spark, path).toDF())}
    spark.conf.set("spark.databricks.delta.write.txnVersion", "8")
    nothing_to_do = DeltaTable.forPath(spark, path).merge(frame(spark, "k INT", [(77,)]), "id = k")
    assert nothing_to_do.whenMatchedDelete().run().version == 3


@pytest.mark.quick
def test_a_transactions_number_is_forgotten_where_the_session_asks(spark: SparkSession, tmp_path: Path) -> None:
    path, number = people(spark, tmp_path / "t"), "spark.databricks.delta.write.txnVersion"
    spark.conf.set("spark.databricks.delta.write.txnVersion.autoReset.enabled", "true")
    spark.conf.set("spark.databricks.delta.write.txnAppId", "nightly")
    for version, made in (("7", 2), ("7", None), ("8", 3)):
        spark.conf.set(number, version)
        assert upsert(spark, path, [(9, "x", int(version))]).run().version == made
        assert spark.conf.get(number, None) is None
        with pytest.raises(DeltaIllegalArgumentException, match="txnVersion"):
            upsert(spark, path, [(10, "y", 1)]).run()
    spark.conf.set(number, "9")
    more = frame(spark, "id INT, name STRING, age INT", [(11, "z", 1)])
    assert write_delta(more, path, "append", txn_app_id="other", txn_version=1) == 4
    assert spark.conf.get(number, None) == "9"
    assert write_delta(more, path, "append") == 5
    assert spark.conf.get(number, None) is None


@pytest.mark.quick
@pytest.mark.parametrize("by", ["options", "settings"])
def test_a_write_of_an_application_is_done_once(spark: SparkSession, tmp_path: Path, by: str) -> None:
    path = str(tmp_path / "t")

    def written(version: int, mode: str, **options: Any) -> int | None:
        rows = frame(spark, "id INT", [(version,)])
        if by == "options":
            return write_delta(rows, path, mode, txn_app_id="nightly", txn_version=version, **options)
        spark.conf.set("spark.databricks.delta.write.txnAppId", "nightly")
        spark.conf.set("spark.databricks.delta.write.txnVersion", str(version))
        return write_delta(rows, path, mode, **options)

    for number, (mode, options) in enumerate(
        [("error", {}), ("append", {}), ("overwrite", {}), ("overwrite", {"overwrite_schema": True})]
    ):
        assert written(number + 3, mode, **options) == number
        assert actions(path, number, "txn")[0].items() >= {"appId": "nightly", "version": number + 3}.items()
        before = files_below(path)
        for seen in (number + 3, number + 2):
            assert written(seen, mode, **options) is None
        assert files_below(path) == before
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(6,)]


def test_two_writes_of_one_transaction_at_once(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    new = frame(spark, "id INT, name STRING, age INT", [(9, "x", 1)])
    overtaken: list[int | None] = []

    def overtake(table: Any, *arguments: Any) -> Any:
        if not overtaken:
            overtaken.append(None)
            overtaken[0] = write_delta(new, path, "append", txn_app_id="nightly", txn_version=1)
        return write_files(table, *arguments)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(ConcurrentTransactionException):
        patch.setattr("deltamerge.write.frame_rows.write_files", overtake)
        write_delta(new, path, "append", txn_app_id="nightly", txn_version=1)
    assert overtaken == [2]
    assert len(rows(DeltaTable.forPath(spark, path).toDF())) == 4


@pytest.mark.quick
def test_options_take_the_place_of_settings(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.conf.set("spark.databricks.delta.write.txnAppId", "nightly")
    with pytest.raises(DeltaIllegalArgumentException) as caught:
        write_delta(spark.range(1), path)
    assert caught.value.getCondition() == "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS"
    assert write_delta(spark.range(1), path, txn_app_id="other", txn_version=0) == 0
    for half in ({"txn_app_id": "other"}, {"txn_version": 1}):
        with pytest.raises(DeltaIllegalArgumentException) as caught:
            write_delta(spark.range(1), path, "append", **half)
        assert caught.value.getCondition() == "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS"
    with pytest.raises(DeltaIllegalArgumentException) as caught:
        write_delta(spark.range(1), path, "append", txn_app_id="other", txn_version=-1)
    assert caught.value.getCondition() == "DELTA_ILLEGAL_OPTION"
    assert latest_version(path) == 0


@pytest.mark.parametrize("by", ["builder", "sql"])
def test_a_merges_own_transaction_and_metadata(spark: SparkSession, tmp_path: Path, by: str) -> None:
    """Two streams of one session: each call has its own; the session's are neither used nor used up."""
    path, number = people(spark, tmp_path / "t"), "spark.databricks.delta.write.txnVersion"
    spark.conf.set("spark.databricks.delta.write.txnAppId", "of the session")
    spark.conf.set(number, "1")
    spark.conf.set("spark.databricks.delta.write.txnVersion.autoReset.enabled", "true")
    spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", "of the session")

    def merged(app: str, version: int, **options: Any) -> int | None:
        options |= {"txn_app_id": app, "txn_version": version}
        if by == "builder":
            return upsert(spark, path, [(1, app, version)]).run(**options).version
        statement = (
            f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS id, '{app}' AS name, {version} AS age) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
        )
        return merge_sql(spark, statement, **options).version

    assert merged("a", 5, user_metadata="of the call") == 2
    assert commit_info(path, 2)["userMetadata"] == "of the call"
    assert merged("b", 1) == 3
    assert commit_info(path, 3)["userMetadata"] == "of the session"
    assert [(t["appId"], t["version"]) for v in (2, 3) for t in actions(path, v, "txn")] == [("a", 5), ("b", 1)]
    assert (merged("a", 5), merged("a", 4), merged("b", 0), merged("b", 2)) == (None, None, None, 4)
    assert spark.conf.get(number) == "1"
    for wrong in ({"txn_app_id": "a"}, {"txn_version": 7}, {"txn_app_id": "a", "txn_version": -1}):
        with pytest.raises(DeltaIllegalArgumentException):
            upsert(spark, path, [(1, "x", 1)]).execute(**wrong)
    assert upsert(spark, path, [(1, "x", 1)]).execute(txn_app_id="a", txn_version=6).count() == 1
    assert latest_version(path) == 5


@pytest.mark.quick
@pytest.mark.parametrize(("key", "value"), [("txnAppId", "nightly"), ("txnVersion", "7")])
def test_half_an_application_transaction(spark: SparkSession, tmp_path: Path, key: str, value: str) -> None:
    path = people(spark, tmp_path / "t")
    before = files_below(path)
    spark.conf.set(f"spark.databricks.delta.write.{key}", value)
    watcher = At("", lambda: None)
    with pytest.raises(DeltaIllegalArgumentException) as caught:
        upsert(spark, path, [(9, "x", 1)]).run(progress=watcher)
    assert caught.value.getCondition() == "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS"
    assert caught.value.getSqlState() == "42616"
    assert watcher.seen == []
    assert files_below(path) == before


@pytest.mark.parametrize(
    ("level", "meant"),
    [
        (None, "Serializable"),
        ("Serializable", "Serializable"),
        ("WriteSerializable", "WriteSerializable"),
        ("writeserializable", "WriteSerializable"),
    ],
)
def test_the_tables_isolation_level(spark: SparkSession, tmp_path: Path, level: str | None, meant: str) -> None:
    path = people(spark, tmp_path / "t", properties={} if level is None else {"delta.isolationLevel": level})
    report = upsert(spark, path, [(1, "x", 1)]).run()
    assert report.version is not None
    assert commit_info(path, report.version)["isolationLevel"] == meant


def test_nothing_to_change_makes_no_version(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    before = files_below(path)
    target = DeltaTable.forPath(spark, path).alias("t")
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1)]).alias("s")
    merges = [
        target.merge(source, "t.id = s.id + 100").whenMatchedDelete(),
        target.merge(source, "t.id = s.id").whenMatchedUpdateAll("s.age > 5"),
        target.merge(source, "t.id = s.id").whenNotMatchedInsertAll(),
        target.merge(source, "t.id = s.id").whenNotMatchedBySourceDelete("t.age > 100"),
        target.merge(source, "t.id = s.id").whenMatchedDelete("s.age > 5").whenNotMatchedInsertAll(),
    ]
    for merge in merges:
        report = merge.run()
        assert report.version is None
        assert sum(report.metrics[f"numTargetRows{what}"] for what in ("Inserted", "Updated", "Deleted")) == 0
    assert files_below(path) == before


def test_every_step_is_told(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    watcher = At("", lambda: None)
    report = upsert(spark, path, [(1, "x", 1), (9, "y", 2)]).run(progress=watcher)
    assert watcher.seen == [step.name for step in report.steps]
    assert watcher.seen == [
        "snapshot",
        "resolve",
        "plan_source",
        "materialize_source",
        "plan",
        "find_touched_files",
        "write_all_changes",
        "commit",
        "refresh",
    ]
