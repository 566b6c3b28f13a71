"""Generated columns: computed, checked, refused; in merges, appends and new tables."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.exceptions import DeltaAnalysisException, InvariantViolationException
from merge.tables import changes, files_below, frame, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def events(spark: SparkSession, path: Path) -> str:
    """Makes a table partitioned by a generated column, with a struct as its other input."""
    (
        DeltaTable.create(spark)
        .location(str(path))
        .addColumn("ts", "TIMESTAMP")
        .addColumn("s", "STRUCT<x: INT, y: INT>")
        .addColumn("Total", "INT", generatedAlwaysAs="s.X + coalesce(s.y, 0)")
        .addColumn("day", "DATE", generatedAlwaysAs="CAST(ts AS DATE)")
        .partitionedBy("day")
        .property("delta.enableChangeDataFeed", "true")
        .execute()
    )
    values = "SELECT timestamp'2020-01-01 10:00:00' AS ts, named_struct('x', 1, 'y', 2) AS s"
    write_delta(spark.sql(values), str(path), mode="append")
    return str(path)


@pytest.mark.quick
def test_append_computes_what_is_missing_and_checks_what_is_given(spark: SparkSession, tmp_path: Path) -> None:
    path = events(spark, tmp_path / "t")
    right = "SELECT timestamp'2020-01-02' AS TS, named_struct('x', 5, 'y', NULL) AS s, 5 AS total"
    write_delta(spark.sql(right), path, mode="append")
    read = DeltaTable.forPath(spark, path).toDF()
    assert rows(read.select("total", "day")) == [(3, dt.date(2020, 1, 1)), (5, dt.date(2020, 1, 2))]
    before = files_below(path)
    with pytest.raises(InvariantViolationException) as raised:
        write_delta(spark.sql(right.replace("5 AS total", "6 AS total")), path, mode="append")
    assert raised.value.getCondition() == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    message = raised.value.getMessage()
    assert "CHECK constraint Generated Column (Total <=> (s.X + coalesce(s.y, 0))) violated" in message
    assert " - Total : 6\n - s.X : 5\n - s.y : null" in message
    assert files_below(path) == before


def test_merge_moves_rows_and_tells_of_it(spark: SparkSession, tmp_path: Path) -> None:
    path = events(spark, tmp_path / "t")
    statement = f"""MERGE INTO delta.`{path}` t
        USING (SELECT * FROM VALUES (1, timestamp'2021-05-05'), (9, timestamp'2021-06-06') AS v(x, at)) s
        ON t.s.x = s.x
        WHEN MATCHED THEN UPDATE SET t.s.y = 40, ts = s.at, day = DEFAULT
        WHEN NOT MATCHED THEN INSERT (ts, s, total)
            VALUES (s.at, named_struct('x', s.x, 'y', 1), {{total}})"""
    with pytest.raises(InvariantViolationException, match="Generated Column"):
        merge_sql(spark, statement.format(total="11"))
    assert merge_sql(spark, statement.format(total="s.x + 1")).version == 2
    expected = [(10, dt.date(2021, 6, 6)), (41, dt.date(2021, 5, 5))]
    assert rows(DeltaTable.forPath(spark, path).toDF().select("total", "day")) == expected
    told = {(c["_change_type"], c["Total"], c["day"]) for c in changes(path, 2)}
    assert told == {
        ("insert", 10, dt.date(2021, 6, 6)),
        ("update_preimage", 3, dt.date(2020, 1, 1)),
        ("update_postimage", 41, dt.date(2021, 5, 5)),
    }


@pytest.mark.parametrize(
    ("column", "expression", "condition"),
    [
        ("BIGINT", "a + 1", "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH"),
        ("INT", "b + 1", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("INT", "g0 + 1", "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
        ("DOUBLE", "rand()", "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
        ("INT", "max(a)", "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
        ("INT", "(SELECT 1)", "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
        ("TIMESTAMP", "current_timestamp()", "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
    ],
)
def test_new_tables_refuse_what_is_no_function_of_the_row(
    column: str, expression: str, condition: str, spark: SparkSession, tmp_path: Path
) -> None:
    builder = (
        DeltaTable.create(spark)
        .location(str(tmp_path / "t"))
        .addColumn("a", "INT")
        .addColumn("g0", "INT", generatedAlwaysAs="a * 2")
        .addColumn("g", column, generatedAlwaysAs=expression)
    )
    with pytest.raises(DeltaAnalysisException) as raised:
        builder.execute()
    assert raised.value.getCondition() == condition
    assert not (tmp_path / "t").exists()


def test_a_frame_of_the_table_makes_a_plain_table(spark: SparkSession, tmp_path: Path) -> None:
    path = events(spark, tmp_path / "t")
    write_delta(DeltaTable.forPath(spark, path).toDF(), str(tmp_path / "copy"))
    other = frame(spark, "ts TIMESTAMP, Total INT, day DATE", [(None, 77, None)])
    write_delta(other, str(tmp_path / "copy"), mode="append")
    assert DeltaTable.forPath(spark, str(tmp_path / "copy")).toDF().count() == 2
