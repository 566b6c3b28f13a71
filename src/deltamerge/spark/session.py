"""What classic Spark and Spark Connect do differently, and session settings that are held for a while."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaAnalysisException, DeltaParseException
from deltamerge.spark.config import KEYS, Conf, MergeConf, read_conf
from deltamerge.sql.names import parse_name

logger = logging.getLogger("deltamerge.spark.session")

_ATTRIBUTE = re.compile(r"UnresolvedAttribute\((?:[A-Z]\w*\(([^()]*)\)|([^(),]*)),")
# Words that a name prints like.
_CONSTANTS = frozenset({"true", "false", "null", "nan", "infinity"})

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""Errors of Spark. PySpark makes its own of most of Java's, on Connect of all."""

# What sessions answer that take only some calls: serverless compute, clusters that users share.
_REFUSALS = frozenset({
    "CANNOT_MODIFY_CONFIG", "CANNOT_MODIFY_STATIC_CONFIG", "CONFIG_NOT_AVAILABLE", "JVM_ATTRIBUTE_NOT_SUPPORTED",
    "NOT_IMPLEMENTED", "NOT_SUPPORTED_WITH_SERVERLESS", "UNSUPPORTED_OPERATION",
})  # fmt: skip
_NOT_ALLOWED = "Py4JSecurityException"
# Where Spark has this check, it refuses to read Parquet in the folder of a Delta table.
_FORMAT_CHECK = "spark.databricks.delta.formatCheck.enabled"

# Other threads of the session see the settings below for as long as they are held. They change how Spark plans, none of
# them what a query returns.
_PLANNING = {
    # What Spark infers of aliases of aliases grows beyond all bounds with the number of columns.
    "spark.sql.constraintPropagation.enabled": "false",
}
_ONE_EVALUATION = {
    # By these Spark notices that the rows of a shuffle that were lost with an executor are others when it computes them
    # again, such as random keys, and runs or fails the job anew instead of mixing both. Spark 4.2 does so by default.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
}
_READING_MANY_FILES = {
    # Above this number of paths Spark starts a job that lists them, though the log names them all.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "2147483647",
}
IN_TASKS = {
    # Of rows below this size (bytes) the optimizer evaluates expressions itself, one row after the other.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
}


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def runs_in_local_mode(spark: SparkSession) -> bool:
    """Return whether a session's tasks are known to run on this machine."""
    return not is_connect(spark) and str(spark.sparkContext.master).startswith("local")


def merge_conf(spark: SparkSession) -> MergeConf:
    return session_conf(spark, MergeConf)


def session_conf(spark: SparkSession, kind: type[Conf]) -> Conf:
    """Return the settings of a session that a statement asks for, with defaults."""
    if is_connect(spark):
        # Each question is a request.
        return read_conf(kind, spark.conf.getAll.get)
    try:
        given = settings_below(spark, "spark.")
    except SPARK_ERRORS as error:
        if not is_refusal(error):
            raise
        return read_conf(kind, lambda key: conf_value(spark, key))
    # Of its own settings Spark knows the defaults.
    return read_conf(kind, lambda key: conf_value(spark, key) if key.startswith("spark.sql.") else given.get(key))


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """Make a frame without rows."""
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
    if not is_connect(spark):
        spark.catalog.createTable(name, location, "delta", schema, comment)
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
    """Return a session's value of a key, None where it has none, or does not show it."""
    try:
        value = spark.conf.get(key, None)
    except SPARK_ERRORS as error:
        if not is_refusal(error):
            raise
        return None
    return None if value is None else str(value)


def is_refusal(error: Exception) -> bool:
    """Return whether a session refuses a call for what it is, not for how it was made."""
    if isinstance(error, PySparkException) and (error.getCondition() or "").partition(".")[0] in _REFUSALS:
        return True
    return _NOT_ALLOWED in str(error)


def for_reading(spark: SparkSession) -> dict[str, str]:
    """Return the settings to hold while the table's files are read."""
    is_checked = (conf_value(spark, _FORMAT_CHECK) or "false").lower() != "false"
    return {**_READING_MANY_FILES, _FORMAT_CHECK: "false"} if is_checked else _READING_MANY_FILES


def for_merging(spark: SparkSession) -> dict[str, str]:
    """Return the settings to hold while a merge is planned and run."""
    return {**for_reading(spark), **_PLANNING, **_ONE_EVALUATION}


