"""What scripts ask of Delta besides rows: that drift of types fails, which errors they catch, what the catalog says."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException, UnsupportedOperationException
from pyspark.sql import functions as F

from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import open_store
from deltamerge.tables import DeltaTable
from merge.tables import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("merges", ["true", "false"])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT '7' AS id, named_struct('n', 1) AS s",
        "SELECT 5.7D AS id, named_struct('n', 1) AS s",
        "SELECT 7L AS id, named_struct('n', 'x') AS s",
    ],
)
def test_drift_of_types_is_an_error_at_a_path(
    installed: SparkSession, tmp_path: Path, mode: str, merges: str, query: str
) -> None:
    spark, path = installed, str(tmp_path / "t")
    spark.sql("SELECT 1L AS id, named_struct('n', 1) AS s").write.format("delta").save(path)
    writer = spark.sql(query).write.format("delta").mode(mode).option("mergeSchema", merges)
    with pytest.raises(AnalysisException, match="DELTA_FAILED_TO_MERGE_FIELDS"):
        writer.save(path)
    assert rows(spark.read.format("delta").load(path)) == [(1, (1,))]


def test_what_every_value_fits_into_is_no_drift(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    spark.sql("SELECT 1L AS id, CAST(1 AS DECIMAL(9, 2)) AS d, 'a' AS v").write.format("delta").save(path)
    more = spark.sql("SELECT 2 AS id, CAST(2 AS DECIMAL(5, 1)) AS d, NULL AS v")
    more.write.format("delta").mode("append").save(path)
    assert rows(spark.read.format("delta").load(path)) == [(1, Decimal(1), "a"), (2, Decimal(2), None)]


def test_tables_by_name_take_what_an_insert_takes(database: str, installed: SparkSession) -> None:
    spark = installed
    spark.sql("CREATE TABLE named (id BIGINT) USING delta")
    spark.sql("SELECT '7' AS id").write.format("delta").mode("append").saveAsTable("named")
    spark.sql("SELECT '8' AS id").write.insertInto("named")
    assert rows(spark.table("named")) == [(7,), (8,)]


def test_columns_without_a_type_are_added(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    spark.sql("SELECT 1L AS id").write.format("delta").save(path)
    for query in ("SELECT 2L AS id, NULL AS n", "SELECT 3L AS id, NULL AS n, NULL AS m", "SELECT 4L AS id, 5 AS n"):
        spark.sql(query).write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    found = spark.read.format("delta").load(path)
    assert found.dtypes == [("id", "bigint"), ("n", "int"), ("m", "void")]
    assert rows(found.select("id", "n")) == [(1, None), (2, None), (3, None), (4, 5)]


def test_a_column_gets_its_type_where_types_are_widened(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    writer = spark.sql("SELECT 1L AS id").write.format("delta").option("delta.enableTypeWidening", "true")
    writer.save(path)
    for query in ("SELECT 2L AS id, NULL AS n", "SELECT 3L AS id, 5 AS n"):
        spark.sql(query).write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    assert rows(spark.read.format("delta").load(path)) == [(1, None), (2, None), (3, 5)]
    more = spark.sql("SELECT 4L AS id, 6 AS n").write.format("delta").mode("append")
    more.save(path)
    assert rows(DeltaTable.forPath(spark, path).toDF().where("n = 6")) == [(4, 6)]


def test_parts_of_columns_have_a_type(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    spark.sql("SELECT 1L AS id, array(named_struct('x', 1)) AS a, CAST(7 AS SMALLINT) AS n").write.format("delta").save(
        path
    )
    for query in ("SELECT array(named_struct('x', 1, 'v', NULL)) AS a", "SELECT named_struct('v', NULL) AS s"):
        writer = spark.sql(query).write.format("delta").mode("append").option("mergeSchema", "true")
        with pytest.raises(AnalysisException, match="DELTA_MERGE_ADD_VOID_COLUMN"):
            writer.save(path)


def test_small_integers_become_wider(installed: SparkSession, tmp_path: Path) -> None:
    """As in delta-spark, without type widening: data files store them alike."""
    spark, path = installed, str(tmp_path / "t")
    first = spark.sql("SELECT 1L AS id, CAST(7 AS SMALLINT) AS n, named_struct('b', CAST(1 AS TINYINT)) AS s")
    first.write.format("delta").save(path)
    wider = spark.sql("SELECT 2L AS id, 70000 AS n, named_struct('b', CAST(300 AS SMALLINT)) AS s")
    writer = wider.write.format("delta").mode("append")
    with pytest.raises(AnalysisException, match=r"DELTA_METADATA_MISMATCH.*n is int in the frame and smallint"):
        writer.save(path)
    writer.option("mergeSchema", "true").save(path)
    first.write.format("delta").mode("append").save(path)
    table = DeltaTable.forPath(spark, path)
    assert table.toDF().schema.simpleString() == "struct<id:bigint,n:int,s:struct<b:smallint>>"
    assert "delta.typeChanges" not in str(load_snapshot(open_store(path)).metadata.schema_string)
    source = spark.sql("SELECT 1L AS id, 80000 AS n, named_struct('b', CAST(400 AS SMALLINT)) AS s")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id AND t.n = 7")
    merge.whenMatchedUpdate(set={"n": "t.n + s.n", "s": "s.s"}).execute()
    expected = [(1, 80007, (400,)), (1, 80007, (400,)), (2, 70000, (300,))]
    assert rows(spark.read.format("delta").load(path)) == expected
    by_rs = DeltaRs(path).to_pyarrow_table().sort_by("id").to_pylist()
    assert [(row["id"], row["n"], (row["s"]["b"],)) for row in by_rs] == expected


def test_errors_that_scripts_catch(installed: SparkSession, tmp_path: Path) -> None:
    spark, path = installed, str(tmp_path / "t")
    spark.sql("SELECT 1L AS id, 'a' AS p").write.format("delta").save(path)
    other = spark.sql("SELECT 3L AS id, 'b' AS p").write.format("delta").mode("overwrite")
    with pytest.raises(AnalysisException, match="DELTA_REPLACE_WHERE_MISMATCH"):
        other.option("replaceWhere", "id = 2").save(path)
    with pytest.raises(AnalysisException, match="DELTA_VERSION_NOT_FOUND"):
        spark.read.format("delta").option("versionAsOf", 99).load(path).collect()
    with pytest.raises(AnalysisException, match="schema mismatch detected when writing to the Delta table"):
        spark.sql("SELECT 1L AS id, 1 AS more").write.format("delta").mode("append").save(path)
    with pytest.raises(AnalysisException, match="do not match the partition columns of the table"):
        spark.range(1).write.format("delta").mode("append").partitionBy("p").save(path)
    twice = spark.sql("SELECT explode(array(1L, 1L)) AS id").alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(twice, "t.id = s.id").whenMatchedUpdate(set={"p": "'c'"})
    with pytest.raises(UnsupportedOperationException, match="MULTIPLE_SOURCE_ROW"):
        merge.execute()
    with pytest.raises(AnalysisException, match="`Bucketing` is not supported for Delta tables"):
        spark.range(1).write.format("delta").bucketBy(2, "id").saveAsTable("in_buckets")


def test_the_exceptions_of_wrong_calls(database: str, installed: SparkSession, tmp_path: Path) -> None:
    """Scripts catch them by their classes, which are delta-spark's."""
    spark, path = installed, str(tmp_path / "t")
    frame = spark.sql("SELECT 1L AS id, 'a' AS p, TIMESTAMP'2020-01-01 00:00:00' AS at")
    write = frame.write.format("delta").mode("append")
    for place in (None, ""):
        with pytest.raises(IllegalArgumentException, match="'path' is not specified"):
            write.save(place)
    write.partitionBy("p").save(path)
    table = DeltaTable.forPath(spark, path)
    merge = table.alias("t").merge(frame.alias("s"), "t.id = = s.id").whenMatchedDelete()
    wrong_sql: list[Callable[[], object]] = [
        lambda: table.delete("id = = 1"),
        lambda: table.update("id = = 1", {"id": "1"}),
        lambda: table.update("id = 1", {"id": "1 + + * 2"}),
        merge.execute,
    ]
    for wrong in wrong_sql:
        with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
            wrong()
    overwrite = frame.write.format("delta").mode("overwrite")
    with pytest.raises(AnalysisException, match=r"DELTA_FAILED_RECOGNIZE_PREDICATE.*'p = = 1'"):
        overwrite.option("replaceWhere", "p = = 1").save(path)
    dynamic = overwrite.option("partitionOverwriteMode", "dynamic")
    with pytest.raises(IllegalArgumentException, match="REPLACE_WHERE_WITH_DYNAMIC"):
        dynamic.option("replaceWhere", "p = 'a'").save(path)
    for version, kind, error in (
        ("-1", AnalysisException, "DELTA_VERSION_NOT_FOUND"),
        ("abc", IllegalArgumentException, "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE"),
    ):
        with pytest.raises(kind, match=error):
            spark.read.format("delta").option("versionAsOf", version).load(path).collect()
    for column, error in (
        (F.partitioning.months("at"), r"DELTA_OPERATION_NOT_ALLOWED\].*months\(at\)"),
        (F.partitioning.bucket(4, "id"), "DELTA_OPERATION_NOT_ALLOWED_DETAIL.*Bucketing"),
    ):
        with pytest.raises(AnalysisException, match=error):
            frame.writeTo("by_expression").using("delta").partitionedBy(column).create()
    with pytest.raises(AnalysisException, match="DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION"):
        DeltaTable.create(spark).addColumn("id", "INT").execute()
    with pytest.raises(AnalysisException, match="SORT_BY_WITHOUT_BUCKETING"):
        frame.write.format("delta").mode("append").sortBy("id").save(path)
    assert table.history().count() == 1


