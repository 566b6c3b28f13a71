"""delta-spark reads what a merge left of tables of many writers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.golden.tables import copied
from tests.golden.test_golden_tables import WRITABLE, merged

from corpus.canonical import canonical_lines
from corpus.deltamerge_engine import is_ci
from deltamerge import DeltaTable
from oracle.client import LineProcess, start_oracle
from oracle.environment import build, find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


@pytest.fixture(scope="module")
def oracle() -> Iterator[LineProcess]:
    environment = find() or (build() if is_ci() else None)
    if environment is None:
        pytest.skip("no delta-spark: python tests/oracle/environment.py builds its environment")
    with start_oracle(environment) as process:
        yield process


# Each of them is merged into and read back by the tests beside this one; every second one by delta-spark, too.
@pytest.mark.parametrize("name", WRITABLE[::2])
def test_delta_spark_reads_what_a_merge_left(
    oracle: LineProcess, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    path = copied(name, tmp_path)
    merged(spark, path)
    assert oracle.ask("lines", path=path) == canonical_lines(DeltaTable.forPath(spark, path).toDF())
