"""Work on Arrow batches in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from deltamerge.spark import tasks
from deltamerge.workers.left_to_spark import leaving_to_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SESSION = cast("SparkSession", None)
REASON = "^PyArrow leaves the rows of file x to Spark: not in one array$"


def as_they_are(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def test_every_row_is_worked_on_once() -> None:
    for count in (0, 1, 9):
        rows = pa.table({"n": pa.array(range(count), pa.int64())})
        done = tasks.run(NO_SESSION, as_they_are, rows, "", in_driver=True)
        assert sorted(row["n"] for row in done) == list(range(count))


def left_out(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        with leaving_to_spark("file x"):
            raise pa.ArrowNotImplementedError("not in one array")
        yield batch


def test_what_pyarrow_does_not_do_is_told_from_what_fails() -> None:
    with pytest.raises(tasks.PythonWorkersUnfit, match=REASON):
        tasks.run(NO_SESSION, left_out, pa.table({"n": [1]}), "", in_driver=True)


@pytest.mark.sessions
def test_tasks_tell_what_pyarrow_does_not_do(spark: SparkSession) -> None:
    # Executors do not have this module.
    left_out.__module__ = "__main__"
    with pytest.raises(tasks.PythonWorkersUnfit, match=REASON):
        tasks.run(spark, left_out, pa.table({"n": [1]}), "n BIGINT", in_driver=False)