def test_what_the_catalog_says(database: str, installed: SparkSession) -> None:
    spark = installed
    spark.sql("CREATE TABLE named (id BIGINT NOT NULL, p STRING) USING delta PARTITIONED BY (p) COMMENT 'of orders'")
    found = {c.name: (c.nullable, c.isPartition) for c in spark.catalog.listColumns("named")}
    assert found == {"id": (False, False), "p": (True, True)}
    assert spark.catalog.listColumns("named", database) == spark.catalog.listColumns(f"{database}.named")
    assert spark.catalog.getTable("named").description == "of orders"
    spark.sql("ALTER TABLE named ADD COLUMNS (more VARCHAR(9) COMMENT 'later')")
    (more,) = (c for c in spark.catalog.listColumns("named") if c.name == "more")
    assert (more.dataType, more.description) == ("varchar(9)", "later")
    described = {row.col_name: row.data_type for row in spark.sql("DESCRIBE EXTENDED named").collect()}
    assert {key: described[key] for key in ("Catalog", "Database", "Table", "Type")} == {
        "Catalog": "spark_catalog",
        "Database": database,
        "Table": "named",
        "Type": "MANAGED",
    }


def test_comments_of_columns(database: str, installed: SparkSession) -> None:
    spark = installed
    spark.sql("CREATE TABLE named (id BIGINT, p STRING) USING delta")
    spark.sql("COMMENT ON COLUMN named.p IS 'the part'")
    assert {row.col_name: row.comment for row in spark.sql("DESCRIBE named").collect()}["p"] == "the part"
    with pytest.raises(AnalysisException, match="REPLACE COLUMNS"):
        spark.sql("ALTER TABLE named REPLACE COLUMNS (j STRING)")
    assert spark.table("named").columns == ["id", "p"]
