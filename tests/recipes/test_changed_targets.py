"""Targets whose columns were renamed or became wider since their change log began."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from deltamerge import DeltaTable, apply_changes, scd2, sql, write_delta
from deltamerge.exceptions import DeltaAnalysisException, DeltaRuntimeException

from .searching import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAPPED = "'delta.columnMapping.mode' = 'name'"
ADA = "SELECT 1 AS id, 'Ada' AS name, 'x' AS city, 10 AS n"


def alter(spark: SparkSession, path: Path | str, change: str) -> None:
    sql(spark, f"ALTER TABLE delta.`{path}` {change}")


def changes(spark: SparkSession, path: Path, query: str, keys: str = "id", **given: Any) -> None:
    apply_changes(str(path), spark.sql(query), keys, "n", except_columns="n", **given)


def read(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    return rows_of(DeltaTable.forPath(spark, str(path)).toDF())


@pytest.mark.parametrize("new", ["Name", "title"])
def test_a_renamed_column(spark: SparkSession, tmp_path: Path, new: str) -> None:
    path = tmp_path / "t"
    changes(spark, path, ADA)
    alter(spark, path, f"SET TBLPROPERTIES ({MAPPED})")
    alter(spark, path, f"RENAME COLUMN name TO {new}")
    # Late for the key, so that the earlier event still says what the row is.
    changes(spark, path, f"SELECT 1 AS id, 'Al' AS {new}, 'w' AS city, 5 AS n")
    changes(spark, path, f"SELECT 2 AS id, 'Bo' AS {new}, 'y' AS city, 11 AS n")
    assert read(spark, path) == [(1, "Ada", "x"), (2, "Bo", "y")]


def test_a_renamed_column_of_a_history(spark: SparkSession, tmp_path: Path) -> None:
    path, query = str(tmp_path / "t"), "SELECT 1 AS id, '{}' AS {}, {} AS n"
    scd2(path, spark.sql(query.format("Ada", "name", 10)), "id", effective_at="n")
    alter(spark, path, f"SET TBLPROPERTIES ({MAPPED})")
    alter(spark, path, "RENAME COLUMN name TO title")
    scd2(path, spark.sql(query.format("Bo", "title", 20)), "id", effective_at="n")
    titles = DeltaTable.forPath(spark, path).toDF().select("title").collect()
    assert sorted(row.title for row in titles) == ["Ada", "Bo"]


def test_a_renamed_key_and_names_that_change_places(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    changes(spark, path, ADA)
    alter(spark, path, f"SET TBLPROPERTIES ({MAPPED})")
    for before, after in (("id", "key"), ("name", "other"), ("city", "name"), ("other", "city")):
        alter(spark, path, f"RENAME COLUMN {before} TO {after}")
    # Now `city` is what was `name`.
    changes(spark, path, "SELECT 1 AS key, 'Al' AS city, 'w' AS name, 5 AS n", "key")
    changes(spark, path, "SELECT 2 AS key, 'Bo' AS city, 'y' AS name, 5 AS n", "key")
    assert read(spark, path) == [(1, "Ada", "x"), (2, "Bo", "y")]


def test_a_new_column_with_the_old_name(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    changes(spark, path, ADA)
    alter(spark, path, f"SET TBLPROPERTIES ({MAPPED})")
    alter(spark, path, "RENAME COLUMN name TO title")
    alter(spark, path, "ADD COLUMNS (name STRING)")
    changes(spark, path, "SELECT 2 AS id, 'Bo' AS title, 'y' AS city, 'new' AS name, 11 AS n")
    changes(spark, path, "SELECT 1 AS id, 'Al' AS title, 'w' AS city, 'late' AS name, 5 AS n")
    assert read(spark, path) == [(1, "Ada", "x", None), (2, "Bo", "y", "new")]


@pytest.mark.parametrize("is_mapped", [True, False])
def test_a_column_that_is_dropped_and_added_again(spark: SparkSession, tmp_path: Path, is_mapped: bool) -> None:
    path = tmp_path / "t"
    if is_mapped:
        write_delta(spark.sql(ADA).drop("n").limit(0), str(path), properties={"delta.columnMapping.mode": "name"})
    changes(spark, path, ADA)
    alter(spark, path, f"SET TBLPROPERTIES ({MAPPED})")
    alter(spark, path, "DROP COLUMN city")
    alter(spark, path, "ADD COLUMNS (city STRING)")
    # Late for the key, so that the earlier event says what the row is: it has no such city.
    changes(spark, path, "SELECT 1 AS id, 'Al' AS name, 'w' AS city, 5 AS n")
    changes(spark, path, "SELECT 2 AS id, 'Bo' AS name, 'y' AS city, 11 AS n")
    changes(spark, path, "SELECT 2 AS id, 'Bo' AS name, 'late' AS city, 3 AS n")
    assert read(spark, path) == [(1, "Ada", None), (2, "Bo", "y")]


def test_a_field_that_is_dropped_and_added_again(spark: SparkSession, tmp_path: Path) -> None:
    path, log = tmp_path / "t", tmp_path / "t" / "_deltamerge_changes"
    query = "SELECT {} AS id, named_struct('a', '{}', 'b', 'y') AS s, 10 AS n"
    changes(spark, path, query.format(1, "old"))
    alter(spark, path, f"SET TBLPROPERTIES ({MAPPED})")
    alter(spark, path, "DROP COLUMN s.a")
    alter(spark, path, "ADD COLUMNS (s.a STRING FIRST)")
    with pytest.raises(DeltaAnalysisException, match=r"under the name `s`\.`a` the values of another") as refused:
        changes(spark, path, query.format(2, "new"))
    alter(spark, log, f"SET TBLPROPERTIES ({MAPPED})")
    drop = re.search(r"ALTER TABLE .*?(?=;)", str(refused.value))
    assert drop is not None
    sql(spark, drop[0])
    changes(spark, path, query.format(2, "new"))
    changes(spark, path, query.format(1, "late").replace("10", "3"))
    found = {row.id: row.s.asDict() for row in DeltaTable.forPath(spark, str(path)).toDF().collect()}
    assert found == {1: {"a": None, "b": "y"}, 2: {"a": "new", "b": "y"}}


def without_names(spark: SparkSession, log: Path) -> None:
    """Makes a log one of those that were begun before it had the names of its target's columns on record."""
    (properties,) = DeltaTable.forPath(spark, str(log)).detail().select("properties").collect()
    names = [name for name in properties[0] if name.startswith("deltamerge.changeLogNames.")]
    alter(spark, log, f"UNSET TBLPROPERTIES ('{names[0]}')")


