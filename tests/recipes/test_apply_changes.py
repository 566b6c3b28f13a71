"""Change feeds: examples as AUTO CDC's documents have them, and random feeds beside a model in plain Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

from deltamerge import DeltaTable, apply_changes, scd2, sql, write_delta
from deltamerge.commands.auto_compact import merge_and_compact
from deltamerge.exceptions import (
    DeltaAnalysisException,
    DeltaRuntimeException,
    InvariantViolationException,
    MultipleSourceRowsException,
)
from deltamerge.recipes import apply_changes as recipe
from deltamerge.recipes.keyed_rows import rows_of_keys

from .feed_model import Event, history, newest
from .searching import SMALL, rows_of, searching
from .sessions import VERSION, transaction_of_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltamerge.merge.outcome import MergeOutcome

FEED = "userId INT, name STRING, city STRING, operation STRING, sequenceNum INT"
# What Databricks publishes for AUTO CDC: inserts, updates that come after the delete and the update that follow them.
USERS = [
    (124, "Raul", "Oaxaca", "INSERT", 1),
    (123, "Isabel", "Monterrey", "INSERT", 1),
    (125, "Mercedes", "Tijuana", "INSERT", 2),
    (126, "Lily", "Cancun", "INSERT", 2),
    (123, None, None, "DELETE", 6),
    (125, "Mercedes", "Guadalajara", "UPDATE", 6),
    (125, "Mercedes", "Mexicali", "UPDATE", 5),
    (123, "Isabel", "Chihuahua", "UPDATE", 5),
]
AUTO_CDC: dict[str, Any] = {
    "keys": ["userId"],
    "sequence_by": "sequenceNum",
    "apply_as_deletes": "operation = 'DELETE'",
    "except_columns": ["operation", "sequenceNum"],
}


def read(spark: SparkSession, path: str) -> list[tuple[Any, ...]]:
    return rows_of(DeltaTable.forPath(spark, path).toDF())


@pytest.mark.sessions
def test_newest_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    apply_changes(path, spark.createDataFrame(USERS, FEED), **AUTO_CDC)
    expected = [(124, "Raul", "Oaxaca"), (125, "Mercedes", "Guadalajara"), (126, "Lily", "Cancun")]
    assert read(spark, path) == expected
    late = [(123, "Isabel", "León", "UPDATE", 4), (125, "Mercedes", "León", "UPDATE", 3), (124, "Raul", "León", "U", 2)]
    report = apply_changes(path, spark.createDataFrame(late, FEED), **AUTO_CDC)
    assert report.metrics["numTargetRowsUpdated"] == 1
    assert report.metrics["numTargetRowsInserted"] == 0
    assert read(spark, path) == [(124, "Raul", "León"), *expected[1:]]
    assert apply_changes(path, spark.createDataFrame(USERS, FEED), **AUTO_CDC).version is None


def test_history(spark: SparkSession, tmp_path: Path) -> None:
    expected = [
        (123, "Isabel", "Chihuahua", 5, 6),
        (123, "Isabel", "Monterrey", 1, 5),
        (124, "Raul", "Oaxaca", 1, None),
        (125, "Mercedes", "Guadalajara", 6, None),
        (125, "Mercedes", "Mexicali", 5, 6),
        (125, "Mercedes", "Tijuana", 2, 5),
        (126, "Lily", "Cancun", 2, None),
    ]
    at_once, one_by_one = str(tmp_path / "t"), str(tmp_path / "u")
    apply_changes(at_once, spark.createDataFrame(USERS, FEED), scd_type=2, **AUTO_CDC)
    assert read(spark, at_once) == expected
    for user in USERS[4:] + USERS[:4]:
        apply_changes(one_by_one, spark.createDataFrame([user], FEED), scd_type=2, **AUTO_CDC)
    assert read(spark, one_by_one) == expected
    assert apply_changes(at_once, spark.createDataFrame(USERS, FEED), scd_type=2, **AUTO_CDC).version is None


def test_history_with_names_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    path, source = str(tmp_path / "t"), spark.createDataFrame(USERS, FEED)
    feed: dict[str, Any] = {"effective_at": "sequenceNum", "delete_when": "operation = 'DELETE'"}
    scd2(path, source, "userId", ["city"], except_columns=AUTO_CDC["except_columns"], **feed)
    rows = DeltaTable.forPath(spark, path).toDF()
    assert rows.columns == ["userId", "name", "city", "valid_from", "valid_to", "is_current"]
    assert rows_of(rows.where("userId IN (123, 125)")) == [
        (123, "Isabel", "Chihuahua", 5, 6, False),
        (123, "Isabel", "Monterrey", 1, 5, False),
        (125, "Mercedes", "Guadalajara", 6, None, True),
        (125, "Mercedes", "Mexicali", 5, 6, False),
        (125, "Mercedes", "Tijuana", 2, 5, False),
    ]


@pytest.mark.parametrize("tracked", [{"track_history_columns": ["name"]}, {"track_history_except_columns": ["city"]}])
def test_history_of_some_columns(spark: SparkSession, tmp_path: Path, tracked: dict[str, Any]) -> None:
    path = str(tmp_path / "t")
    source = spark.createDataFrame(USERS, FEED)
    apply_changes(path, source, scd_type=2, **tracked, **AUTO_CDC)
    assert read(spark, path) == [
        (123, "Isabel", "Chihuahua", 1, 6),
        (124, "Raul", "Oaxaca", 1, None),
        (125, "Mercedes", "Guadalajara", 2, None),
        (126, "Lily", "Cancun", 2, None),
    ]


@pytest.mark.parametrize("spelled", ["at", "s.at", "`At`", "column", "qualified"])
def test_the_column_of_the_time_is_not_tracked(spark: SparkSession, tmp_path: Path, spelled: str) -> None:
    path = str(tmp_path / "t")
    columns = {"column": F.col("at"), "qualified": F.col("s.at")}
    for at in (1, 2):
        source = spark.createDataFrame([(1, "same", at)], "id INT, v STRING, at INT")
        scd2(path, source, "id", effective_at=columns.get(spelled, spelled))
    assert read(spark, path) == [(1, "same", 2, 1, None, True)]


def test_a_tracked_column_that_the_source_lacks(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    apply_changes(path, spark.createDataFrame(USERS, FEED), scd_type=2, **AUTO_CDC)
    source = spark.createDataFrame(USERS, FEED).drop("city")
    for name in ("track_history_columns", "track_history_except_columns"):
        lists: dict[str, Any] = {name: ["city"]}
        with pytest.raises(
            DeltaAnalysisException,
            match=r"`city` in .*: the source without except_columns has the columns userId, name",
        ):
            apply_changes(path, source, scd_type=2, **lists, **AUTO_CDC)


def test_a_column_that_earlier_changes_gave(spark: SparkSession, tmp_path: Path) -> None:
    """Without it versions that differ by it alone would become one, and a row would lose its value."""
    for scd_type in (1, 2):
        path = str(tmp_path / f"t{scd_type}")
        apply_changes(path, spark.createDataFrame(USERS, FEED), scd_type=scd_type, **AUTO_CDC)
        before = read(spark, path)
        with pytest.raises(DeltaAnalysisException, match="The changes lack `city` of the target"):
            source = spark.createDataFrame(USERS, FEED).drop("city")
            apply_changes(path, source, scd_type=scd_type, **AUTO_CDC)
        assert read(spark, path) == before
    path = str(tmp_path / "t1")
    source = spark.createDataFrame(USERS, FEED).drop("city")
    apply_changes(path, source, ignore_null_updates=True, **AUTO_CDC)


def test_a_version_that_another_writer_adds(spark: SparkSession, tmp_path: Path) -> None:
    """A history keeps what it shows, also where the log never had it."""
    path, schema = str(tmp_path / "t"), "id INT, v STRING, at INT"
    scd2(path, spark.createDataFrame([], schema), "id", effective_at="at")
    added = "1 AS id, 'A' AS v, 5 AS at, 5 AS valid_from, CAST(NULL AS INT) AS valid_to, true AS is_current"
    write_delta(spark.sql(f"SELECT {added}"), path, mode="append")
    for v, at in (("A", 3), ("B", 4)):
        scd2(path, spark.createDataFrame([(1, v, at)], schema), "id", effective_at="at")
    assert [row[1:] for row in read(spark, path)] == [
        ("A", 3, 3, 4, False),
        ("A", 5, 5, None, True),
        ("B", 4, 4, 5, False),
    ]


def test_lists_of_tracked_columns_that_are_wrong(spark: SparkSession, tmp_path: Path) -> None:
    path, source = str(tmp_path / "t"), spark.createDataFrame(USERS, FEED)
    apply_changes(path, source, scd_type=2, **AUTO_CDC)
    with pytest.raises(DeltaAnalysisException, match=r"`city` in .* the source without except_columns has the columns"):
        apply_changes(
            path, source, "userId", "sequenceNum", scd_type=2, except_columns="city", track_history_columns=["city"]
        )
    with pytest.raises(DeltaAnalysisException, match="`town` in track_history_except_columns: the target"):
        apply_changes(path, source, scd_type=2, track_history_except_columns=["town"], **AUTO_CDC)
    with pytest.raises(ValueError, match="go with scd_type=2"):
        apply_changes(path, source, track_history_except_columns=["city"], **AUTO_CDC)
    lists: dict[str, Any] = {"track_history_columns": ["name"], "track_history_except_columns": ["city"]}
    with pytest.raises(ValueError, match="not both"):
        apply_changes(path, source, scd_type=2, **lists, **AUTO_CDC)


def test_a_truncate_as_deletes(spark: SparkSession, tmp_path: Path) -> None:
    """docs/recipes.md describes it; the published example has the truncate at 3."""
    path, source = str(tmp_path / "t"), spark.createDataFrame(USERS, FEED)
    deletes = source.selectExpr("userId", "NULL", "NULL", "'DELETE'", "3").distinct()
    apply_changes(path, source.union(deletes), **AUTO_CDC)
    assert read(spark, path) == [(125, "Mercedes", "Guadalajara")]


def test_a_feed_into_a_table_that_has_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.createDataFrame([(1, "a", 5), (2, "b", 5), (3, "c", 5)], "id INT, v STRING, n INT"), path)
    changes = [(1, "late", 4, False), (2, None, 6, True), (3, None, 7, False)]
    source = spark.createDataFrame(changes, "id INT, v STRING, n INT, gone BOOLEAN")
    apply_changes(path, source, "id", "n", apply_as_deletes="gone", ignore_null_updates=True)
    assert read(spark, path) == [(1, "a", 5), (3, "c", 7)]


@pytest.mark.parametrize("batches", [[[5, 12]], [[5], [12]], [[12], [5]]], ids=str)
@pytest.mark.parametrize(("gone", "kept"), [(False, "INT"), (True, "BIGINT"), (False, "struct")])
def test_null_keeps_the_newest_value_of_a_table_that_has_rows(
    spark: SparkSession, tmp_path: Path, batches: list[list[int]], gone: bool, kept: str
) -> None:
    """The row of the target is newer than the change at 5, and older than the one at 12."""
    path, values = str(tmp_path / "t"), {5: ("old", gone), 12: (None, False)}
    sequence: str | list[str] = ["n", "m"] if kept == "struct" else "n"
    columns = f"id INT, v STRING, n {'BIGINT' if kept == 'struct' else kept}, m INT"
    write_delta(spark.createDataFrame([(1, "new", 10, 0), (2, "other", None, None)], columns), path)
    for batch in batches:
        rows = [(key, values[n][0], n, 1, values[n][1]) for n in batch for key in (1, 2)]
        source = spark.createDataFrame(rows, "id INT, v STRING, n INT, m INT, gone BOOLEAN")
        apply_changes(path, source, "id", sequence, apply_as_deletes="gone", ignore_null_updates=True)
    second = (2, None if gone else "old", 12, 1)
    # The row without a sequence is deleted, or takes the value at 5.
    assert read(spark, path) == [(1, "new", 12, 1), second]
    log = DeltaTable.forPath(spark, f"{path}/_deltamerge_changes").toDF()
    assert "bigint" not in log.select("__sequence").dtypes[0][1]


@pytest.mark.sessions
@pytest.mark.parametrize("key", ["'a'", "CAST('a' AS BINARY)"])
def test_maps_that_do_not_change(spark: SparkSession, tmp_path: Path, key: str) -> None:
    path, query = str(tmp_path / "t"), f"SELECT 1 AS id, map({key}, {{}}) AS v, {{}} AS n"
    for ignore_nulls in (False, True):
        given: dict[str, Any] = {"except_columns": "n", "ignore_null_updates": ignore_nulls}
        apply_changes(path, spark.sql(query.format(1, 1)), "id", "n", **given)
        assert apply_changes(path, spark.sql(query.format(1, 1)), "id", "n", **given).version is None
    apply_changes(path, spark.sql(query.format(2, 2)), "id", "n", except_columns="n")
    assert DeltaTable.forPath(spark, path).toDF().selectExpr("map_values(v) AS v").collect() == [([2],)]


@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_change_that_the_target_refuses(spark: SparkSession, tmp_path: Path, scd_type: Literal[1, 2]) -> None:
    path, query = str(tmp_path / "t"), "SELECT 1 AS id, {} AS v, 7 AS n"
    apply_changes(path, spark.sql(query.format(1)).limit(0), "id", "n", scd_type=scd_type)
    sql(spark, f"ALTER TABLE delta.`{path}` ADD CONSTRAINT positive CHECK (v > 0)")
    with pytest.raises(InvariantViolationException, match="take the refused change out of the log first") as refused:
        apply_changes(path, spark.sql(query.format(-5)), "id", "n", scd_type=scd_type)
    delete = re.search(r"DELETE FROM delta\.`.*` WHERE ", str(refused.value))
    assert delete is not None
    sql(spark, f"{delete[0]} id = 1 AND __sequence = 7")
    apply_changes(path, spark.sql(query.format(5)), "id", "n", scd_type=scd_type)
    assert [row[:3] for row in read(spark, path)] == [(1, 5, 7)]


def test_history_of_a_table_that_has_one(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    schema = "id INT, v STRING, valid_from INT, valid_to INT, is_current BOOLEAN"
    write_delta(spark.createDataFrame([(1, "a", 1, 5, False), (1, "b", 7, None, True)], schema), path)
    source = spark.createDataFrame([(1, "x", 3), (1, "b", 9), (1, "y", 6), (2, "z", 1)], "id INT, v STRING, at INT")
    scd2(path, source, "id", effective_at="at")
    assert read(spark, path) == [
        (1, "a", 1, 3, False),
        (1, "b", 7, None, True),
        (1, "x", 3, 5, False),
        (1, "y", 6, 7, False),
        (2, "z", 1, None, True),
    ]


@pytest.mark.parametrize("batches", [[[3], [4]], [[4], [3]], [[3, 4]]], ids=str)
def test_a_history_that_was_there_does_not_depend_on_the_order(
    spark: SparkSession, tmp_path: Path, batches: list[list[int]]
) -> None:
    """The change at 3 takes the place of the version at 5, which holds again after the change at 4."""
    path, values = str(tmp_path / "t"), {3: "b", 4: "c"}
    schema = "id INT, v STRING, valid_from INT, valid_to INT, is_current BOOLEAN"
    write_delta(spark.createDataFrame([(1, "a", 1, 5, False), (1, "b", 5, None, True)], schema), path)
    for batch in batches:
        source = spark.createDataFrame([(1, values[at], at) for at in batch], "id INT, v STRING, at INT")
        scd2(path, source, "id", effective_at="at")
    assert read(spark, path) == [
        (1, "a", 1, 3, False),
        (1, "b", 3, 4, False),
        (1, "b", 5, None, True),
        (1, "c", 4, 5, False),
    ]


def test_a_version_that_has_been_there_since_ever(spark: SparkSession, tmp_path: Path) -> None:
    """A history that was there before may have versions that begin at NULL: they end as others do."""
    path = str(tmp_path / "t")
    schema = "id INT, v STRING, valid_from INT, valid_to INT, is_current BOOLEAN"
    seeded = [(1, "a", None, None, True), (2, "b", None, 4, False), (2, "c", 4, None, True), (3, "d", None, None, True)]
    write_delta(spark.createDataFrame(seeded, schema), path)
    source = spark.createDataFrame([(1, "x", 3), (2, "b", 2), (3, "d", 5)], "id INT, v STRING, at INT")
    scd2(path, source, "id", effective_at="at")
    found = [tuple(row) for row in DeltaTable.forPath(spark, path).toDF().collect()]
    assert sorted(found, key=lambda row: (row[0], row[2] or 0)) == [
        (1, "a", None, 3, False),
        (1, "x", 3, None, True),
        (2, "b", None, 4, False),
        (2, "c", 4, None, True),
        (3, "d", None, None, True),
    ]


def test_a_change_without_a_sequence(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    source = spark.createDataFrame([(1, "a", 1), (2, "b", None)], "id INT, v STRING, n INT")
    with pytest.raises(DeltaRuntimeException, match=r'sequence_by is NULL in the source row with the key \{"id":2\}'):
        apply_changes(path, source, "id", "n")
    assert not Path(path).exists()


def test_a_change_whose_key_the_target_cannot_store(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    apply_changes(path, spark.createDataFrame([(1, "a", 1)], "id INT, v STRING, n INT"), "id", "n")
    source = spark.createDataFrame([("2", "b", 2), ("x2", "c", 2)], "ID STRING, v STRING, n INT")
    with pytest.raises(DeltaRuntimeException, match="The value 'x2' of `ID` in the source cannot be cast to INT"):
        apply_changes(path, source, "id", "n")
    assert read(spark, path) == [(1, "a", 1)]
    apply_changes(path, source.where("ID = '2'"), "id", "n")
    assert read(spark, path) == [(1, "a", 1), (2, "b", 2)]


@pytest.mark.parametrize(
    ("rows", "condition", "words"),
    [
        ("(1, 'a', CAST(NULL AS INT))", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", 'the key {"id":1}'),
        ("(1, 'a', 1), (1, 'b', 1)", "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE", '{"sequence_by":1}'),
    ],
)
def test_a_first_call_that_fails_leaves_no_table(
    spark: SparkSession, tmp_path: Path, rows: str, condition: str, words: str
) -> None:
    """Spark evaluates rows that stand in the query as it plans: before there is any job."""
    path = str(tmp_path / "t")
    source = spark.sql(f"SELECT * FROM VALUES {rows} AS v(id, name, n)")
    with pytest.raises(DeltaRuntimeException) as caught:
        apply_changes(path, source, keys="id", sequence_by="n")
    assert caught.value.getCondition() == condition
    assert words in str(caught.value) and "deltamerge-row-error" not in str(caught.value)
    for wrong in ({"sequence_by": "nn"}, {"apply_as_deletes": "nmae = 'x'"}, {"sequence_by": ["id", "m"]}):
        with pytest.raises(DeltaAnalysisException, match=f"in {next(iter(wrong))}: the source has the columns"):
            apply_changes(path, source, keys="id", **{"sequence_by": "n", **wrong})  # type: ignore[arg-type]
    with pytest.raises(DeltaAnalysisException, match="tracked"):
        scd2(path, source, keys="id", effective_at="n", tracked=["nmae"])
    assert not (tmp_path / "t").exists()


def test_columns_that_the_target_lacks_are_noted(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    apply_changes(path, spark.sql("SELECT 1 AS id, 1 AS n"), keys="id", sequence_by="n")
    report = apply_changes(path, spark.sql("SELECT 1 AS id, 'x' AS name, 2 AS n"), keys="id", sequence_by="n")
    assert "The target has no column for these of the source: `name`." in str(report)


def test_two_changes_with_one_sequence(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    source = spark.createDataFrame([(1, "a", 1), (1, "a", 1), (1, "b", 1)], "id INT, v STRING, n INT")
    with pytest.raises(MultipleSourceRowsException, match="sequence_by does not determine the latest"):
        apply_changes(path, source, "id", "n")
    assert not Path(path).exists()
    apply_changes(path, source.where("v = 'a'"), "id", "n")
    assert read(spark, path) == [(1, "a", 1)]


@pytest.mark.parametrize("data_type", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_two_changes_that_differ_in_a_microsecond(spark: SparkSession, tmp_path: Path, data_type: str) -> None:
    at = f"CAST(TIMESTAMP_MICROS(1700000000000000 + id) AS {data_type})"
    feed = spark.sql(f"SELECT 1 AS id, 1 AS n, {at} AS at FROM range(2)")
    with pytest.raises(MultipleSourceRowsException, match="does not determine"):
        apply_changes(str(tmp_path / "t"), feed, "id", "n")
    of_maps = spark.sql(f"SELECT 1 AS id, id AS n, map('at', {at}) AS times FROM range(2)")
    apply_changes(str(tmp_path / "h"), of_maps, "id", "n", except_columns="n", scd_type=2)
    assert len(read(spark, str(tmp_path / "h"))) == 2


def test_names_that_are_missing(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.createDataFrame([(1, "a", 1)], "id INT, v STRING, n INT")
    with pytest.raises(DeltaAnalysisException, match="`key` in keys: the source"):
        apply_changes(str(tmp_path / "t"), source, "key", "n")
    with pytest.raises(DeltaAnalysisException, match="cannot be in except_columns"):
        apply_changes(str(tmp_path / "t"), source, "id", "n", except_columns="id")
    write_delta(source, str(tmp_path / "t"))
    with pytest.raises(DeltaAnalysisException, match="it lacks the columns `valid_from`, `valid_to`, `is_current`"):
        scd2(str(tmp_path / "t"), source, "id", effective_at="n")


def test_another_writer_between_reading_and_committing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, schema = str(tmp_path / "t"), "id INT, v STRING, n INT"
    write_delta(spark.createDataFrame([(7, "z", 0)], schema), path)
    others = [spark.createDataFrame([(1, "newest", 3)], schema)]

    def late(*arguments: Any) -> MergeOutcome:
        if others:
            apply_changes(path, others.pop(), "id", "n")
        return merge_and_compact(*arguments)

    monkeypatch.setattr(recipe, "merge_and_compact", late)
    report = apply_changes(path, spark.createDataFrame([(1, "older", 2)], schema), "id", "n")
    assert read(spark, path) == [(1, "newest", 3), (7, "z", 0)]
    assert [lost.operation for lost in report.outcome.lost_to] == ["MERGE"]
    assert report.outcome.notes[-1].startswith("ran again once, because other writers were first: version 1 (MERGE)")


@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.parametrize("ids", [{}, {"txn_app_id": "ships", "txn_version": 1}])
def test_another_writer_that_has_nothing_to_change(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scd_type: Literal[1, 2], ids: dict[str, Any]
) -> None:
    """It deletes a row that is not there yet, and so makes no commit; its event is in the log."""
    path, schema = str(tmp_path / "t"), "id INT, v STRING, n INT, gone BOOLEAN"
    arguments: dict[str, Any] = {"apply_as_deletes": "gone", "except_columns": "gone", "scd_type": scd_type}
    apply_changes(path, spark.createDataFrame([(7, "z", 0, False)], schema), "id", "n", **arguments)
    others = [spark.createDataFrame([(1, None, 2, True)], schema)]
    outcomes = []

    def late(*given: Any) -> MergeOutcome:
        if others:
            outcomes.append(apply_changes(path, others.pop(), "id", "n", **arguments))
        return merge_and_compact(*given)

    monkeypatch.setattr(recipe, "merge_and_compact", late)
    new = spark.createDataFrame([(1, "late", 1, False)], schema)
    report = apply_changes(path, new, "id", "n", **arguments, **ids)
    rows = DeltaTable.forPath(spark, path).toDF().orderBy("id", "n").collect()
    if scd_type == 1:
        assert [row.id for row in rows] == [7]
        assert report.version == DeltaTable.forPath(spark, path).table.snapshot().version == 3
        assert report.outcome.notes[-1] == "Version 3 has changes that other calls logged meanwhile: 1 row changed."
        assert [report.version for report in outcomes] == [None]
    else:
        assert [(row.id, row["__END_AT"]) for row in rows] == [(1, 2), (7, None)]
        assert [lost.version for lost in report.outcome.lost_to] == [2]


@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_call_that_ended_between_its_commits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scd_type: Literal[1, 2]
) -> None:
    path, source = str(tmp_path / "t"), spark.createDataFrame(USERS, FEED)

    def ends(*_: Any) -> MergeOutcome:
        raise KeyboardInterrupt

    ids: dict[str, Any] = {"txn_app_id": "users", "txn_version": 1}
    with monkeypatch.context() as patched:
        patched.setattr(recipe, "merge_and_compact", ends)
        with pytest.raises(KeyboardInterrupt):
            apply_changes(path, source, scd_type=scd_type, **AUTO_CDC, **ids)
    assert read(spark, path) == []
    apply_changes(path, source, scd_type=scd_type, **AUTO_CDC, **ids)
    assert len(read(spark, path)) == (3 if scd_type == 1 else 7)


@pytest.mark.parametrize("resets", [False, True])
def test_the_transaction_of_the_session(spark: SparkSession, tmp_path: Path, resets: bool) -> None:
    """It is the target's: the log takes the events of all calls, unless the target has the transaction already."""
    log, schema = str(tmp_path / "log"), "id INT, v STRING, n INT"
    for number, name in enumerate(("a", "b"), 1):
        with transaction_of_session(spark, "load", number if resets else 7, resets=resets):
            source = spark.createDataFrame([(number, name, 1)], schema)
            apply_changes(str(tmp_path / name), source, "id", "n", change_log=log)
            assert (spark.conf.get(VERSION, None) is None) == resets
        assert read(spark, str(tmp_path / name)) == [(number, name, 1)]
    with transaction_of_session(spark, "load", 2 if resets else 7):
        source = spark.createDataFrame([(2, "again", 2)], schema)
        assert apply_changes(str(tmp_path / "b"), source, "id", "n", change_log=log).version is None
    logged = DeltaTable.forPath(spark, log)
    assert [row.id for row in logged.toDF().orderBy("id").collect()] == [1, 2]
    assert not logged.table.snapshot().set_transactions


