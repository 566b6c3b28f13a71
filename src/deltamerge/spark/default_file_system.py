"""Paths without a scheme, which are of Hadoop's default file system: HDFS on most clusters, OneLake in Fabric."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deltamerge.spark.session import SPARK_ERRORS, conf_value, errors_not_logged, is_connect, is_refusal
from deltamerge.storage.stored_file import SCHEME

_KEY = "fs.defaultFS"
# Of no file.
_NAME = f"deltamerge-{uuid.uuid4().hex}"
# The server logs an error with each analysis that finds none, so that a session asks once.
_bases: WeakKeyDictionary[SparkSession, dict[tuple[str, str | None], str]] = WeakKeyDictionary()

ROOT = "deltamerge.root"
WORKING_FOLDER = "deltamerge.workingFolder"
"""Where paths without a scheme begin, absolute and relative ones, for those who have no session: see `known_bases`."""


def in_default_file_system(spark: SparkSession, path: str) -> str:
    """Return where Spark looks for a path: one with a scheme stays, and one of this machine's disk.

    Delta: DeltaLog.forTable, which qualifies the path by ``fs.defaultFS`` and the working directory there.
    """
    if SCHEME.match(path):
        return _with_host(spark, path)
    root = "/" if path.startswith("/") else ""
    base = _base(spark, root)
    return path if base is None or base.startswith("file:") else base + path.removeprefix(root)


def _with_host(spark: SparkSession, url: str) -> str:
    """Add the host to a URL without one, such as ``hdfs:///t``, over Connect; classic sessions' stores ask the JVM."""
    scheme, _, rest = url.partition(":")
    if not rest.startswith("///") or scheme.lower() == "file" or not is_connect(spark):
        return url
    base = _base_by_analysis(spark, f"{scheme}:///")
    return url if base is None else base + rest[len("///") :]


def known_bases(spark: SparkSession) -> dict[str, str]:
    """Return what `in_default_file_system` puts before a path, for `in_known_bases`."""
    return {ROOT: in_default_file_system(spark, "/"), WORKING_FOLDER: in_default_file_system(spark, "")}


def in_known_bases(settings: Mapping[str, str], path: str) -> str:
    """Do as `in_default_file_system` does in the session of some settings."""
    if SCHEME.match(path):
        return path
    root = "/" if path.startswith("/") else ""
    return settings.get(ROOT if root else WORKING_FOLDER, root) + path.removeprefix(root)


def _base(spark: SparkSession, root: str) -> str | None:
    """Return what is before a path in Spark's name of it, of paths that begin with a root; None if it is not known."""
    if is_connect(spark):
        return _base_by_analysis(spark, root)
    try:
        java: Any = spark._jsparkSession
        conf = java.sessionState().newHadoopConf()
        if str(conf.get(_KEY)).startswith("file:"):
            return None
        jvm: Any = spark.sparkContext._jvm
        unqualified = jvm.org.apache.hadoop.fs.Path(root + _NAME)
        system = unqualified.getFileSystem(conf)
        return str(system.makeQualified(unqualified).toString()).removesuffix(_NAME)
    except SPARK_ERRORS as error:
        if not is_refusal(error):
            raise
        return _base_by_analysis(spark, root)


def _base_by_analysis(spark: SparkSession, root: str) -> str | None:
    """Look for a file that does not exist: the server's Hadoop settings show in the error alone."""
    known, key = _bases.setdefault(spark, {}), (root, conf_value(spark, _KEY))
    if key not in known:
        with errors_not_logged():
            try:
                spark.read.format("text").load(root + _NAME).schema  # noqa: B018
            except PySparkException as error:
                found = (error.getMessageParameters() or {}).get("path", "")
                # Any other error says nothing of it, and may be another one the next time.
                if found.endswith(_NAME):
                    known[key] = found.removesuffix(_NAME)
    return known.get(key)
