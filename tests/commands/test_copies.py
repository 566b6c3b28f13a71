"""CLONE and CONVERT: tables made of other tables' and of Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltamerge import DeltaTable
from deltamerge.exceptions import DeltaAnalysisException, DeltaTableNotFoundException
from merge.tables import VECTORS, actions, commit_info, files_below

from .test_delete_update import table, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_clone(spark: SparkSession, tmp_path: Path) -> None:
    """A clone has the source's rows, deletion vectors too, and goes its own way."""
    path, target = table(spark, tmp_path, VECTORS, partition_by=("p",)), str(tmp_path / "clone")
    source = DeltaTable.forPath(spark, path)
    source.delete("id % 5 = 0")
    clone = source.clone(target, isShallow=True, properties={"own": "1"})
    expected = values(spark, path)
    assert values(spark, target) == expected
    assert not [name for name in files_below(target) if name.endswith(".parquet")]
    info = commit_info(target, 0)
    assert info["operationParameters"] == {"source": f"delta.`file:{path}`", "sourceVersion": 2}
    assert clone.detail().collect()[0]["properties"]["own"] == "1"
    clone.update("id = 1", {"v": "-1"})
    clone.delete("id = 2")
    assert values(spark, target) == {i: -1 if i == 1 else v for i, v in expected.items() if i != 2}
    assert values(spark, path) == expected
    with pytest.raises(DeltaAnalysisException, match="DELTA_PATH_EXISTS"):
        source.clone(target, True)
    with pytest.raises(ValueError, match="isShallow needs to be a boolean"):
        source.clone(target, 1)  # type: ignore[arg-type]
    earlier = source.cloneAtVersion(1, str(tmp_path / "earlier"), True)
    assert earlier.toDF().count() == 20


def test_convert(spark: SparkSession, tmp_path: Path) -> None:
    """Parquet files become a table where they are, with statistics and partition values from their folders."""
    path = str(tmp_path / "t")
    rows = spark.range(10).selectExpr(
        "id", "IF(id % 3 = 0, NULL, CONCAT('a b/', id % 3)) AS p", "DATE'2024-01-01' AS d"
    )
    rows.write.partitionBy("p").parquet(path)
    with pytest.raises(DeltaAnalysisException, match="DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS"):
        DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    made = DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "p STRING")
    assert made.toDF().exceptAll(rows.select("id", "d", "p")).count() == 0
    assert made.toDF().count() == 10
    assert all("numRecords" in add["stats"] for add in actions(path, 0, "add"))
    assert commit_info(path, 0)["operation"] == "CONVERT"
    made.delete("p IS NULL")
    made.update("p = 'a b/1'", {"id": "-id"})
    assert made.toDF().where("id < 0").count() == 3
    DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "p STRING")
    with pytest.raises(DeltaAnalysisException, match="DELTA_MISSING_PROVIDER_FOR_CONVERT"):
        DeltaTable.convertToDelta(spark, path)
    with pytest.raises(DeltaTableNotFoundException, match="DELTA_EMPTY_DIRECTORY"):
        DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path / 'none'}`")
