"""deltamerge's session and delta-spark's process, for commands: each with one core and one shuffle partition."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .client import LineProcess, start_oracle
from .environment import find_or_build
from .random_merges.settings import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}


@contextmanager
def both_sessions(folder: Path) -> Iterator[tuple[SparkSession, LineProcess]]:
    """Starts both.

    Args:
        folder: For the warehouses.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
    oracle_settings = {**SMALL, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    settings = {**SETTINGS, **SMALL, "spark.sql.warehouse.dir": str(folder / "ours-warehouse")}
    with start_oracle(find_or_build(), oracle_settings) as oracle:
        builder = SparkSession.builder.appName("deltamerge beside delta-spark")
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        yield spark, oracle
        spark.stop()
