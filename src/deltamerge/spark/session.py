"""The little that classic Spark and Spark Connect do differently, behind one door."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame

from deltamerge.exceptions import DeltaParseException
from deltamerge.spark.config import KEYS, MergeConf, read_conf
from deltamerge.sql.names import parse_name

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

logger = logging.getLogger("deltamerge.spark.session")

_ATTRIBUTE = re.compile(r"UnresolvedAttribute\((?:[A-Z]\w*\(([^()]*)\)|([^(),]*)),")
# Words that a name prints like.
_CONSTANTS = frozenset({"true", "false", "null", "nan", "infinity"})

PLANNING = {
    # What Spark infers of aliases of aliases grows beyond all bounds with the number of columns.
    "spark.sql.constraintPropagation.enabled": "false",
}

READING_MANY_FILES = {
    # Above this number of paths Spark starts a job that lists them, though the log has told all about them.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "2147483647",
    # Footers of INT96 timestamps carry no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def is_connect(spark: SparkSession) -> bool:
    """Tells whether a session is a Spark Connect client."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def runs_in_local_mode(spark: SparkSession) -> bool:
    """Tells whether a session's tasks run on this machine, as far as that is known."""
    return not is_connect(spark) and str(spark.sparkContext.master).startswith("local")


def merge_conf(spark: SparkSession) -> MergeConf:
    """Reads the settings of a merge from a session."""
    if is_connect(spark):
        # Each question is a request.
        return read_conf(spark.conf.getAll.get)
    return read_conf(lambda key: conf_value(spark, key))


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """Makes a frame without rows."""
    if is_connect(spark):
        return spark.createDataFrame([], schema)
    # PySpark would make an RDD of no rows, and send it a function of Python's.
    jvm: Any = spark.sparkContext._jvm
    java: Any = spark._jsparkSession
    rows = java.createDataFrame(jvm.java.util.ArrayList(), java.parseDataType(schema.json()))
    return DataFrame(rows, spark)


def reset_transaction(spark: SparkSession, conf: MergeConf) -> None:
    """Forgets the number of the session's application transaction after it, where the session asks for that.

    Another write under the same number would do nothing; without one it fails. The write is committed, so a failure
    here is logged. Delta: DeltaCommand.createSetTransaction and hasBeenExecuted.

    Args:
        spark: The session.
        conf: Its settings.
    """
    if not conf.txn_version_auto_reset or conf.txn_version is None:
        return
    try:
        spark.conf.unset(KEYS["txn_version"])
    except Exception:
        logger.warning("%s was not reset", KEYS["txn_version"], exc_info=True)


def conf_value(spark: SparkSession, key: str) -> str | None:
    """Gives a session's value of a key, or None where it has none."""
    value = spark.conf.get(key, None)
    return None if value is None else str(value)


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Sets session settings for a while and puts back what was there.

    Args:
        spark: The session.
        settings: Values by key.
    """
    for key, value in settings.items():
        _HELD.hold(spark, key, value)
    try:
        yield
    finally:
        for key in settings:
            _HELD.release(spark, key)


class _HeldSettings:
    """Settings that several threads of one session hold at once: the last to let go puts back what was there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[int, str], tuple[int, str | None]] = {}

    def hold(self, spark: SparkSession, key: str, value: str) -> None:
        with self._lock:
            count, before = self._held.get((id(spark), key), (0, None))
            if not count:
                before = conf_value(spark, key)
                spark.conf.set(key, value)
            self._held[id(spark), key] = (count + 1, before)

    def release(self, spark: SparkSession, key: str) -> None:
        with self._lock:
            count, before = self._held.pop((id(spark), key))
            if count > 1:
                self._held[id(spark), key] = (count - 1, before)
            elif before is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, before)


_HELD = _HeldSettings()


@contextmanager
def errors_said_once() -> Iterator[None]:
    """Keeps PySpark from logging, as JSON on standard error, each error that it raises in this thread meanwhile."""
    thread = threading.get_ident()

    def of_another_thread(record: logging.LogRecord) -> bool:
        return record.thread != thread

    # Made by PySpark's own class: a logger that Python's made first would not take what PySpark says to it.
    loggers = [
        PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    ]
    for logger in loggers:
        logger.addFilter(of_another_thread)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(of_another_thread)


def runs_arrow(spark: SparkSession) -> bool:
    """Tells whether nothing is known against running PyArrow in a session's tasks."""
    return spark not in _WITHOUT_ARROW


def note_failure(spark: SparkSession, error: Exception) -> None:
    """Notes an error that says that a session's executors have another Python, or lack PyArrow."""
    if any(sign in str(error) for sign in _NO_ARROW):
        _WITHOUT_ARROW.add(spark)


