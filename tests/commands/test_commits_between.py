"""Commits of other writers between what a command reads and its own commit, and versions that come back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deltamerge
from deltamerge import DeltaTable, write_delta
from deltamerge.exceptions import (
    ConcurrentAppendException,
    DeltaConcurrentModificationException,
    DeltaError,
    MetadataChangedException,
)
from deltamerge.log.actions import Protocol
from deltamerge.log.commit_times import CommitTimes
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import open_store
from deltamerge.txn.transaction import ReadSet, commit
from txn.tables import clock, prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


def made(spark: SparkSession, path: Path, *properties: str) -> DeltaTable:
    named = ", ".join(f"'{name}' = '{value}'" for name, value in (each.split("=") for each in properties))
    given = f" TBLPROPERTIES ({named})" if named else ""
    deltamerge.sql(spark, f"CREATE TABLE delta.`{path}` (id BIGINT, v BIGINT) USING delta{given}")
    return DeltaTable.forPath(spark, str(path))


def append(spark: SparkSession, path: Path, *ids: int) -> None:
    rows = spark.createDataFrame([(each, each) for each in ids], "id BIGINT, v BIGINT")
    write_delta(rows.coalesce(1), str(path), mode="append")


def ids(table: DeltaTable) -> list[int]:
    return sorted(row.id for row in table.toDF().collect())


def before_commit(monkeypatch: pytest.MonkeyPatch, where: str, change: Callable[[], object]) -> None:
    """Let another writer commit just before a command does."""
    module, _, name = where.rpartition(".")
    original = getattr(__import__(module, fromlist=[name]), name)

    def commit(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        change()
        return original(*given, **named)

    monkeypatch.setattr(where, commit)


def test_rows_of_the_old_form_conflict_with_its_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is appended with physical names while column mapping is dropped would lose its columns."""
    path = tmp_path / "t"
    table = made(spark, path, "delta.columnMapping.mode=name")
    append(spark, path, 1, 2)
    before_commit(monkeypatch, "deltamerge.commands.rewriting.commit_command", lambda: append(spark, path, 3))
    with pytest.raises(ConcurrentAppendException):
        table.dropFeatureSupport("columnMapping")
    assert ids(table) == [1, 2, 3]
    table.dropFeatureSupport("columnMapping")
    assert ids(table) == [1, 2, 3]


