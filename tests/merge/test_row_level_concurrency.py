"""Writers that change different rows of one file both commit; those that meet run again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import QueryBuilder

from combinations import some
from deltamerge import DeltaMergeBuilder, DeltaTable, write_delta
from deltamerge.merge.outcome import LostCommit
from deltamerge.merge.result.commit import commit_merge

from .tables import EXECUTOR, VECTORS, actions, changes, commit_info, files_below, frame
from .test_transactions import Once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id INT, v INT, part STRING"
EXECUTORS = ["key_lookup", "low_shuffle", "classic"]
FEATURES = {
    "plain": {},
    "tracked": {"delta.enableRowTracking": "true"},
    "change_data": {"delta.enableChangeDataFeed": "true"},
    "mapped": {"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"},
}


def table(spark: SparkSession, path: Path, ids: range = range(20), **options: Any) -> str:
    """Makes a table of one file."""
    properties = VECTORS | options.pop("properties", {})
    write_delta(frame(spark, SCHEMA, [(i, 0, "ab"[i % 2]) for i in ids]).coalesce(1), str(path), properties=properties)
    return str(path)


def upsert(spark: SparkSession, path: str, *values: tuple[int, int]) -> DeltaMergeBuilder:
    source = frame(spark, SCHEMA, [(k, v, "ab"[k % 2]) for k, v in values]).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()


def values(spark: SparkSession, path: str) -> dict[int, int]:
    found = [(row.id, row.v) for row in DeltaTable.forPath(spark, path).toDF().collect()]
    assert len(found) == len(dict(found)), "no row is there twice"
    by_delta_rs = DeltaRs(path)
    if "delta.columnMapping.mode" not in by_delta_rs.metadata().configuration:
        read = pa.table(QueryBuilder().register("t", by_delta_rs).execute("SELECT id, v FROM t"))
        assert sorted(tuple(row.values()) for row in read.to_pylist()) == sorted(found)
    return dict(found)


@pytest.mark.parametrize(
    ("executor", "features"),
    [*(("key_lookup", name) for name in FEATURES), ("low_shuffle", "plain"), ("classic", "tracked")],
)
def test_other_rows_of_the_same_file(spark: SparkSession, tmp_path: Path, executor: str, features: str) -> None:
    path = table(spark, tmp_path / "t", properties=FEATURES[features])
    spark.conf.set(EXECUTOR, executor)
    first = Once("commit", lambda: upsert(spark, path, (1, 10), (100, 10)).execute())
    report = upsert(spark, path, (2, 20), (50, 20)).run(progress=first)
    outcome = report.outcome
    assert (report.version, outcome.read_version, outcome.lost_to) == (2, 0, ())
    assert outcome.reconciled_with in (
        (LostCommit(1, "MERGE", "DELTA_CONCURRENT_APPEND"),),
        (LostCommit(1, "MERGE", "DELTA_CONCURRENT_DELETE_READ"),),
    )
    assert "changed other rows of the same files: version 1 (MERGE)" in " ".join(outcome.notes)
    assert [step.name for step in report.steps].count("commit") == 1
    assert values(spark, path) == {**dict.fromkeys(range(20), 0), 1: 10, 100: 10, 2: 20, 50: 20}
    (old,), (new,), (of_first,) = (
        [a for a in actions(path, version, kind) if a.get("deletionVector")]
        for version, kind in ((2, "remove"), (2, "add"), (1, "add"))
    )
    assert old["path"] == new["path"] == of_first["path"]
    assert old["deletionVector"] == of_first["deletionVector"] != new["deletionVector"]
    assert (of_first["deletionVector"]["cardinality"], new["deletionVector"]["cardinality"]) == (1, 2)
    metrics = commit_info(path, 2)["operationMetrics"]
    vectors = [metrics[f"numTargetDeletionVectors{what}"] for what in ("Added", "Removed", "Updated")]
    assert (metrics["numTargetRowsUpdated"], vectors) == ("1", ["1", "1", "1"])
    if "delta.enableRowTracking" in FEATURES[features]:
        assert new["baseRowId"] == old["baseRowId"] == of_first["baseRowId"]
        assert new["defaultRowCommitVersion"] == of_first["defaultRowCommitVersion"]
        ids = [a["baseRowId"] for v in range(3) for a in actions(path, v, "add") if not a.get("deletionVector")]
        assert len(set(ids)) == len(ids)
    if features == "change_data":
        found = [(c["id"], c["v"], c["_change_type"]) for c in changes(path, 2)]
        assert sorted(found) == [(2, 0, "update_preimage"), (2, 20, "update_postimage"), (50, 20, "insert")]


def both(
    spark: SparkSession, path: str, first: Callable[[], object], second: DeltaMergeBuilder
) -> tuple[int, tuple[LostCommit, ...]]:
    """Runs one statement just before another's commit; returns how often that ran, and beside whom it committed."""
    report = second.run(progress=Once("commit", first))
    return [step.name for step in report.steps].count("commit"), report.outcome.reconciled_with