@pytest.mark.parametrize("sequence", ["n", "s.`N`", ["day", "n"], ["n"]])
def test_a_log_that_was_trimmed(spark: SparkSession, tmp_path: Path, sequence: str | list[str]) -> None:
    """A target that has the sequence knows which change is the older one by itself."""
    path, schema = str(tmp_path / "t"), "id INT, v STRING, day INT, n INT"
    apply_changes(path, spark.createDataFrame([(1, "new", 2, 7), (2, "new", 2, 7)], schema), "id", sequence)
    DeltaTable.forPath(spark, f"{path}/_deltamerge_changes").delete()
    late = [(1, "late", 2, 6), (2, "newer", 2, 8)]
    apply_changes(path, spark.createDataFrame(late, schema), "id", sequence)
    assert read(spark, path) == [(1, "new", 2, 7), (2, "newer", 2, 8)]


def test_a_history_whose_log_was_trimmed(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    apply_changes(path, spark.createDataFrame(USERS, FEED), scd_type=2, **AUTO_CDC)
    before = read(spark, path)
    DeltaTable.forPath(spark, f"{path}/_deltamerge_changes").delete()
    late = [(125, "Mercedes", "León", "UPDATE", 3), (123, "Isabel", "Monterrey", "UPDATE", 2)]
    apply_changes(path, spark.createDataFrame(late, FEED), scd_type=2, **AUTO_CDC)
    split = [(125, "Mercedes", "León", 3, 5), (125, "Mercedes", "Tijuana", 2, 3)]
    assert read(spark, path) == sorted([*(row for row in before if row[2] != "Tijuana"), *split], key=repr)


@pytest.mark.parametrize("scd_type", [1, 2])
def test_files_that_a_call_reads(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scd_type: Literal[1, 2]
) -> None:
    path, read_files = str(tmp_path / "t"), list[int]()
    for key, setting in SMALL.items():
        spark.conf.set(key, setting)

    def noted(*arguments: Any, **named: Any) -> DataFrame:
        found = rows_of_keys(*arguments, **named)
        read_files.append(len(found.inputFiles()))
        return found

    monkeypatch.setattr(recipe, "rows_of_keys", noted)
    for n in range(4):
        batch = [(10 * n, "a", n, n), (10 * n + 1, "b", n, n)]
        source = spark.createDataFrame(batch, "id INT, v STRING, n INT, other INT")
        apply_changes(path, source, "id", "n", scd_type=scd_type)
    assert read_files == ([1, 0] * 4 if scd_type == 2 else [1] * 4)
    read_files.clear()
    source = spark.createDataFrame([(31, "c", 9, 9), (None, "c", 9, 9)], "id INT, v STRING, n INT, other INT")
    apply_changes(path, source, "id", "n", scd_type=scd_type)
    assert read_files == ([2, 1] if scd_type == 2 else [2])


VALUES = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["x", "y", None]))


