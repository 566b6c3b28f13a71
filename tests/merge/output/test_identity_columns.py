"""Identity columns: the values that rows get, the mark that is committed, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.api.delta_table import IdentityGenerator
from deltamerge.exceptions import DeltaAnalysisException, DeltaRuntimeException
from deltamerge.write.identity_columns import IdentityColumn
from merge.tables import actions, changes, files_below, frame, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table(spark: SparkSession, path: Path, **generator: Any) -> str:
    """Makes a table with an identity column, a value, and a column computed from both."""
    generator = generator or {"generatedAlwaysAs": IdentityGenerator()}
    (
        DeltaTable.create(spark)
        .location(str(path))
        .addColumn("k", "BIGINT", **generator)
        .addColumn("v", "INT")
        .addColumn("kv", "BIGINT", generatedAlwaysAs="k * 1000 + v")
        .execute()
    )
    return str(path)


def mark(path: str, version: int) -> int | None:
    """Gives the high water mark that a version commits; None where it commits none."""
    found = actions(path, version, "metaData")
    if not found:
        return None
    field = json.loads(found[0]["schemaString"])["fields"][0]
    return field["metadata"]["delta.identity.highWaterMark"]


def keys(spark: SparkSession, path: str) -> dict[int, int]:
    """Gives each row's key by its value."""
    read = DeltaTable.forPath(spark, path).toDF()
    assert read.where("NOT kv <=> k * 1000 + v").count() == 0
    return {v: k for k, v in rows(read.select("k", "v"))}


