"""What PyArrow does not do with rows, and Spark does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from deltamerge.workers.file_systems import is_of_machine


class LeftToSpark(Exception):
    """PyArrow does not read some rows, or does not put them together: Spark is to do it."""


@contextmanager
def leaving_to_spark(rows: str) -> Iterator[None]:
    """Do work of which another plan has Spark do the same.

    Args:
        rows: Whose rows it is about, for the reason.

    Raises:
        LeftToSpark: PyArrow does not do it. Damaged files are other errors.
    """
    try:
        yield
    except pa.ArrowException as error:
        if is_of_machine(error):
            raise
        raise LeftToSpark(f"PyArrow leaves the rows of {rows} to Spark: {error}") from error