@st.composite
def feeds(draw: st.DrawFn) -> list[list[Event]]:
    """Draws batches: any events, in any order, some of them again in a later batch or twice in one."""
    places = draw(
        st.lists(st.tuples(st.sampled_from([1, 2, None]), st.integers(1, 9)), min_size=1, max_size=12, unique=True)
    )
    events = [Event(key, at, draw(VALUES), draw(st.integers(0, 3)) == 0) for key, at in places]
    order = draw(st.permutations(events))
    batches = [order[i::3] for i in range(min(3, len(order)))]
    for batch in batches:
        batch.extend(draw(st.lists(st.sampled_from(events), max_size=2)))
    return batches


SOURCE = "k INT, at INT, v STRING, w STRING, gone BOOLEAN"


def frame_of(spark: SparkSession, batch: list[Event]) -> DataFrame:
    return spark.createDataFrame([(e.key, e.sequence, *e.values, e.deletes) for e in batch], SOURCE)


@pytest.mark.slow
@pytest.mark.parametrize("ignore_nulls", [False, True])
def test_random_feeds_of_newest_rows(spark: SparkSession, tmp_path: Path, ignore_nulls: bool) -> None:
    feed: dict[str, Any] = {"apply_as_deletes": "s.gone", "except_columns": ["gone", "at"]}
    number = iter(range(10**6))

    @searching
    @given(batches=feeds())
    def holds(batches: list[list[Event]]) -> None:
        for key, setting in SMALL.items():
            spark.conf.set(key, setting)
        path, seen = str(tmp_path / f"t{next(number)}"), list[Event]()
        properties = {"delta.enableChangeDataFeed": "true"}
        write_delta(spark.createDataFrame([], "k INT, v STRING, w STRING"), path, properties=properties)
        for batch in batches:
            before = newest(seen, ignore_nulls=ignore_nulls)
            seen += batch
            after = newest(seen, ignore_nulls=ignore_nulls)
            source = frame_of(spark, batch)
            report = apply_changes(path, source, "k", "at", ignore_null_updates=ignore_nulls, **feed)
            assert read(spark, path) == sorted(((k, *v) for k, v in after.items()), key=repr)
            counted = {n: report.metrics[f"numTargetRows{n}"] for n in ("Inserted", "Updated", "Deleted")}
            assert counted == {
                "Inserted": len(after.keys() - before.keys()),
                "Updated": sum(before[k] != after[k] for k in before.keys() & after.keys()),
                "Deleted": len(before.keys() - after.keys()),
            }
            if report.version is not None:
                changes = DeltaTable.forPath(spark, path).changes(report.version, report.version)
                assert changes.count() == counted["Inserted"] + 2 * counted["Updated"] + counted["Deleted"]
        again = apply_changes(path, frame_of(spark, batches[0]), "k", "at", ignore_null_updates=ignore_nulls, **feed)
        assert again.version is None

    holds()


