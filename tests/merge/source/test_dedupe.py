"""``dedupe_by``: of several source rows with one key the latest is merged, and a tie is an error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from deltamerge import DeltaTable, merge_sql
from deltamerge.exceptions import DeltaAnalysisException, MultipleSourceRowsException
from merge.tables import files_below, frame, people, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "id INT, name STRING, age INT, at STRING, `part no` INT"
CHANGES = [
    (1, "old", 1, "2024-01-01", 1),
    (1, "new", 2, "2024-01-02", 1),
    (1, "none", 0, None, 9),
    (7, "first", 1, "2024-01-01", 1),
    (7, "last", 3, "2024-01-01", 2),
    (None, "nobody", 1, "2024-01-01", 1),
    (None, "nobody", 2, "2024-01-01", 1),
]


def merged(spark: SparkSession, path: str, source: DataFrame, dedupe_by: str | list[str], on: str) -> None:
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), on, dedupe_by=dedupe_by)
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()


def test_the_latest_row_of_a_key_is_merged(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    merged(spark, path, frame(spark, COLUMNS, CHANGES), ["at", "Part No"], "t.id = s.id")
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [
        (1, "new", 2),
        (2, "bob", 40),
        (3, "cy", 50),
        (7, "last", 3),
        (None, "nobody", 1),
        (None, "nobody", 2),
    ]


def test_rows_that_on_rules_out_are_no_rivals(spark: SparkSession, tmp_path: Path) -> None:
    """A row that ON rules out by itself takes no other row's place, and its computed key is not evaluated."""
    path = people(spark, tmp_path / "t")
    changes = [("1", "old", 1, "order"), ("1", "new", 40, "order"), ("1", "later", 50, "note"), ("a", "x", 1, "note")]
    source = frame(spark, "ref STRING, name STRING, age INT, kind STRING", changes)
    on = "s.kind = 'order' AND t.id = CAST(s.ref AS INT) AND s.age > t.age"
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), on, dedupe_by="age")
    merge.whenMatchedUpdate(set={"name": "s.name"}).run()
    assert rows(DeltaTable.forPath(spark, path).toDF())[0][:2] == (1, "new")


def test_a_column_as_on(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    source = frame(spark, COLUMNS, CHANGES).alias("s")
    target = DeltaTable.forPath(spark, path).alias("t")
    on = (F.col("t.id") == F.col("s.id")) & (F.col("t.name") == "ann") & (F.col("t.age") != 5)
    target.merge(source, on, dedupe_by="age").whenMatchedUpdate(set={"name": "s.name"}).run()
    assert rows(DeltaTable.forPath(spark, path).toDF())[0][:2] == (1, "new")
    for rule in (F.col("s.age") > 1, F.col("s.name") != "old"):
        with pytest.raises(DeltaAnalysisException, match="Filter the source by it, or give ON as SQL"):
            target.merge(source, on & rule, dedupe_by="age").whenMatchedDelete().run()


def test_keys_that_differ_in_case_alone(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    source = frame(spark, "x STRUCT<id: INT>, y STRUCT<ID: STRING>, age INT", [((1,), ("ann",), 7)])
    merge = DeltaTable.forPath(spark, path).alias("t")
    merge.merge(source.alias("s"), "t.id = s.x.id AND t.name = s.y.ID", dedupe_by="age").whenMatchedDelete().run()
    assert [row[0] for row in rows(DeltaTable.forPath(spark, path).toDF())] == [2, 3]


def test_null_is_a_key_where_it_matches(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    merged(spark, path, frame(spark, COLUMNS, CHANGES), ["at", "part no", "age"], "s.id <=> t.id")
    assert rows(DeltaTable.forPath(spark, path).toDF())[-1] == (None, "nobody", 2)


def test_by_text_and_insert_only(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    text = (
        f"MERGE INTO delta.`{path}` t USING (SELECT * FROM VALUES (8, 'a', 1), (8, 'b', 2) AS x(id, name, age)) s "
        "ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
    )
    report = merge_sql(spark, text, dedupe_by="age")
    assert report.metrics["numTargetRowsInserted"] == 1
    assert (8, "b", None) in rows(DeltaTable.forPath(spark, path).toDF())


def test_a_tie_names_the_key(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    before = files_below(path)
    with pytest.raises(MultipleSourceRowsException) as caught:
        merged(spark, path, frame(spark, COLUMNS, CHANGES), "at", "t.id = s.id")
    assert caught.value.getCondition() == "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
    assert "7}" in str(caught.value)
    assert '{"at":"2024-01-01"}' in str(caught.value)
    assert files_below(path) == before


@pytest.mark.parametrize(
    ("dedupe_by", "on", "said"),
    [
        ("agee", "t.id = s.id", "`age`"),
        ("age", "t.id > s.id", "t.id > s.id"),
        ("age", "t.id = s.id AND upper(t.name) = s.name", "upper(t.name) = s.name"),
        ("age", "t.id = s.id AND s.age > t.age AND s.at > t.name", "s.at > t.name"),
        ("age", "t.id = s.id AND s.age < t.age", "s.age < t.age"),
        ("age", "t.id = s.id AND s.age BETWEEN t.age AND t.id", "BETWEEN"),
    ],
)
def test_what_it_cannot_go_by(spark: SparkSession, tmp_path: Path, dedupe_by: str, on: str, said: str) -> None:
    path = people(spark, tmp_path / "t")
    with pytest.raises(DeltaAnalysisException) as caught:
        merged(spark, path, frame(spark, COLUMNS, CHANGES), dedupe_by, on)
    assert caught.value.getCondition() == "DELTA_MERGE_UNRESOLVED_EXPRESSION"
    assert said in str(caught.value)