def test_a_rename_that_the_log_cannot_know(spark: SparkSession, tmp_path: Path) -> None:
    """The columns of a table that was made with column mapping have physical names that no log has."""
    path, log = tmp_path / "t", tmp_path / "t" / "_deltamerge_changes"
    write_delta(spark.sql(ADA).drop("n").limit(0), str(path), properties={"delta.columnMapping.mode": "name"})
    changes(spark, path, ADA)
    without_names(spark, log)
    alter(spark, path, "RENAME COLUMN name TO title")
    late = "SELECT 1 AS id, 'Al' AS title, 'w' AS city, 5 AS n"
    with pytest.raises(DeltaAnalysisException, match=re.escape("RENAME COLUMN `__row`.`name` TO `title`")):
        changes(spark, path, late)
    assert DeltaTable.forPath(spark, str(log)).toDF().count() == 1
    alter(spark, log, f"SET TBLPROPERTIES ({MAPPED})")
    alter(spark, log, "RENAME COLUMN `__row`.`name` TO `title`")
    changes(spark, path, late)
    assert read(spark, path) == [(1, "Ada", "x")]
    # From then on the log knows.
    alter(spark, path, "RENAME COLUMN title TO called")
    changes(spark, path, late.replace("title", "called").replace("5 AS", "4 AS"))
    assert read(spark, path) == [(1, "Ada", "x")]


