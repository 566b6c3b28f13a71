"""CHAR and VARCHAR: with constraints and generated columns, and within structs whose fields change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltamerge import DeltaTable, merge_sql, sql
from deltamerge.exceptions import DeltaRuntimeException, InvariantViolationException
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import open_store
from merge.tables import delete_checksums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAPPED = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
TOO_LONG = pytest.raises(DeltaRuntimeException, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT")


def made(spark: SparkSession, path: Path, columns: str, more: str = "") -> str:
    sql(spark, f"CREATE TABLE delta.`{path}` ({columns}) USING delta {more}")
    return f"delta.`{path}`"


def found(spark: SparkSession, table: str, columns: str) -> list[Any]:
    return sorted(tuple(row) for row in sql(spark, f"SELECT {columns} FROM {table}").collect())


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["auto", "classic"])
def test_constraints_compare_as_char_does(spark: SparkSession, tmp_path: Path, plan: str) -> None:
    spark.conf.set("spark.deltamerge.merge.executor", plan)
    table = made(spark, tmp_path / "t", "c CHAR(5), v INT, g BOOLEAN GENERATED ALWAYS AS (c = 'ab')")
    sql(spark, f"ALTER TABLE {table} ADD CONSTRAINT known CHECK (c IN ('ab', 'cd'))")
    sql(spark, f"INSERT INTO {table} (c, v) VALUES ('ab', 1), ('ab   ', 2)")
    source = "(SELECT 'cd' AS c, 2 AS v UNION ALL SELECT 'ab', 3) s"
    merge = f"MERGE INTO {table} t USING {source} ON t.v = s.v WHEN MATCHED THEN UPDATE SET c = s.c"
    merge_sql(spark, f"{merge} WHEN NOT MATCHED THEN INSERT (c, v) VALUES (s.c, s.v)")
    assert found(spark, table, "v, c, g") == [(1, "ab   ", True), (2, "cd   ", False), (3, "ab   ", True)]
    for statement in (f"INSERT INTO {table} (c, v) VALUES ('x', 4)", f"UPDATE {table} SET c = 'x' WHERE v = 1"):
        with pytest.raises(InvariantViolationException, match="known"):
            sql(spark, statement)


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["auto", "classic"])
def test_generated_columns_are_computed_of_what_is_stored(spark: SparkSession, tmp_path: Path, plan: str) -> None:
    """CHAR is padded, and an empty string of a partition is NULL."""
    spark.conf.set("spark.deltamerge.merge.executor", plan)
    columns = "id INT, c CHAR(3), p STRING, u STRING GENERATED ALWAYS AS (concat(upper(c), '|', coalesce(p, 'none')))"
    table = made(spark, tmp_path / "t", columns, "PARTITIONED BY (p)")
    sql(spark, f"INSERT INTO {table} (id, c, p) VALUES (1, 'a', '')")
    source = "(SELECT 1 AS id, 'bc' AS c, 'x' AS p UNION ALL SELECT 2, 'c', '') s"
    merge = f"MERGE INTO {table} t USING {source} ON t.id = s.id WHEN MATCHED THEN UPDATE SET c = s.c, p = s.p"
    assert found(spark, table, "id, c, p, u") == [(1, "a  ", None, "A  |none")]
    merge_sql(spark, f"{merge} WHEN NOT MATCHED THEN INSERT (id, c, p) VALUES (s.id, s.c, s.p)")
    assert found(spark, table, "id, c, p, u") == [(1, "bc ", "x", "BC |x"), (2, "c  ", None, "C  |none")]


@pytest.mark.slow
def test_fields_of_structs_that_are_added_and_dropped(spark: SparkSession, tmp_path: Path) -> None:
    table = made(spark, tmp_path / "t", "id INT, s STRUCT<n: INT, a: CHAR(2)>", MAPPED)
    sql(spark, f"ALTER TABLE {table} ADD COLUMNS (s.b VARCHAR(3), s.c CHAR(4))")
    value = "named_struct('n', 1, 'a', 'x', 'b', 'y', 'c', 'z')"
    sql(spark, f"INSERT INTO {table} SELECT 1, {value}")
    assert found(spark, table, "id, s.*") == [(1, 1, "x ", "y", "z   ")]
    with TOO_LONG:
        sql(spark, f"INSERT INTO {table} SELECT 2, {value.replace('y', 'long')}")
    sql(spark, f"ALTER TABLE {table} RENAME COLUMN s.a TO d")
    sql(spark, f"ALTER TABLE {table} RENAME COLUMN s.b TO a")
    sql(spark, f"ALTER TABLE {table} DROP COLUMN s.c")
    sql(spark, f"ALTER TABLE {table} ADD COLUMNS (s.c INT)")
    field = load_snapshot(open_store(str(tmp_path / "t"))).schema.fields[1]
    assert field.metadata["__CHAR_VARCHAR_TYPE_STRING"] == "struct<n:int,d:char(2),a:varchar(3),c:int>"
    sql(spark, f"INSERT INTO {table} SELECT 2, named_struct('n', 2, 'd', 'p', 'a', 'q', 'c', 7)")
    assert found(spark, table, "id, s.*") == [(1, 1, "x ", "y", None), (2, 2, "p ", "q", 7)]


@pytest.mark.slow
def test_limits_beside_fields_as_delta_spark_adds_them(spark: SparkSession, tmp_path: Path) -> None:
    table = made(spark, tmp_path / "t", "id INT, s STRUCT<n: INT, c: STRING>")
    log = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    field = r"\"name\": \"c\", \"type\": \"string\", \"nullable\": true, \"metadata\": {"
    before, begin, end = log.read_text().rpartition(field)
    assert begin
    log.write_text(before + begin + r"\"__CHAR_VARCHAR_TYPE_STRING\": \"char(2)\"" + end)
    delete_checksums(tmp_path / "t")
    sql(spark, f"INSERT INTO {table} SELECT 1, named_struct('n', 1, 'c', 'x')")
    assert found(spark, table, "s.c") == [("x ",)]
    with TOO_LONG:
        DeltaTable.forPath(spark, str(tmp_path / "t")).update(set={"s.c": "'long'"})


@pytest.mark.slow
def test_too_long_beside_an_identity_column(spark: SparkSession, tmp_path: Path) -> None:
    table = made(spark, tmp_path / "t", "id BIGINT GENERATED ALWAYS AS IDENTITY, c VARCHAR(3)")
    with TOO_LONG:
        sql(spark, f"INSERT INTO {table} (c) VALUES ('long')")


@pytest.mark.slow
def test_fields_of_structs_in_arrays(spark: SparkSession, tmp_path: Path) -> None:
    table = made(spark, tmp_path / "t", "id INT, a ARRAY<STRUCT<n: INT, c: CHAR(2)>>, m MAP<STRING, CHAR(2)>", MAPPED)
    sql(spark, f"ALTER TABLE {table} ADD COLUMNS (a.element.d CHAR(3))")
    sql(spark, f"ALTER TABLE {table} RENAME COLUMN a.element.c TO e")
    sql(spark, f"INSERT INTO {table} SELECT 1, array(named_struct('n', 1, 'e', 'x', 'd', 'y')), map('k', 'z')")
    assert found(spark, table, "a[0].e, a[0].d, m['k']") == [("x ", "y  ", "z ")]
    fields = load_snapshot(open_store(str(tmp_path / "t"))).schema.fields
    limits = [field.metadata.get("__CHAR_VARCHAR_TYPE_STRING") for field in fields]
    assert limits == [None, "array<struct<n:int,e:char(2),d:char(3)>>", "map<string,char(2)>"]
    with TOO_LONG:
        sql(spark, f"INSERT INTO {table} SELECT 2, array(named_struct('n', 1, 'e', 'x', 'd', 'long')), NULL")
