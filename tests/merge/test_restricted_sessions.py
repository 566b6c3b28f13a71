"""Sessions that refuse settings, checkpoints and the calls of a JVM, as serverless compute and shared clusters do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from deltamerge import DeltaTable, write_delta
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.spark.held_settings import for_reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MATERIALIZE = "spark.databricks.delta.merge.materializeSource"
EXECUTOR = "spark.deltamerge.merge.executor"
FORMAT_CHECK = "spark.databricks.delta.formatCheck.enabled"


def refuse(*_: Any, **__: Any) -> Any:
    raise AnalysisException("[NOT_SUPPORTED_WITH_SERVERLESS] refused", "NOT_SUPPORTED_WITH_SERVERLESS")


@pytest.fixture
def restricted(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """A session that sets nothing any more, and keeps no rows."""
    monkeypatch.setattr(type(spark.range(1)), "localCheckpoint", refuse)
    monkeypatch.setattr(type(spark.conf), "set", refuse)
    return spark


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    write_delta(spark.range(10).selectExpr("id", "id AS v"), str(tmp_path / "t"))
    return str(tmp_path / "t")


def counted(spark: SparkSession, path: str) -> Any:
    """Merges by a condition that only Spark evaluates."""
    merge = DeltaTable.forPath(spark, path).alias("t").merge(spark.range(5, 15).alias("s"), "t.id + 0 = s.id + 0")
    return merge.whenMatchedUpdate(set={"v": "t.v + 100"}).whenNotMatchedInsert(values={"id": "s.id", "v": "0"})


def rows(spark: SparkSession, path: str) -> dict[int, int]:
    return {row["id"]: row["v"] for row in DeltaTable.forPath(spark, path).toDF().collect()}


EXPECTED = {i: i + 100 if 5 <= i < 10 else 0 if i >= 10 else i for i in range(15)}


def test_a_key_lookup_needs_nothing_of_it(restricted: SparkSession, path: str) -> None:
    merge = DeltaTable.forPath(restricted, path).alias("t").merge(restricted.range(5, 15).alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdate(set={"v": "t.v + 100"}).whenNotMatchedInsert(values={"id": "s.id", "v": "0"}).run()
    assert report.outcome.executor == "key_lookup"
    assert rows(restricted, path) == EXPECTED


def test_rows_that_must_be_kept(restricted: SparkSession, path: str) -> None:
    before = rows(restricted, path)
    with pytest.raises(DeltaAnalysisException, match=f"set {MATERIALIZE} to none"):
        counted(restricted, path).run()
    assert rows(restricted, path) == before


def test_a_forecast(restricted: SparkSession, path: str) -> None:
    with pytest.raises(DeltaAnalysisException, match=r"DELTAMERGE_FORECAST_NOT_AVAILABLE.*localCheckpoint"):
        counted(restricted, path).plan(analyze=True)


def test_a_source_that_may_be_read_twice(spark: SparkSession, path: str, request: pytest.FixtureRequest) -> None:
    spark.conf.set(MATERIALIZE, "none")
    restricted = request.getfixturevalue("restricted")
    assert counted(restricted, path).run().outcome.plan.source.choice == "recomputed"
    assert rows(restricted, path) == EXPECTED


def test_an_insert_that_reads_the_source_once(restricted: SparkSession, path: str) -> None:
    merge = DeltaTable.forPath(restricted, path).alias("t")
    merged = merge.merge(restricted.range(5, 15).alias("s"), "t.id + 0 = s.id + 0")
    report = merged.whenNotMatchedInsert(values={"id": "s.id", "v": "0"}).run()
    assert report.outcome.plan is not None
    assert report.outcome.plan.source.choice == "read_once"
    assert len(rows(restricted, path)) == 15


def test_a_setting_without_which_nothing_is_written(restricted: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DeltaAnalysisException, match=r"DELTAMERGE_SETTING_REFUSED.*outputTimestampType"):
        write_delta(restricted.sql("SELECT timestamp'2024-01-01 00:00:00' AS at"), str(tmp_path / "new"))
    assert not list((tmp_path).glob("new/*.parquet"))


def test_a_check_of_the_platform_is_off_while_the_table_is_read(spark: SparkSession, path: str) -> None:
    assert FORMAT_CHECK not in for_reading(spark)
    spark.conf.set(FORMAT_CHECK, "true")
    seen = []

    class Seen:
        def step(self, name: str, _: str) -> None:
            seen.append((name, spark.conf.get(FORMAT_CHECK)))

    merge = DeltaTable.forPath(spark, path).alias("t").merge(spark.range(3).alias("s"), "t.id = s.id")
    merge.whenMatchedDelete().run(progress=Seen())
    assert seen and {value for _, value in seen} == {"false"}
    assert spark.conf.get(FORMAT_CHECK) == "true"