@pytest.mark.slow
@pytest.mark.parametrize(("tracked", "ignore_nulls"), [(None, False), (["v"], False), (["v"], True)])
def test_random_feeds_of_histories(
    spark: SparkSession, tmp_path: Path, tracked: list[str] | None, ignore_nulls: bool
) -> None:
    feed: dict[str, Any] = {"effective_at": "at", "delete_when": "s.gone", "except_columns": ["gone", "at"]}
    number = iter(range(10**6))

    @searching
    @given(batches=feeds())
    def holds(batches: list[list[Event]]) -> None:
        for key, setting in SMALL.items():
            spark.conf.set(key, setting)
        path, seen = str(tmp_path / f"t{next(number)}"), list[Event]()
        for batch in [*batches, batches[0]]:
            seen += batch
            report = scd2(path, frame_of(spark, batch), "k", tracked, ignore_nulls=ignore_nulls, **feed)
            versions = history(seen, [0] if tracked else [0, 1], ignore_nulls=ignore_nulls)
            expected = [(k, *row, a, b, b is None) for k, found in versions.items() for a, b, row in found]
            assert read(spark, path) == sorted(expected, key=repr)
        assert report.version is None

    holds()


# As Debezium's unwrapping names a column, and as the columns beside the row's own are named in between.
OWN_NAMES = ["__deleted", "__sequence", "__row", "__present", "__dm_is_gone", "__dm_key0", "__is_deleted", "__end"]


