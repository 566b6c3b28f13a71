"""Functions over Arrow batches, run in Spark's tasks or, where there is little to do, in this process."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from deltamerge.spark import columns as F
from deltamerge.spark.field_metadata import all_metadata
from deltamerge.spark.held_settings import IN_TASKS, session_settings
from deltamerge.spark.nested_types import as_nullable, inner_types
from deltamerge.spark.own_python import map_in_arrow
from deltamerge.spark.session import SPARK_ERRORS, empty_frame, is_connect
from deltamerge.sql.names import quote
from deltamerge.workers.files import SHARED
from deltamerge.workers.first_contact import StoreFailed, StoreNotOpened
from deltamerge.workers.left_to_spark import LeftToSpark

Work: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for ``mapInArrow``."""

_DRIVER_THREADS = 4
# Of so few rows Spark evaluates expressions in its optimizer faster than a task starts.
_LOCAL_ROWS = 1_000


_UNFIT_WORKERS = (
    "No module named 'pyarrow'",
    "No module named 'numpy'",
    "No module named 'hdfs_native'",
    "PYTHON_VERSION_MISMATCH",
    "java.io.IOException: Cannot run program",
)


# As Python prints the exception of a task.
_NOT_OPENED = re.compile(r"StoreNotOpened: ([^\n]*)")
_LEFT_TO_SPARK = re.compile(r"LeftToSpark: ([^\n]*)")


class PythonWorkersUnfit(Exception):
    """Python workers cannot do some work on Arrow batches.

    They lack PyArrow, or do not open the table's store, or PyArrow does not do it.
    """


@contextmanager
def python_workers() -> Iterator[None]:
    """Run a job that needs PyArrow in tasks."""
    try:
        yield
    except SPARK_ERRORS as error:
        message = str(error)
        if found := _NOT_OPENED.search(message):
            raise PythonWorkersUnfit(f"tasks do not open the table's store: {found.group(1)}") from error
        if found := _LEFT_TO_SPARK.search(message):
            raise PythonWorkersUnfit(found.group(1)) from error
        if any(sign in message for sign in _UNFIT_WORKERS):
            raise PythonWorkersUnfit(
                "the executors' Python is missing, lacks PyArrow or NumPy, or is another version than the driver's"
            ) from error
        raise


def run(
    spark: SparkSession,
    work: Work,
    rows: pa.Table,
    schema: str,
    *,
    in_driver: bool,
    report: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Run work and return its rows.

    Args:
        work: The work; its module is one of `deltamerge.workers`.
        report: Is called with the rows that are done and all rows, as work in this process goes on that returns a row
            for each.
    """
    if in_driver:
        return [row for batch in _run_in_driver(work, rows, report) for row in batch.to_pylist()]
    with python_workers():
        return [row.asDict() for row in map_in_arrow(spark.createDataFrame(rows), work, schema).collect()]


def frame_of(spark: SparkSession, work: Work, rows: pa.Table, schema: StructType, *, in_driver: bool) -> DataFrame:
    """Return the rows of work as a frame; else as `run`.

    Args:
        in_driver: Whether it runs in this process, at once; else in the tasks that compute the frame.
    """
    # What Arrow holds under a NULL struct may be NULL too, which PySpark refuses in fields that are not nullable.
    schema = StructType([StructField(f.name, as_nullable(f.dataType, all_metadata)) for f in schema.fields])
    if in_driver:
        batches = _run_in_driver(work, rows)
        if not batches:
            return empty_frame(spark, schema)
        table = pa.Table.from_batches(batches).rename_columns(schema.names)
        with session_settings(spark, {} if is_connect(spark) or len(table) <= _LOCAL_ROWS else IN_TASKS):
            return spark.createDataFrame(table.combine_chunks(), schema)
    return map_in_arrow(spark.createDataFrame(rows), work, schema)


def collected(frame: DataFrame) -> pa.Table:
    """Compute a frame's rows, and return them.

    What Arrow holds under a NULL may be NULL too, which PySpark refuses in fields that are not nullable.
    """
    columns = []
    for field in frame.schema.fields:
        column = F.col(quote(field.name))
        columns.append(
            column.cast(as_nullable(field.dataType, all_metadata)).alias(field.name)
            if inner_types(field.dataType)
            else column
        )
    with python_workers():
        return frame.select(*columns).toArrow()


def _run_in_driver(
    work: Work, rows: pa.Table, report: Callable[[int, int], None] | None = None
) -> list[pa.RecordBatch]:
    threads = max(1, min(len(rows), os.cpu_count() or 1, _DRIVER_THREADS))
    parts = [rows.take(pa.array(range(first, len(rows), threads), pa.int64())) for first in range(threads)]
    counted = count()

    def run_part(part: pa.Table) -> list[pa.RecordBatch]:
        found = []
        for batch in work(part.to_batches()):
            found.append(batch)
            if report is not None:
                for _ in range(batch.num_rows):
                    report(next(counted) + 1, len(rows))
        return found

    # One thread has all cores for the columns of its files.
    with ThreadPoolExecutor(threads, SHARED if threads > 1 else "") as pool:
        try:
            return [batch for batches in pool.map(run_part, parts) for batch in batches]
        except StoreNotOpened as error:
            raise PythonWorkersUnfit(f"the driver does not open the table's store: {error}") from error
        except StoreFailed as error:
            # Tasks would run again.
            raise PythonWorkersUnfit(f"the table's store failed in the driver: {error}") from error
        except LeftToSpark as error:
            raise PythonWorkersUnfit(str(error)) from error
