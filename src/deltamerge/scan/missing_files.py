"""Data files that the log names and that are not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException

from deltamerge.exceptions import DeltaTableException

_PATH = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.*?)\. SQLSTATE", re.S)


@contextmanager
def naming_missing_files(table: str) -> Iterator[None]:
    """Gives an error that names the missing file where Spark cannot find one.

    Args:
        table: What to call the table.

    Raises:
        DeltaTableException: A data file is missing (FAILED_READ_FILE.FILE_NOT_EXIST). Over Spark Connect the paths
            are looked at later, and Spark's own PATH_NOT_FOUND names the file.
    """
    try:
        yield
    except AnalysisException as error:
        missing = _PATH.search(str(error))
        if missing is None:
            raise
        raise DeltaTableException(
            "FAILED_READ_FILE.FILE_NOT_EXIST",
            f"The data file {missing[1]} is part of table {table} by its log, but it is not there. It was deleted by "
            "something other than a Delta writer, or by a VACUUM with too short a retention: restore it, or read an "
            "earlier version.",
            sqlstate="KD001",
            parameters={"path": missing[1], "tableName": table},
        ) from error