def conditional(spark: SparkSession, path: str, *ids: int) -> DeltaMergeBuilder:
    """A merge that matches rows which it does not change, and inserts what has no match."""
    source = frame(spark, SCHEMA, [(i, 99, "a") for i in ids]).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    return merge.whenMatchedUpdateAll("t.v > 0 OR t.id = 3").whenNotMatchedInsertAll()


@pytest.mark.parametrize(
    ("executor", "level"),
    some([("key_lookup", "Serializable"), ("low_shuffle", "WriteSerializable"), ("classic", "Serializable")]),
)
def test_rows_that_meet(spark: SparkSession, tmp_path: Path, executor: str, level: str) -> None:
    """Each is as if one had run after the other."""
    path = table(spark, tmp_path / "t", properties={"delta.isolationLevel": level})
    expected = values(spark, path)
    spark.conf.set(EXECUTOR, executor)
    # The same row.
    ran, beside = both(spark, path, upsert(spark, path, (1, 10)).execute, upsert(spark, path, (1, 11), (2, 11)))
    expected |= {1: 11, 2: 11}
    assert (ran, beside, values(spark, path)) == (2, (), expected)
    # The same new row.
    ran, beside = both(spark, path, upsert(spark, path, (30, 1), (5, 1)).execute, upsert(spark, path, (30, 2), (6, 2)))
    expected |= {30: 2, 5: 1, 6: 2}
    assert (ran, beside, values(spark, path)) == (2, (), expected)
    # A row that matched, and was not changed for it, is deleted: then it is to be inserted.
    delete = DeltaTable.forPath(spark, path)
    ran, beside = both(spark, path, lambda: delete.delete("id = 9"), conditional(spark, path, 9, 3))
    expected |= {9: 99, 3: 99}
    assert (ran, beside, values(spark, path)) == (2, (), expected)
    ran, beside = both(spark, path, lambda: delete.delete("id = 10"), conditional(spark, path, 11, 3))
    del expected[10]
    assert (ran, len(beside), values(spark, path)) == (1, 1, expected)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_by_source(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    path = table(spark, tmp_path / "t")
    spark.conf.set(EXECUTOR, executor)
    expected = values(spark, path)

    def merge(condition: str) -> DeltaMergeBuilder:
        source = frame(spark, SCHEMA, [(2, 7, "a")]).alias("s")
        target = DeltaTable.forPath(spark, path).alias("t")
        return target.merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedBySourceDelete(condition)

    ran, beside = both(spark, path, upsert(spark, path, (1, 1), (60, 1)).execute, merge("t.id IN (18, 19)"))
    expected = {k: v for k, v in expected.items() if k not in (18, 19)} | {1: 1, 60: 1, 2: 7}
    assert (ran, len(beside), values(spark, path)) == (1, 1, expected)
    # A row that the other adds is one that the clause takes.
    ran, beside = both(spark, path, upsert(spark, path, (4, 1), (61, 1)).execute, merge("t.id > 60 OR t.id = 17"))
    expected = {k: v for k, v in expected.items() if k != 17} | {4: 1}
    assert (ran, beside, values(spark, path)) == (2, (), expected)


def test_delete_and_update(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t")
    target, expected = DeltaTable.forPath(spark, path), values(spark, path)
    ran, beside = both(spark, path, lambda: target.delete("id = 1"), upsert(spark, path, (2, 2)))
    del expected[1]
    expected |= {2: 2}
    assert (ran, len(beside), values(spark, path)) == (1, 1, expected)
    ran, beside = both(spark, path, lambda: target.update("id = 3", {"v": "3"}), upsert(spark, path, (4, 4)))
    expected |= {3: 3, 4: 4}
    assert (ran, len(beside), values(spark, path)) == (1, 1, expected)


def test_a_statement_without_a_source_that_loses(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(spark, tmp_path / "t")
    target, expected, ran = DeltaTable.forPath(spark, path), values(spark, path), list[str]()

    def after(first: Callable[[], object]) -> None:
        def commit_after(*arguments: Any) -> Any:
            ran.append("commit")
            if len(ran) == 1:
                first()
                ran[1:] = []
            return commit_merge(*arguments)

        ran.clear()
        monkeypatch.setattr("deltamerge.merge.command.commit_merge", commit_after)

    after(upsert(spark, path, (1, 1), (30, 1)).execute)
    target.update("id = 2", {"v": "2"})
    expected |= {1: 1, 30: 1, 2: 2}
    assert (len(ran), values(spark, path)) == (1, expected)
    after(upsert(spark, path, (3, 3), (31, 1)).execute)
    target.delete("id = 4 OR v = 3")
    expected = {k: v for k, v in expected.items() if k not in (3, 4)} | {31: 1}
    assert (len(ran), values(spark, path)) == (2, expected)


def test_a_file_whose_last_rows_two_writers_delete(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t", range(2))

    def delete(key: int) -> DeltaMergeBuilder:
        source = frame(spark, "k INT", [(key,)])
        return DeltaTable.forPath(spark, path).merge(source, "id = k").whenMatchedDelete()

    ran, beside = both(spark, path, delete(0).execute, delete(1))
    assert (ran, len(beside), values(spark, path)) == (1, 1, {})
    assert (len(actions(path, 2, "remove")), actions(path, 2, "add")) == (1, [])
    assert commit_info(path, 2)["operationMetrics"]["numTargetFilesRemoved"] == "1"


def test_several_others(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t")

    def others() -> None:
        for key in (1, 3, 5):
            upsert(spark, path, (key, key), (100 + key, key)).execute()
        write_delta(frame(spark, SCHEMA, [(200, 0, "a")]).coalesce(1), path, mode="append")

    ran, beside = both(spark, path, others, upsert(spark, path, (2, 2), (150, 2)))
    assert (ran, len(beside)) == (1, 1)
    found = values(spark, path)
    assert found.items() >= {1: 1, 3: 3, 5: 5, 101: 1, 2: 2, 150: 2, 200: 0}.items()
    assert len(found) == 25


def test_after_a_compaction_it_runs_again(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t")
    write_delta(frame(spark, SCHEMA, [(40, 0, "a")]).coalesce(1), path, mode="append")
    compact = DeltaTable.forPath(spark, path).optimize()
    ran, beside = both(spark, path, compact.executeCompaction, upsert(spark, path, (2, 2)))
    assert (ran, beside, values(spark, path)[2]) == (2, (), 2)


def test_a_source_whose_files_change_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    path, source = table(spark, tmp_path / "t"), tmp_path / "s.parquet"
    spark.conf.set(EXECUTOR, "key_lookup")

    def write(*of: int) -> None:
        found = {"id": pa.array(of, pa.int32()), "v": pa.array([7] * len(of), pa.int32()), "part": ["a"] * len(of)}
        pq.write_table(pa.table(found), source)

    def first() -> None:
        upsert(spark, path, (1, 1), (50, 1)).execute()
        write(2, 51)

    write(2, 50)
    merge = DeltaTable.forPath(spark, path).alias("t").merge(spark.read.parquet(str(source)).alias("s"), "t.id = s.id")
    ran, beside = both(spark, path, first, merge.whenMatchedUpdateAll().whenNotMatchedInsertAll())
    assert values(spark, path) == {**dict.fromkeys(range(20), 0), 1: 1, 50: 1, 2: 7, 51: 7}
    assert (ran, beside) == (2, ())


def test_copied_files_that_the_merge_only_read(spark: SparkSession, tmp_path: Path) -> None:
    """Without deletion vectors two merges still commit side by side where they rewrite different files."""
    path = table(spark, tmp_path / "t", range(0, 40, 2), properties={"delta.enableDeletionVectors": "false"})
    write_delta(frame(spark, SCHEMA, [(i, 0, "b") for i in range(1, 41, 2)]).coalesce(1), path, mode="append")
    ran, beside = both(spark, path, upsert(spark, path, (2, 2), (38, 2)).execute, upsert(spark, path, (1, 1), (39, 1)))
    found = values(spark, path)
    assert (ran, len(beside), len(found)) == (1, 1, 40)
    assert found.items() >= {2: 2, 38: 2, 1: 1, 39: 1}.items()


def test_a_loser_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t")
    both(spark, path, upsert(spark, path, (1, 10)).execute, upsert(spark, path, (1, 11)))
    named = {a["path"] for v in range(3) for a in actions(path, v, "add")}
    assert {name for name in files_below(path) if name.endswith(".parquet")} == named


@pytest.mark.parametrize("executor", some(["key_lookup", "classic"]))
def test_at_any_step(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    """Whenever the other commits after this merge has read the log, the outcome is the same."""
    spark.conf.set(EXECUTOR, executor)
    seen = upsert(spark, table(spark, tmp_path / "first"), (2, 20)).run().steps
    names = [step.name for step in seen if step.name not in ("snapshot", "refresh")]
    assert {"resolve", "plan", "find_touched_files", "commit"} <= {*names}
    for name in names:
        path = table(spark, tmp_path / name)
        report = upsert(spark, path, (2, 20)).run(progress=Once(name, upsert(spark, path, (1, 10), (30, 1)).execute))
        assert (report.outcome.lost_to, len(report.outcome.reconciled_with)) == ((), 1), name
        assert values(spark, path) == {**dict.fromkeys(range(20), 0), 1: 10, 30: 1, 2: 20}, name
