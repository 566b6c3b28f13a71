"""Whether Spark itself can open a path: PySpark comes without connectors for S3, Azure and Google Cloud Storage."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from deltamerge.spark.session import SPARK_ERRORS, errors_not_logged
from deltamerge.storage.stored_file import SCHEME

_MISSING = ("ClassNotFoundException", "UnsupportedFileSystemException")
# Of no file.
_NAME = "deltamerge-connector"
_known: WeakKeyDictionary[SparkSession, dict[str, bool]] = WeakKeyDictionary()


def refresh_path(spark: SparkSession, path: str) -> None:
    """Let Spark forget what it has cached of a path; a Spark without a file system for it has nothing."""
    try:
        spark.catalog.refreshByPath(path)
    except SPARK_ERRORS as error:
        if not _is_missing(error):
            raise


def has_connector(spark: SparkSession, path: str) -> bool:
    """Return whether Spark has a class for the file system of a path, which it is asked once in a session."""
    scheme = SCHEME.match(path)
    if scheme is None or scheme.group(1).lower() == "file":
        return True
    known, name = _known.setdefault(spark, {}), scheme.group(1)
    if name not in known:
        known[name] = _finds_class(spark, f"{path.rstrip('/')}/{_NAME}")
    return known[name]


def _finds_class(spark: SparkSession, path: str) -> bool:
    with errors_not_logged():
        try:
            spark.catalog.refreshByPath(path)
        except SPARK_ERRORS as error:
            # What is there says itself what it lacks, when it is used.
            return not _is_missing(error)
    return True


def _is_missing(error: Exception) -> bool:
    return any(name in str(error) for name in _MISSING)
