"""Frames of tables are light for Spark's optimizer, whatever a query computes from their columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltamerge import DeltaTable, write_delta
from deltamerge.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.sessions

PARTITIONS = 12


def test_partition_columns_that_no_folder_names(spark: SparkSession, tmp_path: Path) -> None:
    names = [f"p{i}" for i in range(PARTITIONS)]
    # Spark does not read decimals from folders as the log has them.
    values = [f"if(id = 1, null, cast(id * {i} AS decimal(10, 2))) AS {name}" for i, name in enumerate(names)]
    write_delta(spark.range(3).selectExpr("id", *values), str(tmp_path), partition_by=names)
    frame = DeltaTable.forPath(spark, str(tmp_path)).toDF()
    if not is_connect(spark):
        plan = optimized(frame)
        assert "CASE" not in plan
        assert "cast(" not in plan
    both = frame.selectExpr(
        "*", *(f"to_json(struct({cast_all(some)})) AS j{i}" for i, some in enumerate(halves(names)))
    )
    rows = both.where("j0 <> 'x'").union(both.where("j1 <> 'y'").limit(1)).union(both.where("p3 = 6"))
    found = [row["j0"] for row in rows.where("id <> 0 AND p1 IS NULL OR p3 = 6").collect()]
    assert set(found) == {"{}", "{" + ",".join(f'"p{i}":"{2 * i}.00"' for i in range(PARTITIONS - 1)) + "}"}


def optimized(frame: DataFrame) -> str:
    """Return a frame's plan after Spark's optimizer."""
    return str(frame._jdf.queryExecution().optimizedPlan())


def halves(names: list[str]) -> tuple[list[str], list[str]]:
    """Return all but the last and all but the first."""
    return names[:-1], names[1:]


def cast_all(names: list[str]) -> str:
    """Return the columns as strings."""
    return ", ".join(f"CAST({name} AS STRING) AS {name}" for name in names)
