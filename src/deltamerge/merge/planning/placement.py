"""Where work on Arrow rows runs: in Spark's tasks, or, where there is little of it, in the driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltamerge.spark.config import MergeConf
from deltamerge.spark.session import runs_in_local_mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL_FILES = 32
# What is read in less time than Spark's jobs take; and where their tasks run on this machine, less what starting the
# Python workers takes, which Spark ends after a minute without work.
_SMALL_BYTES = 32 << 20
_SMALL_BYTES_IN_LOCAL_MODE = 1 << 30
_DRIVER_THREADS = 4
# Each thread of the driver reads the source.
MOST_SOURCE_IN_DRIVER = 128 << 20


def run_near(
    spark: SparkSession,
    work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    rows: pa.Table,
    schema: str,
    *,
    here: bool,
) -> list[dict[str, Any]]:
    """Runs work on rows in Spark's tasks; or in this process, where there is less to do than a job costs.

    Args:
        spark: The session.
        work: A function over batches of rows, for ``mapInArrow``.
        rows: The rows.
        schema: The schema of what it gives, as DDL.
        here: Whether it runs in this process, in threads.

    Returns:
        The rows that it gives.
    """
    if not here:
        return [row.asDict() for row in spark.createDataFrame(rows).mapInArrow(work, schema).collect()]
    threads = max(1, min(len(rows), os.cpu_count() or 1, _DRIVER_THREADS))
    parts = [rows.take(list(range(first, len(rows), threads))) for first in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        done = list(pool.map(lambda part: list(work(part.to_batches())), parts))
    return [row for batches in done for batch in batches for row in batch.to_pylist()]


def bytes_for_driver(spark: SparkSession, conf: MergeConf) -> int:
    """Says up to how many bytes of source and files the driver reads, and writes, itself.

    Args:
        spark: The session.
        conf: Its settings.
    """
    if conf.driver_bytes is not None:
        return conf.driver_bytes
    return _SMALL_BYTES_IN_LOCAL_MODE if runs_in_local_mode(spark) else _SMALL_BYTES


def fits(most: int, size: float, files: int) -> bool:
    """Tells whether there is so little to do that a job costs more.

    Args:
        most: So many bytes.
        size: The bytes that are read of source and files.
        files: The files, of which there may be only so many, too.
    """
    return files <= _SMALL_FILES and size <= most
