"""delta-spark and deltamerge take turns at a table with generated and identity columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from corpus.runner import canonical_rows
from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.api.delta_table import IdentityGenerator
from foreign.tables import OWN, copied

from .client import LineProcess, RequestFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.oracle


def upsert(path: str, values: str) -> str:
    return (
        f"MERGE INTO delta.`{path}` t USING (SELECT * FROM VALUES {values} AS v(a, b)) s ON t.a = s.a "
        "WHEN MATCHED THEN UPDATE SET b = s.b WHEN NOT MATCHED THEN INSERT (a, b) VALUES (s.a, s.b)"
    )


def read(oracle: LineProcess, path: str) -> list[dict[str, Any]]:
    return oracle.ask("sql", statements=[f"SELECT * FROM delta.`{path}` ORDER BY k DESC"])


def test_taking_turns(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    (
        DeltaTable.create(spark)
        .location(path)
        .addColumn("k", "BIGINT", generatedAlwaysAs=IdentityGenerator(start=-1, step=-2))
        .addColumn("a", "INT")
        .addColumn("b", "INT")
        .addColumn("g", "BIGINT", generatedAlwaysAs="CAST(b * 100 + a AS BIGINT)")
        .addColumn("odd", "BOOLEAN", generatedAlwaysAs="b % 2 = 1")
        .partitionedBy("odd")
        .execute()
    )
    write_delta(spark.sql("SELECT 1 AS a, 10 AS b"), path, mode="append")
    oracle.ask("sql", statements=[f"INSERT INTO delta.`{path}` (a, b) VALUES (2, 21)"])
    merge_sql(spark, upsert(path, "(2, 22), (3, 30), (4, 41)"))
    oracle.ask("sql", statements=[upsert(path, "(1, 11), (5, 50)")])
    merge_sql(spark, upsert(path, "(5, 51), (6, 60)"))
    found = read(oracle, path)
    assert [(row["a"], row["b"]) for row in found] == [(1, 11), (2, 22), (3, 30), (4, 41), (5, 51), (6, 60)]
    keys = [row["k"] for row in found]
    assert keys[:2] == [-1, -3]
    assert len(set(keys)) == 6
    assert all(key % 2 == 1 for key in keys)
    assert all(row["g"] == row["b"] * 100 + row["a"] and row["odd"] == (row["b"] % 2 == 1) for row in found)
    assert [tuple(row) for row in DeltaTable.forPath(spark, path).toDF().orderBy("a").collect()] == [
        tuple(row.values()) for row in found
    ]


def test_overwriting_in_turn(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path)
    builder = builder.addColumn("k", "BIGINT", generatedAlwaysAs=IdentityGenerator(start=5, step=5))
    builder = builder.addColumn("a", "INT", comment="given").addColumn("odd", "BOOLEAN", generatedAlwaysAs="a % 2 = 1")
    builder.partitionedBy("odd").execute()
    write_delta(spark.sql("SELECT 1 AS a"), path, mode="append")
    oracle.ask("sql", statements=[f"INSERT OVERWRITE delta.`{path}` (a) VALUES (2)"])
    write_delta(spark.sql("SELECT 3 AS a"), path, mode="overwrite")
    assert read(oracle, path) == [{"k": 15, "a": 3, "odd": True}]
    oracle.ask("sql", statements=[f"INSERT OVERWRITE delta.`{path}` (a) VALUES (4)"])
    write_delta(spark.sql("SELECT 5 AS a"), path, mode="append")
    assert read(oracle, path) == [{"k": 25, "a": 5, "odd": True}, {"k": 20, "a": 4, "odd": False}]


def test_what_either_refuses(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    (
        DeltaTable.create(spark)
        .location(path)
        .addColumn("k", "BIGINT", generatedAlwaysAs=IdentityGenerator())
        .addColumn("b", "INT")
        .addColumn("g", "INT", generatedAlwaysAs="b + 1")
        .execute()
    )
    merge = f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS x) s ON false WHEN NOT MATCHED THEN INSERT"
    with pytest.raises(RequestFailed, match="EXPLICIT_INSERT_NOT_SUPPORTED"):
        oracle.ask("sql", statements=[f"{merge} (k, b) VALUES (1, 1)"])
    with pytest.raises(RequestFailed, match="Generated Column"):
        oracle.ask("sql", statements=[f"{merge} (b, g) VALUES (1, 1)"])


@pytest.mark.parametrize(
    ("name", "insert"),
    [
        ("identity-columns", "(k, v) VALUES (100, 'new')"),
        ("generated-by-the-time", "(letter, int) VALUES ('new', 5)"),
        ("identity-without-its-feature", "(part) VALUES (5)"),
    ],
)
def test_tables_of_delta_spark_go_on(
    name: str, insert: str, oracle: LineProcess, spark: SparkSession, tmp_path: Path
) -> None:
    path = copied(name, tmp_path, OWN)
    statement = f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS x) s ON false WHEN NOT MATCHED THEN INSERT {insert}"
    merge_sql(spark, statement)
    oracle.ask("sql", statements=[statement])
    merge_sql(spark, statement)
    table = DeltaTable.forPath(spark, path).toDF()
    assert tuple(oracle.ask("read", path=path)["rows"]) == canonical_rows(table)
    if name == "identity-columns":
        assert table.select("i").distinct().count() == table.count()
