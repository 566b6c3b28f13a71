"""Keys of the source that Spark computes: a key lookup with them agrees with the classic route."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import NumberFormatException
from pyspark.sql import functions as F

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.exceptions import MultipleSourceRowsException
from deltamerge.merge.limits import Limits
from merge.tables import CONNECT, DRIVER_BYTES, EXECUTOR, VECTORS, made_once, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltamerge.api.merge_builder import DeltaMergeBuilder

pytestmark = pytest.mark.sessions

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
KEYS = {
    "expression": "t.id = s.number - 1",
    "cast": "t.id = CAST(s.text AS BIGINT)",
    "another type": "t.id = CAST(s.text AS SMALLINT)",
    "field": "t.id = s.after.id",
    "two": "t.name = concat('n', s.after.id) AND s.number - 1 = t.id",
    "one of two": "t.day = date_add(DATE'2024-01-01', s.number - 1) AND t.id = s.id",
    "null-safe": "t.name <=> nullif(concat('n', s.after.id), 'n50')",
    "field and filters": "t.id = s.after.id AND s.number > 52 AND t.id <> 60",
}
CLAUSES = {
    "upsert": UPSERT,
    "some": "WHEN MATCHED AND s.number % 2 = 0 THEN UPDATE SET name = s.text, day = s.day WHEN MATCHED THEN DELETE",
    "counter": "WHEN MATCHED AND t.p = 1 THEN UPDATE SET n = t.n + s.number, name = upper(t.name) "
    "WHEN NOT MATCHED AND s.number > 503 THEN INSERT (id, name) VALUES (s.after.id, s.text)",
    "literals": "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (7, 'seven')",
    "by source": "WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.id < 30 THEN UPDATE SET n = t.n + 1",
    "moving": "WHEN MATCHED THEN UPDATE SET p = 3 - t.p, n = s.number",
}
TABLES: dict[str, dict[str, str]] = {
    "plain": {},
    "features": {**VECTORS, "delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true"},
}
CASES = [
    *((keys, "upsert", "plain") for keys in KEYS),
    *(("cast", clauses, "plain") for clauses in CLAUSES if clauses != "upsert"),
    *(("two", clauses, "features") for clauses in CLAUSES),
]


def table(spark: SparkSession, path: Path, properties: dict[str, str]) -> str:
    def make(folder: str) -> None:
        numbers = spark.range(100).selectExpr(
            *("id", "id % 3 AS p", "id * 10 AS n", "if(id % 10 = 0, NULL, concat('n', id)) AS name"),
            "date_add(DATE'2024-01-01', CAST(id AS INT)) AS day",
        )
        write_delta(numbers.coalesce(1), folder, partition_by=["p"], properties=properties)

    return made_once(path, f"computed keys {properties}", make)


def source(spark: SparkSession) -> None:
    """Makes a view as a change feed has its rows: the key is in a struct, or another column's value."""
    spark.sql(
        "SELECT id, CAST(id + 1 AS INT) AS number, CAST(id AS STRING) AS text, named_struct('id', id) AS after, "
        "id % 3 AS p, id * 100 AS n, concat('new', id) AS name, DATE'2020-02-02' AS day "
        "FROM (SELECT * FROM range(45, 90, 3) UNION ALL SELECT * FROM range(500, 510))"
    ).createOrReplaceTempView("computed_keys")


def outcome(
    spark: SparkSession, path: str, executor: str, keys: str, clauses: str, *, has_feed: bool
) -> dict[str, Any]:
    """Merges, and gives all that two executors must agree on."""
    spark.conf.set(EXECUTOR, executor)
    report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING computed_keys s ON {keys} {clauses}")
    assert report.outcome.executor == executor, report.outcome.executor_reason
    version, found = report.outcome.version, rows(DeltaTable.forPath(spark, path).toDF())
    changes: list[tuple[Any, ...]] = []
    if has_feed:
        feed = DeltaTable.forPath(spark, path).changes(version, version)
        changes = rows(feed.drop("_commit_version", "_commit_timestamp"))
    counts = {k: v for k, v in report.metrics.items() if k.startswith("numTargetRows") and k != "numTargetRowsCopied"}
    return {"rows": found, "changes": changes, "metrics": counts, "clauses": [c.rows for c in report.clauses]}


@pytest.mark.parametrize(("keys", "clauses", "properties"), CASES[:: 3 if CONNECT else 1])
def test_they_agree_with_the_classic_route(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, clauses: str, properties: str
) -> None:
    source(spark)
    # Keys are put into hash tables, in the driver, and sorted into an index, in tasks.
    ways = [("classic", Limits(), None), ("key_lookup", Limits(), None), ("key_lookup", Limits(source_rows=0), "0")]
    found = []
    for number, (executor, limits, driver_bytes) in enumerate(ways):
        path = table(spark, tmp_path / str(number), TABLES[properties])
        monkeypatch.setattr("deltamerge.merge.preparation.LIMITS", limits)
        if driver_bytes is not None:
            spark.conf.set(DRIVER_BYTES, driver_bytes)
        found.append(outcome(spark, path, executor, KEYS[keys], CLAUSES[clauses], has_feed=properties == "features"))
    assert found[0] == found[1] == found[2]


@pytest.mark.sessions
def test_files_without_the_computed_keys_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(100).coalesce(1), path)
    write_delta(spark.range(100, 200).coalesce(1), path, mode="append")
    new = spark.createDataFrame([("5",), ("120x",)], "text STRING")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = try_cast(s.text AS BIGINT)")
    report = merge.whenMatchedDelete().run()
    assert report.outcome.executor == "key_lookup"
    assert (report.metrics["numTargetRowsDeleted"], report.metrics["numTargetFilesAfterSkipping"]) == (1, 1)


def casting(spark: SparkSession, path: str, *texts: str) -> DeltaMergeBuilder:
    """Begins a merge of strings into a table with the ids 0, 1 and 2."""
    write_delta(spark.range(3), path)
    new = spark.createDataFrame([(text,) for text in texts], "text STRING")
    return DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = CAST(s.text AS BIGINT)")


@pytest.mark.sessions
def test_a_key_that_cannot_be_computed_fails_the_merge(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    with pytest.raises(NumberFormatException, match="'ten'"):
        casting(spark, path, "1", "ten").whenMatchedDelete().run()
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(0,), (1,), (2,)]


@pytest.mark.sessions
def test_computed_keys_that_repeat(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(MultipleSourceRowsException):
        casting(spark, str(tmp_path / "t"), "1", "01").whenMatchedUpdate(set={"id": "5"}).run()


def test_rows_that_pyarrow_does_not_write_are_joined(spark: SparkSession, tmp_path: Path) -> None:
    """It lacks the codec."""
    path = str(tmp_path / "t")
    spark.conf.set("spark.sql.parquet.compression.codec", "lz4")
    report = casting(spark, path, "1", "02", "7").whenMatchedUpdate(set={"id": "t.id * 10 + length(s.text)"}).run()
    plan = report.outcome.plan
    assert plan is not None
    assert (plan.match.choice, plan.changed_rows.choice) == ("join_files", "spark")
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(0,), (11,), (22,)]


def test_fields_of_columns_are_keys(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(3), path)
    new = spark.sql("SELECT named_struct('the id', 1L, 'x.y', 2L) AS `after it`")
    for name in ("the id", "x.y"):
        on = F.col("t.id") == F.col(f"s.`after it`.`{name}`")
        merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), on)
        assert merge.whenMatchedDelete().run().metrics["numTargetRowsDeleted"] == 1
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(0,)]
