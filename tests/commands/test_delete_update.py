"""DELETE and UPDATE: the rows, the plans, what is committed, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.sql import functions as F

from deltamerge import DeltaTable, sql, write_delta
from deltamerge.commands.committing import commit_command
from deltamerge.exceptions import (
    ConcurrentAppendException,
    DeltaAnalysisException,
    InvariantViolationException,
)
from deltamerge.merge.result.commit import commit_merge
from merge.tables import VECTORS, actions, commit_info, latest_version, made_once, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = {"delta.enableChangeDataFeed": "true"}


def table(spark: SparkSession, path: Path, properties: dict[str, str] | None = None, **options: Any) -> str:
    """Makes a table of ids 0 to 19, v ten times that, p a or b, in two files a partition."""

    def make(folder: str) -> None:
        for number, first in enumerate((0, 10)):
            part = spark.range(first, first + 10).selectExpr("id", "id * 10 AS v", "IF(id % 2 = 0, 'a', 'b') AS p")
            mode = "append" if number else "error"
            write_delta(part.coalesce(1), folder, mode=mode, properties=properties or {}, **options)

    return made_once(path / "t", f"delete_update {properties} {options}", make)


def values(spark: SparkSession, path: str) -> dict[int, int]:
    read = DeltaTable.forPath(spark, path).toDF()
    found = {row["id"]: row["v"] for row in read.collect()}
    by_rs = DeltaRs(path).to_pyarrow_table() if not DeltaRs(path).protocol().reader_features else None
    if by_rs is not None:
        assert dict(zip(by_rs["id"].to_pylist(), by_rs["v"].to_pylist(), strict=True)) == found
    return found


Holds: TypeAlias = Callable[[int, int], bool]
CONDITIONS: dict[str, Holds] = {
    "id < 3": lambda i, _: i < 3,
    "id % 3 = 0": lambda i, _: i % 3 == 0,
    "p = 'a' AND v > 50": lambda i, v: i % 2 == 0 and v > 50,
    "upper(p) = 'B'": lambda i, _: i % 2 == 1,
}


@pytest.mark.parametrize(
    ("properties", "partitions"),
    [({}, ("p",)), (VECTORS, ()), (FEED, ()), ({**VECTORS, **FEED}, ("p",))],
    ids=["plain", "vectors", "feed", "both"],
)
def test_rows(spark: SparkSession, tmp_path: Path, properties: dict[str, str], partitions: tuple[str, ...]) -> None:
    """Whatever the table and the condition: the same rows go and change as by Python."""
    path = table(spark, tmp_path, properties, partition_by=partitions)
    left = {i: i * 10 for i in range(20)}
    for condition, holds in CONDITIONS.items():
        DeltaTable.forPath(spark, path).update(condition, {"v": "v + 1"})
        expected = sum(1 for i, v in left.items() if holds(i, v))
        left = {i: v + 1 if holds(i, v) else v for i, v in left.items()}
        assert values(spark, path) == left
        if FEED.items() <= properties.items():
            found = DeltaTable.forPath(spark, path).changes(latest_version(path)).groupBy("_change_type").count()
            assert rows(found) == [("update_postimage", expected), ("update_preimage", expected)]
    for condition, holds in CONDITIONS.items():
        before = len(left)
        DeltaTable.forPath(spark, path).delete(condition)
        left = {i: v for i, v in left.items() if not holds(i, v)}
        assert values(spark, path) == left
        if FEED.items() <= properties.items():
            found = DeltaTable.forPath(spark, path).changes(latest_version(path)).groupBy("_change_type").count()
            assert rows(found) == [("delete", before - len(left))]


@pytest.mark.quick
@pytest.mark.sessions
def test_in_short(spark: SparkSession, tmp_path: Path) -> None:
    """An UPDATE by SQL, a DELETE by a Column, and what they commit."""
    path = table(spark, tmp_path)
    DeltaTable.forPath(spark, path).alias("t").update("t.id >= 18", {"v": F.col("t.v") + F.lit(1)})
    DeltaTable.forPath(spark, path).delete(F.col("id") < 15)
    assert values(spark, path) == {15: 150, 16: 160, 17: 170, 18: 181, 19: 191}
    info = commit_info(path, 3)
    assert (info["operation"], info["isolationLevel"]) == ("DELETE", "Serializable")
    metrics = {name: value for name, value in info["operationMetrics"].items() if not name.endswith(("Ms", "Bytes"))}
    assert metrics == {
        "numDeletedRows": "15", "numCopiedRows": "5", "numAddedFiles": "1", "numRemovedFiles": "2",
        "numAddedChangeFiles": "0", "numDeletionVectorsAdded": "0", "numDeletionVectorsRemoved": "0",
        "numDeletionVectorsUpdated": "0",
    }  # fmt: skip
    assert commit_info(path, 2)["operationParameters"] == {"predicate": '["t.id >= 18"]'}


def test_whole_files_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """Where the condition asks for partitions only, files go that are not even there."""
    path = table(spark, tmp_path, FEED, partition_by=("p",))
    for file in Path(path).rglob("*.parquet"):
        file.unlink()
    DeltaTable.forPath(spark, path).delete("p = 'a' OR p IS NULL")
    info = commit_info(path, 2)
    assert (info["operationMetrics"]["numDeletedRows"], info["operationMetrics"]["numRemovedFiles"]) == ("10", "2")
    assert not actions(path, 2, "cdc")
    DeltaTable.forPath(spark, path).delete()
    assert commit_info(path, 3)["operationParameters"] == {"predicate": '["true"]'}
    assert DeltaTable.forPath(spark, path).toDF().count() == 0
    DeltaTable.forPath(spark, path).delete()
    assert latest_version(path) == 3


def test_files_are_skipped(spark: SparkSession, tmp_path: Path) -> None:
    """Only a file that may have a row is read."""
    path = table(spark, tmp_path)
    (other,) = (add["path"] for add in actions(path, 1, "add"))
    (Path(path) / other).unlink()
    DeltaTable.forPath(spark, path).update("id = 3", {"v": "-1"})
    DeltaTable.forPath(spark, path).delete("id = 4")
    assert [remove["path"] for remove in actions(path, 3, "remove")] != [other]


@pytest.mark.parametrize("method", ["delete", "update"])
def test_refused(spark: SparkSession, tmp_path: Path, method: str) -> None:
    """Spark's own errors, and Delta's about subqueries and appends; arguments in delta-spark's words."""
    path = table(spark, tmp_path)

    def run(condition: Any, path: str = path) -> None:
        opened = DeltaTable.forPath(spark, path)
        if method == "delete":
            opened.delete(condition)
        else:
            opened.update(condition, {"v": "1"})

    for condition, error in (
        ("nope = 1", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("id", "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN"),
        ("rand() > 0.5", "INVALID_NON_DETERMINISTIC_EXPRESSIONS"),
        ("id IN (SELECT 1)", "DELTA_UNSUPPORTED_SUBQUERY"),
    ):
        with pytest.raises(DeltaAnalysisException) as found:
            run(condition)
        assert found.value.getCondition() == error
        assert "MERGE" not in str(found.value)
    assert found.value.getMessageParameters() == {"operation": method.upper(), "cond": "id IN (SELECT 1)"}
    with pytest.raises(TypeError, match="'condition' must be a Spark SQL Column or a string"):
        run(1)
    with pytest.raises(ValueError, match="'set' cannot be None"):
        DeltaTable.forPath(spark, path).update("id = 1")
    closed = table(spark, tmp_path / "closed", {"delta.appendOnly": "true"})
    with pytest.raises(DeltaAnalysisException, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
        run("id = 1", closed)
    assert latest_version(path) == latest_version(closed) == 1


def test_constraints_hold(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path, {"delta.constraints.small": "v < 1000"})
    with pytest.raises(InvariantViolationException, match="small"):
        DeltaTable.forPath(spark, path).update("id = 1", {"v": "5000"})
    assert latest_version(path) == 1


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_truncate_beside_an_append(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    path = table(spark, tmp_path, {"delta.isolationLevel": level})

    def after_an_append(*arguments: Any, **named: Any) -> None:
        write_delta(spark.sql("SELECT 20L AS id, 200L AS v, 'a' AS p"), path, mode="append")
        commit_command(*arguments, **named)

    monkeypatch.setattr("deltamerge.commands.delete_update.commit_command", after_an_append)
    if level == "Serializable":
        with pytest.raises(ConcurrentAppendException):
            sql(spark, f"TRUNCATE TABLE delta.`{path}`")
        assert len(values(spark, path)) == 21
    else:
        sql(spark, f"TRUNCATE TABLE delta.`{path}`")
        assert commit_info(path, 3)["isolationLevel"] == level
        assert values(spark, path) == {20: 200}


@pytest.mark.parametrize("deletes", [True, False])
def test_a_property_that_another_writer_sets(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletes: bool
) -> None:
    path, commit, done = table(spark, tmp_path), commit_merge, list[object]()

    def after_a_change(*arguments: Any) -> Any:
        if not done:
            done.append(
                sql(spark, f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors'=true)")
            )
        return commit(*arguments)

    monkeypatch.setattr("deltamerge.merge.command.commit_merge", after_a_change)
    changed = DeltaTable.forPath(spark, path)
    if deletes:
        changed.delete("id < 10")
    else:
        changed.update("id < 10", {"v": "0"})
    assert latest_version(path) == 3
    before = {} if deletes else dict.fromkeys(range(10), 0)
    assert values(spark, path) == {**before, **{i: 10 * i for i in range(10, 20)}}


def test_conflicts(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that adds rows which the condition may take conflicts; one that adds others does not."""
    path = table(spark, tmp_path)
    spark.conf.set("spark.deltamerge.merge.conflictRetries", "0")
    commit, first = commit_merge, [20]

    def after_an_append(*arguments: Any) -> Any:
        part = spark.range(first[0], first[0] + 5).selectExpr("id", "id AS v", "'a' AS p").coalesce(1)
        write_delta(part, path, mode="append")
        return commit(*arguments)

    monkeypatch.setattr("deltamerge.merge.command.commit_merge", after_an_append)
    try:
        DeltaTable.forPath(spark, path).delete("id < 10")
        with pytest.raises(ConcurrentAppendException, match=r"this transaction \(UPDATE\)"):
            DeltaTable.forPath(spark, path).update("id >= 15", {"v": "0"})
    finally:
        spark.conf.unset("spark.deltamerge.merge.conflictRetries")
    assert sorted(values(spark, path)) == [*range(10, 20), *(i for i in range(20, 25) for _ in range(1))]
