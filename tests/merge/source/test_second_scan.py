"""Conditions that answer otherwise when a merge evaluates them again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from deltamerge import DeltaTable
from deltamerge.exceptions import DeltaRuntimeException
from merge.tables import files_below, folders_below, frame, people, rows
from merge.test_transactions import At

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from deltamerge import DeltaMergeBuilder

ROUTES = {
    "classic": ("classic", {}),
    "classic, change data": ("classic", {"delta.enableChangeDataFeed": "true"}),
    "low-shuffle": ("low_shuffle", {}),
    "low-shuffle, change data": ("low_shuffle", {"delta.enableChangeDataFeed": "true"}),
    "vectors": ("classic", {"delta.enableDeletionVectors": "true"}),
}


def changing_answer(changed: Path, first: bool) -> Column:
    """TRUE, but for t.id = 2 one answer until a file is there, and the other from then on."""
    return F.udf(lambda number: number != 2 or changed.exists() != first, "boolean")(F.col("t.id"))


MERGES: dict[str, Callable[[DeltaMergeBuilder, Column], DeltaMergeBuilder]] = {
    "update": lambda merge, answer: merge.whenMatchedUpdate(
        answer, set={"age": "t.age + s.age"}
    ).whenNotMatchedInsertAll(),
    "by source": lambda merge, answer: merge.whenNotMatchedBySourceUpdate(
        answer, set={"age": "t.age + 1"}
    ).whenNotMatchedInsertAll(),
}


# The first answer is FALSE and TRUE by turns.
CHANGING = [
    (route, kind, (number + turn) % 2 == 0) for number, route in enumerate(ROUTES) for turn, kind in enumerate(MERGES)
]


@pytest.mark.parametrize(("route", "kind", "first"), CHANGING)
def test_another_answer_at_the_second_time(
    spark: SparkSession, tmp_path: Path, route: str, kind: str, first: bool
) -> None:
    executor, properties = ROUTES[route]
    spark.conf.set("spark.deltamerge.merge.executor", executor)
    path = people(spark, tmp_path / "t", properties=properties)
    files, folders = files_below(path), folders_below(path) | {"_change_data"}
    ids = [1, 2, 9] if kind == "update" else [9]
    source = frame(spark, "id INT, name STRING, age INT", [(i, "x", 1) for i in ids]).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    changed = tmp_path / "changed"
    with pytest.raises(DeltaRuntimeException) as caught:
        MERGES[kind](merge, changing_answer(changed, first)).run(progress=At("write_all_changes", changed.touch))
    assert caught.value.getCondition() == "DELTA_MERGE_SOURCE_CHANGED"
    assert files_below(path) == files
    assert folders_below(path) | {"_change_data"} == folders
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "ann", 30), (2, "bob", 40), (3, "cy", 50)]


@pytest.mark.parametrize("route", ROUTES)
def test_a_function_that_keeps_its_word(spark: SparkSession, tmp_path: Path, route: str) -> None:
    executor, properties = ROUTES[route]
    spark.conf.set("spark.deltamerge.merge.executor", executor)
    path = people(spark, tmp_path / "t", properties=properties)
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (2, "x", 1), (9, "x", 1)]).alias("s")
    even = F.udf(lambda number: number is not None and number % 2 == 0, "boolean")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    merge = merge.whenMatchedUpdate(even("t.id"), set={"age": "t.age + s.age"}).whenMatchedDelete()
    merge = merge.whenNotMatchedBySourceUpdate("t.age + 1 > 2", set={"age": "0"}).whenNotMatchedInsertAll()
    report = merge.run()
    counted = [report.metrics[f"numTargetRows{what}"] for what in ("Updated", "Deleted", "Inserted", "Copied")]
    assert counted == [2, 1, 1, 0]
    assert [clause.rows for clause in report.clauses] == [1, 1, 1, 1]
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(2, "bob", 41), (3, "cy", 0), (9, "x", 1)]


@pytest.mark.parametrize("route", ROUTES)
def test_no_row_of_a_partition_is_left(spark: SparkSession, tmp_path: Path, route: str) -> None:
    executor, properties = ROUTES[route]
    spark.conf.set("spark.deltamerge.merge.executor", executor)
    if executor == "classic":
        spark.conf.set("spark.databricks.delta.merge.materializeSource", "none")
    path = people(spark, tmp_path / "t", partition_by=["name"], properties=properties)
    source = frame(spark, "id INT, name STRING, age INT", [(2, "x", 1), (3, "x", 1)]).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id <=> s.id")
    merge = merge.whenNotMatchedInsertAll("s.age IS NULL")
    report = merge.whenNotMatchedBySourceDelete("abs(t.id) = 1").run()
    assert report.metrics["numTargetRowsDeleted"] == 1
    assert [row[0] for row in rows(DeltaTable.forPath(spark, path).toDF())] == [2, 3]