@pytest.mark.sessions
def test_append_numbers_rows_without_gaps(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t", generatedByDefaultAs=IdentityGenerator(start=10, step=-5))
    write_delta(frame(spark, "v INT", [(1,), (2,), (3,)]).coalesce(1), path, mode="append")
    assert keys(spark, path) == {1: 10, 2: 5, 3: 0}
    assert mark(path, 1) == 0
    write_delta(spark.range(4, 104, numPartitions=3).select(F.col("id").cast("int").alias("v")), path, "append")
    assert sorted(keys(spark, path).values()) == list(range(10 - 102 * 5, 11, 5))
    assert mark(path, 2) == -500
    write_delta(frame(spark, "K BIGINT, v INT", [(7, 1000), (None, 1001)]), path, mode="append")
    assert mark(path, 3) is None
    assert keys(spark, path)[1000] == 7


@pytest.mark.parametrize("executor", ["auto", "classic"])
def test_merge_gives_new_keys_to_new_rows_only(executor: str, spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.deltamerge.merge.executor", executor)
    path = table(spark, tmp_path / "t")
    write_delta(spark.range(50).select(F.col("id").cast("int").alias("v")), path, mode="append")
    before = keys(spark, path)
    merge_sql(
        spark,
        f"""MERGE INTO delta.`{path}` t USING (SELECT CAST(id AS INT) AS v FROM range(40, 60, 1, 4)) s ON t.v = s.v
            WHEN NOT MATCHED AND s.v % 2 = 0 THEN INSERT (v) VALUES (s.v)
            WHEN NOT MATCHED THEN INSERT (k, v) VALUES (DEFAULT, s.v)""",
    )
    after = keys(spark, path)
    assert {v: after[v] for v in before} == before
    new = [k for v, k in after.items() if v not in before]
    assert len(set(new)) == 10
    assert min(new) > 50
    assert max(new) == mark(path, 2)
    assert max(new) <= 70


def test_merge_counts_on_from_the_mark_and_tells_of_it(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t", generatedByDefaultAs=IdentityGenerator(start=1, step=10))
    (
        DeltaTable.forPath(spark, path)
        .merge(frame(spark, "v INT, old BIGINT", [(1, None), (2, None), (3, 3)]), "false")
        .whenNotMatchedInsert("old IS NULL", {"v": "v"})
        .whenNotMatchedInsert(values={"k": "old", "v": "v"})
        .execute()
    )
    found = keys(spark, path)
    assert found[3] == 3
    assert {found[1], found[2]} <= {1, 11, 21}
    first = mark(path, 1)
    # Only values of the column's own steps are marks.
    assert first == max(found[1], found[2])
    merge_sql(
        spark,
        f"""MERGE INTO delta.`{path}` t USING (SELECT 1 AS v UNION ALL SELECT 9 AS v) s ON t.v = s.v
            WHEN MATCHED THEN UPDATE SET v = s.v + 100 WHEN NOT MATCHED THEN INSERT (v) VALUES (s.v)""",
    )
    again = keys(spark, path)
    assert again[101] == found[1]
    assert again[9] > first
    assert mark(path, 2) == again[9]


def test_change_data_has_the_same_keys(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).property("delta.enableChangeDataFeed", "true")
    builder.addColumn("v", "INT").addColumn("k", "BIGINT", generatedAlwaysAs=IdentityGenerator()).execute()
    source = spark.range(20, numPartitions=4).select(F.col("id").cast("int").alias("v"))
    DeltaTable.forPath(spark, path).merge(source, "false").whenNotMatchedInsert(values={"v": "v"}).execute()
    told = {(c["v"], c["k"]) for c in changes(path, 1)}
    assert told == set(rows(DeltaTable.forPath(spark, path).toDF()))
    assert {k for _, k in told} == set(range(1, 21))


@pytest.mark.parametrize(
    ("clause", "condition"),
    [
        ("WHEN MATCHED THEN UPDATE SET k = t.k", "UPDATE"),
        ("WHEN MATCHED THEN UPDATE SET k = DEFAULT", "UPDATE"),
        ("WHEN MATCHED THEN UPDATE SET *", "UPDATE"),
        ("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET k = 1", "UPDATE"),
        ("WHEN NOT MATCHED THEN INSERT (k) VALUES (NULL)", "EXPLICIT_INSERT"),
        ("WHEN NOT MATCHED THEN INSERT *", "EXPLICIT_INSERT"),
    ],
)
def test_values_of_generated_always_are_refused(
    clause: str, condition: str, spark: SparkSession, tmp_path: Path
) -> None:
    path = table(spark, tmp_path / "t")
    before = files_below(path)
    source = "(SELECT 1L AS k, 2 AS v, 1002L AS kv)"
    with pytest.raises(DeltaAnalysisException) as raised:
        merge_sql(spark, f"MERGE INTO delta.`{path}` t USING {source} s ON t.v = s.v {clause}")
    assert raised.value.getCondition() == f"DELTA_IDENTITY_COLUMNS_{condition}_NOT_SUPPORTED"
    assert raised.value.getSqlState() == "42808"
    assert files_below(path) == before


def test_append_and_new_tables_refuse(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t")
    with pytest.raises(DeltaAnalysisException, match="EXPLICIT_INSERT_NOT_SUPPORTED"):
        write_delta(frame(spark, "k BIGINT, v INT", [(1, 1)]), path, mode="append")
    builder = DeltaTable.create(spark).location(str(tmp_path / "u")).addColumn("v", "INT")
    with pytest.raises(ValueError, match="non-zero"):
        builder.addColumn("k", "BIGINT", generatedAlwaysAs=IdentityGenerator(step=0))
    with pytest.raises(ValueError, match="cannot both be set"):
        builder.addColumn("k", "BIGINT", generatedAlwaysAs="v", generatedByDefaultAs=IdentityGenerator(step=0))
    with pytest.raises(DeltaAnalysisException, match="UNSUPPORTED_DATA_TYPE"):
        builder.addColumn("k", "INT", generatedAlwaysAs=IdentityGenerator()).execute()
    with pytest.raises(DeltaAnalysisException, match="PARTITION_NOT_SUPPORTED"):
        partitioned = DeltaTable.create(spark).location(str(tmp_path / "u")).addColumn("v", "INT")
        partitioned.addColumn("k", "BIGINT", generatedAlwaysAs=IdentityGenerator()).partitionedBy("k").execute()
    assert not (tmp_path / "u").exists()


def test_no_values_left(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    generator = IdentityGenerator(start=2**63 - 2)
    builder = DeltaTable.create(spark).location(path).addColumn("k", "BIGINT", generatedAlwaysAs=generator)
    builder.addColumn("v", "INT").execute()
    before = files_below(path)
    with pytest.raises(DeltaRuntimeException, match="has no values left for 3 rows"):
        write_delta(frame(spark, "v INT", [(1,), (2,), (3,)]), path, mode="append")
    assert files_below(path) == before
    write_delta(frame(spark, "v INT", [(1,), (2,)]), path, mode="append")
    assert mark(path, 1) == 2**63 - 1


class Racing:
    """Commits an append when a merge is about to commit.

    Args:
        append: Does it.
    """

    def __init__(self, append: Callable[[], object]) -> None:
        self._append = append
        self._done = False

    def step(self, name: str, description: str) -> None:
        if name == "commit" and not self._done:
            self._done = True
            self._append()


def test_two_writers_never_give_one_key_twice(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t")
    merge = DeltaTable.forPath(spark, path).merge(frame(spark, "v INT", [(1,)]), "false")
    racing = Racing(lambda: write_delta(frame(spark, "v INT", [(2,)]), path, mode="append"))
    report = merge.whenNotMatchedInsert(values={"v": "v"}).run(progress=racing)
    assert [lost.rule for lost in report.outcome.lost_to] == ["DELTA_METADATA_CHANGED"]
    assert keys(spark, path) == {2: 1, 1: 2}
    assert mark(path, 2) == 2


def test_what_generates_no_keys_commits_beside_what_does(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t")
    write_delta(frame(spark, "v INT", [(1,), (2,)]).coalesce(1), path, mode="append")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(frame(spark, "v INT", [(1,)]).alias("s"), "t.v = s.v")
    racing = Racing(lambda: write_delta(frame(spark, "v INT", [(3,)]), path, mode="append"))
    report = merge.whenMatchedUpdate(set={"v": "10"}).run(progress=racing)
    assert (report.version, report.outcome.lost_to) == (3, ())
    assert keys(spark, path) == {10: 1, 2: 2, 3: 3}
    assert mark(path, 3) is None
    assert DeltaTable.forPath(spark, path).toDF().count() == 3


def test_marks_never_go_back_and_keep_to_the_steps() -> None:
    column = IdentityColumn("k", start=10, step=5, high_water_mark=None, allow_explicit_insert=True)
    assert column.next_value == 10
    assert column.advanced([]) is None
    assert column.advanced([3, 7]) is None
    assert column.advanced([11]) == 15
    marked = IdentityColumn("k", 10, -5, 0, True)
    assert marked.next_value == -5
    assert marked.advanced([10, 5]) == 0
    assert marked.advanced([-7]) == -10
    # What a hand gave leaves no room behind it: the mark stays below.
    assert IdentityColumn("k", 1, 10, None, True).advanced([2**63 - 1]) == 9223372036854775801