def test_a_dropped_column(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    changes(spark, path, ADA)
    alter(spark, path, f"SET TBLPROPERTIES ({MAPPED})")
    alter(spark, path, "DROP COLUMN city")
    changes(spark, path, "SELECT 1 AS id, 'Al' AS name, 5 AS n")
    changes(spark, path, "SELECT 2 AS id, 'Bo' AS name, 5 AS n")
    assert read(spark, path) == [(1, "Ada"), (2, "Bo")]


@pytest.mark.parametrize("policy", ["ANSI", "LEGACY"])
def test_wider_columns(spark: SparkSession, tmp_path: Path, policy: str) -> None:
    path = tmp_path / "t"
    query = "SELECT {}L AS id, {}L AS v, {}L AS n"
    write_delta(spark.sql("SELECT 1 AS id, 1 AS v LIMIT 0"), str(path))
    changes(spark, path, "SELECT 1 AS id, 1 AS v, 10 AS n")
    log = DeltaTable.forPath(spark, f"{path}/_deltamerge_changes")
    assert "delta.enableTypeWidening" not in log.detail().collect()[0].properties
    alter(spark, path, "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    alter(spark, path, "ALTER COLUMN id TYPE BIGINT")
    alter(spark, path, "ALTER COLUMN v TYPE BIGINT")
    spark.conf.set("spark.sql.storeAssignmentPolicy", policy)
    try:
        changes(spark, path, query.format(2**41, 2**40, 2**42))
        changes(spark, path, query.format(1, 2**40, 5))
    finally:
        spark.conf.unset("spark.sql.storeAssignmentPolicy")
    assert read(spark, path) == [(1, 1), (2**41, 2**40)]
    assert sorted(row.id for row in log.toDF().collect()) == [1, 1, 2**41]


@pytest.mark.parametrize(
    ("before", "now", "is_kept"),
    [
        ("DATE'2024-05-01'", "TIMESTAMP'2024-05-01 10:00:00'", False),
        ("1.5D", "CAST('1.25' AS DECIMAL(38, 18))", False),
        ("CAST(1 AS DECIMAL(10, 2))", "CAST('1.2345' AS DECIMAL(10, 4))", False),
        ("7", "'007'", False),
        ("'007'", "7", True),
        ("TIMESTAMP'2024-05-01 10:00:00'", "DATE'2024-05-01'", True),
    ],
)
def test_columns_of_another_type(spark: SparkSession, tmp_path: Path, before: str, now: str, is_kept: bool) -> None:
    """The log keeps the type that a column had, which must not change what it has now."""
    path = tmp_path / "t"
    changes(spark, path, f"SELECT 1 AS id, {before} AS v, 1 AS n")
    changed = spark.sql(f"SELECT 1 AS id, {now} AS v")
    write_delta(changed, str(path), mode="overwrite", overwrite_schema=True)
    if is_kept:
        changes(spark, path, f"SELECT 2 AS id, {now} AS v, 2 AS n")
        assert read(spark, path) == [(1, changed.collect()[0]["v"]), (2, changed.collect()[0]["v"])]
    else:
        with pytest.raises(DeltaAnalysisException, match=r"change log .* has the column `v` as"):
            changes(spark, path, f"SELECT 2 AS id, {now} AS v, 2 AS n")
        assert len(read(spark, path)) == 1


def test_a_table_that_took_the_targets_place(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    changes(spark, path, ADA)
    sql(spark, f"CREATE OR REPLACE TABLE delta.`{path}` (id INT, name STRING, city STRING) USING delta")
    with pytest.raises(DeltaAnalysisException, match="has been replaced since") as refused:
        changes(spark, path, "SELECT 1 AS id, 'Eve' AS name, 'y' AS city, 1 AS n")
    go_on = re.search(r"ALTER TABLE .*?\)", str(refused.value))
    assert go_on is not None
    sql(spark, go_on[0])
    changes(spark, path, "SELECT 2 AS id, 'Bo' AS name, 'y' AS city, 1 AS n")
    assert read(spark, path) == [(2, "Bo", "y")]


def test_fields_of_structs_go_by_name(spark: SparkSession, tmp_path: Path) -> None:
    path, log = tmp_path / "t", tmp_path / "t" / "_deltamerge_changes"
    changes(spark, path, "SELECT 1 AS id, named_struct('a', 'x', 'b', 'y') AS s, 10 AS n")
    changes(spark, path, "SELECT 2 AS id, named_struct('b', 'y', 'a', 'x') AS s, 10 AS n")
    assert [row.s.asDict() for row in DeltaTable.forPath(spark, str(path)).toDF().collect()] == [
        {"a": "x", "b": "y"}
    ] * 2
    with pytest.raises(DeltaAnalysisException, match="the column lacks c"):
        changes(spark, path, "SELECT 3 AS id, named_struct('a', 'x', 'b', 'y', 'c', 'z') AS s, 10 AS n")
    alter(spark, path, f"SET TBLPROPERTIES ({MAPPED})")
    alter(spark, path, "ALTER COLUMN s.b FIRST")
    alter(spark, path, "ADD COLUMNS (s.c STRING FIRST)")
    changes(spark, path, "SELECT 1 AS id, named_struct('a', 'late', 'b', 'late', 'c', 'late') AS s, 5 AS n")
    changes(spark, path, "SELECT 3 AS id, named_struct('c', 'z', 'a', 'x', 'b', 'y') AS s, 5 AS n")
    found = {row.id: row.s.asDict() for row in DeltaTable.forPath(spark, str(path)).toDF().collect()}
    assert found == {
        1: {"c": None, "b": "y", "a": "x"},
        2: {"c": None, "b": "y", "a": "x"},
        3: {"c": "z", "b": "y", "a": "x"},
    }
    alter(spark, path, "RENAME COLUMN s.b TO d")
    late = "SELECT 1 AS id, named_struct('a', 'late', 'd', 'late', 'c', 'late') AS s, 4 AS n"
    with pytest.raises(DeltaAnalysisException, match=re.escape("RENAME COLUMN `__row`.`s`.`b` TO `d`")):
        changes(spark, path, late)
    alter(spark, log, f"SET TBLPROPERTIES ({MAPPED})")
    alter(spark, log, "RENAME COLUMN `__row`.`s`.`b` TO `d`")
    changes(spark, path, late)
    found = {row.id: row.s.asDict() for row in DeltaTable.forPath(spark, str(path)).toDF().collect()}
    assert found[1] == {"c": None, "d": "y", "a": "x"}


@pytest.mark.parametrize("keys", [["id", "name"], ["name"]])
def test_other_keys_than_the_logs(spark: SparkSession, tmp_path: Path, keys: list[str]) -> None:
    path = str(tmp_path / "t")
    apply_changes(path, spark.sql(ADA), "id", "n", except_columns="n")
    with pytest.raises(DeltaAnalysisException, match=f"by the keys id, not by {', '.join(keys)}"):
        apply_changes(path, spark.sql(ADA.replace("10", "11")), keys, "n", except_columns="n")
    assert DeltaTable.forPath(spark, f"{path}/_deltamerge_changes").toDF().count() == 1


@pytest.mark.parametrize("sequence", [["m", "n"], ["n"], ["v", "w"]])
def test_another_order_than_the_logs(spark: SparkSession, tmp_path: Path, sequence: list[str]) -> None:
    path = str(tmp_path / "t")
    source = spark.sql("SELECT 1 AS id, 'ada' AS name, 1 AS n, 2 AS m, 3 AS v, 4 AS w")
    others = ["n", "m", "v", "w"]
    apply_changes(path, source, "id", ["n", "m"], except_columns=others)
    with pytest.raises(DeltaAnalysisException, match="in the order of n, m, not of"):
        apply_changes(path, source, "id", sequence, except_columns=others)
    assert DeltaTable.forPath(spark, f"{path}/_deltamerge_changes").toDF().count() == 1


@pytest.mark.parametrize(
    ("before", "then"),
    [("DATE'2024-01-01'", "TIMESTAMP'2024-01-02 03:00:00'"), ("1L", "CAST(2.5 AS DECIMAL(10, 2))"), ("1.5F", "2.5D")],
)
def test_a_sequence_that_would_be_cut(spark: SparkSession, tmp_path: Path, before: str, then: str) -> None:
    """Different changes would get one sequence, and which of them counts were chance."""
    queries = [f"SELECT 1 AS id, 'x' AS v, {sequence} AS n" for sequence in (before, then)]
    apply_changes(str(tmp_path / "t"), spark.sql(queries[0]), "id", "n", except_columns="n")
    scd2(str(tmp_path / "h"), spark.sql(queries[0]), "id", effective_at="n")
    if before != "1.5F":
        # A log's FLOAT becomes a DOUBLE.
        with pytest.raises(DeltaAnalysisException, match="would cut"):
            apply_changes(str(tmp_path / "t"), spark.sql(queries[1]), "id", "n", except_columns="n")
    with pytest.raises(DeltaAnalysisException, match="would cut"):
        scd2(str(tmp_path / "h"), spark.sql(queries[1]), "id", effective_at="n")
    assert rows_of(DeltaTable.forPath(spark, str(tmp_path / "t")).toDF()) == [(1, "x")]


@pytest.mark.parametrize(
    ("before", "then"),
    [("DATE'2024-01-01'", "TIMESTAMP'2024-01-02 03:00:00'"), ("1", "'2'"), ("'1'", "2"), ("1L", "2.5D")],
)
def test_a_column_of_a_sequence_that_would_be_cut(spark: SparkSession, tmp_path: Path, before: str, then: str) -> None:
    first, second = (spark.sql(f"SELECT 1 AS id, 'x' AS v, 1 AS n, {part} AS m") for part in (before, then))
    newest, history = str(tmp_path / "t"), str(tmp_path / "h")
    given: dict[str, Any] = {"keys": "id", "except_columns": ["n", "m"]}
    of_history: dict[str, Any] = {**given, "scd_type": 2}
    apply_changes(newest, first, sequence_by=["n", "m"], **given)
    apply_changes(history, first, sequence_by=["n", "m"], **of_history)
    with pytest.raises(DeltaAnalysisException, match=r"would cut|orders values otherwise"):
        apply_changes(newest, second, sequence_by=["n", "m"], **given)
    with pytest.raises(DeltaAnalysisException, match="by position"):
        apply_changes(history, first, sequence_by=["m", "n"], **of_history)
    if then != "'2'":
        # A history of numbers takes strings as numbers.
        with pytest.raises(DeltaAnalysisException, match=r"would cut|as strings"):
            apply_changes(history, second, sequence_by=["n", "m"], **of_history)


def test_a_column_of_a_sequence_that_becomes_wider(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    given: dict[str, Any] = {"keys": "id", "sequence_by": ["n", "m"], "except_columns": ["n", "m"]}
    for value, sequence in (("old", "CAST(2 AS INT)"), ("newest", "2.5D"), ("late", "2.25D"), ("oldest", "1")):
        apply_changes(path, spark.sql(f"SELECT 1 AS id, '{value}' AS v, 1 AS n, {sequence} AS m"), **given)
    assert rows_of(DeltaTable.forPath(spark, path).toDF()) == [(1, "newest")]


@pytest.mark.parametrize(("before", "then"), [("9", "'10'"), ("'9'", "10")])
def test_a_sequence_that_becomes_a_string(spark: SparkSession, tmp_path: Path, before: str, then: str) -> None:
    """As strings 10 is less than 9."""
    path = str(tmp_path / "t")
    apply_changes(path, spark.sql(f"SELECT 1 AS id, 'old' AS v, {before} AS n"), "id", "n", except_columns="n")
    with pytest.raises(DeltaAnalysisException, match="orders values otherwise than"):
        apply_changes(path, spark.sql(f"SELECT 1 AS id, 'new' AS v, {then} AS n"), "id", "n", except_columns="n")
    assert rows_of(DeltaTable.forPath(spark, path).toDF()) == [(1, "old")]


@pytest.mark.parametrize("sequence", ["n", "s.n", ["n", "id"]])
def test_a_target_that_has_the_sequence_as_a_string(
    spark: SparkSession, tmp_path: Path, sequence: str | list[str]
) -> None:
    path, history = str(tmp_path / "t"), str(tmp_path / "h")
    write_delta(spark.sql("SELECT 1 AS id, 'old' AS v, '9' AS n"), path)
    source = spark.sql("SELECT 1 AS id, 'new' AS v, 10 AS n")
    with pytest.raises(DeltaAnalysisException, match=r"`n` is STRING, which orders values otherwise than INT in seq"):
        apply_changes(path, source, "id", sequence)
    assert not Path(path, "_deltamerge_changes").exists()
    scd2(history, spark.sql("SELECT 1 AS id, 'old' AS v, '9' AS n"), "id", effective_at="n")
    with pytest.raises(DeltaAnalysisException, match="`valid_from` is STRING, which would order values of INT"):
        scd2(history, source, "id", effective_at="n")


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize(
    ("given", "column"), [("'x'", "INT"), ("5000000000L", "INT"), ("'x'", "STRUCT<at: INT>"), ("300", "TINYINT")]
)
def test_a_time_that_a_history_cannot_store(
    spark: SparkSession, tmp_path: Path, given: str, column: str, ansi: str
) -> None:
    """It is named, and taken neither for NULL nor for another one."""
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    path = str(tmp_path / "h")
    columns = f"id INT, v STRING, valid_from {column}, valid_to {column}, is_current BOOLEAN"
    write_delta(spark.createDataFrame([], columns), path)
    at = f"named_struct('at', {given})" if column.startswith("STRUCT") else given
    with pytest.raises(DeltaRuntimeException, match=r"The value '.*' of `effective_at.*` in the source cannot"):
        scd2(path, spark.sql(f"SELECT 1 AS id, 'a' AS v, {at} AS at"), "id", effective_at="at")
    assert not DeltaTable.forPath(spark, f"{path}/_deltamerge_changes").toDF().count()


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize(("given", "words"), [("'x'", "STRING.*INT"), ("5000000000L", "BIGINT.*INT")])
def test_values_are_stored_as_by_a_merge(
    spark: SparkSession, tmp_path: Path, given: str, words: str, ansi: str
) -> None:
    path, history = tmp_path / "t", str(tmp_path / "h")
    changes(spark, path, "SELECT 1 AS id, 1 AS v, 1 AS n")
    scd2(history, spark.sql("SELECT 1 AS id, 1 AS v, 1 AS n"), "id", effective_at="n")
    query = f"SELECT 2 AS id, {given} AS v, 2 AS n"
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    with pytest.raises(PySparkException, match=words):
        changes(spark, path, query)
    with pytest.raises(PySparkException, match=words):
        scd2(history, spark.sql(query), "id", effective_at="n")
    assert read(spark, path) == [(1, 1)]
    spark.conf.set("spark.sql.storeAssignmentPolicy", "STRICT")
    with pytest.raises(DeltaAnalysisException, match="INT"):
        changes(spark, path, query)
    spark.conf.set("spark.sql.storeAssignmentPolicy", "LEGACY")
    changes(spark, path, query)
    assert read(spark, path) == [(1, 1), (2, None if given == "'x'" else 705032704)]


@pytest.mark.parametrize(
    ("given", "column"),
    [
        ("TIMESTAMP'2024-01-02 03:00:00'", "DATE"),
    ],
)
@pytest.mark.parametrize("sequence", ["n", ["n", "id"]])
def test_a_target_that_cuts_the_sequence(
    spark: SparkSession, tmp_path: Path, given: str, column: str, sequence: str | list[str]
) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.createDataFrame([], f"id INT, v STRING, n {column}"), path)
    source = spark.sql(f"SELECT 1 AS id, 'new' AS v, {given} AS n")
    with pytest.raises(DeltaAnalysisException, match=f"`n` is {column}, which would cut values of .* in sequence_by"):
        apply_changes(path, source, "id", sequence)
    assert not Path(path, "_deltamerge_changes").exists()


@pytest.mark.parametrize(
    ("given", "column", "is_cut"),
    [
        ("2024-01-02 03:00:00.123456789", "TIMESTAMP", True),
        ("2024-01-02 03:00:00.123456000", "TIMESTAMP", False),
        ("2024-01-02 03:00:00+05:00", "TIMESTAMP_NTZ", True),
        ("2024-01-02 03:00:00", "TIMESTAMP_NTZ", False),
        ("1234567890.123456789", "DOUBLE", True),
        ("-0.30000000000000004", "DOUBLE", False),
        ("0.123456789", "FLOAT", True),
    ],
)
def test_times_as_strings_that_a_history_would_cut(
    spark: SparkSession, tmp_path: Path, given: str, column: str, is_cut: bool
) -> None:
    path = str(tmp_path / "h")
    columns = f"id INT, v STRING, valid_from {column}, valid_to {column}, is_current BOOLEAN"
    write_delta(spark.createDataFrame([], columns), path)
    source = spark.createDataFrame([(1, "a", given)], "id INT, v STRING, at STRING")
    if is_cut:
        with pytest.raises(DeltaRuntimeException, match=re.escape(given)):
            scd2(path, source, "id", effective_at="at")
    else:
        scd2(path, source, "id", effective_at="at")
        assert len(read(spark, tmp_path / "h")) == 1
