"""OPTIMIZE, RESTORE, VACUUM and clones beside delta-spark: what both commit, and that each goes on from the other's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from corpus.canonical import canonical_lines
from deltamerge import DeltaTable
from merge.tables import commit_info, latest_version

from .client import LineProcess
from .test_delete_update import PROPERTIES, table
from .turns import asked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.oracle

CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
# Bytes are each writer's own, and empty folders count for delta-spark.
UNLIKE = (
    "numAddedBytes", "numRemovedBytes", "minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize",
    "tableSizeAfterRestore", "numVacuumedDirectories", "removedFilesSize",
)  # fmt: skip


def committed(path: str) -> dict[str, Any]:
    info = commit_info(path, latest_version(path))
    info["operationMetrics"] = {k: v for k, v in info["operationMetrics"].items() if k not in UNLIKE}
    names = ("operation", "operationParameters", "operationMetrics", "isolationLevel", "isBlindAppend", "readVersion")
    return {name: info.get(name) for name in names}


@pytest.mark.parametrize("feature", ["plain", "vectors", "row tracking"])
def test_beside_delta_spark(feature: str, oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    """The same commands on a table and its copy commit the same, and each engine reads the other's table."""
    ours, theirs = table(oracle, tmp_path / "ours", PROPERTIES[feature]), str(tmp_path / "theirs")
    asked(oracle, f"DELETE FROM delta.`{ours}` WHERE id % 6 = 1")
    shutil.copytree(ours, theirs)
    opened, name = DeltaTable.forPath(spark, ours), f"delta.`{theirs}`"

    def same(what: str) -> None:
        assert committed(ours) == committed(theirs), what
        expected = oracle.ask("lines", path=theirs)
        assert oracle.ask("lines", path=ours) == expected, what
        assert canonical_lines(DeltaTable.forPath(spark, theirs).toDF()) == expected, what

    opened.optimize().executeCompaction()
    asked(oracle, f"OPTIMIZE {name}")
    same("compaction")
    opened.optimize().executeZOrderBy("id", "v")
    asked(oracle, f"OPTIMIZE {name} ZORDER BY (id, v)")
    same("z-order")
    opened.restoreToVersion(1)
    asked(oracle, f"RESTORE TABLE {name} TO VERSION AS OF 1")
    same("restore")
    spark.conf.set(CHECK, "false")
    try:
        opened.vacuum(0)
    finally:
        spark.conf.unset(CHECK)
    asked(oracle, f"SET {CHECK} = false", f"VACUUM {name} RETAIN 0 HOURS", f"SET {CHECK} = true")
    same("vacuum")


def test_clone_and_convert(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    """delta-spark reads and changes clones and converted tables."""
    path = table(oracle, tmp_path / "t", PROPERTIES["vectors"])
    DeltaTable.forPath(spark, path).delete("id % 6 = 1")
    clone = str(tmp_path / "clone")
    DeltaTable.forPath(spark, path).clone(clone, True)
    assert oracle.ask("lines", path=clone) == oracle.ask("lines", path=path)
    asked(oracle, f"DELETE FROM delta.`{clone}` WHERE id % 6 = 2")
    assert canonical_lines(DeltaTable.forPath(spark, clone).toDF()) == oracle.ask("lines", path=clone)
    parquet = str(tmp_path / "parquet")
    spark.range(10).selectExpr("id", "id % 2 AS p").write.partitionBy("p").parquet(parquet)
    made = DeltaTable.convertToDelta(spark, f"parquet.`{parquet}`", "p INT")
    asked(oracle, f"UPDATE delta.`{parquet}` SET id = -id WHERE p = 1")
    assert canonical_lines(made.toDF()) == oracle.ask("lines", path=parquet)
