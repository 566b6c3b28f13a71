"""Tables of many writers take a merge, and delta-spark reads what it left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.golden.tables import copied
from tests.golden.test_golden_tables import WRITABLE, merged

from oracle.client import LineProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


@pytest.mark.parametrize("name", WRITABLE)
def test_delta_spark_confirms_a_merge(
    oracle: LineProcess, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    path = copied(name, tmp_path)
    lines = merged(spark, path).lines
    assert oracle.ask("lines", path=path) == lines
