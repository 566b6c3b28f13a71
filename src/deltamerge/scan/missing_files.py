"""Data files that are in the log but missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException

from deltamerge.exceptions import DeltaTableException

_PATH = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.*?)\. SQLSTATE", re.DOTALL)


@contextmanager
def naming_missing_files(table: str) -> Iterator[None]:
    """Raise an error that names the missing file where Spark cannot find one.

    Over Spark Connect paths are resolved later, and Spark's own PATH_NOT_FOUND names the file.

    Raises:
        DeltaTableException: A data file is missing (FAILED_READ_FILE.FILE_NOT_EXIST).
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
