"""Row-level concurrency where delta-spark or delta-rs is the writer that comes first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import write_deltalake

from deltamerge import DeltaTable
from merge.tables import commit_info, latest_version
from merge.test_transactions import Once

from .client import LineProcess
from .turns import FIRST, UPSERT, all_read, asked, delta_rs_reads, made

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from deltamerge import MergeReport

pytestmark = pytest.mark.oracle

VECTORS = "'delta.enableDeletionVectors' = 'true'"
PROPERTIES = {
    "plain": "",
    "row tracking": ", 'delta.enableRowTracking' = 'true'",
    "change data": ", 'delta.enableChangeDataFeed' = 'true'",
}


def upsert(spark: SparkSession, path: str, values: dict[int, str | None], first: Callable[[], object]) -> MergeReport:
    source = spark.createDataFrame([*values.items()], "k INT, v STRING").alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.k = s.k")
    merge = merge.whenMatchedDelete("s.v IS NULL").whenMatchedUpdateAll().whenNotMatchedInsertAll()
    return merge.run(progress=Once("commit", first))


@pytest.mark.parametrize("feature", PROPERTIES)
def test_delta_spark_first(oracle: LineProcess, spark: SparkSession, tmp_path: Path, feature: str) -> None:
    clustered = "CLUSTER BY (k) " if feature == "plain" else ""
    options = f"{clustered}TBLPROPERTIES ({VECTORS}{PROPERTIES[feature]})"
    path = made(oracle, tmp_path / "t", "k INT, v STRING", options)
    merged = UPSERT.format(path=path, values="(1, NULL), (2, 'B'), (12, 'new')")
    report = upsert(spark, path, {3: "C", 4: None, 13: "new"}, lambda: asked(oracle, merged))
    assert [(o.version, o.operation) for o in report.outcome.reconciled_with] == [(2, "MERGE")]
    expected = {2: "B", 12: "new", 3: "C", 5: "e", 13: "new"}
    delta_rs_reads(spark, path, all_read(oracle, spark, path, expected), tmp_path)
    # delta-spark goes on from the united vector.
    asked(oracle, f"UPDATE delta.`{path}` SET v = 'E' WHERE k = 5")
    report = upsert(spark, path, {2: "b"}, lambda: asked(oracle, f"DELETE FROM delta.`{path}` WHERE k = 12"))
    assert [(o.version, o.operation) for o in report.outcome.reconciled_with] == [(5, "DELETE")]
    all_read(oracle, spark, path, {2: "b", 3: "C", 5: "E", 13: "new"})
    # The same row, and a rewritten file: it runs again.
    report = upsert(spark, path, {5: "f"}, lambda: asked(oracle, f"UPDATE delta.`{path}` SET v = 'F' WHERE k = 5"))
    assert (len(report.outcome.lost_to), report.outcome.reconciled_with) == (1, ())
    optimized = f"OPTIMIZE delta.`{path}`" + (" FULL" if clustered else "")
    report = upsert(spark, path, {2: "c"}, lambda: asked(oracle, optimized))
    assert report.outcome.reconciled_with == ()
    all_read(oracle, spark, path, {2: "c", 3: "C", 5: "f", 13: "new"})


def test_delta_rs_first(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = made(oracle, tmp_path / "t", "k INT, v STRING", f"TBLPROPERTIES ({VECTORS})")
    rows = pa.table({"k": pa.array([30], pa.int32()), "v": ["rs"]})

    def appended() -> None:
        write_deltalake(path, rows, mode="append")

    report = upsert(spark, path, {2: "B", 13: "new"}, appended)
    assert latest_version(path) == report.version == 3
    assert report.outcome.lost_to == ()

    def deleted() -> None:
        DeltaRs(path).delete("k = 30")

    report = upsert(spark, path, {3: "C"}, deleted)
    assert (report.outcome.lost_to, report.version) == ((), latest_version(path))
    report = upsert(spark, path, {13: None}, lambda: DeltaRs(path).delete("k = 4"))
    assert report.version == latest_version(path)
    expected = {key: value for key, value in FIRST.items() if key != 4} | {2: "B", 3: "C"}
    all_read(oracle, spark, path, expected)


def test_delta_spark_generates_keys_first(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    columns = "id BIGINT GENERATED ALWAYS AS IDENTITY, k INT, v STRING"
    path = made(oracle, tmp_path / "t", columns)
    inserted = f"INSERT INTO delta.`{path}` (k, v) VALUES (6, 'f')"
    source = spark.sql("SELECT 2 AS k, 'B' AS v").alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.k = s.k").whenMatchedUpdate(set={"v": "s.v"})
    report = merge.run(progress=Once("commit", lambda: asked(oracle, inserted)))
    assert (report.version, report.outcome.lost_to) == (3, ())
    all_read(oracle, spark, path, {**FIRST, 2: "B", 6: "f"})
    assert commit_info(path, 2)["tags"] == {"delta.identity.schemaUpdate": "true"}


@pytest.mark.parametrize(
    "given",
    [
        "enableRowTracking=true",
        "enableDeletionVectors=true",
        "enableInCommitTimestamps=true",
        "columnMapping.mode=name",
    ],
)
def test_delta_spark_enables_a_feature_first(
    oracle: LineProcess, spark: SparkSession, tmp_path: Path, given: str
) -> None:
    path, (key, value) = made(oracle, tmp_path / "t", "k INT, v STRING"), given.split("=")
    change = f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.{key}' = '{value}')"
    report = upsert(spark, path, {2: "B", 13: "new"}, lambda: asked(oracle, change))
    assert len(report.outcome.lost_to) == 1
    all_read(oracle, spark, path, {**FIRST, 2: "B", 13: "new"})