@pytest.mark.parametrize("keeps_history", [False, True])
def test_columns_that_are_called_as_those_of_the_log(spark: SparkSession, tmp_path: Path, keeps_history: bool) -> None:
    path, named = str(tmp_path / "t"), ", ".join(f"`{name}`" for name in OWN_NAMES)

    def feed(*rows: tuple[int, int, str]) -> DataFrame:
        values = (f"({key}, {at}, '{deleted}', {', '.join(['9'] * (len(OWN_NAMES) - 1))})" for key, at, deleted in rows)
        return spark.sql(f"SELECT * FROM VALUES {', '.join(values)} AS u(id, ts, {named})")

    for source in (feed((1, 1, "false"), (2, 1, "false")), feed((1, 3, "true")), feed((1, 2, "no"), (2, 2, "false"))):
        if keeps_history:
            scd2(path, source, "id", effective_at="ts", delete_when="__deleted = 'true'", is_current=None)
        else:
            apply_changes(path, source, "id", "ts", apply_as_deletes="__deleted = 'true'")
    rows = DeltaTable.forPath(spark, path).toDF()
    assert [name for name in OWN_NAMES if name not in rows.columns] == []
    if keeps_history:
        expected: list[tuple[Any, ...]] = [(1, "false", 9, 1, 2), (1, "no", 9, 2, 3), (2, "false", 9, 1, None)]
        assert rows_of(rows.select("id", "__deleted", "__present", "valid_from", "valid_to")) == expected
    else:
        assert rows_of(rows.select("id", "__deleted", "__sequence", "ts")) == [(2, "false", 9, 2)]


@pytest.mark.quick
@pytest.mark.parametrize("key", ["__deleted", "__Sequence", "__rank"])
def test_keys_that_are_called_as_columns_beside_them(spark: SparkSession, tmp_path: Path, key: str) -> None:
    source = spark.sql(f"SELECT 1 AS `{key}`, 1 AS n")
    path, refused = str(tmp_path / "t"), f"A key cannot be called {key}"
    with pytest.raises(DeltaAnalysisException, match=refused):
        apply_changes(path, source, key, "n")
    with pytest.raises(DeltaAnalysisException, match=refused):
        scd2(path, source, key, effective_at="n")
    assert not (tmp_path / "t").exists()
