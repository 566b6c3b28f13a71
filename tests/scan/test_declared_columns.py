"""Frames of a table have the comments of its columns, and on classic Spark their NOT NULL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltamerge import DeltaTable, write_delta
from deltamerge.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.sessions]


@pytest.mark.parametrize(
    "properties", [{}, {"delta.columnMapping.mode": "name"}, {"delta.enableDeletionVectors": "true"}]
)
def test_columns_are_as_they_were_declared(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).partitionedBy("p")
    builder = builder.addColumn("id", "BIGINT", nullable=False, comment="the key").addColumn("v", "STRING")
    for key, value in properties.items():
        builder = builder.property(key, value)
    table = builder.addColumn("p", "INT", nullable=False).execute()
    for _ in range(2):
        schema = table.toDF().schema
        assert [field.nullable for field in schema] == [is_connect(spark), True, is_connect(spark)]
        assert [field.metadata for field in schema] == [{"comment": "the key"}, {}, {}]
        write_delta(spark.sql("SELECT id, CAST(id AS STRING) AS v, 1 AS p FROM range(4)"), path, mode="append")
    table.delete("id = 2")
    found = table.toDF()
    assert sorted(row["id"] for row in found.where("id > 0 AND p = 1").collect()) == sorted([1, 3] * 2)
    assert [field.nullable for field in found.schema] == [is_connect(spark), True, is_connect(spark)]