def settings_below(spark: SparkSession, prefix: str) -> dict[str, str]:
    """Return the session's settings whose keys begin with a prefix."""
    if is_connect(spark):
        return {key: value for key, value in spark.conf.getAll.items() if key.startswith(prefix)}
    # One call of the JVM, where PySpark makes several for each setting.
    java: Any = spark._jsparkSession
    pairs = java.sessionState().conf().getAllConfs().mkString("\0", "\0", "\0").split("\0")
    return dict(pair.split(" -> ", 1) for pair in pairs if pair.startswith(prefix))


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str], *, are_needed: bool = False) -> Iterator[None]:
    """Hold settings of a session, then restore what was there.

    Other threads of the session see them meanwhile: hold only what does not change what their queries return.

    Args:
        are_needed: Whether a setting that the session refuses is an error; else it is left as it is.
    """
    session = _identity(spark) if settings else ""
    with ExitStack() as held:
        for key, value in settings.items():
            with _lock:
                holders, before = _held.get((session, key), (0, None))
                if not holders and (before := conf_value(spark, key)) == value:
                    continue
                _held[session, key] = (holders + 1, before)
                # From here on it is put back, also where setting it fails or is interrupted.
                held.callback(_release, spark, session, key)
                if not holders and not _is_set(spark, key, value):
                    del _held[session, key]
                    if are_needed:
                        raise _setting_refused(key, value)
        yield


def _is_set(spark: SparkSession, key: str, value: str) -> bool:
    try:
        spark.conf.set(key, value)
    except SPARK_ERRORS as error:
        if not is_refusal(error):
            raise
        logger.info("the session refuses to set %s", key)
        return False
    return True


def _setting_refused(key: str, value: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTAMERGE_SETTING_REFUSED",
        f"The session refuses to set {key}, which must be {value} while these files are written. Let whoever runs the "
        "cluster set it.",
        parameters={"key": key},
    )


def _identity(spark: SparkSession) -> str:
    """Return what two Python objects for one session have in common, such as those of a stream's batches."""
    if is_connect(spark):
        connect: Any = spark
        return str(connect.session_id)
    java: Any = spark._jsparkSession
    return str(java.sessionUUID())


def _release(spark: SparkSession, session: str, key: str) -> None:
    """Restore a setting, unless another thread holds it, too."""
    with _lock:
        holders, before = _held.pop((session, key), (0, None))
        if not holders:
            # The session has refused it.
            return
        if holders > 1:
            _held[session, key] = (holders - 1, before)
        elif before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)


_lock = threading.Lock()
# The threads that hold a session's setting, and its value before.
_held: dict[tuple[str, str], tuple[int, str | None]] = {}
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
    """Return a frame's physical plan as Spark prints it."""
    if is_connect(frame.sparkSession):
        connect: Any = frame
        return str(connect._explain_string(mode="simple"))
    jvm: Any = frame.sparkSession.sparkContext._jvm
    return str(jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "simple"))


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


def is_built_on_subquery(column: Column) -> bool:
    """Return whether a classic Column contains ``DataFrame.scalar()``, ``exists()`` or ``isin(DataFrame)``.

    How such a Column prints does not show it; SQL inside of `expr` is not looked into. False for Columns of Connect,
    which `deltamerge.spark.column_trees` reads.
    """
    java: Any = getattr(column, "_jc", None)
    return java is not None and "SubqueryExpression(" in java.node().toString()


def attribute_names(column: Column) -> list[tuple[str, ...]] | None:
    """Return the names that a classic Column refers to, but for those inside of `expr`; None where one is unusual.

    A Column prints a name as it is, so that ``col("0")`` prints like a number and ``col("a > 1")`` like a comparison.
    """
    java: Any = column._jc
    nodes = str(java.node().toString())
    found = [_parts(*match) for match in _ATTRIBUTE.findall(nodes)]
    names = [parts for parts in found if parts is not None and all(map(_is_plain, parts))]
    return names if len(names) == nodes.count("UnresolvedAttribute(") else None


def _parts(listed: str, name: str) -> tuple[str, ...] | None:
    """Split a name, which is printed as a list of its parts or, by Spark 4.0, as it was written."""
    if listed:
        return tuple(listed.split(", "))
    try:
        return parse_name(name)
    except DeltaParseException:
        return None


def _is_plain(part: str) -> bool:
    return part.replace(".", "_").isidentifier() and part.lower() not in _CONSTANTS


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


# Plan nodes whose columns keep the qualifiers they had below, by their names in Spark's plans and in Connect's.
_KEEPS_QUALIFIERS = {
    "Deduplicate", "Filter", "GlobalLimit", "Hint", "Limit", "LocalLimit", "Offset", "Repartition",
    "RepartitionByExpression", "ResolvedHint", "Sample", "Sort", "Tail",
}  # fmt: skip


def alias_of(frame: DataFrame) -> str | None:
    """Return the last part of the name that qualifies all columns of a frame: its alias, table or view."""
    plan: Any = getattr(frame, "_plan", None)
    if plan is not None:
        return _alias_of_connect_plan(plan)
    logical: Any = frame._jdf.queryExecution().analyzed()
    while logical.nodeName() in _KEEPS_QUALIFIERS:
        logical = logical.children().head()
    return str(logical.alias()) if logical.nodeName() == "SubqueryAlias" else None


def _alias_of_connect_plan(node: object) -> str | None:
    plan: Any = node
    while type(plan).__name__ in _KEEPS_QUALIFIERS and getattr(plan, "_child", None) is not None:
        plan = plan._child
    if type(plan).__name__ == "SubqueryAlias":
        return str(plan._alias)
    return parse_name(plan.table_name)[-1] if type(plan).__name__ == "Read" else None
