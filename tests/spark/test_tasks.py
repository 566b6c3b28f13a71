"""Work on Arrow batches in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from deltamerge.spark import tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SESSION = cast("SparkSession", None)


def as_they_are(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def test_every_row_is_worked_on_once() -> None:
    for count in (0, 1, 9):
        rows = pa.table({"n": pa.array(range(count), pa.int64())})
        done = tasks.run(NO_SESSION, as_they_are, rows, "", in_driver=True)
        assert sorted(row["n"] for row in done) == list(range(count))
