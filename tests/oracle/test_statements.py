"""delta-spark reads, and goes on with, the tables that recorded statements leave where deltamerge runs them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from combinations import ALL
from corpus.deltamerge_engine import Deltamerge
from corpus.statements import StatementCase, filled, load_statements, run_statements

from .client import LineProcess
from .turns import asked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.oracle

EVERY = 5 if ALL else 10
"""Of so many recorded cases one runs."""
CASES = [case for case in load_statements() if case.values["after"]][1::EVERY]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_delta_spark_goes_on(case: StatementCase, oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    engine, target = Deltamerge(tmp_path), str(tmp_path / "target")
    for statement in case.setup:
        engine.sql(spark, filled(statement, str(tmp_path))).collect()
    run_statements(engine, spark, case, str(tmp_path))
    assert oracle.ask("lines", path=target) == case.values["after"]["rows"]
    asked(oracle, f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    if case.values["after"]["rows"]:
        asked(oracle, f"DELETE FROM delta.`{target}`")
    assert engine.read(spark, target).count() == 0
