"""What a session knows of how an object store is reached: Hadoop's settings, with which Spark reads from it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from deltamerge.spark.session import is_connect, strings_of_java
from deltamerge.storage.hadoop_options import keys_of_store, obstore_options, prefixes_of_store
from deltamerge.storage.stored_file import SCHEME

_PREFIX = "spark.hadoop."
# What all keys of Hadoop's stores begin with.
_HADOOP = "fs."


def session_store_options(spark: SparkSession, path: str) -> dict[str, str]:
    """Return the session's settings for the store of a path or URL, under Hadoop's names; they may be secret."""
    scheme = SCHEME.match(path)
    if scheme is None:
        return {}
    authority = path[scheme.end() :].lstrip("/").partition("/")[0]
    keys = keys_of_store(scheme.group(1).lower(), authority)
    prefixes = prefixes_of_store(scheme.group(1).lower())
    if not keys:
        return {}
    if is_connect(spark):
        settings = {key.removeprefix(_PREFIX): value for key, value in spark.conf.getAll.items()}
        found = {key: value for key, value in settings.items() if key in keys or key.startswith(prefixes)}
    else:
        session: Any = spark._jsparkSession
        settings = strings_of_java(spark, session.sessionState().newHadoopConf().getPropsWithPrefix(_HADOOP))
        given = {_HADOOP + name: value for name, value in settings.items()}
        found = {key: value for key, value in given.items() if key in keys or key.startswith(prefixes)}
    return {key: str(value) for key, value in found.items() if value}


def are_reached_alike(spark: SparkSession, urls: tuple[str, str]) -> bool:
    """Return whether the session's settings are the same for the buckets of two URLs."""
    one, other = ("/".join(url.split("/", 3)[:3]) for url in urls)
    if one == other:
        return True
    settings = (
        obstore_options(bucket.partition("://")[2], session_store_options(spark, bucket)) for bucket in (one, other)
    )
    return next(settings) == next(settings)
