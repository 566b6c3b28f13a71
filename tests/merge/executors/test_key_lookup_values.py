"""Values that PyArrow computes: the rows, changes and errors are those of Spark's expressions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from combinations import combinations
from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.merge.executors.key_matching import find_pairs
from merge.tables import EXECUTOR, made_once, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTIES = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "a feed": {"delta.enableChangeDataFeed": "true"},
    "mapped, tracked": {"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"},
    "vectors, a feed": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
}
CLAUSES = {
    "counters": (
        "WHEN MATCHED THEN UPDATE SET n = t.n + s.n, price = t.price * 1.10, name = t.name || '-' || s.name, "
        "hits = t.hits + 1 WHEN NOT MATCHED THEN INSERT (id, n, day) VALUES (s.id, s.n * 2, s.day)"
    ),
    "newest": (
        "WHEN MATCHED AND s.at > t.at THEN UPDATE SET at = s.at, day = CAST(s.at AS DATE), "
        "hits = coalesce(t.hits, 0) + 1 "
        "WHEN MATCHED THEN UPDATE SET hits = 0, name = NULL "
        "WHEN NOT MATCHED AND s.n > 5 THEN INSERT (id, at, name) VALUES (s.id, s.at, 'new') "
        "WHEN NOT MATCHED THEN INSERT (id, day, n) VALUES (s.id, s.day, 7)"
    ),
    "narrower": (
        "WHEN MATCHED AND s.n % 2 = 0 THEN UPDATE SET hits = s.n, price = s.cost, day = s.day "
        "WHEN MATCHED THEN UPDATE SET n = CASE WHEN t.n > s.n THEN t.n ELSE s.n END, price = s.cost + t.price "
        "WHEN NOT MATCHED THEN INSERT (id, hits, price) VALUES (s.id, s.n, s.cost)"
    ),
    "by source": (
        "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED BY SOURCE AND t.n > 3 THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET hits = t.hits - t.n, name = CASE WHEN t.n = 0 THEN 'zero' END"
    ),
}


def make_table(spark: SparkSession, folder: str, properties: dict[str, str]) -> None:
    builder = DeltaTable.create(spark).location(folder).addColumn("id", "BIGINT").addColumn("n", "INT")
    for name, kind in (("name", "STRING"), ("price", "DECIMAL(9, 2)"), ("at", "TIMESTAMP"), ("day", "DATE")):
        builder = builder.addColumn(name, kind)
    builder = builder.addColumn("hits", "SMALLINT").addColumn("year", "INT", generatedAlwaysAs="year(day)")
    builder = builder.addColumn("label", "STRING", generatedAlwaysAs="concat(name, '/', coalesce(name, 'none'))")
    for name, value in properties.items():
        builder = builder.property(name, value)
    builder.execute()
    given = spark.range(0, 30).selectExpr(
        "id",
        "CAST(id % 7 AS INT) AS n",
        "if(id % 4 = 0, NULL, concat('v', id)) AS name",
        "CAST(id AS DECIMAL(9, 2)) / 4 AS price",
        "timestamp_seconds(id * 86400) AS at",
        "date_add(DATE'2023-12-20', CAST(id AS INT)) AS day",
        "CAST(if(id % 5 = 0, NULL, id) AS SMALLINT) AS hits",
    )
    given = given.selectExpr("*", "CAST(price AS DECIMAL(9, 2)) AS p").drop("price").withColumnRenamed("p", "price")
    for part in ("id < 12", "id >= 12"):
        write_delta(given.where(part).coalesce(1), folder, mode="append")


def make_source(spark: SparkSession, folder: Path) -> None:
    source = spark.range(5, 60, 3).selectExpr(
        "id",
        "CAST(id % 11 AS BIGINT) AS n",
        "concat('s', id) AS name",
        "CAST(id AS DECIMAL(12, 4)) / 8 AS cost",
        "timestamp_seconds(if(id % 2 = 0, id * 90000, 5)) AS at",
        "if(id % 4 = 1, NULL, DATE'2025-01-31') AS day",
        "CAST(1 AS DECIMAL(9, 2)) AS price",
        "CAST(2 AS SMALLINT) AS hits",
    )
    source.coalesce(1).write.parquet(str(folder))
    spark.read.parquet(str(folder)).selectExpr("*").createOrReplaceTempView("computing")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "clauses"), combinations(PROPERTIES, CLAUSES))
def test_values(spark: SparkSession, tmp_path: Path, name: str, clauses: str) -> None:
    properties = PROPERTIES[name]
    make_source(spark, tmp_path / "source")
    found = {}
    for executor in ("classic", "key_lookup"):
        path = made_once(
            tmp_path / executor, f"with values {name}", lambda folder: make_table(spark, folder, properties)
        )
        spark.conf.set(EXECUTOR, executor)
        merged = f"MERGE INTO delta.`{path}` t USING computing s ON t.id = s.id {CLAUSES[clauses]}"
        report = merge_sql(spark, merged)
        assert report.outcome.plan is not None
        table = DeltaTable.forPath(spark, path)
        counted = {key: count for key, count in report.metrics.items() if key.startswith("numTargetRows")}
        counted.pop("numTargetRowsCopied")
        found[executor] = [rows(table.toDF()), counted]
        if "delta.enableChangeDataFeed" in properties:
            found[executor].append(rows(table.changes(3).drop("_commit_timestamp")))
    assert report.outcome.plan is not None and report.outcome.plan.changed_rows.choice == "arrow"
    assert found["key_lookup"] == found["classic"]


@pytest.mark.sessions
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_sum_that_overflows(spark: SparkSession, tmp_path: Path, ansi: str) -> None:
    """It is an error by ANSI's rules, and without them what Spark makes of it."""
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    spark.conf.set("spark.sql.storeAssignmentPolicy", "LEGACY")
    make_source(spark, tmp_path / "source")
    found: dict[str, object] = {}
    for executor in ("classic", "key_lookup"):
        path = made_once(tmp_path / executor, "with values plain", lambda folder: make_table(spark, folder, {}))
        spark.conf.set(EXECUTOR, executor)
        merged = f"MERGE INTO delta.`{path}` t USING computing s ON t.id = s.id "
        try:
            merge_sql(spark, merged + "WHEN MATCHED THEN UPDATE SET hits = t.hits + 32767S")
        except PySparkException as error:
            found[executor] = error.getCondition()
            assert DeltaTable.forPath(spark, path).history().count() == 3
        else:
            found[executor] = rows(DeltaTable.forPath(spark, path).toDF())
    assert found["key_lookup"] == found["classic"]
    assert isinstance(found["classic"], str) == (ansi == "true")


