"""Upserts whose merge gives the target new columns and wider types."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deltamerge
from deltamerge import DeltaTable, upsert
from deltamerge.exceptions import DeltaRuntimeException

from .searching import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"


def made(spark: SparkSession, path: str, columns: str, *rows: str, widens: bool = True, partition: str = "") -> None:
    properties = f"'delta.enableTypeWidening' = '{str(widens).lower()}', 'delta.feature.timestampNtz' = 'supported'"
    partitioned = f"PARTITIONED BY ({partition})" if partition else ""
    deltamerge.sql(
        spark, f"CREATE TABLE delta.`{path}` ({columns}) USING delta {partitioned} TBLPROPERTIES ({properties})"
    )
    deltamerge.sql(spark, f"INSERT INTO delta.`{path}` VALUES {', '.join(rows)}")


def rows_at(spark: SparkSession, path: str, *columns: str) -> list[tuple[Any, ...]]:
    return rows_of(DeltaTable.forPath(spark, path).toDF().select(*columns or "*"))


# A value that a table has, one of a wider type that it gets, and what it shows of this and of the old one then.
WIDER = {
    "integer and double": ("1", "2.5D", "2.5", "1.0"),
    "integer and long": ("1", "3000000000L", "3000000000", "1"),
    "float": ("1.5F", "0.1D", "0.1", "1.5"),
    "decimal": ("CAST(1.25 AS DECIMAL(10, 2))", "CAST(2.1234 AS DECIMAL(12, 4))", "2.1234", "1.2500"),
    "date": (
        "DATE'2024-01-01'",
        "TIMESTAMP_NTZ'2024-01-02 08:30:00'",
        "2024-01-02 08:30:00",
        "2024-01-01 00:00:00",
    ),
    "struct": ("named_struct('a', 1, 'b', 7)", "named_struct('a', 2.5D, 'c', 8)", "{2.5, 7, 8}", "{1.0, 7, null}"),
    "array": ("array(1)", "array(2.5D)", "[2.5]", "[1.0]"),
    "array of structs": (
        "array(named_struct('a', 1))",
        "array(named_struct('a', 2.5D, 'c', 8))",
        "[{2.5, 8}]",
        "[{1.0, null}]",
    ),
}


@pytest.mark.sessions
@pytest.mark.parametrize("by_session", [False, True])
def test_values_of_a_wider_type_with_ignore_nulls(spark: SparkSession, tmp_path: Path, by_session: bool) -> None:
    path, places = str(tmp_path / "t"), range(len(WIDER))
    kept, given, new, old = zip(*WIDER.values(), strict=True)
    names = [f"v{i}" for i in places]
    kinds = spark.sql(f"SELECT {', '.join(f'{kept[i]} AS v{i}' for i in places)}").schema
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in kinds)
    made(spark, path, f"id INT, {columns}", f"(1, {', '.join(kept)})", f"(3, {', '.join(kept)})")
    rows = [f"(1, {', '.join(given)})", f"(2, {', '.join(given)})", f"(3, {', '.join('NULL' for _ in places)})"]
    source = spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS u(id, {', '.join(names)})")
    if by_session:
        spark.conf.set(AUTO_MERGE, "true")
    upsert(path, source, "id", ignore_nulls=True, schema_evolution=not by_session)
    shown = [f"CAST({name} AS STRING) AS {name}" for name in names]
    found = DeltaTable.forPath(spark, path).toDF().orderBy("id").selectExpr(*shown).collect()
    inserted = ["{2.5, null, 8}" if value == "{2.5, 7, 8}" else value for value in new]
    assert [list(row) for row in found] == [list(new), inserted, list(old)]


def test_types_that_the_merge_does_not_widen(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made(spark, path, "id INT, v INT, w INT", "(1, 1, 1)", widens=False)
    source = spark.sql("SELECT 1 AS id, 2.5D AS v, 2.5D AS w")
    upsert(path, source, "id", ignore_nulls=True, schema_evolution=True)
    assert rows_at(spark, path) == [(1, 2, 2)]
    deltamerge.sql(spark, f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    upsert(path, source, "id", ignore_nulls=True)
    assert rows_at(spark, path) == [(1, 2, 2)]
    upsert(path, source, "id", update=["w"], insert=["id"], ignore_nulls=True, schema_evolution=True)
    assert rows_at(spark, path) == [(1, 2, 2.5)]


def test_new_columns_of_known_rows_by_the_sessions_setting(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made(spark, path, "id INT, v INT", "(1, 1)")
    spark.conf.set(AUTO_MERGE, "true")
    source = spark.sql("SELECT * FROM VALUES (1, CAST(NULL AS INT), 'x'), (2, 2, 'y') AS u(id, v, added)")
    upsert(path, source, "id", ignore_nulls=True)
    assert rows_at(spark, path) == [(1, 1, "x"), (2, 2, "y")]


def test_fewer_columns_by_the_sessions_setting(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made(spark, path, "id INT, v INT, w INT", "(1, 1, 1)")
    spark.conf.set(AUTO_MERGE, "true")
    source = spark.sql("SELECT 1 AS id, 2 AS v")
    upsert(path, source, "id", ignore_nulls=True)
    assert rows_at(spark, path) == [(1, 2, 1)]
    report = upsert(path, source.selectExpr("id", "3 AS v"), "id", quarantine=str(tmp_path / "bad"))
    assert report.metrics["numTargetRowsUpdated"] == 1
    assert rows_at(spark, path) == [(1, 3, 1)]


@pytest.mark.parametrize("update", [True, ["v"]])
def test_a_quarantine_takes_no_rows_that_fit_the_wider_type(
    spark: SparkSession, tmp_path: Path, update: bool | list[str]
) -> None:
    path, bad = str(tmp_path / "t"), str(tmp_path / "bad")
    made(spark, path, "id INT, v INT, at INT, w INT", "(1, 1, 1, 1)")
    values = "(1L, 3000000000, 3000000001, '1'), (3000000000, 5, 1, '2'), (2L, 1L, 2L, 'x')"
    source = spark.sql(f"SELECT * FROM VALUES {values} AS u(id, v, at, w)")
    arguments: dict[str, Any] = {"order_by": "at", "quarantine": bad, "schema_evolution": True}
    upsert(path, source, "id", update=update, **arguments)
    assert rows_at(spark, path) == [(1, 3000000000, 3000000001, 1), (3000000000, 5, 1, 2)]
    assert rows_at(spark, bad, "id", "_reason") == [(2, "w: x is not a valid INT")]
    assert upsert(path, source, "id", update=update, **arguments).version is None


@pytest.mark.parametrize("quarantine", [False, True])
@pytest.mark.parametrize(
    ("kind", "kept", "given", "new", "partition"),
    [
        ("INT", "1", "BIGINT", "3000000000", ""),
        ("DECIMAL(10, 2)", "1", "DECIMAL(12, 4)", "2.1234", "k"),
        ("DATE", "'2024-01-01'", "TIMESTAMP_NTZ", "'2024-01-01 08:00:00'", ""),
        ("INT", "1", "BIGINT", "3000000000", "k"),
    ],
)
def test_keys_of_a_wider_type(
    spark: SparkSession, tmp_path: Path, kind: str, kept: str, given: str, new: str, partition: str, quarantine: bool
) -> None:
    path = str(tmp_path / "t")
    made(spark, path, f"k {kind}, v INT", f"(CAST({kept} AS {kind}), 1)", "(NULL, 0)", partition=partition)
    rows = f"(CAST({kept} AS {given}), 2), (CAST({new} AS {given}), 3), (CAST({new} AS {given}), 3), (NULL, 4)"
    source = spark.sql(f"SELECT * FROM VALUES {rows} AS u(k, v)")
    arguments: dict[str, Any] = {"quarantine": str(tmp_path / "bad")} if quarantine else {}
    for _ in range(2):
        upsert(path, source, "k", schema_evolution=True, skip_unchanged=True, **arguments)
        expected = f"(CAST({kept} AS {given}), 2), (CAST({new} AS {given}), 3), (NULL, 4)"
        assert rows_at(spark, path) == rows_of(spark.sql(f"SELECT * FROM VALUES {expected} AS u(k, v)"))
    assert not (tmp_path / "bad").exists()


def test_keys_that_no_clause_writes_are_those_that_the_table_stores(spark: SparkSession, tmp_path: Path) -> None:
    """Such a merge does not widen them."""
    path = str(tmp_path / "t")
    made(spark, path, "id FLOAT, v INT", "(0.1, 1)")
    source = spark.sql("SELECT 0.1D AS id, 2 AS v")
    upsert(path, source, "id", update=["v"], insert=False, schema_evolution=True)
    assert rows_at(spark, path, "v") == [(2,)]
    upsert(path, source.selectExpr("id", "3 AS v"), "id", insert=False, ignore_nulls=True, schema_evolution=True)
    assert rows_at(spark, path, "v") == [(3,)]
    unfit = spark.sql("SELECT 'x' AS id, 2 AS v")
    with pytest.raises(DeltaRuntimeException, match="The value 'x' of `id` in the source cannot be cast to FLOAT"):
        upsert(path, unfit, "id", update=["v"], insert=False, schema_evolution=True)
