"""Overwrites of some partitions beside commits of other writers, made after the rows were written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deltamerge
from deltamerge import DeltaTable, write_delta
from deltamerge.api.save_frame import Save, save_to_path
from deltamerge.exceptions import DeltaConcurrentModificationException
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import open_store
from deltamerge.write.table_commits import commit_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = Iterable[tuple[int, str]]


def write(spark: SparkSession, path: Path, rows: Rows, mode: str = "append", **options: str) -> None:
    frame = spark.createDataFrame(list(rows), "id INT, day STRING").coalesce(1)
    save_to_path(frame, str(path), Save("delta", mode, options={name.lower(): v for name, v in options.items()}))


def made(spark: SparkSession, path: Path, level: str) -> None:
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id INT, day STRING")
    write_delta(frame, str(path), partition_by="day", properties={"delta.isolationLevel": level})


def rows(spark: SparkSession, path: Path) -> list[tuple[int, str]]:
    return sorted((row.id, row.day) for row in DeltaTable.forPath(spark, str(path)).toDF().collect())


def meanwhile(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    def commit(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        change()
        return commit_rows(*given, **named)

    monkeypatch.setattr("deltamerge.write.table_writer.commit_rows", commit)


def overwrite(spark: SparkSession, path: Path, how: str) -> None:
    """Replaces the partition `a` by the row 10."""
    if how == "dynamic":
        write(spark, path, [(10, "a")], "overwrite", partitionOverwriteMode="dynamic")
    elif how == "replaceWhere":
        write(spark, path, [(10, "a")], "overwrite", replaceWhere="day = 'a'")
    else:
        deltamerge.sql(spark, f"INSERT OVERWRITE delta.`{path}` PARTITION (day = 'a') VALUES (10)")


KINDS = pytest.mark.parametrize("how", ["dynamic", "replaceWhere", "sql"])


@KINDS
def test_other_partitions(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    path = tmp_path / "t"
    made(spark, path, "Serializable")

    def others() -> None:
        write(spark, path, [(3, "c")])
        write(spark, path, [(20, "b")], "overwrite", replaceWhere="day = 'b'")

    meanwhile(monkeypatch, others)
    overwrite(spark, path, how)
    assert rows(spark, path) == [(3, "c"), (10, "a"), (20, "b")]
    assert load_snapshot(open_store(str(path))).version == 3


@KINDS
@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_rows_that_are_appended_to_the_partition(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, level: str
) -> None:
    path = tmp_path / "t"
    made(spark, path, level)
    meanwhile(monkeypatch, lambda: write(spark, path, [(3, "a")]))
    if level == "Serializable":
        with pytest.raises(DeltaConcurrentModificationException):
            overwrite(spark, path, how)
        assert rows(spark, path) == [(1, "a"), (2, "b"), (3, "a")]
    else:
        # As if they had been appended afterwards.
        overwrite(spark, path, how)
        assert rows(spark, path) == [(2, "b"), (3, "a"), (10, "a")]


@KINDS
@pytest.mark.parametrize("other", ["overwrite", "delete", "optimize"])
def test_the_same_partition(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, other: str
) -> None:
    path = tmp_path / "t"
    made(spark, path, "WriteSerializable")
    write(spark, path, [(4, "a")])
    table = DeltaTable.forPath(spark, str(path))
    changes: dict[str, Callable[[], object]] = {
        "overwrite": lambda: write(spark, path, [(5, "a")], "overwrite", replaceWhere="day = 'a'"),
        "delete": lambda: table.delete("id = 1"),
        "optimize": lambda: table.optimize().executeCompaction(),
    }
    meanwhile(monkeypatch, changes[other])
    with pytest.raises(DeltaConcurrentModificationException):
        overwrite(spark, path, how)
    assert (10, "a") not in rows(spark, path)


def test_two_writers_of_a_new_partition(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    made(spark, path, "WriteSerializable")
    new = {"partitionOverwriteMode": "dynamic"}
    meanwhile(monkeypatch, lambda: write(spark, path, [(6, "z")], "overwrite", **new))
    with pytest.raises(DeltaConcurrentModificationException):
        write(spark, path, [(7, "z")], "overwrite", **new)
    assert (6, "z") in rows(spark, path)


def test_rows_of_the_table_itself(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were computed from another partition, which changes meanwhile, are those of no version."""
    path = tmp_path / "t"
    made(spark, path, "Serializable")
    table = DeltaTable.forPath(spark, str(path))
    meanwhile(monkeypatch, lambda: table.delete("day = 'b'"))
    with pytest.raises(DeltaConcurrentModificationException):
        deltamerge.sql(
            spark,
            f"INSERT OVERWRITE delta.`{path}` PARTITION (day = 'a') SELECT id + 10 FROM delta.`{path}` WHERE day = 'b'",
        )
    assert rows(spark, path) == [(1, "a")]


def test_rows_that_spark_holds_may_be_the_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    made(spark, path, "Serializable")
    table = DeltaTable.forPath(spark, str(path))
    held = table.toDF().where("day = 'b'").selectExpr("id + 10 AS id", "'a' AS day").localCheckpoint()
    meanwhile(monkeypatch, lambda: table.delete("day = 'b'"))
    with pytest.raises(DeltaConcurrentModificationException):
        save_to_path(held, str(path), Save("delta", "overwrite", options={"replacewhere": "day = 'a'"}))
    assert rows(spark, path) == [(1, "a")]


def test_the_whole_table(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    made(spark, path, "Serializable")
    meanwhile(monkeypatch, lambda: write(spark, path, [(3, "c")]))
    with pytest.raises(DeltaConcurrentModificationException):
        write(spark, path, [(9, "a")], "overwrite")


def test_the_same_rows_in_a_new_layout(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    made(spark, path, "Serializable")
    meanwhile(monkeypatch, lambda: write(spark, path, [(3, "a")]))
    write(spark, path, [(1, "a"), (2, "b")], "overwrite", dataChange="false")
    assert rows(spark, path) == [(1, "a"), (2, "b"), (3, "a")]
