"""Paths without a scheme, which are of Hadoop's default file system: HDFS on most clusters, OneLake in Fabric."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deltamerge.spark.session import SPARK_ERRORS, errors_not_logged, is_connect, is_refusal
from deltamerge.storage.stored_file import SCHEME

_KEY = "fs.defaultFS"

ROOT = "deltamerge.root"
WORKING_FOLDER = "deltamerge.workingFolder"
"""Where paths without a scheme begin, absolute and relative ones, for those who have no session: see `known_bases`."""


def in_default_file_system(spark: SparkSession, path: str) -> str:
    """Return where Spark looks for a path: one with a scheme stays, and one of this machine's disk.

    Delta: DeltaLog.forTable, which qualifies the path by ``fs.defaultFS`` and the working directory there.
    """
    if SCHEME.match(path):
        return _with_host(spark, path)
    base = _base(spark, is_absolute=path.startswith("/"))
    return path if base is None or base.startswith("file:") else base + path


def _with_host(spark: SparkSession, url: str) -> str:
    """Add the host to a URL without one, such as ``hdfs:///t``, over Connect; classic sessions' stores ask the JVM."""
    scheme, _, rest = url.partition(":")
    if not rest.startswith("///") or scheme.lower() == "file" or not is_connect(spark):
        return url
    base = _base_by_analysis(spark, f"{scheme}:///{_no_file()}")
    return url if base is None else base + rest[len("//") :]


def known_bases(spark: SparkSession) -> dict[str, str]:
    """Return what `in_default_file_system` puts before a path, for `in_known_bases`."""
    return {ROOT: in_default_file_system(spark, "/")[:-1], WORKING_FOLDER: in_default_file_system(spark, "x")[:-1]}


def in_known_bases(settings: Mapping[str, str], path: str) -> str:
    """Do as `in_default_file_system` does in the session of some settings."""
    if SCHEME.match(path):
        return path
    return settings.get(ROOT if path.startswith("/") else WORKING_FOLDER, "") + path


def _base(spark: SparkSession, *, is_absolute: bool) -> str | None:
    """Return what Spark puts before a path; None where it does not say."""
    if is_connect(spark):
        return _base_by_analysis(spark, _named(is_absolute=is_absolute))
    try:
        java: Any = spark._jsparkSession
        conf = java.sessionState().newHadoopConf()
        if str(conf.get(_KEY)).startswith("file:"):
            return None
        name = _named(is_absolute=is_absolute)
        jvm: Any = spark.sparkContext._jvm
        unqualified = jvm.org.apache.hadoop.fs.Path(name)
        system = unqualified.getFileSystem(conf)
        return str(system.makeQualified(unqualified).toString()).removesuffix(name)
    except SPARK_ERRORS as error:
        if not is_refusal(error):
            raise
        return _base_by_analysis(spark, _named(is_absolute=is_absolute))


def _base_by_analysis(spark: SparkSession, path: str) -> str | None:
    """Look for a file that does not exist: the server's Hadoop settings show in the error alone."""
    name = path if SCHEME.match(path) is None else path[path.index("///") + 2 :]
    with errors_not_logged():
        try:
            spark.read.format("text").load(path).schema  # noqa: B018
        except PySparkException as error:
            found = (error.getMessageParameters() or {}).get("path", "")
            return found.removesuffix(name) if found.endswith(name) else None
    return None


def _named(*, is_absolute: bool) -> str:
    return f"/{_no_file()}" if is_absolute else _no_file()


def _no_file() -> str:
    return f"deltamerge-{uuid.uuid4().hex}"