def test_row_ids_are_turned_on_for_no_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    made(spark, path)
    before_commit(monkeypatch, "deltamerge.commands.alter_properties.commit_command", lambda: append(spark, path, 1))
    with pytest.raises(ConcurrentAppendException):
        deltamerge.sql(spark, f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    assert "rowTracking" not in (load_snapshot(open_store(str(path))).protocol.writer_features or ())


def test_the_highest_column_id_stays(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    made(spark, path, "delta.columnMapping.mode=id")
    with pytest.raises(DeltaError, match="DELTA_CANNOT_MODIFY_TABLE_PROPERTY"):
        deltamerge.sql(spark, f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('delta.columnMapping.maxColumnId')")


def test_rows_computed_of_the_table_are_no_blind_append(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under Serializable a row cannot come of one that was deleted before."""
    path = tmp_path / "t"
    table = made(spark, path)
    append(spark, path, 1, 2)
    copied = f"INSERT INTO delta.`{path}` SELECT id + 10, v FROM delta.`{path}`"
    before_commit(monkeypatch, "deltamerge.write.table_writer.commit_rows", lambda: table.delete("id = 1"))
    with pytest.raises(DeltaConcurrentModificationException):
        deltamerge.sql(spark, copied)
    assert ids(table) == [2]
    deltamerge.sql(spark, copied)
    append(spark, path, 20)
    assert ids(table) == [2, 12, 20]
    blind = [row.isBlindAppend for row in table.history().select("isBlindAppend").collect()]
    assert blind[:2] == [True, False]


def test_a_replacement_keeps_since_when_commits_have_timestamps(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    made(spark, path)
    append(spark, path, 1)
    name, on = f"delta.`{path}`", "TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"
    deltamerge.sql(spark, f"ALTER TABLE {name} SET {on}")
    deltamerge.sql(spark, f"CREATE OR REPLACE TABLE {name} (id BIGINT, v BIGINT) USING delta {on}")
    latest = load_snapshot(open_store(str(path)))
    assert latest.metadata.configuration["delta.inCommitTimestampEnablementVersion"] == "2"
    times = CommitTimes.of(latest)
    assert times.last_not_after(times.at(1)) == 1
    clone = tmp_path / "clone"
    deltamerge.sql(spark, f"CREATE TABLE delta.`{clone}` SHALLOW CLONE {name}")
    assert (
        "delta.inCommitTimestampEnablementVersion" not in load_snapshot(open_store(str(clone))).metadata.configuration
    )


def test_another_writer_clusters_by_a_column_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not be dropped then, and a version is restored with its own clustering."""
    path, name = tmp_path / "t", f"delta.`{tmp_path / 't'}`"
    mapped = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    deltamerge.sql(spark, f"CREATE TABLE {name} (id BIGINT, v BIGINT) USING delta CLUSTER BY (id) {mapped}")
    append(spark, path, 1)

    def clusters(by: str) -> None:
        deltamerge.sql(spark, f"ALTER TABLE {name} CLUSTER BY ({by})")

    for module, statement in (
        ("alter_columns", f"ALTER TABLE {name} DROP COLUMN v"),
        ("restore", f"RESTORE TABLE {name} TO VERSION AS OF 0"),
    ):
        clusters("id")
        before_commit(monkeypatch, f"deltamerge.commands.{module}.commit_command", lambda: clusters("v"))
        with pytest.raises(MetadataChangedException, match="clustering columns"):
            deltamerge.sql(spark, statement)
        assert load_snapshot(open_store(str(path))).clustered_by == (("v",),)


def test_restored_rows_have_their_ids(spark: SparkSession, tmp_path: Path) -> None:
    """Also where row tracking was dropped in between; ids that were given out are not given out again."""
    path = tmp_path / "t"
    table = made(spark, path, "delta.enableRowTracking=true")
    append(spark, path, 1, 2, 3)

    def row_ids() -> dict[int, int]:
        return {row["id"]: row["_metadata"]["row_id"] for row in table.with_row_ids().collect()}

    before = row_ids()
    table.dropFeatureSupport("rowTracking")
    append(spark, path, 4)
    table.restoreToVersion(1)
    assert row_ids() == before
    append(spark, path, 5)
    found = row_ids()
    assert {key: found[key] for key in before} == before
    assert found[5] not in before.values()
    (mark,) = (
        json.loads(domain.configuration)["rowIdHighWaterMark"]
        for domain in load_snapshot(open_store(str(path))).domain_metadata.values()
        if domain.domain == "delta.rowTracking"
    )
    assert mark == max(found.values())


def test_a_restore_to_before_row_tracking_keeps_the_ids_that_rows_have(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(spark, path)
    append(spark, path, 1, 2)
    snapshot = load_snapshot(open_store(str(path)))
    (file,) = snapshot.files.add_files()
    tracked = Protocol(1, 7, None, frozenset({"rowTracking", "domainMetadata", "appendOnly", "invariants"}))
    read = ReadSet(files=frozenset({file.path}))
    commit(prepare(snapshot, tracked, replace(file, data_change=False), read=read), clock)
    before = load_snapshot(open_store(str(path)))
    assert [each.base_row_id for each in before.files.add_files()] == [0]
    table.restoreToVersion(1)
    after = load_snapshot(open_store(str(path)))
    assert [(each.base_row_id, each.default_row_commit_version) for each in after.files.add_files()] == [(0, 2)]
    assert after.domain_metadata == before.domain_metadata