@pytest.mark.parametrize("features", ["plain", "vectors", "partitioned"])
@pytest.mark.parametrize(
    "clauses",
    [
        "WHEN NOT MATCHED THEN INSERT (name) VALUES ('missing')",
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (name, n) VALUES ('missing', 7)",
        "WHEN MATCHED THEN UPDATE SET n = t.n + 1 WHEN NOT MATCHED THEN INSERT (name, n) VALUES ('missing', DEFAULT)",
    ],
)
def test_rows_of_literals_are_as_many_as_the_sources(
    spark: SparkSession, tmp_path: Path, features: str, clauses: str
) -> None:
    """They read no column of it."""
    properties = {"delta.enableDeletionVectors": "true"} if features == "vectors" else {}
    partitions = ["n"] if features == "partitioned" else []
    spark.range(3, 8, 1, 1).write.parquet(str(tmp_path / "source"))
    spark.read.parquet(str(tmp_path / "source")).createOrReplaceTempView("as_many")
    found = {}
    for executor in ("classic", "auto"):
        path = str(tmp_path / executor)
        rows_before = spark.range(0, 4, 1, 2).selectExpr("id", "CAST(id AS INT) AS n", "'before' AS name")
        write_delta(rows_before, path, partition_by=partitions, properties=properties)
        spark.conf.set(EXECUTOR, executor)
        report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING as_many s ON t.id = s.id {clauses}")
        found[executor] = rows(DeltaTable.forPath(spark, path).toDF()), report.metrics["numTargetRowsInserted"]
    assert found["auto"] == found["classic"]
    assert found["auto"][1] == 4


@pytest.mark.parametrize("condition", ["true", "1 = 1", "1 = 0"])
def test_a_constant_condition_beside_values_of_spark(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1 AS id, 'a' AS v UNION ALL SELECT 2, 'b'"), path)
    spark.sql("SELECT 1 AS id, 'c' AS v").createOrReplaceTempView("constant_condition")
    spark.conf.set(EXECUTOR, "key_lookup")
    try:
        merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` t USING constant_condition s ON t.id = s.id "
            f"WHEN MATCHED AND {condition} THEN UPDATE SET v = upper(t.v || s.v)",
        )
    finally:
        spark.conf.unset(EXECUTOR)
    expected = "a" if condition == "1 = 0" else "AC"
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, expected), (2, "b")]


def test_strings_that_are_not_utf8(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT CAST(X'FFFE' AS STRING) AS k, 1 AS v"), path)
    for source in ("SELECT CAST(X'FFFE' AS STRING) AS k, 2 AS v", "SELECT CAST(X'FFFD' AS STRING) AS k, 3 AS v"):
        frame = spark.sql(source)
        frame.createOrReplaceTempView("not_utf8")
        clauses = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        merge_sql(spark, f"MERGE INTO delta.`{path}` t USING not_utf8 s ON t.k = s.k {clauses}")
    frame.write.parquet(str(tmp_path / "source"))
    spark.read.parquet(str(tmp_path / "source")).selectExpr("*").createOrReplaceTempView("not_utf8")
    merge_sql(spark, f"MERGE INTO delta.`{path}` t USING not_utf8 s ON t.k = s.k {clauses}")
    found = DeltaTable.forPath(spark, path).toDF().selectExpr("hex(CAST(k AS BINARY)) AS k", "v")
    assert rows(found) == [("FFFD", 3), ("FFFE", 2)]


def test_a_source_that_is_replaced_while_it_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merge has the rows of one of the two, as by a plan that lets Spark read them."""
    path, source = str(tmp_path / "t"), tmp_path / "source"
    write_delta(spark.range(4).selectExpr("id", "id % 2 AS p"), path, partition_by=["p"])
    source.mkdir()
    schema = pa.schema([("id", pa.int64()), ("p", pa.int64())])
    pq.write_table(pa.table([[2, 7], [0, 1]], schema=schema), source / "rows.parquet")

    def replacing(*given: Any) -> Any:
        found = find_pairs(*given)
        pq.write_table(pa.table([[2, 8, 9], [0, 0, 1]], schema=schema), source / "rows.parquet")
        return found

    monkeypatch.setattr("deltamerge.merge.executors.key_lookup.find_pairs", replacing)
    spark.read.parquet(str(source)).createOrReplaceTempView("replaced")
    clauses = "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING replaced s ON t.id = s.id {clauses}")
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(0, 0), (1, 1), (3, 1), (8, 0), (9, 1)]
    assert report.outcome.plan is not None
    assert any("changed meanwhile" in each.reason for each in report.outcome.plan.source.declined)
