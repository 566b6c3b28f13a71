"""Columns that do not record call sites mean the same as PySpark's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions

from deltamerge.spark import columns as F

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, SparkSession

# The first Column is one of this library, the second a user's.
OPERATIONS: list[Callable[[Any, Column, Column], Column]] = [
    lambda _, own, theirs: own & theirs,
    lambda _, own, theirs: theirs & own,
    lambda _, own, theirs: theirs | own,
    lambda _, own, theirs: theirs - own,
    lambda _, own, theirs: theirs / own,
    lambda _, own, theirs: theirs**own,
    lambda _, own, __: 1 - own,
    lambda f, own, theirs: f.when(own > 1, theirs).otherwise(f.lit(None)).cast("bigint").alias("x"),
    lambda f, own, theirs: f.struct(own, theirs).getField("own"),
    lambda f, own, __: f.transform(own, lambda x: x + 1),
    lambda f, own, __: ~f.expr("a > 1").eqNullSafe(own.isNull()),
]


@pytest.mark.quick
@pytest.mark.parametrize("operation", OPERATIONS)
def test_columns_mean_the_same(spark: SparkSession, operation: Callable[[Any, Column, Column], Column]) -> None:
    theirs = functions.col("theirs")
    made = operation(F, F.col("own"), theirs)
    expected = operation(functions, functions.col("own"), theirs)
    assert printed(made) == printed(expected)


def printed(column: Column) -> str:
    """Prints a Column without numbers: those of variables go on."""
    return "".join(char for char in str(column) if not char.isdigit())


@pytest.mark.quick
def test_pyspark_is_left_as_it_is(spark: SparkSession) -> None:
    theirs = type(functions.col("a"))
    assert type(F.untraced(functions.col("a")) + 1) is type(F.col("a"))
    assert type(functions.col("a") + 1) is theirs
    assert hasattr(theirs.alias, "__wrapped__")
