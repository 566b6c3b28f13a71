"""PySpark's own calls after `install_in_pyspark`: nothing of a script changes but its beginning."""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import deltamerge
from deltamerge.as_jar import frame_calls, served
from deltamerge.as_jar import install as install_module
from deltamerge.exceptions import DeltaAnalysisException, DeltaIllegalArgumentException, InvariantViolationException
from deltamerge.spark.connectors import has_connector
from deltamerge.spark.session import physical_plan, session_identity
from deltamerge.tables import DeltaTable
from deltamerge.write.layout import data_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = [pytest.mark.sessions, pytest.mark.slow]


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()))


def test_frames_are_written_as_with_a_jar(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    frame = spark.range(4).selectExpr("id", "id % 2 AS p")
    frame.write.format("delta").partitionBy("p").option("delta.appendOnly", False).save(path)
    with pytest.raises(DeltaAnalysisException, match="DELTA_PATH_EXISTS"):
        frame.write.format("delta").save(path)
    frame.write.format("delta").mode("ignore").save(path)
    spark.sql("SELECT 9L AS id, 1L AS p").write.format("delta").mode("append").save(path)
    assert DeltaRs(path).metadata().partition_columns == ["p"]
    only = spark.sql("SELECT 7L AS id, 1L AS p")
    only.write.format("delta").mode("overwrite").option("replaceWhere", "p = 1").save(path)
    assert rows(spark.read.format("delta").load(path)) == [(0, 0), (2, 0), (7, 1)]
    evolved = spark.sql("SELECT 8L AS id, 1L AS p, 'x' AS n").write.format("delta").mode("append")
    evolved.option("mergeSchema", "true").save(path)
    assert rows(spark.read.format("delta").load(path).where("id = 8")) == [(8, 1, "x")]
    only.write.save(path, format="delta", mode="overwrite", overwriteSchema=True, partitionBy="id")
    assert DeltaRs(path).metadata().partition_columns == ["id"]


def test_the_session_says_how_partitions_are_overwritten(installed: SparkSession, tmp_path: Path) -> None:
    spark, path, plain = installed, str(tmp_path / "t"), str(tmp_path / "plain")
    frame = spark.range(4).selectExpr("id", "id % 2 AS p")
    frame.write.format("delta").partitionBy("p").save(path)
    frame.write.format("delta").save(plain)
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        only = spark.sql("SELECT 7L AS id, 1L AS p").write.format("delta").mode("overwrite")
        only.save(path)
        only.save(plain)
        assert rows(spark.read.format("delta").load(path)) == [(0, 0), (2, 0), (7, 1)]
        assert rows(spark.read.format("delta").load(plain)) == [(7, 1)]
        only.option("partitionOverwriteMode", "static").save(path)
        assert rows(spark.read.format("delta").load(path)) == [(7, 1)]
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


def test_another_time_zone_in_the_middle(installed: SparkSession, tmp_path: Path) -> None:
    """The source that Spark reads by has what the session says now."""
    spark, path = installed, str(tmp_path / "t")
    spark.sql("SELECT 1L AS id, TIMESTAMP'2024-05-01 12:00:00' AS t").write.format("delta").partitionBy("t").save(path)
    reader = spark.read.format("delta").schema("id BIGINT, t TIMESTAMP")
    try:
        for zone in ("Etc/UTC", "Asia/Tokyo"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            assert len(rows(reader.load(path))) == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_options_of_files_and_how_names_are_spelled(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    writer = spark.range(10, numPartitions=1).selectExpr("id", "0 AS p").write.format("delta").partitionBy("P")
    writer.option("compression", "gzip").option("maxRecordsPerFile", 4).save(path)
    assert DeltaRs(path).metadata().partition_columns == ["p"]
    files = DeltaRs(path).file_uris()
    assert len(files) == 3
    assert all(".gz." in file for file in files)
    writer.mode("append").save(path)
    with pytest.raises(DeltaIllegalArgumentException, match="DELTA_ILLEGAL_OPTION"):
        writer.option("mergeSchema", "yes").save(path)
    assert len(rows(spark.read.format("delta").load(path))) == 20


def test_options_of_files_are_those_of_named_tables_too(installed: SparkSession, tmp_path: Path) -> None:
    frame, options = installed.range(10, numPartitions=1), {"compression": "gzip", "maxRecordsPerFile": "4"}
    path = str(tmp_path / "saved")
    try:
        frame.write.format("delta").options(path=path, **options).saveAsTable("files_saved")
        assert len(zipped(path)) == 3
        frame.writeTo(f"delta.`{tmp_path / 'created'}`").using("delta").options(**options).create()
        assert len(zipped(str(tmp_path / "created"))) == 3
        frame.writeTo("files_saved").using("delta").option("compression", "gzip").createOrReplace()
        assert len(zipped(path)) == 1
    finally:
        installed.sql("DROP TABLE IF EXISTS files_saved")


def test_merge_into(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    spark.range(4).selectExpr("id", "id AS v").write.format("delta").save(path)
    source = spark.sql("SELECT * FROM VALUES (2L, 20L, 'a'), (3L, 30L, 'b'), (9L, 90L, 'c') AS s(id, v, n)").alias("s")
    try:
        spark.sql(f"CREATE TABLE merged_into USING delta LOCATION '{path}'")
        merge = source.mergeInto("default.merged_into", F.col("merged_into.id") == F.col("s.id"))
        merge.whenMatched(F.col("s.id") == 2).update({"v": F.col("merged_into.v") + F.col("s.v")})
        merge.whenMatched().delete().whenNotMatched(F.col("s.v") > 0).insertAll()
        by_source = merge.whenNotMatchedBySource(F.col("merged_into.id") == 0)
        by_source.update({"v": F.lit(-1)}).withSchemaEvolution().merge()
        assert spark.table("merged_into").columns == ["id", "v", "n"]
        assert rows(spark.table("merged_into").drop("n")) == [(0, -1), (1, 1), (2, 22), (9, 90)]
    finally:
        spark.sql("DROP TABLE IF EXISTS merged_into")
    merge = source.mergeInto(f"delta.`{path}`", F.expr(f"delta.`{path}`.id = s.id"))
    with pytest.raises(DeltaAnalysisException, match="DELTA_MERGE_MISSING_WHEN"):
        merge.merge()
    with pytest.raises(DeltaAnalysisException, match="whenNotMatchedBySource"):
        merge.whenNotMatchedBySource().updateAll()
    merge.whenMatched().updateAll().whenNotMatched().insert({"id": F.col("s.id")})
    merge.whenNotMatchedBySource().delete().merge()
    found = spark.read.format("delta").load(path).sort("id")
    assert list(map(tuple, found.collect())) == [(2, 20, "a"), (3, None, None), (9, 90, "c")]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        source.mergeInto("not_there", F.expr("true")).whenMatched().delete().merge()


def zipped(path: str) -> list[str]:
    files = DeltaRs(path).file_uris()
    assert all(".gz." in file for file in files)
    return files


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"replaceWhere": "p = 1"}, [(0, 0, None), (2, 0, None), (7, 1, "x")]),
        ({"partitionOverwriteMode": "dynamic"}, [(0, 0, None), (2, 0, None), (7, 1, "x")]),
        ({}, [(7, 1, "x")]),
    ],
)
def test_the_options_of_a_write_hold_for_every_overwrite(
    installed: SparkSession, tmp_path: Path, options: dict[str, str], kept: list[tuple[Any, ...]]
) -> None:
    spark, path = installed, str(tmp_path / "t")
    spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save(path)
    wider = spark.sql("SELECT 7L AS id, 1L AS p, 'x' AS n").write.format("delta").mode("overwrite").options(**options)
    with pytest.raises(DeltaAnalysisException, match="lacks: n"):
        wider.save(path)
    noted = wider.option("mergeSchema", True).option("userMetadata", "by hand")
    for _ in range(2):
        noted.option("txnAppId", "nightly").option("txnVersion", 3).save(path)
    assert rows(spark.read.format("delta").load(path)) == kept
    (last, _) = DeltaRs(path).history()
    assert (last["version"], last["userMetadata"]) == (1, "by hand")
    assert last.get("operationParameters", {}).get("predicate") == options.get("replaceWhere")


