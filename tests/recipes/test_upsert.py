"""Upserts: keys with NULL, order, deletes, what is written, and the second run."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltamerge import DeltaTable, upsert, write_delta
from deltamerge.api.delta_table import IdentityGenerator
from deltamerge.exceptions import DeltaAnalysisException, DeltaRuntimeException, MultipleSourceRowsException
from deltamerge.recipes.targets import place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id INT, name STRING, at INT"


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def table_of(spark: SparkSession, folder: Path, rows: list[tuple[Any, ...]], schema: str = SCHEMA) -> DeltaTable:
    write_delta(spark.createDataFrame(rows, schema), str(folder / "t"))
    return DeltaTable.forPath(spark, str(folder / "t"))


@pytest.mark.quick
def test_upserts_and_does_nothing_the_second_time(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(1, "a", 5), (2, "b", 5), (None, "null", 5), (4, "d", 5)])
    changes = [(1, "a2", 6), (1, "a1", 4), (2, "late", 4), (None, "null2", 7), (3, "c", 1), (3, "c", 1), (4, None, 9)]
    source = spark.createDataFrame([(*row, row[1] is None) for row in changes], SCHEMA + ", gone BOOLEAN")
    report = upsert(table, source, "id", order_by="at", delete_when="s.gone")
    expected = [(1, "a2", 6), (2, "b", 5), (3, "c", 1), (None, "null2", 7)]
    assert rows_of(table.toDF()) == sorted(expected, key=repr)
    changed = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    assert [report.metrics[name] for name in changed] == [1, 2, 1]
    again = upsert(str(tmp_path / "t"), source, ["id"], order_by=["at"], delete_when="s.gone")
    assert again.version is None
    assert rows_of(table.toDF()) == sorted(expected, key=repr)


@pytest.mark.parametrize("update", [["name"], {"name": "s.name"}, {"name": "s.name", "t.`AT`": "s.at"}], ids=str)
@pytest.mark.parametrize("quarantine", [False, True])
def test_rows_keep_their_order_whatever_is_written(
    spark: SparkSession, tmp_path: Path, update: Any, quarantine: bool
) -> None:
    """A late row must not come after a newer one whose time was left out."""
    table = table_of(spark, tmp_path, [(1, "a", 10)])
    others: dict[str, Any] = {
        "insert": ["id", "name"] if isinstance(update, list) else {"id": "s.id", "name": "s.name"}
    }
    if quarantine and isinstance(update, list):
        others["quarantine"] = str(tmp_path / "rejected")
    for value, at in (("c", 15), ("b", 12)):
        source = spark.createDataFrame([(1, value, at), (2, value, at)], SCHEMA)
        upsert(table, source, "id", order_by="at", update=update, **others)
    assert rows_of(table.toDF()) == [(1, "c", 15), (2, "c", 15)]


@pytest.mark.parametrize("update", ["name", ("name",), map(str, ["name"])], ids=["string", "tuple", "iterator"])
def test_names_to_update_in_any_form(spark: SparkSession, tmp_path: Path, update: Any) -> None:
    table = table_of(spark, tmp_path, [(1, "a", 5)])
    source = spark.createDataFrame([(1, "b", 6)], SCHEMA)
    upsert(table, source, "id", update=update, quarantine=str(tmp_path / "rejected"))
    assert rows_of(table.toDF()) == [(1, "b", 5)]


@pytest.mark.parametrize("name", ["info.at", "x.at"])
def test_an_order_that_a_field_or_a_name_with_a_dot_only_resembles(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    schema = "id INT, at INT, info STRUCT<at: INT>, `x.at` INT"
    write_delta(spark.createDataFrame([(1, 5, (0,), 0)], schema), str(tmp_path / "t"))
    source = spark.createDataFrame([(1, 6, (9,), 9)], schema)
    update: Any = {name: "7"} if name == "info.at" else [name]
    upsert(str(tmp_path / "t"), source, "id", order_by="at", update=update)
    (row,) = DeltaTable.forPath(spark, str(tmp_path / "t")).toDF().collect()
    assert (row.at, row.info.at, row["x.at"]) == ((6, 7, 0) if name == "info.at" else (6, 0, 9))


def test_an_order_is_kept_with_its_null(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id INT, day INT, hour INT"
    table = table_of(spark, tmp_path, [(1, 4, 9)], schema)
    for day, hour in ((5, None), (5, 3)):
        source = spark.createDataFrame([(1, day, hour)], schema)
        upsert(table, source, "id", order_by=["day", "hour"], ignore_nulls=True)
    assert rows_of(table.toDF()) == [(1, 5, 3)]


def test_order_that_does_not_decide_names_the_key(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(1, "a", 5)])
    source = spark.createDataFrame([(7, "x", 6), (7, "y", 6)], SCHEMA)
    with pytest.raises(
        MultipleSourceRowsException, match=r'order_by does not determine .* the key {"id":7} have {"at":6}'
    ):
        upsert(table, source, "id", order_by="at")
    assert table.toDF().count() == 1


@pytest.mark.parametrize("null_safe", [True, False])
def test_rows_that_are_delivered_twice(spark: SparkSession, tmp_path: Path, null_safe: bool) -> None:
    table = table_of(spark, tmp_path, [(1, "a", 5)])
    once = [(1, "b", 6), (7, "x", 6), (8, None, None)]
    twice = spark.createDataFrame(once * 2 + ([(None, "n", 1)] * 2 if null_safe else []), SCHEMA)
    expected = sorted(once + ([(None, "n", 1)] if null_safe else []), key=repr)
    report = upsert(table, twice, "id", null_safe=null_safe)
    assert report.metrics["numTargetRowsInserted"] == len(expected) - 1
    assert rows_of(table.toDF()) == expected
    assert upsert(table, twice, "id", null_safe=null_safe, skip_unchanged=True).version is None
    assert rows_of(table.toDF()) == expected


@pytest.mark.quick
@pytest.mark.parametrize("key", [1, 7, None])
def test_different_rows_of_a_key(spark: SparkSession, tmp_path: Path, key: int | None) -> None:
    """They are an error whether the key is known or new: inserted twice, it could never be merged again."""
    table = table_of(spark, tmp_path, [(1, "a", 5)])
    source = spark.createDataFrame([(key, "x", 6), (key, "y", 6), (3, "z", 1)], SCHEMA)
    shown = "{}" if key is None else f'{{"id":{key}}}'
    with pytest.raises(MultipleSourceRowsException, match=rf"different source rows have the key {shown}.*order_by"):
        upsert(table, source, "id")
    assert rows_of(table.toDF()) == [(1, "a", 5)]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_key_that_the_target_cannot_store(spark: SparkSession, tmp_path: Path, ansi: str) -> None:
    """It is named, and never taken for NULL."""
    table = table_of(spark, tmp_path, [(1, "a", 5), (None, "n", 5)])
    source = spark.createDataFrame([("1", "b", 6), ("x1", "c", 6)], "id STRING, name STRING, at INT")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    with pytest.raises(DeltaRuntimeException) as caught:
        upsert(table, source, "id")
    assert "The value 'x1' of `id` in the source cannot be cast to INT" in str(caught.value)
    assert caught.value.getCondition() == "CAST_INVALID_INPUT"
    assert rows_of(table.toDF()) == [(1, "a", 5), (None, "n", 5)]


def test_different_rows_that_the_target_stores_under_one_key(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(1, "a", 5)])
    source = spark.createDataFrame([("7", "x", 6), ("07", "y", 7)], "id STRING, name STRING, at INT")
    with pytest.raises(MultipleSourceRowsException, match='"id":7'):
        upsert(table, source, "id")
    upsert(table, source, "id", order_by="at")
    assert rows_of(table.toDF()) == [(1, "a", 5), (7, "y", 7)]


def test_rows_with_maps_that_are_delivered_twice(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id INT, tags MAP<STRING, INT>"
    table = table_of(spark, tmp_path, [(1, {"a": 1})], schema)
    source = spark.createDataFrame([(7, {"b": 1}), (7, {"b": 1})], schema)
    upsert(table, source, "id")
    assert table.toDF().count() == 2
    with pytest.raises(MultipleSourceRowsException, match='"id":7'):
        upsert(table, source.union(spark.createDataFrame([(7, {"b": 2})], schema)), "id")


def test_values_of_fields(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id INT, place STRUCT<city: STRING, zip: STRING>, `a.b` INT"
    table = table_of(spark, tmp_path, [(1, ("Oslo", "0150"), 1), (2, ("Moss", "1500"), 1)], schema)
    source = spark.createDataFrame([(1, "Oslo"), (2, "Voss")], "id INT, city STRING")
    update = {"place.city": "s.city", "t.place.`zip`": "t.place.zip", "`a.b`": "1"}
    report = upsert(table, source, "id", update=update, insert=False, skip_unchanged=True)
    assert report.metrics["numTargetRowsUpdated"] == 1
    assert rows_of(table.toDF()) == [(1, ("Oslo", "0150"), 1), (2, ("Voss", "1500"), 1)]
    with pytest.raises(DeltaAnalysisException, match="town"):
        upsert(table, source, "id", update={"place.town": "s.city"}, insert=False, skip_unchanged=True)


def test_order_of_strings_is_that_of_the_targets_column(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(1, "a", 5), (2, "b", 50)])
    source = [(1, "old", "9"), (1, "new", "10"), (2, "old", "9"), (3, "only", None)]
    frame = spark.createDataFrame(source, "id INT, name STRING, at STRING")
    upsert(table, frame, "id", order_by="at")
    assert rows_of(table.toDF()) == [(1, "new", 10), (2, "b", 50), (3, "only", None)]
    with pytest.raises(DeltaRuntimeException, match="The value 'x' of `at` in the source cannot be cast to INT"):
        upsert(table, spark.createDataFrame([(1, "x", "x")], frame.schema), "id", order_by="at")


def test_order_by_times_that_the_target_cuts(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(1, "a", date(2024, 5, 1))], "id INT, name STRING, at DATE")
    late = spark.sql("SELECT 1 AS id, 'late' AS name, TIMESTAMP'2024-05-01 08:00:00' AS at")
    with pytest.raises(DeltaAnalysisException, match="column at is DATE, which cuts values of TIMESTAMP in order_by"):
        upsert(table, late, "id", order_by="at")
    assert table.toDF().collect() == [(1, "a", date(2024, 5, 1))]


def test_order_by_several_columns_with_null(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id INT, name STRING, day INT, hour INT"
    table = table_of(spark, tmp_path, [(1, "a", 1, None), (2, "b", 2, 5), (3, "c", None, 1)], schema)
    source = spark.createDataFrame([(1, "x", 1, 0), (2, "y", 1, 9), (3, "z", None, 2)], schema)
    upsert(table, source, "id", order_by=["day", "hour"])
    assert [name for _, name, _, _ in rows_of(table.toDF())] == ["x", "b", "z"]


def test_order_by_several_columns_of_other_types(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id INT, name STRING, day INT, hour BIGINT"
    table = table_of(spark, tmp_path, [(1, "a", 9, 1), (2, "b", 9, 5)], schema)
    source = spark.createDataFrame([(1, "x", "10", 0), (2, "y", "9", 4)], "id INT, name STRING, day STRING, hour INT")
    upsert(table, source, "id", order_by=["day", "hour"])
    assert rows_of(table.toDF()) == [(1, "x", 10, 0), (2, "b", 9, 5)]


def test_ignore_nulls_also_in_structs(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id INT, name STRING, place STRUCT<city: STRING, zip: STRING>"
    table = table_of(spark, tmp_path, [(1, "a", ("Oslo", "0150")), (2, "b", None), (3, "c", ("Bergen", None))], schema)
    source = spark.createDataFrame(
        [(1, None, (None, "0151")), (2, "b2", (None, "1")), (3, None, None), (4, None, None)], schema
    )
    report = upsert(table, source, "id", ignore_nulls=True, skip_unchanged=True)
    assert rows_of(table.toDF()) == [
        (1, "a", ("Oslo", "0151")),
        (2, "b2", (None, "1")),
        (3, "c", ("Bergen", None)),
        (4, None, None),
    ]
    assert report.metrics["numTargetRowsUpdated"] == 2
    assert upsert(table, source, "id", ignore_nulls=True, skip_unchanged=True).version is None


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize(
    ("kept", "given", "stored"),
    [
        ("1234567890123456789L", "DOUBLE(NULL)", 1234567890123456789),
        ("CAST('12345678901234567.123456789012345678' AS DECIMAL(38, 18))", "STRING(NULL)", None),
        (
            "CAST('1.1' AS DECIMAL(38, 18))",
            "'12345678901234567.123456789012345678'",
            "12345678901234567.123456",
        ),
        ("CAST('12345678901234567.123456789012345678' AS DECIMAL(38, 18))", "CAST(NULL AS DECIMAL(30, 2))", None),
        ("TIMESTAMP_NTZ'2024-03-31 02:30:00'", "CAST(NULL AS TIMESTAMP)", None),
        ("named_struct('a', 1234567890123456789L, 'b', 1)", "named_struct('a', DOUBLE(NULL), 'b', 2)", None),
    ],
)
def test_ignore_nulls_between_types(
    spark: SparkSession, tmp_path: Path, kept: str, given: str, stored: object, ansi: str
) -> None:
    """Neither the value that stays nor the new one takes a detour through the type that both have in common."""
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    spark.conf.set("spark.sql.session.timeZone", "Europe/Oslo")
    write_delta(spark.sql(f"SELECT 1 AS id, {kept} AS v"), str(tmp_path / "t"))
    table = DeltaTable.forPath(spark, str(tmp_path / "t"))
    before = table.toDF().collect()[0]["v"]
    upsert(table, spark.sql(f"SELECT 1 AS id, {given} AS v"), "id", ignore_nulls=True)
    after = table.toDF().collect()[0]["v"]
    if isinstance(stored, str):
        assert str(after).startswith(stored)
    elif isinstance(stored, int):
        assert after == stored
    elif kept.startswith("named"):
        assert tuple(after) == (1234567890123456789, 2)
    else:
        assert after == before


def test_new_fields_of_known_rows(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id INT, place STRUCT<city: STRING, zip: STRING>"
    table = table_of(spark, tmp_path, [(1, ("Oslo", "0150")), (2, None), (3, ("Bergen", None))], schema)
    rows = [(1, (None, "NO")), (2, ("Rome", "IT")), (3, None), (4, ("Paris", "FR"))]
    source = spark.createDataFrame(rows, "id INT, place STRUCT<city: STRING, country: STRING>")
    with pytest.raises(DeltaAnalysisException, match="country"):
        upsert(table, source, "id", ignore_nulls=True)
    upsert(table, source, "id", ignore_nulls=True, schema_evolution=True)
    assert rows_of(table.toDF()) == [
        (1, ("Oslo", "0150", "NO")),
        (2, ("Rome", None, "IT")),
        (3, ("Bergen", None, None)),
        (4, ("Paris", None, "FR")),
    ]


def test_known_rows_get_new_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(1,), (2,)], "id INT")
    source = spark.createDataFrame([(1, "a"), (2, None), (3, None)], "id INT, name STRING")
    upsert(table, source, "id", schema_evolution=True)
    assert rows_of(table.toDF()) == [(1, "a"), (2, None), (3, None)]
    source = spark.createDataFrame([(1, None, 7), (2, "b", None), (3, None, None)], "id INT, name STRING, n INT")
    report = upsert(table, source, "id", schema_evolution=True, skip_unchanged=True, ignore_nulls=True)
    assert rows_of(table.toDF()) == [(1, "a", 7), (2, "b", None), (3, None, None)]
    assert report.metrics["numTargetRowsUpdated"] == 2
    source = source.selectExpr("id", "name", "n", "CASE WHEN id = 1 THEN 'x' END AS `a.b`")
    report = upsert(table, source, "id", update=True, schema_evolution=True, skip_unchanged=True)
    assert [row[3] for row in rows_of(table.toDF())] == ["x", None, None]
    assert report.metrics["numTargetRowsUpdated"] == 1


def test_a_source_with_fewer_columns(spark: SparkSession, tmp_path: Path) -> None:
    """A misspelled column would otherwise stay as it was, and nobody would see it."""
    path = str(tmp_path)
    write_delta(spark.createDataFrame([(1, "a", 7)], "id INT, name STRING, age INT"), path)
    source = spark.createDataFrame([(1, "b"), (2, "c")], "id INT, name STRING")
    for updates in (True, False):
        with pytest.raises(DeltaAnalysisException, match="DELTA_MERGE_UNRESOLVED_EXPRESSION"):
            upsert(path, source, "id", update=updates, insert=not updates)
    with pytest.raises(DeltaAnalysisException, match="`age` in update: the source has the columns id, name"):
        upsert(path, source, "id", ignore_nulls=True, insert=False)
    unfit = spark.createDataFrame([("x", "b")], "id STRING, name STRING")
    with pytest.raises(DeltaAnalysisException, match="DELTA_MERGE_UNRESOLVED_EXPRESSION"):
        upsert(path, unfit, "id", quarantine=f"{path}/_rejected")
    assert not (tmp_path / "_rejected").exists()
    upsert(path, source, "id", schema_evolution=True)
    assert sorted(map(tuple, DeltaTable.forPath(spark, path).toDF().collect())) == [(1, "b", 7), (2, "c", None)]


def test_generated_columns_with_ignore_nulls(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made = DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumn("name", "STRING")
    made = made.addColumn("k", "BIGINT", generatedByDefaultAs=IdentityGenerator())
    made.addColumn("first", "STRING", generatedAlwaysAs="substr(name, 1, 1)").execute()
    for name in ("ada", "eve"):
        source = spark.createDataFrame([(1, name)], "id INT, name STRING")
        upsert(path, source, "id", ignore_nulls=True, insert=["id", "name"])
    assert [row[::3] for row in DeltaTable.forPath(spark, path).toDF().collect()] == [(1, "e")]


def test_what_update_and_insert_write(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(1, "a", 5)])
    source = spark.createDataFrame([(1, "x", 1), (2, "y", 2)], SCHEMA)
    upsert(table, source, "id", update=["name"], insert={"id": "s.id", "at": "-s.at"})
    assert rows_of(table.toDF()) == [(1, "x", 5), (2, None, -2)]
    upsert(table, source, "id", update={"at": "t.at + s.at"}, insert=False)
    assert rows_of(table.toDF()) == [(1, "x", 6), (2, None, 0)]
    upsert(table, source, "id", update=False)
    assert rows_of(table.toDF()) == [(1, "x", 6), (2, None, 0)]


def test_keys_with_null_by_equality_are_inserted_each_time(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(None, "a", 5)])
    upsert(table, table.toDF(), "id", null_safe=False)
    assert table.toDF().count() == 2


def test_names_that_are_missing(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(1, "a", 5)])
    source = spark.createDataFrame([(1, "x", 1)], SCHEMA)
    with pytest.raises(DeltaAnalysisException, match=r"`idd` in keys: the source .* Did you mean `id`"):
        upsert(table, source, "idd")
    with pytest.raises(DeltaAnalysisException, match="`att` in order_by"):
        upsert(table, source, "id", order_by="att")
    with pytest.raises(DeltaAnalysisException, match="the target"):
        upsert(table, source.withColumnRenamed("id", "key"), "key")


def test_a_name_or_a_path(spark: SparkSession, tmp_path: Path) -> None:
    table_of(spark, tmp_path, [(1, "a", 5)])
    assert place_of(spark, "db.orders").path is None
    assert place_of(spark, "orders").path is None
    assert place_of(spark, "./orders").path == "./orders"
    assert place_of(spark, "s3://b/orders").path == "s3://b/orders"
    assert place_of(spark, "delta.`orders`").path == "orders"
    upsert(f"delta.`{tmp_path}/t`", spark.createDataFrame([(2, "b", 5)], SCHEMA), "id")
    assert DeltaTable.forPath(spark, str(tmp_path / "t")).toDF().count() == 2
