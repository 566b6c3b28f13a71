"""Data files that are in the log but missing, or other files than the log has."""

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
        spelling = "" if missing[1].isascii() else " Or Java misspells its name: start Spark with LC_ALL=C.UTF-8."
        raise DeltaTableException(
            "FAILED_READ_FILE.FILE_NOT_EXIST",
            f"The data file {missing[1]} is part of table {table} by its log, but it is not there. It was deleted by "
            "something other than a Delta writer, or by a VACUUM with too short a retention: restore it, or read an "
            f"earlier version.{spelling}",
            parameters={"path": missing[1], "tableName": table},
        ) from error


def refuse_replaced_files(table: Table, files: Iterable[AddFile]) -> None:
    """Refuse data files of another size than the log has: cut off, or another file under the same name.

    Spark would pass over an empty one as if it had no rows. On object stores, where each size is a request, nothing is
    compared.
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
        if size != file.size:
            raise DeltaTableException(
                "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER",
                f"The data file {path} is part of table {table.name} by its log, with {file.size} bytes, but it has "
                f"{size}. It was cut off by a disk that was full or lost power, or replaced by something other than a "
                "Delta writer: restore it, or an earlier version of the table. Nothing was read.",
                parameters={"path": path, "tableName": table.name},
            )
