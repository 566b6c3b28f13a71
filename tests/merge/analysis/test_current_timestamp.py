"""A statement tells one time, wherever in it the time is asked for."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampType

from deltamerge import DeltaTable, merge_sql, write_delta
from merge.tables import frame, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions


def test_defaults_words_and_calls_tell_the_same_time(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    defaults = StructType(
        [
            StructField("made", TimestampType(), True, {"CURRENT_DEFAULT": "current_timestamp()"}),
            StructField("noted", TimestampType(), True, {"CURRENT_DEFAULT": "current_timestamp"}),
        ]
    )
    builder = DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumns(defaults)
    builder.addColumn("given", "TIMESTAMP").addColumn("seconds", "BIGINT").execute()
    write_delta(frame(spark, "id INT", [(1,)]), path, mode="append")
    merge_sql(
        spark,
        f"""MERGE INTO delta.`{path}` t USING (SELECT id, now() AS at FROM range(1, 3)) s ON t.id = s.id
            WHEN MATCHED AND made < current_timestamp
              THEN UPDATE SET made = DEFAULT, noted = s.at, given = current_timestamp, seconds = unix_timestamp()
            WHEN NOT MATCHED AND at = current_timestamp()
              THEN INSERT (id, given, seconds) VALUES (id, CURRENT_TIMESTAMP, unix_timestamp(s.at))""",
    )
    found = rows(DeltaTable.forPath(spark, path).toDF())
    assert [row[0] for row in found] == [1, 2]
    moments = {value for row in found for value in row[1:4]}
    assert len(moments) == 1
    moment: dt.datetime = moments.pop()
    assert {row[4] for row in found} == {int(moment.timestamp())}


def test_columns_that_are_the_time_tell_it_too(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made = StructType([StructField("made", TimestampType(), True, {"CURRENT_DEFAULT": "current_timestamp()"})])
    builder = DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumns(made)
    builder.addColumn("noted", "TIMESTAMP").addColumn("day", "DATE").addColumn("plain", "TIMESTAMP_NTZ")
    builder.addColumn("now()", "STRING").property("delta.columnMapping.mode", "name").execute()
    write_delta(frame(spark, "id INT, `now()` STRING", [(1, "a")]), path, mode="append")
    source = frame(spark, "id INT", [(1,), (2,)]).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    times = {
        "noted": F.current_timestamp().alias("at"),
        "day": F.current_timestamp().cast("date"),
        "plain": F.localtimestamp(),
    }
    merge = merge.whenMatchedUpdate(set={"made": "DEFAULT", "`now()`": F.col("`now()`"), **times})
    merge.whenNotMatchedInsert(values={"id": "s.id", **times}).execute()
    found = rows(DeltaTable.forPath(spark, path).toDF())
    assert [(row[0], row[5]) for row in found] == [(1, "a"), (2, None)]
    moments = {value for row in found for value in row[1:3]}
    assert len(moments) == 1
    moment: dt.datetime = moments.pop()
    assert {row[3] for row in found} == {moment.date()}
    assert len({row[4] for row in found}) == 1


def test_columns_that_hold_the_time_tell_it_too(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made = StructType([StructField("made", TimestampType(), True, {"CURRENT_DEFAULT": "current_timestamp()"})])
    builder = DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumns(made)
    for name in ("a", "b", "c", "d"):
        builder.addColumn(name, "TIMESTAMP")
    builder.addColumn("day", "DATE").addColumn("seconds", "BIGINT").execute()
    write_delta(frame(spark, "id INT", [(1,), (2,)]), path, mode="append")
    source = frame(spark, "id INT", [(1,), (3,)]).alias("s")
    now, nothing = F.current_timestamp(), F.lit(None).cast("timestamp")
    times: dict[str, str | Column] = {
        "made": "DEFAULT",
        "a": F.when(F.lit(1) > 2, nothing).otherwise(F.now()),
        "b": F.coalesce(nothing, now.alias("x")),
        "c": F.element_at(
            F.transform(
                F.array(F.lit(0)),
                lambda zero: F.timestamp_seconds(zero * 0) + (now - F.timestamp_seconds(zero)),
            ),
            1,
        ),
        "d": F.greatest(F.expr("now() - INTERVAL 1 DAY"), F.struct(now.alias("at"))["at"]),
        "day": F.date_add(F.current_date(), 0),
        "seconds": F.unix_timestamp() + 0,
    }
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    merge = merge.whenMatchedUpdate(F.col("t.made") < now + F.expr("INTERVAL 1 HOUR"), set=times)
    merge = merge.whenNotMatchedInsert(now.isNotNull() & (now == F.expr("current_timestamp")), {"id": "s.id", **times})
    merge.whenNotMatchedBySourceUpdate(F.unix_micros(now) > 0, set=times).execute()
    found = rows(DeltaTable.forPath(spark, path).toDF())
    assert [row[0] for row in found] == [1, 2, 3]
    moments = {value for row in found for value in row[1:6]}
    assert len(moments) == 1
    moment: dt.datetime = moments.pop()
    assert {(row[6], row[7]) for row in found} == {(moment.date(), int(moment.timestamp()))}


def test_columns_of_the_source_that_are_the_time_keep_sparks_names(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id BIGINT, day DATE, seconds BIGINT", []), path)
    query = "SELECT id, curdate(), unix_timestamp() FROM range(1)"
    seconds = spark.sql(query).columns[2]
    merge_sql(
        spark,
        f"""MERGE INTO delta.`{path}` t USING ({query}) s ON t.id = s.id
            WHEN NOT MATCHED THEN INSERT (id, day, seconds) VALUES (id, s.`current_date()`, s.`{seconds}`)""",
    )
    ((_, day, seconds),) = rows(DeltaTable.forPath(spark, path).toDF())
    assert day is not None
    assert seconds > 0