_NO_ARROW = (
    "No module named 'pyarrow'",
    "No module named 'numpy'",
    "PYTHON_VERSION_MISMATCH",
)
_WITHOUT_ARROW: WeakSet[SparkSession] = WeakSet()


def physical_plan(frame: DataFrame) -> str:
    """Gives what Spark says of how it will compute a frame (``DataFrame.explain``)."""
    if is_connect(frame.sparkSession):
        return str(frame._explain_string(mode="simple"))  # type: ignore[operator]
    jvm: Any = frame.sparkSession.sparkContext._jvm
    return str(jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "simple"))


@contextmanager
def job_description(spark: SparkSession, description: str) -> Iterator[None]:
    """Names the Spark jobs that start meanwhile, where the session can (classic Spark)."""
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
    """Tells whether a Column of classic Spark holds ``DataFrame.scalar()``, ``exists()`` or ``isin(DataFrame)``.

    How such a Column prints does not tell. What `expr` was given is not looked into.

    Args:
        column: The Column; one of Connect gives False, since `deltamerge.spark.connect_columns` sees what is in it.
    """
    java: Any = getattr(column, "_jc", None)
    return java is not None and "SubqueryExpression(" in java.node().toString()


def attribute_names(column: Column) -> list[tuple[str, ...]] | None:
    """Gives the names by which a Column of classic Spark asks for columns, but for those in what `expr` was given.

    A Column prints a name as it is, so that ``col("0")`` prints like a number and ``col("a > 1")`` like a comparison.

    Args:
        column: The Column.

    Returns:
        The parts of each name; None where one is not made of plain words alone.
    """
    java: Any = column._jc
    nodes = str(java.node().toString())
    found = [_parts(*match) for match in _ATTRIBUTE.findall(nodes)]
    names = [parts for parts in found if parts is not None and all(map(_is_plain, parts))]
    return names if len(names) == nodes.count("UnresolvedAttribute(") else None


def _parts(listed: str, text: str) -> tuple[str, ...] | None:
    """Reads how a name is told: as a list of its parts, or, by Spark 4.0, as it was written."""
    if listed:
        return tuple(listed.split(", "))
    try:
        return parse_name(text)
    except DeltaParseException:
        return None


def _is_plain(part: str) -> bool:
    return part.replace(".", "_").isidentifier() and part.lower() not in _CONSTANTS


def release_checkpoint(frame: DataFrame) -> None:
    """Gives back at once what a local checkpoint keeps in executors.

    Left to Python's garbage collector, Connect's own release is a request that may begin in the middle of another one,
    in the same thread, and then waits for it for ever.

    Args:
        frame: What `DataFrame.localCheckpoint` gave; it cannot be read afterwards.
    """
    with suppress(Exception):
        plan: Any = getattr(frame, "_plan", None)
        if plan is None:
            frame._jdf.queryExecution().analyzed().rdd().unpersist(False)
        elif type(plan).__name__ == "CachedRemoteRelation":
            plan.__del__()
            plan._relation_id = None


# Plan nodes whose columns keep the qualifiers they had below, by their names in Spark's plans and in Connect's.
_KEEPS_QUALIFIERS = {
    "Deduplicate", "Filter", "GlobalLimit", "Hint", "Limit", "LocalLimit", "Offset", "Repartition",
    "RepartitionByExpression", "ResolvedHint", "Sample", "Sort", "Tail",
}  # fmt: skip


def alias_of(frame: DataFrame) -> str | None:
    """Gives the name that qualifies all of a frame's columns: its alias, or the table or view it reads.

    Args:
        frame: A DataFrame of classic Spark or of Spark Connect.

    Returns:
        The last part of the name, or None.
    """
    plan: Any = getattr(frame, "_plan", None)
    if plan is not None:
        return _alias_of_connect_plan(plan)
    with suppress(Exception):
        logical: Any = frame._jdf.queryExecution().analyzed()
        while logical.nodeName() in _KEEPS_QUALIFIERS:
            logical = logical.children().head()
        return str(logical.alias()) if logical.nodeName() == "SubqueryAlias" else None
    return None


def _alias_of_connect_plan(node: object) -> str | None:
    plan: Any = node
    while type(plan).__name__ in _KEEPS_QUALIFIERS and getattr(plan, "_child", None) is not None:
        plan = plan._child
    if type(plan).__name__ == "SubqueryAlias":
        return str(plan._alias)
    return parse_name(plan.table_name)[-1] if type(plan).__name__ == "Read" else None