@pytest.mark.parametrize(("option", "value"), [("replaceUsing", "id"), ("REPLACEON", "t.id = s.id")])
def test_options_that_would_replace_only_some_rows_are_refused(
    installed: SparkSession, tmp_path: Path, option: str, value: str
) -> None:
    path = str(tmp_path / "t")
    installed.range(3).write.format("delta").save(path)
    with pytest.raises(DeltaAnalysisException, match=r"replaceWhere.*MERGE"):
        installed.range(1, 2).write.format("delta").mode("overwrite").option(option, value).save(path)
    with pytest.raises(DeltaAnalysisException, match=r"replaceWhere.*MERGE"):
        installed.range(1).writeTo("refused").using("delta").option(option, value).create()
    assert DeltaRs(path).version() == 0
    assert not installed.catalog.tableExists("refused")


def test_files_are_rearranged_without_changes(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    for start in (0, 2):
        frame = spark.range(start, start + 2, numPartitions=2).selectExpr("id", "id % 2 AS p").write.partitionBy("p")
        frame.format("delta").mode("append").option("delta.enableChangeDataFeed", True).save(path)
    whole = spark.read.format("delta").load(path)
    rearranged = whole.coalesce(1).write.format("delta").mode("overwrite").option("dataChange", "false")
    rearranged.save(path)
    one = whole.where("p = 1").coalesce(1).write.format("delta").mode("overwrite").option("dataChange", False)
    one.option("replaceWhere", "p = 1").save(path)
    assert rows(spark.read.format("delta").load(path)) == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert changes_in(path, 2) == {("add", False): 2, ("remove", False): 4}
    assert changes_in(path, 3) == {("add", False): 1, ("remove", False): 1}
    changed = spark.read.format("delta").option("readChangeFeed", True).option("startingVersion", 0).load(path)
    assert {row._commit_version for row in changed.collect()} == {0, 1}


def changes_in(path: str, version: int) -> Counter[tuple[str, bool]]:
    commit = (Path(path) / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    actions = [(kind, action) for line in commit for kind, action in json.loads(line).items()]
    return Counter((kind, action["dataChange"]) for kind, action in actions if kind in ("add", "remove"))


def test_what_changes_no_data_changes_no_table(installed: SparkSession, tmp_path: Path) -> None:
    path, frame = str(tmp_path / "t"), installed.range(3)
    with pytest.raises(DeltaAnalysisException, match=r"DELTA_DATA_CHANGE_FALSE.*Create a Delta table"):
        frame.write.format("delta").option("dataChange", "false").save(path)
    with pytest.raises(DeltaAnalysisException, match=r"DELTA_DATA_CHANGE_FALSE.*Create a Delta table"):
        frame.writeTo("rearranged").using("delta").option("dataChange", "false").create()
    frame.write.format("delta").save(path)
    writer = frame.selectExpr("id", "1 AS n").write.format("delta").mode("overwrite").option("dataChange", "false")
    for option, refused in (("mergeSchema", "Change the Delta table schema"), ("overwriteSchema", "Overwrite the")):
        with pytest.raises(DeltaAnalysisException, match=f"DELTA_DATA_CHANGE_FALSE.*{refused}"):
            writer.options(**{"mergeSchema": "false", "overwriteSchema": "false", option: "true"}).save(path)
    with pytest.raises(DeltaIllegalArgumentException, match=r"'dataChange'.*replaceWhere"):
        frame.write.format("delta").mode("overwrite").options(dataChange=False, replaceWhere="id < 9").save(path)
    assert DeltaRs(path).version() == 0


def test_rows_by_their_places_bring_further_columns_where_asked(installed: SparkSession) -> None:
    spark = installed
    spark.sql("SELECT 1 AS a, 1 AS b").write.format("delta").saveAsTable("placed_wider")
    try:
        further = spark.sql("SELECT 2 AS x, 2 AS y, 2 AS c").write
        with pytest.raises(DeltaAnalysisException, match="DELTA_INSERT_COLUMN_ARITY_MISMATCH"):
            further.insertInto("placed_wider")
        spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
        further.insertInto("placed_wider")
        assert sorted(spark.table("placed_wider").columns) == ["a", "b", "c"]
        assert rows(spark.table("placed_wider").where("a = 2")) == [(2, 2, 2)]
    finally:
        spark.sql("DROP TABLE placed_wider")


def test_a_table_that_is_like_another_has_none_of_its_rows(installed: SparkSession) -> None:
    spark = installed
    spark.range(3).write.format("delta").saveAsTable("liked")
    try:
        spark.sql("CREATE TABLE alike LIKE liked")
        assert rows(spark.sql("SELECT * FROM alike")) == []
        spark.sql("INSERT INTO alike VALUES (9)")
        assert rows(spark.table("alike")) == [(9,)]
        assert rows(spark.table("liked")) == [(0,), (1,), (2,)]
        assert "alike" in [row["tableName"] for row in spark.sql("SHOW TABLES").collect()]
    finally:
        spark.sql("DROP TABLE IF EXISTS alike")
        spark.sql("DROP TABLE liked")


def test_sql_and_tables_of_the_catalog(installed: SparkSession, tmp_path: Path) -> None:
    spark = installed
    for mode in ("error", "append"):
        once = spark.range(3).write.format("delta").option("txnAppId", "a").option("txnVersion", 1)
        once.mode(mode).saveAsTable("in_pyspark")
    try:
        spark.range(3, 4).write.format("delta").mode("append").saveAsTable("in_pyspark")
        assert [tuple(row) for row in spark.sql("DELETE FROM in_pyspark WHERE id = 0").collect()] == [(1,)]
        assert rows(spark.sql("SELECT * FROM in_pyspark")) == [(1,), (2,), (3,)]
        assert rows(spark.table("in_pyspark")) == [(1,), (2,), (3,)]
        assert rows(spark.sql("SELECT {x} AS y", x=1)) == [(1,)]
        assert "in_pyspark" in [row["tableName"] for row in spark.sql("SHOW TABLES").collect()]
    finally:
        spark.sql("DROP TABLE in_pyspark")
    spark.range(1).write.format("parquet").save(str(tmp_path / "parquet"))
    assert rows(spark.read.parquet(str(tmp_path / "parquet"))) == [(0,)]


def test_a_table_is_replaced_once_by_a_transaction(installed: SparkSession, tmp_path: Path) -> None:
    """A retried job does not delete what others have written since."""
    spark, table = installed, f"delta.`{tmp_path / 't'}`"
    for _ in range(2):
        made = spark.range(1).writeTo(table).using("delta").option("txnAppId", "a").option("txnVersion", "1")
        made.createOrReplace()
        spark.range(5, 6).writeTo(table).append()
    assert rows(spark.sql(f"SELECT * FROM {table}")) == [(0,), (5,), (5,)]


def test_statements_with_values_between_braces(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    spark.range(3).selectExpr("id", "'{old}' AS v").write.format("delta").save(path)
    table, source = f"delta.`{path}`", spark.range(2, 5).withColumn("v", F.lit("new"))
    matched = spark.sql(
        f"MERGE INTO {table} t USING {{src}} s ON t.id = s.id AND t.v <> {{word}} "
        "WHEN MATCHED AND t.v = '{{old}}' THEN UPDATE SET v = {word} WHEN NOT MATCHED THEN INSERT *",
        src=source,
        word="it's new",
    )
    assert matched.collect()[0].num_affected_rows == 3
    assert rows(spark.read.format("delta").load(path)) == [
        (0, "{old}"),
        (1, "{old}"),
        (2, "it's new"),
        (3, "new"),
        (4, "new"),
    ]
    query = f"SELECT id, '{{{{}}}}' AS b, :x AS x FROM {table} AS t JOIN {{df}} USING (id) WHERE id > {{least}}"
    joined = spark.sql(query, {"x": 7}, df=source, least=2)
    assert rows(joined) == [(3, "{}", 7), (4, "{}", 7)]
    spark.sql(f"INSERT INTO {table} SELECT * FROM {{df}} WHERE {{df[id]}} = ?", [4], df=source)
    assert [tuple(row) for row in spark.sql(f"DELETE FROM {table} WHERE id IN ({{a}}, {{b}})", a=1, b=4).collect()] == [
        (3,)
    ]
    assert rows(spark.sql("SELECT {df[v]}, {n} AS n FROM {df} WHERE id = 2", df=source, n=1)) == [("new", 1)]
    assert [view.name for view in spark.catalog.listTables() if view.name.startswith("_pyspark")] == []


def test_frames_are_scans_of_the_files_and_have_the_latest_columns(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").saveAsTable("scanned")
    try:
        spark.table("scanned").write.format("delta").option("delta.enableChangeDataFeed", True).save(path)
        wider = spark.sql("SELECT 9L AS id, 1L AS p, 'x' AS n").write.format("delta").mode("append")
        wider.option("mergeSchema", True).saveAsTable("scanned")
        wider.option("mergeSchema", True).save(path)
        expected = [(0, 0, None), (1, 1, None), (2, 0, None), (3, 1, None), (9, 1, "x")]
        reads = [
            spark.read.format("delta").load(path),
            spark.read.load(path, format="delta"),
            spark.read.format("DELTA").option("path", path).load(),
            spark.read.table("scanned"),
            spark.read.format("delta").table("default.scanned"),
            spark.table("scanned"),
            spark.table(f"delta.`{path}`"),
        ]
        for frame in reads:
            assert rows(frame) == expected
            plan = physical_plan(frame.where("p = 1").select("id"))
            assert "FileScan parquet" in plan or "Scan parquet" in plan
            assert "ReadSchema: struct<id:bigint" in plan
            assert "n:string" not in plan.partition("ReadSchema")[2]
        assert reads[0].select("_metadata.file_path").distinct().count() >= 2
        assert rows(spark.read.format("delta").option("versionAsOf", 0).load(path)) == [e[:2] for e in expected[:4]]
        assert rows(spark.read.option("versionAsOf", "0").table("scanned")) == [e[:2] for e in expected[:4]]
        assert len(rows(spark.read.format("delta").load(f"{path}@v0"))) == 4
        assert len(rows(spark.table(f"delta.`{path}@v0`"))) == 4
        with pytest.raises(DeltaAnalysisException, match="DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS"):
            spark.read.format("delta").option("versionAsOf", 1).load(f"{path}@v0")
        made = dt.datetime.fromtimestamp(DeltaRs(path).history()[-1]["timestamp"] / 1000 + 0.01, tz=dt.timezone.utc)
        assert len(rows(spark.read.load(path, format="delta", timestampAsOf=str(made)))) == 4
        changed = spark.read.format("delta").option("readChangeFeed", True).option("startingVersion", 1).load(path)
        assert rows(changed.select("id", "n", "_change_type")) == [(9, "x", "insert")]
        with pytest.raises(DeltaAnalysisException, match="DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"):
            spark.read.options(readChangeFeed=True, versionAsOf=0).format("delta").load(path)
        assert rows(spark.read.format("delta").schema("id BIGINT").load(path)) == [(e[0],) for e in expected]
    finally:
        spark.sql("DROP TABLE scanned")


def test_rows_by_their_places_and_the_calls_of_write_to(installed: SparkSession, tmp_path: Path) -> None:
    spark = installed
    frame = spark.range(4).selectExpr("id", "id % 2 AS p")
    try:
        frame.writeTo("placed").using("delta").partitionedBy("p").tableProperty("delta.appendOnly", "false").create()
        with pytest.raises(DeltaAnalysisException, match="DELTA_TABLE_ALREADY_EXISTS"):
            frame.writeTo("placed").using("delta").create()
        spark.sql("SELECT 5L AS any, 1L AS name").write.insertInto("placed")
        with pytest.raises(DeltaAnalysisException, match="DELTA_INSERT_COLUMN_ARITY_MISMATCH"):
            spark.range(1).write.insertInto("placed")
        frame.where("id = 0").select("p", "id").withColumn("id", F.lit(6)).writeTo("placed").append()
        assert rows(spark.table("placed")) == [(0, 0), (1, 1), (2, 0), (3, 1), (5, 1), (6, 0)]
        spark.sql("SELECT 7L AS id, 1L AS p").writeTo("placed").overwritePartitions()
        assert rows(spark.table("placed")) == [(0, 0), (2, 0), (6, 0), (7, 1)]
        spark.sql("SELECT 9L AS id, 0L AS p").writeTo("placed").overwrite(F.col("id") > 5)
        assert rows(spark.table("placed")) == [(0, 0), (2, 0), (9, 0)]
        with pytest.raises(InvariantViolationException, match="DELTA_REPLACE_WHERE_MISMATCH"):
            spark.sql("SELECT 1L AS id, 0L AS p").writeTo("placed").overwrite(F.col("id") > 5)
        both = spark.sql("SELECT 9L AS id, 0L AS p").writeTo("placed").option("replaceWhere", "p = 0")
        with pytest.raises(DeltaAnalysisException, match="DELTA_REPLACE_WHERE_IN_OVERWRITE"):
            both.overwrite(F.col("id") > 5)
        assert rows(spark.table("placed")) == [(0, 0), (2, 0), (9, 0)]
        spark.sql("SELECT 8L, 8L").write.insertInto("placed", overwrite=True)
        assert rows(spark.table("placed")) == [(8, 8)]
        spark.range(2).writeTo("placed").using("delta").createOrReplace()
        assert rows(spark.table("placed")) == [(0,), (1,)]
        path = str(tmp_path / "t")
        spark.range(2).writeTo(f"delta.`{path}`").using("delta").create()
        assert DeltaRs(path).version() == 0
        spark.range(3).writeTo("other").using("parquet").create()
        spark.range(1).write.insertInto("other")
        assert spark.table("other").count() == 4
    finally:
        spark.sql("DROP TABLE IF EXISTS placed")
        spark.sql("DROP TABLE IF EXISTS other")


def test_blanks_around_the_parts_of_names(installed: SparkSession) -> None:
    """Spark's parser skips them."""
    spark = installed
    try:
        spark.range(2).write.format("delta").saveAsTable(" default . `blank` ")
        spark.range(3).write.format("parquet").saveAsTable("`blank_too`\n")
        spark.range(2, 3).write.insertInto("blank ")
        for name in ("`blank` ", "`default`.`blank`\n", " blank_too", "`default` . `blank_too` "):
            assert rows(spark.table(name)) == rows(spark.read.table(name)) == [(0,), (1,), (2,)]
        assert DeltaTable.forName(spark, "`blank` ").toDF().count() == 3
        spark.table("blank").createOrReplaceTempView("`blank_view` ")
        spark.range(3, 4).writeTo("`blank` ").append()
        assert spark.table(" blank_view").count() == 4
    finally:
        spark.sql("DROP VIEW IF EXISTS blank_view")
        spark.sql("DROP TABLE IF EXISTS blank")
        spark.sql("DROP TABLE IF EXISTS blank_too")


def test_a_table_qualifies_its_columns(installed: SparkSession) -> None:
    """A name without an alias does, as with a JAR: in frames, merges and commands."""
    spark = installed
    for name in ("people", "updates"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql("SELECT 1L AS id, 'ann' AS name").write.format("delta").saveAsTable("people")
    spark.sql("SELECT * FROM VALUES (1L, 'bob'), (2L, 'cy') AS (id, name)").write.format("delta").saveAsTable("updates")
    joined = spark.table("people").join(spark.table("updates"), F.expr("people.id = updates.id"))
    assert rows(joined.select("people.name", "updates.name")) == [("ann", "bob")]
    assert rows(spark.read.table("updates").where("updates.id > 1")) == [(2, "cy")]
    table = DeltaTable.forName(spark, "people")
    merge = table.merge(spark.table("updates"), "people.id = updates.id")
    merge.whenMatchedUpdate(set={"name": "updates.name"}).whenNotMatchedInsertAll().execute()
    table.update("people.id = 2", {"name": F.lit("di")})
    table.delete("people.id = 1")
    assert rows(table.toDF().where("people.id > 0")) == [(2, "di")]


@pytest.mark.parametrize("given", ["before_format", "after_format", "at_start"])
def test_a_stream_makes_a_table_with_its_partitions(installed: SparkSession, tmp_path: Path, given: str) -> None:
    source, path = str(tmp_path / "source"), str(tmp_path / "t")
    installed.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").save(source)
    stream: DataStreamWriter = installed.readStream.format("delta").load(source).writeStream
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    if given == "before_format":
        query = stream.partitionBy("p").format("delta").start(path)
    elif given == "after_format":
        query = stream.format("delta").partitionBy(["p"]).start(path)
    else:
        query = stream.start(path, format="delta", partitionBy="p")
    query.awaitTermination()
    assert DeltaRs(path).metadata().partition_columns == ["p"]
    assert rows(installed.read.format("delta").load(path)) == [(0, 0), (1, 1), (2, 0), (3, 1)]


def test_register_alone_is_enough_for_a_script_that_imports_this_package(
    spark: SparkSession, pyspark_as_it_was: None, tmp_path: Path
) -> None:
    assert deltamerge.register(spark)
    path = str(tmp_path / "t")
    spark.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save(path)
    with pytest.raises(DeltaAnalysisException, match="DELTA_PATH_EXISTS"):
        spark.range(1).write.format("delta").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 0")
    try:
        spark.sql(f"CREATE TABLE registered USING delta LOCATION '{path}'")
        spark.sql("SELECT 9L AS id, 1L AS p").write.insertInto("registered")
        assert rows(spark.table("registered")) == [(1, 1), (2, 0), (3, 1), (9, 1)]
    finally:
        spark.sql("DROP TABLE IF EXISTS registered")
    assert "delta" not in sys.modules


def test_stores_without_a_connector_of_spark(
    spark: SparkSession, pyspark_as_it_was: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The source in Python opens what Spark itself cannot."""
    path, copy = str(tmp_path / "t"), str(tmp_path / "copy")
    assert has_connector(spark, f"file://{path}")
    assert not has_connector(spark, "gs://bucket/t")
    deltamerge.register(spark)
    spark.range(3).write.format("delta").save(path)
    monkeypatch.setattr(frame_calls, "has_connector", lambda *_: False)
    frame = spark.read.format("delta").load(path)
    assert "FileScan" not in physical_plan(frame)
    with pytest.raises(DeltaAnalysisException, match=r"the mode error: write .mode\("):
        frame.write.format("delta").save(copy)
    with pytest.raises(DeltaAnalysisException, match=r'partitionBy: write .option\("partitionBy", "id"\)'):
        frame.write.format("delta").mode("append").partitionBy("id").save(copy)
    frame.write.format("delta").mode("append").save(copy)
    assert rows(frame) == rows(spark.read.format("delta").load(copy)) == [(0,), (1,), (2,)]


def test_sessions_whose_jar_goes_on(spark: SparkSession, pyspark_as_it_was: None, tmp_path: Path) -> None:
    """Another session of the process may have delta-spark: `register` leaves that to it."""
    deltamerge.register(spark)
    served.HAS_JAR[session_identity(spark)] = True
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        spark.range(1).write.format("delta").save(str(tmp_path / "t"))
    deltamerge.install_in_pyspark()
    spark.range(1).write.format("delta").save(str(tmp_path / "t"))
    assert rows(spark.read.format("delta").load(str(tmp_path / "t"))) == [(0,)]


def test_tables_that_the_catalog_has_forgotten(installed: SparkSession, tmp_path: Path) -> None:
    """Files outlive the catalog of a session without a metastore: the second run of a script finds them."""
    spark, path, frame = installed, str(tmp_path / "t"), installed.range(3)
    try:
        for mode in ("overwrite", "append"):
            frame.write.format("delta").mode("overwrite").option("path", path).saveAsTable("forgotten")
            frame.write.format("delta").mode(mode).option("path", path).saveAsTable("forgotten")
            spark.sql("DROP TABLE forgotten")
            frame.write.format("delta").mode(mode).option("path", path).saveAsTable("forgotten")
            assert spark.catalog.tableExists("forgotten")
            assert spark.table("forgotten").count() == (3 if mode == "overwrite" else 9)
            spark.sql("DROP TABLE forgotten")
        frame.write.format("parquet").saveAsTable("forgotten")
        with pytest.raises(DeltaAnalysisException, match="DELTA_NOT_A_DELTA_TABLE"):
            frame.write.format("delta").mode("append").option("path", path).saveAsTable("forgotten")
        with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
            frame.write.format("delta").mode("append").option("path", path).saveAsTable("no_such_db.forgotten")
        assert spark.read.format("delta").load(path).count() == 9
    finally:
        spark.sql("DROP TABLE IF EXISTS forgotten")


def test_a_new_table_among_other_files(installed: SparkSession, tmp_path: Path) -> None:
    """Its VACUUM would delete them."""
    spark, path = installed, str(tmp_path / "raw")
    spark.range(3).write.parquet(path)
    for statement in (
        f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta",
        f"CREATE TABLE among USING delta LOCATION '{path}' AS SELECT 1 AS id",
        f"CREATE OR REPLACE TABLE among (id BIGINT) USING delta LOCATION '{path}'",
    ):
        with pytest.raises(DeltaAnalysisException, match=r"DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION.*CONVERT TO"):
            spark.sql(statement)
    assert not spark.catalog.tableExists("among")
    assert not (tmp_path / "raw" / "_delta_log").exists()
    spark.sql(f"CONVERT TO DELTA parquet.`{path}`")
    assert rows(spark.read.format("delta").load(path)) == [(0,), (1,), (2,)]


def test_a_new_table_beside_what_a_killed_write_has_left(installed: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t" / data_folder({})
    installed.range(3).write.parquet(str(folder))
    (tmp_path / "t" / "empty").touch()
    installed.sql(f"CREATE TABLE delta.`{tmp_path / 't'}` USING delta AS SELECT 1 AS id")
    assert rows(installed.read.format("delta").load(str(tmp_path / "t"))) == [(1,)]


def test_cached_queries(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    spark.range(3).write.format("delta").save(path)
    try:
        spark.sql(f"CACHE TABLE cached_delta AS SELECT id AS n FROM delta.`{path}` WHERE id > 0")
        spark.sql(f"CACHE LAZY TABLE lazily OPTIONS ('storageLevel' 'DISK_ONLY') AS SELECT * FROM delta.`{path}`")
        spark.sql(f"CACHE TABLE without_as OPTIONS ('storageLevel' = 'DISK_ONLY') SELECT id AS n FROM delta.`{path}`")
        spark.sql("CACHE TABLE of_table TABLE without_as;")
        assert rows(spark.sql("SELECT n FROM without_as")) == rows(spark.table("of_table")) == [(0,), (1,), (2,)]
        assert spark.catalog.isCached("without_as")
        assert rows(spark.sql("SELECT n FROM cached_delta")) == [(1,), (2,)]
        assert rows(spark.sql("SELECT * FROM lazily")) == [(0,), (1,), (2,)]
        assert spark.catalog.isCached("cached_delta")
        spark.sql("CACHE TABLE plain_cached WITH x AS (SELECT 1 AS a) SELECT a AS b FROM x")
        assert rows(spark.sql("SELECT b FROM plain_cached")) == [(1,)]
        with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
            spark.sql(f"CACHE TABLE lazily AS SELECT * FROM delta.`{path}`")
        assert spark.table("lazily").count() == 3
    finally:
        for view in ("cached_delta", "lazily", "plain_cached", "without_as", "of_table"):
            spark.catalog.dropTempView(view)


def test_details_of_other_tables(installed: SparkSession) -> None:
    installed.range(1).write.format("parquet").saveAsTable("not_delta")
    try:
        detail = installed.sql("DESCRIBE DETAIL not_delta").collect()[0]
        assert (detail["format"], detail["id"]) == ("parquet", None)
    finally:
        installed.sql("DROP TABLE not_delta")


def test_calls_are_replaced_once_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    session = type("Session", (), {})
    replaced: list[bool] = []

    def install(_: object) -> None:
        time.sleep(0.1)
        replaced.append(True)

    def begin() -> int:
        install_module._replace_calls()
        return len(replaced)

    monkeypatch.setattr(install_module, "_classes", lambda: [SimpleNamespace(session=session)])
    monkeypatch.setattr(install_module, "_install", install)
    with ThreadPoolExecutor(4) as pool:
        assert [begun.result() for begun in [pool.submit(begin) for _ in range(4)]] == [1] * 4


def test_names_that_scripts_import_by_a_star() -> None:
    names: dict[str, Any] = {}
    exec("from deltamerge.tables import *\nfrom deltamerge import configure_spark_with_delta_pip", names)
    assert {"DeltaTable", "DataFrame", "SparkSession", "StructType", "Optional", "functions"} <= names.keys()


def test_lists_of_paths(installed: SparkSession, tmp_path: Path) -> None:
    path, reader = str(tmp_path / "t"), installed.read.format("delta")
    for count in (2, 3):
        installed.range(count).write.format("delta").mode("overwrite").save(path)
    for found in (reader.load([path]), installed.read.load([path], format="delta"), reader.load(path=path)):
        assert rows(found) == [(0,), (1,), (2,)]
        assert "FileScan" in physical_plan(found) or "Scan parquet" in physical_plan(found)
    assert rows(reader.load([f"{path}@v0"])) == [(0,), (1,)]
    with pytest.raises(DeltaIllegalArgumentException, match=r"'path' is not specified.*unionByName"):
        reader.load([path, path])
    plain = str(tmp_path / "plain")
    installed.range(1).write.parquet(plain)
    assert installed.read.parquet(plain, plain).count() == 2
    assert installed.read.format("parquet").load([plain, plain]).count() == 2
