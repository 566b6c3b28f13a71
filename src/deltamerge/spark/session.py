"""What classic Spark and Spark Connect do differently."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltamerge.spark.config import KEYS, Conf, MergeConf, read_conf
from deltamerge.txn.prepared import CommitSettings

logger = logging.getLogger("deltamerge.spark.session")

_Answer = TypeVar("_Answer")

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""Errors of Spark. PySpark makes its own of most of Java's, on Connect of all."""

COMPUTED_DEFAULTS = frozenset({"spark.sql.ansi.enabled", "spark.sql.session.timeZone"})
"""Keys whose defaults depend on where Spark runs: on an environment variable, and on the time zone of its JVM."""

# What sessions answer that take only some calls: serverless compute, clusters that users share.
_REFUSALS = frozenset({
    "CANNOT_MODIFY_CONFIG", "CANNOT_MODIFY_STATIC_CONFIG", "CONFIG_NOT_AVAILABLE", "JVM_ATTRIBUTE_NOT_SUPPORTED",
    "NOT_IMPLEMENTED", "NOT_SUPPORTED_WITH_SERVERLESS", "UNSUPPORTED_OPERATION",
})  # fmt: skip
_NOT_ALLOWED = "Py4JSecurityException"


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def newly_analyzed(frame: DataFrame) -> DataFrame:
    """Return a frame of the same plan: Spark Connect's keep the schema that they were once asked for."""
    if not is_connect(frame.sparkSession):
        return frame
    connect: Any = frame
    made: DataFrame = import_module("pyspark.sql.connect.dataframe").DataFrame(connect._plan, frame.sparkSession)
    return made


def session_identity(spark: SparkSession) -> str:
    """Return what two Python objects for one session have in common, such as those of a stream's batches."""
    if is_connect(spark):
        connect: Any = spark
        return str(connect.session_id)
    java: Any = spark._jsparkSession
    return str(java.sessionUUID())


def has_ended(spark: SparkSession) -> bool:
    """Return whether a session was stopped; a classic one ends with its context."""
    if is_connect(spark):
        connect: Any = spark
        return bool(connect.is_stopped)
    return spark.sparkContext._jsc is None


