"""Data files that are in the log but missing, or there without content."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import AnalysisException

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import AddFile
from deltamerge.log.paths import decode_path
from deltamerge.spark.table import Table

_PATH = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.*?)\. SQLSTATE", re.DOTALL)


@contextmanager
def naming_missing_files(table: str) -> Iterator[None]:
    """Raise an error that names the missing file where Spark cannot find one.

    Over Spark Connect paths are resolved later, and Spark's own PATH_NOT_FOUND names the file.
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
            parameters={"path": missing[1], "tableName": table},
        ) from error


def refuse_empty_files(table: Table, files: Iterable[AddFile]) -> None:
    """Refuse data files without a byte, which Spark would pass over as if they had no rows.

    A disk that was full, or lost power, may leave such files. Stores of objects have them only if somebody puts them.
    """
    if not table.store.is_local:
        return
    for file in files:
        path = table.store.absolute(decode_path(file.path))
        try:
            size = Path(path).stat().st_size
        except OSError:
            # One that is missing, or that only Spark can reach, is Spark's to report.
            continue
        if size == 0:
            raise DeltaTableException(
                "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER",
                f"The data file {path} is part of table {table.name} by its log, but it is empty. It was cut off by a "
                "disk that was full or lost power, or by something other than a Delta writer: restore it, or an "
                "earlier version of the table. Nothing was read.",
                parameters={"path": path, "tableName": table.name},
            )
