"""What a write may change of a table, and what guards it: as delta-spark's, since jobs rely on both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from deltamerge.tables import DeltaTable
from merge.tables import files_below, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.sessions, pytest.mark.slow]


def test_a_date_becomes_a_timestamp_where_the_table_may_have_it(installed: SparkSession, database: str) -> None:
    """A type that the protocol does not name would make a table that nobody can write."""
    installed.sql("CREATE TABLE t (a INT, d DATE) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    installed.sql("INSERT INTO t VALUES (1, DATE'2024-01-01')")
    widened = "ALTER TABLE t ALTER COLUMN d TYPE TIMESTAMP_NTZ"
    with pytest.raises(AnalysisException, match=r"DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT.*timestampNtz"):
        installed.sql(widened)
    installed.sql("INSERT INTO t VALUES (2, NULL)")
    installed.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")
    installed.sql(widened)
    installed.sql("INSERT INTO t VALUES (3, TIMESTAMP_NTZ'2024-01-01 01:00:00')")
    assert rows(installed.sql("SELECT a, d IS NULL FROM t")) == [(1, False), (2, True), (3, False)]


@pytest.mark.parametrize("kind", ["ARRAY<INT>", "STRUCT<x: INT>", "MAP<STRING, INT>", "VARIANT", "VOID"])
def test_types_that_are_no_partitions(installed: SparkSession, database: str, tmp_path: Path, kind: str) -> None:
    with pytest.raises(AnalysisException, match="DELTA_INVALID_PARTITION_COLUMN_TYPE"):
        installed.sql(f"CREATE TABLE t (id INT, p {kind}) USING delta PARTITIONED BY (p)")
    frame = installed.sql(f"SELECT 1 AS id, CAST(NULL AS {kind}) AS p")
    with pytest.raises(AnalysisException, match="DELTA_INVALID_PARTITION_COLUMN_TYPE"):
        frame.write.format("delta").partitionBy("p").save(str(tmp_path / "t"))
    assert not files_below(str(tmp_path))


def test_frames_without_a_partition_column(installed: SparkSession, database: str, tmp_path: Path) -> None:
    """Their rows would all be in the partition of NULL."""
    path, frame = str(tmp_path / "t"), installed.range(4).selectExpr("id", "id % 2 AS c")
    frame.write.format("delta").partitionBy("c").save(path)
    frame.write.format("delta").partitionBy("c").saveAsTable("t")
    for mode in ("append", "overwrite"):
        with pytest.raises(AnalysisException, match="DELTA_PARTITION_COLUMN_NOT_FOUND"):
            frame.drop("c").write.format("delta").mode(mode).save(path)
        with pytest.raises(AnalysisException, match=r"DELTA_METADATA_MISMATCH.*columns that table .* lacks: n\b"):
            frame.selectExpr("id", "c AS n").write.format("delta").mode(mode).save(path)
    with pytest.raises(AnalysisException, match="DELTA_PARTITION_COLUMN_NOT_FOUND"):
        frame.drop("c").write.format("delta").mode("overwrite").saveAsTable("t")
    with pytest.raises(AnalysisException, match="DELTA_METADATA_MISMATCH"):
        frame.selectExpr("id", "c AS n").write.format("delta").mode("overwrite").saveAsTable("t")
    frame.drop("c").write.format("delta").mode("append").saveAsTable("t")
    assert installed.table("t").where("c IS NULL").count() == 4
    assert installed.read.format("delta").load(path).where("c IS NULL").count() == 0


def test_a_partition_column_that_the_table_computes(installed: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made = DeltaTable.create(installed).location(path).addColumn("at", "TIMESTAMP")
    made.addColumn("day", "DATE", generatedAlwaysAs="CAST(at AS DATE)").partitionedBy("day").execute()
    frame = installed.sql("SELECT TIMESTAMP'2024-05-01 12:00:00' AS at")
    frame.write.format("delta").mode("append").save(path)
    assert str(installed.read.format("delta").load(path).first()["day"]) == "2024-05-01"  # type: ignore[index]


def test_an_overwrite_by_name_keeps_the_types(installed: SparkSession, database: str) -> None:
    installed.range(6).selectExpr("id", "1 AS n").write.format("delta").saveAsTable("t")
    drifted = installed.range(6).withColumn("n", F.lit("7"))
    with pytest.raises(AnalysisException, match="DELTA_FAILED_TO_MERGE_FIELDS"):
        drifted.write.format("delta").mode("overwrite").saveAsTable("t")
    drifted.write.format("delta").mode("append").saveAsTable("t")
    assert rows(installed.sql("SELECT sum(n), count(*) FROM t")) == [(48, 12)]


def test_a_table_that_gets_its_columns_later(installed: SparkSession, database: str, tmp_path: Path) -> None:
    installed.sql("CREATE TABLE raw USING delta")
    DeltaTable.create(installed).tableName("other").execute()
    for name in ("raw", "other"):
        with pytest.raises(AnalysisException, match="DELTA_READ_TABLE_WITHOUT_COLUMNS"):
            installed.table(name).collect()
        frame = installed.range(3)
        frame.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(name)
        assert installed.table(name).count() == 3
    with pytest.raises(AnalysisException, match=r"cannot have the table .*e at .* before it has columns"):
        installed.sql(f"CREATE TABLE e USING delta LOCATION '{tmp_path / 'e'}'")


def test_an_append_does_not_look_at_replace_where(installed: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for _ in range(2):
        installed.range(3).write.format("delta").mode("append").option("replaceWhere", "id = 1").save(path)
    assert installed.read.format("delta").load(path).count() == 6


def test_variants_are_added_to_a_table(installed: SparkSession, database: str, tmp_path: Path) -> None:
    """Their feature is turned on with the column, as by delta-spark."""
    installed.sql("CREATE TABLE t (a INT) USING delta")
    installed.sql("ALTER TABLE t ADD COLUMN v VARIANT")
    installed.sql("INSERT INTO t SELECT 1, parse_json('{\"x\": 1}')")
    assert rows(installed.sql("SELECT v:x::int FROM t")) == [(1,)]
    path, added = str(tmp_path / "u"), installed.sql("SELECT 2L AS id, parse_json('[2]') AS v")
    installed.range(1).write.format("delta").save(path)
    added.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    merged = str(tmp_path / "m")
    installed.range(1).write.format("delta").save(merged)
    merge = DeltaTable.forPath(installed, merged).alias("t").merge(added.alias("s"), "t.id = s.id")
    merge.withSchemaEvolution().whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    for each in (path, merged):
        assert "variantType" in DeltaTable.forPath(installed, each).detail().collect()[0]["tableFeatures"]
        assert rows(installed.read.format("delta").load(each).selectExpr("id", "v:[0]::int")) == [(0, None), (2, 2)]
