"""Columns as values of a statement's parameters become the SQL that means the same to Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from deltamerge.spark.parameters import parameter_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions


def test_columns_keep_their_types_and_values(spark: SparkSession) -> None:
    columns = [
        F.lit("it's \\ ${x}"),
        F.lit(Decimal("1.50")),
        F.lit(2**40),
        F.lit(-5),
        F.lit(float("nan")),
        F.lit(dt.datetime(2024, 7, 1, 12, 0, 0, 5)),
        F.lit(dt.date(2024, 7, 1)),
        F.lit(dt.timedelta(days=1, seconds=5)),
        F.lit(b"\x00"),
        F.lit(None),
        F.array(F.lit(1.5), F.lit(2.5)),
        F.array(F.lit(None)),
        F.array(),
        F.create_map(F.lit("a"), F.array(F.lit(2**40))),
        F.named_struct(F.lit("x y"), F.lit(True), F.lit("z"), F.lit(dt.date(2024, 7, 1))),
    ]
    for column in columns:
        expected = spark.sql("SELECT :v AS v", {"v": column})
        found = spark.sql(f"SELECT {parameter_sql(spark, column)} AS v")
        assert found.schema["v"].dataType == expected.schema["v"].dataType
        assert str(found.collect()) == str(expected.collect())
