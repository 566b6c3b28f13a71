"""The Python that runs functions in Spark's tasks, where these run on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltamerge.spark.session import runs_in_local_mode

# What PySpark takes where nothing says which Python is wanted.
_OF_PATH = "python3"
_LOCK = Lock()


@contextmanager
def own_python(spark: SparkSession) -> Iterator[None]:
    """Have the functions that are handed to Spark run in this process's Python, in local mode.

    Unless PYSPARK_PYTHON names one, PySpark takes the one of PATH. Where a script is run by the Python of its
    environment, which is not activated, that one may lack PyArrow and this package.
    """
    is_chosen = not runs_in_local_mode(spark) or "PYSPARK_PYTHON" in os.environ
    if is_chosen or spark.sparkContext.pythonExec != _OF_PATH:
        yield
        return
    with _LOCK:
        spark.sparkContext.pythonExec = sys.executable
        try:
            yield
        finally:
            spark.sparkContext.pythonExec = _OF_PATH


def map_in_arrow(
    frame: DataFrame,
    work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Return what work makes of a frame's batches in Spark's tasks."""
    with own_python(frame.sparkSession):
        return frame.mapInArrow(work, schema)
