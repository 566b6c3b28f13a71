"""Spark's classes as a JVM maps them into memory: sessions that tests start take half the processor time with them.

``python tests/class_archive.py`` makes the archive in this Python's environment, where it is missing, as `make` does
before long runs. JVMs with other classes, or of another release, pass over it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark.jsa"
# Sessions of tests are short: the second compiler takes more of two processors than it gives back.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_OPTIONS, _LAUNCHER_OPTIONS = "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"
_SESSION = """
import tempfile
from pyspark import SparkContext
from pyspark.sql import SparkSession, functions as F
settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    spark.range(9).selectExpr("id", "id % 3 AS p", "'a' AS s").write.partitionBy("p").parquet(folder + "/t")
    rows = spark.read.parquet(folder + "/t").where("id > 1")
    rows.join(spark.range(9).repartition(2), "id").groupBy("p").agg(F.sum("id"), F.max("s")).collect()
    rows.mapInArrow(lambda batches: batches, rows.schema).collect()
java = SparkContext._gateway.proc
spark.stop()
java.stdin.close()
java.wait()
"""


def java_options() -> str:
    """Returns the options of JVMs that tests start."""
    shared = f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else ""
    return SHORT_LIVED + shared


def use_in_processes() -> None:
    """Lets all sessions that this process and its children start have `java_options`, before their own ones."""
    os.environ.setdefault(_OPTIONS, java_options())
    os.environ.setdefault(_LAUNCHER_OPTIONS, SHORT_LIVED)


def make() -> None:
    unfinished = ARCHIVE.with_suffix(".unfinished")
    options = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    environment = {**os.environ, _OPTIONS: options, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    subprocess.run([sys.executable, "-c", _SESSION], env=environment, check=True, capture_output=True)
    unfinished.rename(ARCHIVE)


if __name__ == "__main__" and not ARCHIVE.exists():
    make()
