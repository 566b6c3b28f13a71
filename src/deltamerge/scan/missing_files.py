"""Data files that are in the log but missing, or other files than the log has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import AddFile
from deltamerge.log.paths import decode_path
from deltamerge.spark.session import first_input_file
from deltamerge.spark.table import Table
from deltamerge.storage.stored_file import SCHEME

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


def refuse_hidden_files(table: Table, files: Iterable[AddFile]) -> None:
    """Refuse data files that Spark passes over for their names, as HadoopFSUtils.shouldFilterOutPathName says."""
    for file in files:
        name = decode_path(file.path).rpartition("/")[2]
        is_hidden = name.startswith(".") or name.endswith("._COPYING_") or (name.startswith("_") and "=" not in name)
        if is_hidden and not name.startswith(("_metadata", "_common_metadata")):
            raise DeltaTableException(
                "FAILED_READ_FILE.UNSUPPORTED_FILE_SYSTEM",
                f"The data file {file.path} is part of table {table.name} by its log, but Spark reads no file whose "
                "name begins with '_' or '.', or ends with '._COPYING_', as if it had no rows. Rewrite it under "
                "another name with the engine that wrote it. Nothing was read.",
                parameters={"path": file.path, "tableName": table.name},
            )


def refuse_other_spelling(table: Table, frame: DataFrame, files: Iterable[AddFile]) -> None:
    """Refuse files to which Spark gives another scheme or host than the log's names have here.

    What belongs to a file, such as its partition values or deleted rows, finds the file's rows by its name.

    Args:
        frame: Rows of these files.
    """
    if table.store.is_local:
        return
    known = {_file_system(table.store.absolute(""))}
    known |= {_file_system(path) for path in map(decode_path, (file.path for file in files)) if SCHEME.match(path)}
    found = first_input_file(frame)
    if found is not None and _file_system(found) not in known:
        raise DeltaTableException(
            "FAILED_READ_FILE.UNSUPPORTED_FILE_SYSTEM",
            f"Spark names files of table {table.name} {_file_system(found)}…, where {' or '.join(sorted(known))}… was "
            "expected, so that it is not known which rows are of which file. Open the table by the name that Spark "
            "gives it. Nothing was read.",
            parameters={"path": found, "tableName": table.name},
        )


def _file_system(url: str) -> str:
    scheme, _, rest = url.partition(":")
    return f"{scheme}://{rest.lstrip('/').partition('/')[0]}/"


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
        # A `remove`, whose rows a change feed reads, may not say its file's size.
        if file.size and size != file.size:
            raise DeltaTableException(
                "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER",
                f"The data file {path} is part of table {table.name} by its log, with {file.size} bytes, but it has "
                f"{size}. It was cut off by a disk that was full or lost power, or replaced by something other than a "
                "Delta writer: restore it, or an earlier version of the table. Nothing was read.",
                parameters={"path": path, "tableName": table.name},
            )
