"""Rows that a table cannot take go to another one, once, and the others are merged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from combinations import combinations
from deltamerge import DeltaTable, sql, upsert, write_delta
from deltamerge.exceptions import DeltaAnalysisException, MultipleSourceRowsException

from .sessions import VERSION, transaction_of_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.sessions
def test_rows_that_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    table = (
        DeltaTable.create(spark)
        .location(str(tmp_path / "t"))
        .addColumn("id", "INT", nullable=False)
        .addColumn("amount", "DECIMAL(5,2)")
        .addColumn("day", "DATE")
        .addColumn("code", "VARCHAR(3)")
        .addColumn("place", "STRUCT<city: STRING>")
        .property("delta.constraints.positive", "amount > 0")
        .execute()
    )
    source = spark.createDataFrame(
        [
            ("1", "10.5", "2024-01-31", "abc", ("Oslo",), "I"),
            ("x", "10.5", "2024-01-31", "abc", None, "I"),
            (None, "1", None, None, None, "I"),
            ("3", "-1", "2024-13-01", "abcd", None, "I"),
            ("4", "1000.5", None, None, None, "I"),
            ("9", None, None, None, None, "D"),
        ],
        "id STRING, amount STRING, day STRING, code STRING, place STRUCT<city: STRING>, op STRING",
    )
    bad = str(tmp_path / "bad")
    report = upsert(table, source, "id", delete_when="s.op = 'D'", quarantine=bad)
    assert "4 source rows that the table cannot take" in str(report)
    assert [(row.id, str(row.amount), row.code) for row in table.toDF().collect()] == [(1, "10.50", "abc")]
    rejected = DeltaTable.forPath(spark, bad)
    reasons = {row.id: row._reason for row in rejected.toDF().collect()}
    assert reasons == {
        "x": "id: x is not a valid INT",
        None: "id: NULL in a NOT NULL column",
        "3": "day: 2024-13-01 is not a valid DATE; code: longer than 3 characters; CHECK positive: amount > 0",
        "4": "amount: 1000.5 is not a valid DECIMAL(5,2)",
    }
    versions = rejected.history().count()
    upsert(table, source, "id", delete_when="s.op = 'D'", quarantine=bad)
    assert rejected.toDF().count() == 4
    assert rejected.history().count() == versions
    assert table.toDF().count() == 1


def test_deletes_with_keys_that_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(spark).location(str(tmp_path / "t")).addColumn("id", "INT").addColumn("n", "INT")
    path, bad = str(tmp_path / "t"), str(tmp_path / "bad")
    table.execute()
    upsert(path, spark.createDataFrame([(1, 1), (2, 2)], "id INT, n INT"), "id")
    rows = [("1", "x", "D"), ("y", "1", "D"), ("3", "z", "D"), ("4", "w", "I"), ("5", "5", "I")]
    source = spark.createDataFrame(rows, "id STRING, n STRING, op STRING")
    for _ in range(2):
        upsert(path, source, "id", delete_when="s.op = 'D'", quarantine=bad)
        assert sorted(row.id for row in DeltaTable.forPath(spark, path).toDF().collect()) == [2, 5]
        rejected = DeltaTable.forPath(spark, bad).toDF().collect()
        assert {row.id: row._reason for row in rejected} == {
            "y": "id: y is not a valid INT",
            "4": "n: w is not a valid INT",
        }


@pytest.mark.parametrize(
    ("executor", "upsert_of"),
    combinations(
        ["auto", "low_shuffle", "classic"],
        [
            ({"insert": False}, {"1", "x"}, {1: (1, 1), 2: (20, 20)}),
            ({"update": False}, {"3", "4", "x"}, {1: (1, 1), 2: (2, 2), 5: (5, 5)}),
            ({"update": ["n"]}, {"3", "4", "x"}, {1: (10, 1), 2: (20, 2), 5: (5, 5)}),
            ({"insert": ["id", "m"]}, {"1", "4", "x"}, {1: (1, 1), 2: (20, 20), 3: (None, 3), 5: (None, 5)}),
        ],
    ),
)
def test_rows_that_the_merge_would_not_write(
    spark: SparkSession,
    tmp_path: Path,
    executor: str,
    upsert_of: tuple[dict[str, Any], set[str], dict[int, tuple[int | None, int]]],
) -> None:
    arguments, rejected, merged = upsert_of
    path, bad = str(tmp_path / "t"), str(tmp_path / "bad")
    write_delta(spark.createDataFrame([(1, 1, 1), (2, 2, 2)], "id INT, n INT, m INT"), path)
    rows = [("1", "10", "?"), ("2", "20", "20"), ("3", "?", "3"), ("4", "4", "?"), ("5", "5", "5"), ("x", "1", "1")]
    source = spark.createDataFrame(rows, "id STRING, n STRING, m STRING")
    spark.conf.set("spark.deltamerge.merge.executor", executor)
    upsert(path, source, "id", quarantine=bad, **arguments)
    assert {row.id for row in DeltaTable.forPath(spark, bad).toDF().collect()} == rejected
    assert {row.id: (row.n, row.m) for row in DeltaTable.forPath(spark, path).toDF().collect()} == merged


@pytest.mark.parametrize(
    ("order_by", "arguments"), [("at", {}), (["at", "n"], {"delete_when": "s.v = 'gone'"}), ("at", {"update": ["v"]})]
)
def test_rows_that_are_not_newer(
    spark: SparkSession, tmp_path: Path, order_by: str | list[str], arguments: dict[str, Any]
) -> None:
    path, bad = str(tmp_path / "t"), str(tmp_path / "bad")
    rows = [(1, "a", 10, 1), (2, "b", 10, 1), (3, "c", None, 1)]
    write_delta(spark.createDataFrame(rows, "id INT, v STRING, at INT, n INT"), path)
    sql(spark, f"ALTER TABLE delta.`{path}` ADD CONSTRAINT short CHECK (length(v) < 5)")
    given = [
        (1, "too long", "9", "0"),
        (2, "too long", "11", "2"),
        (3, "too long", "1", "0"),
        (4, "too long", "1", "0"),
        (5, "e", "1", "0"),
        (1, "older", "8", "0"),
        (2, "older", "x", "0"),
    ]
    source = spark.createDataFrame(given, "id INT, v STRING, at STRING, n STRING")
    arguments = arguments | {"txn_app_id": "a", "txn_version": 1}
    for _ in range(2):
        upsert(path, source, "id", order_by=order_by, quarantine=bad, **arguments)
        rejected = DeltaTable.forPath(spark, bad).toDF().collect()
        assert sorted((row.id, row.at) for row in rejected) == [(2, "11"), (2, "x"), (3, "1"), (4, "1")]
    merged = {row.id: (row.v, row.at) for row in DeltaTable.forPath(spark, path).toDF().collect()}
    assert merged == {1: ("a", 10), 2: ("b", 10), 3: ("c", None), 5: ("e", 1)}


def test_the_rejected_rows_of_each_call_with_one_transaction(spark: SparkSession, tmp_path: Path) -> None:
    table = (
        DeltaTable.create(spark)
        .location(str(tmp_path / "t"))
        .addColumn("id", "INT", nullable=False)
        .addColumn("n", "INT")
        .execute()
    )
    bad = str(tmp_path / "bad")
    for rejected in (2, 2, 3):
        source = spark.createDataFrame([(1, 1), (None, rejected)], "id INT, n INT")
        upsert(table, source, "id", quarantine=bad, txn_app_id="load", txn_version=3)
    assert DeltaTable.forPath(spark, str(tmp_path / "t")).table.snapshot().set_transactions["load"].version == 3
    assert sorted(row.n for row in DeltaTable.forPath(spark, bad).toDF().collect()) == [2, 3]


def test_a_batch_that_comes_again_after_it_was_merged(spark: SparkSession, tmp_path: Path) -> None:
    """A row that was new then, and fit, is known now, where its update would not fit."""
    path, bad = str(tmp_path / "t"), str(tmp_path / "bad")
    write_delta(spark.createDataFrame([(1, "a", 1)], "id INT, name STRING, age INT"), path)
    source = spark.createDataFrame(
        [("1", "b", "?"), ("2", "c", "?"), ("x", "d", "4")], "id STRING, name STRING, age STRING"
    )
    for _ in range(2):
        report = upsert(
            path, source, "id", insert=["id", "name"], update=["age"], quarantine=bad, txn_app_id="load", txn_version=3
        )
        assert {row.id for row in DeltaTable.forPath(spark, bad).toDF().collect()} == {"1", "x"}
        found = DeltaTable.forPath(spark, path).toDF().collect()
        assert {tuple(row) for row in found} == {(1, "a", 1), (2, "c", None)}
    assert "1 source row that the table cannot take" in str(report)


@pytest.mark.parametrize("resets", [False, True])
def test_rejected_rows_beside_the_transaction_of_the_session(spark: SparkSession, tmp_path: Path, resets: bool) -> None:
    for name in ("a", "b"):
        DeltaTable.create(spark).location(str(tmp_path / name)).addColumn("id", "INT", nullable=False).execute()
    bad = str(tmp_path / "bad")
    for number, name in enumerate(("a", "b"), 1):
        with transaction_of_session(spark, "load", number if resets else 7, resets=resets):
            upsert(str(tmp_path / name), spark.createDataFrame([("1",), (name,)], "id STRING"), "id", quarantine=bad)
            assert (spark.conf.get(VERSION, None) is None) == resets
        snapshot = DeltaTable.forPath(spark, str(tmp_path / name)).table.snapshot()
        assert snapshot.set_transactions["load"].version == (number if resets else 7)
    rejected = DeltaTable.forPath(spark, bad)
    assert sorted(row.id for row in rejected.toDF().collect()) == ["a", "b"]
    assert not rejected.table.snapshot().set_transactions


def test_rejected_rows_that_differ_in_a_microsecond(spark: SparkSession, tmp_path: Path) -> None:
    new = DeltaTable.create(spark).location(str(tmp_path / "t"))
    table = new.addColumn("id", "INT").addColumn("at", "TIMESTAMP").execute()
    bad = str(tmp_path / "bad")
    source = spark.sql("SELECT 'x' AS id, TIMESTAMP_MICROS(1700000000000000 + id) AS at FROM range(2)")
    upsert(table, source, "id", quarantine=bad)
    assert DeltaTable.forPath(spark, bad).toDF().count() == 2


def test_values_are_not_judged(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(spark).location(str(tmp_path / "t")).addColumn("id", "INT").execute()
    source = spark.createDataFrame([(1,)], "id INT")
    with pytest.raises(DeltaAnalysisException, match="give `update` and `insert` columns"):
        upsert(table, source, "id", update={"id": "s.id"}, quarantine=str(tmp_path / "bad"))


def test_an_older_row_does_not_take_the_place_of_a_rejected_one(spark: SparkSession, tmp_path: Path) -> None:
    path, rejected = str(tmp_path / "t"), str(tmp_path / "rejected")
    write_delta(spark.sql("SELECT 1L AS id, DOUBLE(1) AS price, 0 AS at"), path)
    rows = "(1L, 'five', 2), (1L, '6', 1), (2L, '7', 1), (2L, 'x', 0)"
    source = spark.sql(f"SELECT * FROM VALUES {rows} AS v(id, price, at)")
    report = upsert(path, source, "id", order_by="at", quarantine=rejected)
    found = DeltaTable.forPath(spark, path).toDF().orderBy("id").collect()
    assert [tuple(row) for row in found] == [(1, 1.0, 0), (2, 7.0, 1)]
    assert "2 source rows that the table cannot take: in" in " ".join(str(report).split())
    reasons = DeltaTable.forPath(spark, rejected).toDF().orderBy("at").collect()
    assert [(row["at"], row["_reason"]) for row in reasons] == [
        (0, "price: x is not a valid DOUBLE"),
        (2, "price: five is not a valid DOUBLE"),
    ]


def test_different_rows_of_a_key_of_which_one_is_unfit(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1L AS id, DOUBLE(1) AS price"), path)
    source = spark.sql("SELECT * FROM VALUES (1L, 'five'), (1L, '6') AS v(id, price)")
    with pytest.raises(MultipleSourceRowsException, match="Several different source rows have the key") as caught:
        upsert(path, source, "id", quarantine=str(tmp_path / "rejected"))
    assert "reasons" not in str(caught.value)
    assert '{"id":1,"price":"' in str(caught.value)


def test_an_order_that_the_target_cannot_store(spark: SparkSession, tmp_path: Path) -> None:
    """Its row is rejected; another one of its key is merged."""
    path, bad = str(tmp_path / "t"), str(tmp_path / "bad")
    write_delta(spark.sql("SELECT 1 AS id, 'a' AS v, DATE'2024-05-01' AS at"), path)
    rows = [(1, "b", "2024-05-02"), (1, "c", "soon"), (2, "d", "2024-05-03 10:00:00"), (3, "e", "2024-05-01")]
    upsert(path, spark.createDataFrame(rows, "id INT, v STRING, at STRING"), "id", order_by="at", quarantine=bad)
    assert {row.v: row._reason for row in DeltaTable.forPath(spark, bad).toDF().collect()} == {
        "c": "at: soon is not a valid DATE",
        "d": "at: DATE cuts 2024-05-03 10:00:00, by which rows are ordered",
    }
    assert sorted((row.id, row.v) for row in DeltaTable.forPath(spark, path).toDF().collect()) == [(1, "b"), (3, "e")]


def test_rejected_rows_whose_types_change(spark: SparkSession, tmp_path: Path) -> None:
    path, bad = str(tmp_path / "t"), str(tmp_path / "bad")
    write_delta(spark.sql("SELECT 1 AS id, 1.0D AS qty, 'a' AS v WHERE false"), path)
    sql(spark, f"ALTER TABLE delta.`{path}` ADD CONSTRAINT known CHECK (v <> '?')")
    upsert(path, spark.sql("SELECT 1 AS id, 2 AS qty, '?' AS v"), "id", quarantine=bad)
    upsert(path, spark.sql("SELECT 2 AS id, 1.5D AS qty, '?' AS v"), "id", quarantine=bad)
    upsert(path, spark.sql("SELECT 3 AS id, 'many' AS qty, 'b' AS v"), "id", quarantine=bad)
    found = {row.id: (row.qty, json.loads(row._row)["qty"]) for row in DeltaTable.forPath(spark, bad).toDF().collect()}
    assert found == {1: (2, 2), 2: (None, 1.5), 3: (None, "many")}


def test_a_quarantine_among_the_targets_files(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS id"), path)
    source = spark.sql("SELECT 'x' AS id")
    with pytest.raises(DeltaAnalysisException, match="whose VACUUM would delete it"):
        upsert(path, source, "id", quarantine=f"{path}/rejected")
    assert not (tmp_path / "t" / "rejected").exists()
    upsert(path, source, "id", quarantine=f"{path}/_rejected")
    assert DeltaTable.forPath(spark, f"{path}/_rejected").toDF().count() == 1


def test_values_are_judged_as_they_are_stored(spark: SparkSession, tmp_path: Path) -> None:
    """CHAR is padded, and an empty string is no value of a partition column."""
    path, bad = str(tmp_path / "t"), str(tmp_path / "bad")
    new = DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumn("code", "CHAR(3)")
    table = new.addColumn("p", "STRING", nullable=False).partitionedBy("p").execute()
    sql(spark, f"ALTER TABLE delta.`{path}` ADD CONSTRAINT whole CHECK (length(code) = 3)")
    upsert(table, spark.sql("SELECT * FROM VALUES (1, 'a', 'x'), (2, 'b', '') AS v(id, code, p)"), "id", quarantine=bad)
    assert [tuple(row) for row in table.toDF().collect()] == [(1, "a  ", "x")]
    reasons = [(row.id, row._reason) for row in DeltaTable.forPath(spark, bad).toDF().collect()]
    assert reasons == [(2, "p: NULL in a NOT NULL column")]


def test_rows_that_come_back_from_the_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    path, bad = str(tmp_path / "t"), str(tmp_path / "bad")
    write_delta(spark.sql("SELECT 0 AS id, 0 AS n"), path)
    upsert(path, spark.sql("SELECT * FROM VALUES ('1', 'one'), ('2', 'two') AS v(id, n)"), "id", quarantine=bad)
    rejected = DeltaTable.forPath(spark, bad).toDF()
    corrected = rejected.selectExpr("id", "IF(n = 'one', '1', n) AS n", "_reason", "_row_id", "_REJECTED_AT", "_row")
    report = upsert(path, corrected, "id", quarantine=bad)
    assert "1 source row that the table cannot take" in " ".join(str(report).split())
    assert sorted(tuple(row) for row in DeltaTable.forPath(spark, path).toDF().collect()) == [(0, 0), (1, 1)]
    found = DeltaTable.forPath(spark, bad).toDF()
    assert found.columns == rejected.columns
    assert sorted(row.n for row in found.collect()) == ["one", "two", "two"]


def test_rows_that_come_twice(spark: SparkSession, tmp_path: Path) -> None:
    """Equal rows are one."""
    path, bad = str(tmp_path / "t"), str(tmp_path / "bad")
    write_delta(spark.sql("SELECT 0 AS id"), path)
    report = upsert(path, spark.sql("SELECT 'x' AS id FROM range(2)"), "id", quarantine=bad)
    assert "1 source row that the table cannot take: in" in " ".join(str(report).split())
    assert report.outcome.notes[-1].endswith("each with the reason, all of them new.")


def test_rows_of_the_target_itself(spark: SparkSession, tmp_path: Path) -> None:
    """What is judged is what is merged: the table is read anew before, and not in between."""
    path, bad = str(tmp_path / "t"), str(tmp_path / "bad")
    write_delta(spark.sql("SELECT id, 1 AS n FROM range(2)"), path)
    sql(spark, f"ALTER TABLE delta.`{path}` ADD CONSTRAINT few CHECK (n < 9)")
    source = DeltaTable.forPath(spark, path).toDF().selectExpr("id", "n + 1 AS n", "'x' AS _row")
    sql(spark, f"UPDATE delta.`{path}` SET n = 8 WHERE id = 0")
    upsert(path, source, "id", quarantine=bad)
    assert sorted((row.id, row.n) for row in DeltaTable.forPath(spark, path).toDF().collect()) == [(0, 8), (1, 2)]
    (found,) = DeltaTable.forPath(spark, bad).toDF().collect()
    assert (found.id, found.n, json.loads(found._row)["_row"]) == (0, 9, "x")
