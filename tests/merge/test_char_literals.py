"""CHAR columns compared with literals: Spark pads the literal, whatever plan reads the column."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from combinations import combinations
from deltamerge import DeltaTable, write_delta

from .tables import EXECUTOR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANS = ["auto", "key_lookup", "low_shuffle", "classic"]
ROWS = [(1, "ab", "x"), (2, "cd", "y"), (3, "ab", "y"), (4, "abc", "x")]


def table(spark: SparkSession, path: str, properties: dict[str, str], partition: str = "CHAR(3)") -> DeltaTable:
    builder = DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumn("c", "CHAR(5)")
    builder = builder.addColumn("p", partition).addColumn("v", "STRING").partitionedBy("p")
    for key, value in properties.items():
        builder = builder.property(key, value)
    made = builder.execute()
    for row in ROWS:
        write_delta(spark.createDataFrame([(*row, "old")], "id INT, c STRING, p STRING, v STRING"), path, mode="append")
    return made


def values(made: DeltaTable) -> dict[int, str]:
    return {row["id"]: row["v"] for row in made.toDF().collect()}


@pytest.mark.sessions
def test_update_and_delete(spark: SparkSession, tmp_path: Path) -> None:
    made = table(spark, str(tmp_path), {})
    made.update("c = 'ab'", {"v": "if(c = 'ab', 'new', 'wrong')"})
    assert values(made) == {1: "new", 2: "old", 3: "new", 4: "old"}
    made.update("p = 'y' AND c IN ('cd', 'zz')", {"v": "'cd'"})
    assert values(made) == {1: "new", 2: "cd", 3: "new", 4: "old"}
    made.delete("c = 'abc'")
    made.delete("p = 'y'")
    assert values(made) == {1: "new"}
    for file in tmp_path.rglob("*.parquet"):
        assert b"CHAR_VARCHAR" not in (pq.read_schema(file).metadata or {}).get(
            b"org.apache.spark.sql.parquet.row.metadata", b""
        )


@pytest.mark.parametrize(
    ("plan", "properties"),
    combinations(PLANS, [{}, {"delta.enableDeletionVectors": "true"}, {"delta.enableChangeDataFeed": "true"}]),
)
@pytest.mark.parametrize("computed", [False, True])
def test_merge(spark: SparkSession, tmp_path: Path, plan: str, properties: dict[str, str], computed: bool) -> None:
    # Keys are not looked up in partitions of CHAR.
    made = table(spark, str(tmp_path / "t"), properties, "STRING" if plan == "key_lookup" else "CHAR(3)")
    given = DeltaTable.create(spark).location(str(tmp_path / "s")).addColumn("id", "INT").addColumn("c", "CHAR(4)")
    given.execute()
    rows = spark.createDataFrame([(1, "ab"), (2, "ab"), (3, "zz"), (8, "ab"), (9, "cd")], "id INT, c STRING")
    write_delta(rows, str(tmp_path / "s"), mode="append")
    source = DeltaTable.forPath(spark, str(tmp_path / "s")).toDF()
    spark.conf.set(EXECUTOR, plan)
    merge = made.alias("t").merge(source.alias("s"), "t.id = s.id")
    first = "if(t.c = 'ab' AND s.c = 'ab', 'both', 'wrong')" if computed else "'both'"
    merge = merge.whenMatchedUpdate("t.c = 'ab' AND s.c = 'ab'", {"v": first})
    merge = merge.whenMatchedUpdate("s.c IN ('ab', 'q') AND t.p = 'y'", {"v": "'source'"})
    merge = merge.whenMatchedUpdate("t.c = 'ab'", {"v": "concat(t.v, '!')" if computed else "'target'"})
    inserted = {"id": "s.id", "c": "s.c", "p": "'n'", "v": "if(s.c = 'ab', 'ins', 'wrong')"}
    merge = merge.whenNotMatchedInsert("s.c = 'ab'", inserted)
    if plan != "key_lookup":
        merge = merge.whenNotMatchedBySourceUpdate("t.c = 'abc' AND t.p = 'x'", {"v": "'gone'"})
    merge.execute()
    last = "old" if plan == "key_lookup" else "gone"
    assert values(made) == {1: "both", 2: "source", 3: "old!" if computed else "target", 4: last, 8: "ins"}


@pytest.mark.parametrize("plan", ["auto", "low_shuffle", "classic"])
def test_literals_in_on(spark: SparkSession, tmp_path: Path, plan: str) -> None:
    made = table(spark, str(tmp_path / "t"), {})
    spark.conf.set(EXECUTOR, plan)
    source = spark.range(1, 5).selectExpr("CAST(id AS INT) AS id")
    merge = made.alias("t").merge(source.alias("s"), "t.id = s.id AND t.c = 'ab' AND t.p = 'x'")
    merge.whenMatchedUpdate(set={"v": "'on'"}).execute()
    assert values(made) == {1: "on", 2: "old", 3: "old", 4: "old"}