def in_session(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return a frame's rows as those of another classic session: evaluated by its settings.

    Over Connect the frame stays: Spark refuses to join frames of two sessions. Delta: DeltaMergeBuilder.execute, which
    runs the source's plan in the session of the target. A stream's batches are of a session of their own.
    """
    own = frame.sparkSession
    if is_connect(spark) or is_connect(own) or session_identity(own) == session_identity(spark):
        return frame
    return frame_of_plan(frame._jdf.queryExecution().analyzed(), spark)


def frame_of_plan(plan: JavaObject, spark: SparkSession) -> DataFrame:
    jvm: Any = spark.sparkContext._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


@contextmanager
def as_active(spark: SparkSession) -> Iterator[None]:
    """Make a classic session the active one of this thread meanwhile; does nothing over Connect."""
    if is_connect(spark):
        yield
        return
    session: Any = spark
    sessions = session._get_j_spark_session_class(session._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def runs_in_local_mode(spark: SparkSession) -> bool:
    """Return whether a session's tasks are known to run on this machine."""
    return not is_connect(spark) and str(spark.sparkContext.master).startswith("local")


def default_parallelism(spark: SparkSession) -> int | None:
    if is_connect(spark):
        return None
    return unless_refused(lambda: spark.sparkContext.defaultParallelism)


def merge_conf(spark: SparkSession) -> MergeConf:
    return session_conf(spark, MergeConf)


def commit_settings(conf: MergeConf) -> CommitSettings:
    """Return what all commits of a session have in common."""
    return CommitSettings(conf.user_metadata, conf.session_time_zone, conf.history_metrics, conf.write_checksum_file)


def session_conf(spark: SparkSession, kind: type[Conf]) -> Conf:
    # All at once: each question is a request over Connect, and a call of the JVM elsewhere.
    known = unless_refused(lambda: settings_below(spark, "spark."))

    def value(key: str) -> str | None:
        found = conf_value(spark, key) if known is None else known.get(key)
        return effective_value(spark, key) if found is None and key in COMPUTED_DEFAULTS else found

    return read_conf(kind, value)


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    if is_connect(spark):
        return spark.createDataFrame([], schema)
    # PySpark would make an RDD of no rows, and send it a Python function.
    jvm: Any = spark.sparkContext._jvm
    java: Any = spark._jsparkSession
    rows = java.createDataFrame(jvm.java.util.ArrayList(), java.parseDataType(schema.json()))
    return DataFrame(rows, spark)


def create_catalog_table(
    spark: SparkSession, name: str, location: str | None, schema: StructType, comment: str | None
) -> None:
    """Add a Delta table to the session's catalog without reading it."""
    session: Any = spark
    if not is_connect(spark):
        # PySpark's own call may be this library's, which makes the table.
        java = session._jsparkSession.parseDataType(schema.json())
        options = {} if location is None else {"path": location}
        session._jsparkSession.catalog().createTable(name, "delta", java, comment or "", options)
        return
    # PySpark's own call fetches all of the table's rows; this is the same request, for none of them. Its modules are
    # there where a session is one of Connect.
    connect: Any = import_module("pyspark.sql.connect")
    request = connect.plan.CreateTable(name, location, "delta", comment, schema, {})
    connect.dataframe.DataFrame(request, spark).limit(0).collect()


def reset_transaction(spark: SparkSession, conf: MergeConf) -> None:
    """Unset the session's application transaction version after a commit, where the session asks for that.

    Another write under the same version would do nothing; without one it fails. Delta:
    DeltaCommand.createSetTransaction and hasBeenExecuted.
    """
    if not conf.txn_version_auto_reset or conf.txn_version is None:
        return
    try:
        spark.conf.unset(KEYS["txn_version"])
    except PySparkException:
        # The write is committed, so that this must not look like its failure.
        logger.warning("%s was not reset", KEYS["txn_version"], exc_info=True)


def conf_value(spark: SparkSession, key: str) -> str | None:
    """Return a session's value of a key, None where it is not set, or the session does not show it."""
    value = unless_refused(lambda: spark.conf.get(key, None))
    return None if value is None else str(value)


def effective_value(spark: SparkSession, key: str) -> str | None:
    """Return what a session goes by for a key that Spark knows: its value, else Spark's default."""
    return unless_refused(lambda: str(spark.conf.get(key)))


def unless_refused(ask: Callable[[], _Answer]) -> _Answer | None:
    """Return an answer of the session; None where it refuses the question for what it is."""
    try:
        return ask()
    except SPARK_ERRORS as error:
        if not is_refusal(error):
            raise
        return None


def is_refusal(error: Exception) -> bool:
    """Return whether a session refuses a call for what it is, not for how it was made."""
    if isinstance(error, PySparkException) and (error.getCondition() or "").partition(".")[0] in _REFUSALS:
        return True
    return _NOT_ALLOWED in str(error)


def settings_below(spark: SparkSession, prefix: str) -> dict[str, str]:
    if is_connect(spark):
        return {key: value for key, value in spark.conf.getAll.items() if key.startswith(prefix)}
    java: Any = spark._jsparkSession
    found = _java_classes(spark).converters.asJava(java.sessionState().conf().getAllConfs())
    return {key: value for key, value in strings_of_java(spark, found).items() if key.startswith(prefix)}


def strings_of_java(spark: SparkSession, strings: JavaObject) -> dict[str, str]:
    """Return a map of strings that a classic session's JVM has, in one call, where Py4J would make several for each.

    They come as bytes: Py4J logs strings as they are, if it is asked to log that much, and some may be secret.
    """
    found: dict[str, str] = json.loads(bytes(_java_classes(spark).mapper.writeValueAsBytes(strings)))
    return found


class _JavaClasses(NamedTuple):
    converters: Any
    mapper: Any


# Py4J asks for each part of a class's name.
_classes: WeakKeyDictionary[SparkContext, _JavaClasses] = WeakKeyDictionary()


def _java_classes(spark: SparkSession) -> _JavaClasses:
    context = spark.sparkContext
    if context not in _classes:
        jvm: Any = context._jvm
        converters = jvm.scala.jdk.javaapi.CollectionConverters
        _classes[context] = _JavaClasses(converters, jvm.com.fasterxml.jackson.databind.ObjectMapper())
    return _classes[context]


_thread = threading.local()


def _is_logged(_: logging.LogRecord) -> bool:
    return not getattr(_thread, "is_quiet", False)


# PySpark logs each error that it raises, as JSON on standard error. The filter passes every record, but for those of
# threads inside `errors_not_logged`. (PySpark's class makes the loggers: one of Python's would not take its arguments.)
for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    PySparkLogger.getLogger(_name).addFilter(_is_logged)


@contextmanager
def errors_not_logged() -> Iterator[None]:
    """Keep PySpark from logging the errors that it raises in this thread meanwhile."""
    before = getattr(_thread, "is_quiet", False)
    _thread.is_quiet = True
    try:
        yield
    finally:
        _thread.is_quiet = before


def physical_plan(frame: DataFrame) -> str:
    if is_connect(frame.sparkSession):
        connect: Any = frame
        return str(connect._explain_string(mode="simple"))
    jvm: Any = frame.sparkSession.sparkContext._jvm
    return str(jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "simple"))


def first_input_file(frame: DataFrame) -> str | None:
    """Return the URI of a file that a frame reads; None where it reads none."""
    if is_connect(frame.sparkSession):
        return next(iter(frame.inputFiles()), None)
    # All of them at once would be as many calls.
    files: Any = frame._jdf.inputFiles()
    return str(files[0]) if len(files) else None


def estimated_bytes(frame: DataFrame) -> int:
    """Return Spark's estimate of a classic frame's bytes, which needs no job; of an RDD's rows it is exabytes."""
    java: Any = frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    return int(str(java))


@contextmanager
def job_description(spark: SparkSession, description: str) -> Iterator[None]:
    """Name the Spark jobs that this thread starts meanwhile; does nothing over Connect."""
    if is_connect(spark):
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(description)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)  # type: ignore[arg-type]


def release_checkpoint(frame: DataFrame) -> None:
    """Release what `DataFrame.localCheckpoint` keeps in executors; the frame that it returned is unusable afterwards.

    Left to Python's garbage collector, Connect's own release is a request that may begin in the middle of another one,
    in the same thread, and then waits for it for ever.
    """
    plan: Any = getattr(frame, "_plan", None)
    if plan is None:
        logical: Any = frame._jdf.queryExecution().analyzed()
        if logical.nodeName() == "LogicalRDD":
            logical.rdd().unpersist(False)
    elif type(plan).__name__ == "CachedRemoteRelation":
        plan.__del__()
        plan._relation_id = None
