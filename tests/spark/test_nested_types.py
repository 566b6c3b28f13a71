"""JSON that tells values apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deltamerge.spark import columns as F
from deltamerge.spark.nested_types import exact_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.sessions
@pytest.mark.parametrize(
    ("value", "other"),
    [
        ("map({}, 1)", "map({}, 2)"),
        ("map('a', array(map({}, 1)))", "map('a', array(map({}, 2)))"),
        ("named_struct('m', map(named_struct('k', {}), NULL))", "named_struct('m', NULL)"),
    ],
)
def test_maps_by_bytes(spark: SparkSession, value: str, other: str) -> None:
    """Spark writes the address of an array in memory for such a key."""
    keys = ("CAST(concat('x', id % 1) AS BINARY)", "CAST(concat('y', id % 1) AS BINARY)")
    found = []
    for query in (value.format(keys[0]), value.format(keys[1]), other.format(keys[0])):
        rows = spark.range(0, 4, 1, 2).selectExpr(f"{query} AS v")
        text = exact_json(F.col("v"), rows.schema["v"].dataType).alias("text")
        found.append({row.text for row in rows.select(text).collect()})
    assert [len(each) for each in found] == [1, 1, 1]
    assert len(set.union(*found)) == 3
