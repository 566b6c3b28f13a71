"""Whether a frame reads the table that its rows go into.

A merge's source that does has the rows of the version that it was made from, so that the merge cannot be right on a
newer one; so has a frame whose rows replace some of the table's. There only what is shown not to read the table counts
as not reading it: each leaf of the frame's plan must be of a kind that reads no table, or name its files. Of an append,
only what is shown to read the table counts.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from deltamerge.scan.newest_reads import NEWEST, NewestRead
from deltamerge.scan.paths import is_same_place, may_be_below
from deltamerge.spark.catalog import catalog_entry
from deltamerge.spark.session import SPARK_ERRORS, is_connect, is_refusal, physical_plan
from deltamerge.sql.names import parse_table_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltamerge.log.snapshot import Snapshot
    from deltamerge.spark.table import Table

JavaObject: TypeAlias = Any


_SOURCES = "org.apache.spark.sql.execution.datasources."
_READ_NOTHING = frozenset({"LocalRelation", "OneRowRelation", "Range", "EmptyRelation", "CTERelationRef"})
"""Leaves without files of their own; what a CTERelationRef stands for is in the plan, too."""
_OTHER_SYSTEMS = (
    f"{_SOURCES}jdbc.JDBCRelation",
    f"{_SOURCES}v2.jdbc.JDBCTable",
    "org.apache.spark.sql.kafka010.",
    "org.apache.spark.sql.execution.streaming.",
)
"""Relations and tables, by the beginnings of their classes, that read no files of a table."""
_DRIVERS_ROWS = frozenset(
    {"ParallelCollectionRDD", "MapPartitionsRDD", "PythonRDD", "PairwiseRDD", "UnionRDD", "CoalescedRDD"}
)
"""The RDDs by which Spark makes a frame of the driver's rows. Others may hold what was read before."""
_RDD = re.compile(r"(\w+)\[\d+\] at ")

_LEAF_OF_PHYSICAL_PLAN = re.compile(
    r"LocalTableScan\b|Range \(|Scan OneRowRelation\b|Scan JDBCRelation\(|FileScan |ReusedExchange "
    r"|BatchScan (?:avro|csv|json|orc|parquet|text) .*Location: \w*FileIndex"
)
_HOLDS_ROWS = ("Subquery", "InMemoryRelation")


def reads_table(frame: DataFrame, table: Table) -> bool:
    """Return whether a frame may read a table's files: then it has the rows of the version that it was made from."""
    root, spark = table.store.absolute(""), frame.sparkSession
    try:
        if _may_have_read(frame, root):
            return True
        if is_connect(spark):
            return _plan_may_read(physical_plan(frame), frame.inputFiles(), root)
        return any(_may_read(leaf, spark, root) for leaf in _leaves_of(frame))
    except (PySparkException, Py4JError) as error:
        if not _is_of_session(error):
            raise
        return True


def surely_reads_table(frame: DataFrame, table: Table) -> bool:
    """Return whether the plan of rows that are appended names the table or files of it."""
    root, spark = table.store.absolute(""), frame.sparkSession
    try:
        if _may_have_read(frame, root):
            return True
        if is_connect(spark):
            places: Iterable[str] = chain(_tables_of_connect_plan(frame), frame.inputFiles())
        else:
            places = (place for leaf in _leaves_of(frame) for place in _places_of(leaf, spark))
        return any(may_be_below(place, root) for place in places)
    except (PySparkException, Py4JError) as error:
        # Such as too many files for one message.
        if not _is_of_session(error):
            raise
        return True


def versions_read(frame: DataFrame, table: Table, snapshot: Snapshot) -> set[int]:
    """Return the versions of a table that a frame has read as the newest, as far as the session shows its plan."""
    return {read.version for read in newest_reads(frame) if read.is_of(table, snapshot)}


def newest_reads(frame: DataFrame) -> tuple[NewestRead, ...]:
    """Return what a frame has read as tables' newest versions, as far as the session shows its plan."""
    try:
        return tuple(dict.fromkeys(_newest_reads(frame)))
    except (PySparkException, Py4JError) as error:
        if not is_refusal(error):
            raise
        return ()


def follows_table(frame: DataFrame, table: Table, snapshot: Snapshot) -> bool:
    """Return whether all that a frame may read of a table it has read as the newest version.

    `read_again` reads such a frame anew. Over Connect that is not certain of any frame that may read the table.
    """
    root, spark = table.store.absolute(""), frame.sparkSession
    if is_connect(spark):
        return not reads_table(frame, table)
    java: Any = frame._jdf.queryExecution().analyzed()

    def is_newest(leaf: JavaObject) -> bool:
        read = _newest_read(leaf, spark)
        return read is not None and bool(read.columns) and read.is_of(table, snapshot)

    try:
        return not any(_may_read(leaf, spark, root) for leaf in _leaves(java) if not is_newest(leaf))
    except (PySparkException, Py4JError) as error:
        if not _is_of_session(error):
            raise
        return False


def _may_have_read(frame: DataFrame, root: str) -> bool:
    return any(is_same_place(read.root, root) for read in _newest_reads(frame))


def _newest_reads(frame: DataFrame) -> Iterator[NewestRead]:
    spark = frame.sparkSession
    if is_connect(spark):
        marks = (read.data_source.options.get(NEWEST) for read in _reads_of_connect_plan(frame))
        yield from (NewestRead.from_json(mark) for mark in marks if mark)
        return
    yield from (read for leaf in _leaves_of(frame) if (read := _newest_read(leaf, spark)) is not None)


def _is_of_session(error: Exception) -> bool:
    """Return whether an error is what Spark says, not a call of Java's that does not exist."""
    return isinstance(error, SPARK_ERRORS) or is_refusal(error)


def _newest_read(leaf: JavaObject, spark: SparkSession) -> NewestRead | None:
    kind = leaf.getClass().getSimpleName()
    if kind == "DataSourceV2Relation" and _is_of_delta_source(leaf.table()):
        return _pinned(leaf, spark)
    if kind != "LogicalRelation":
        return None
    relation = leaf.relation()
    if relation.getClass().getName() != f"{_SOURCES}HadoopFsRelation":
        return None
    mark = relation.options().get(NEWEST)
    return NewestRead.from_json(mark.get()) if mark.isDefined() else None


def _pinned(relation: JavaObject, spark: SparkSession) -> NewestRead | None:
    """Return the version at which a frame of ``format("delta")`` stays, though its query did not ask for one."""
    asks = any(relation.options().containsKey(name) for name in ("versionAsOf", "timestampAsOf"))
    location = _location(relation, spark)
    if asks or location is None:
        return None
    # Spark gives no way to what the source has said in Python but its own.
    field = relation.table().getClass().getDeclaredField("ds")
    field.setAccessible(True)
    made = field.get(relation.table()).dataSourceInPython()
    version: int | None = None if made is None else pickle.loads(made.dataSource()).pinned
    return None if version is None else NewestRead(location, None, version)


def has_hidden_reads(frame: DataFrame) -> bool:
    """Return whether a frame over Connect has subqueries, of which nothing shows what they read."""
    if not is_connect(frame.sparkSession):
        return False
    plan = physical_plan(frame)
    return "Subquery" in plan or _is_cut(plan)


def _places_of(leaf: JavaObject, spark: SparkSession) -> list[str]:
    """Return where a leaf reads: a table's folder, or the first of its files, which are all of one table."""
    kind = leaf.getClass().getSimpleName()
    if kind == "LogicalRelation" and leaf.relation().getClass().getName() == f"{_SOURCES}HadoopFsRelation":
        return [str(path.toString()) for path in each_of(leaf.relation().location().rootPaths().take(1))]
    if kind == "DataSourceV2Relation" and _is_of_delta_source(leaf.table()):
        location = _location(leaf, spark)
        return [] if location is None else [location]
    return []


def _tables_of_connect_plan(frame: DataFrame) -> Iterator[str]:
    """Yield the folders of Delta tables that a frame over Connect was made of."""
    for read in _reads_of_connect_plan(frame):
        source = read.data_source
        if read.HasField("named_table"):
            entry = catalog_entry(frame.sparkSession, parse_table_name(read.named_table.unparsed_identifier))
            if entry is not None and entry.location:
                yield entry.location
        elif source.format.lower() == "delta":
            options = {name.lower(): value for name, value in source.options.items()}
            yield from [*source.paths, *filter(None, [options.get("path")])]


def _reads_of_connect_plan(frame: DataFrame) -> Iterator[Any]:
    """Yield what a frame over Connect reads, in subqueries and in queries of SQL over frames, too."""
    connect: Any = frame
    messages = [connect._plan.to_proto(connect.sparkSession.client)]
    while messages:
        message = messages.pop()
        if message.DESCRIPTOR.full_name == "spark.connect.Read":
            yield message
        for field, value in message.ListFields():
            if field.message_type is not None and not field.message_type.GetOptions().map_entry:
                messages += [value] if hasattr(value, "DESCRIPTOR") else value


def _plan_may_read(plan: str, files: list[str], root: str) -> bool:
    """Read a physical plan as Spark prints it, which is all that Connect shows of a frame."""
    if any(may_be_below(file, root) for file in files) or any(word in plan for word in _HOLDS_ROWS) or _is_cut(plan):
        return True
    lines = [line for line in plan.splitlines() if line.strip() and not line.startswith("== ")]
    depths = [len(line) - len(line.lstrip(" :+-")) for line in lines]
    leaves = (line for line, depth, below in zip(lines, depths, [*depths[1:], 0], strict=True) if below <= depth)
    return not all(_LEAF_OF_PHYSICAL_PLAN.match(re.sub(r"^[ :+-]*(\*?\(\d+\) )?", "", leaf)) for leaf in leaves)


def _is_cut(plan: str) -> bool:
    """Return whether Spark left out a part of a plan: spark.sql.maxPlanStringLength."""
    return re.search(r"\d+ more characters|Truncated plan of \d+ characters", plan) is not None


def _leaves_of(frame: DataFrame) -> Iterator[JavaObject]:
    """Yield the leaves of a classic frame's plan; of a batch of a stream, those of the stream's."""
    java: Any = frame._jdf.queryExecution().analyzed()
    for leaf in _leaves(java):
        plan = (
            _plan_of_stream(leaf.rdd(), frame.sparkSession) if leaf.getClass().getSimpleName() == "LogicalRDD" else None
        )
        yield from [leaf] if plan is None else _leaves(plan)


def _leaves(plan: JavaObject) -> Iterator[JavaObject]:
    for part in (plan, *each_of(plan.subqueriesAll())):
        yield from each_of(part.collectLeaves())


def each_of(found: JavaObject) -> Iterator[JavaObject]:
    return (found.apply(index) for index in range(found.size()))


def _may_read(leaf: JavaObject, spark: SparkSession, root: str) -> bool:
    kind = leaf.getClass().getSimpleName()
    if kind in _READ_NOTHING:
        return False
    if kind == "LogicalRDD":
        return _rdd_may_read(leaf.rdd())
    if kind == "LogicalRelation":
        return _relation_may_read(leaf.relation(), spark, root)
    if kind == "StreamingDataSourceV2ScanRelation":
        leaf = leaf.relation()
    elif kind != "DataSourceV2Relation":
        return True
    return _table_may_read(leaf, spark, root)


def _relation_may_read(relation: JavaObject, spark: SparkSession, root: str) -> bool:
    if relation.getClass().getName() == f"{_SOURCES}HadoopFsRelation":
        return _files_may_be_below(relation.location(), spark, root)
    return not relation.getClass().getName().startswith(_OTHER_SYSTEMS)


def _table_may_read(relation: JavaObject, spark: SparkSession, root: str) -> bool:
    table = relation.table()
    name = table.getClass().getName()
    if name.startswith(_OTHER_SYSTEMS):
        return False
    if re.match(re.escape(_SOURCES) + r"v2\.(csv|json|orc|parquet|text)\.", name):
        return _files_may_be_below(table.fileIndex(), spark, root)
    location = _location(relation, spark) if _is_of_delta_source(table) else None
    return location is None or may_be_below(location, root) or may_be_below(root, location)


def _is_of_delta_source(table: JavaObject) -> bool:
    name = table.getClass().getName()
    return str(name).startswith(f"{_SOURCES}v2.python.") and str(table.name()).lower() == "delta"


def _location(relation: JavaObject, spark: SparkSession) -> str | None:
    """Return the folder of a table that ``format("delta")`` reads; None where the plan does not tell it."""
    path = relation.options().get("path")
    if path is None and relation.identifier().isDefined():
        identifier = relation.identifier().get()
        entry = catalog_entry(spark, [*identifier.namespace(), identifier.name()])
        path = None if entry is None else entry.location
    return None if path is None else str(path)


def _files_may_be_below(index: JavaObject, spark: SparkSession, root: str) -> bool:
    # One call for all: each element of Java's array would be another.
    jvm: Any = spark.sparkContext._jvm
    files = str(jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(index.inputFiles()).mkString("\n")).split("\n")
    return any(may_be_below(folder, root) for folder in {file.rpartition("/")[0] for file in files if file})


def _rdd_may_read(rdd: JavaObject) -> bool:
    # What a stream reads has been looked at in its own plan, where that is known.
    is_batch = rdd.getClass().getSimpleName() == "SQLExecutionRDD"
    return is_batch or not _DRIVERS_ROWS.issuperset(_RDD.findall(rdd.toDebugString()))


def _plan_of_stream(rdd: JavaObject, spark: SparkSession) -> JavaObject | None:
    """Return the plan of a stream whose batch an RDD is, which another session may have started; None if unknown."""
    query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    if rdd.getClass().getSimpleName() != "SQLExecutionRDD" or query is None:
        return None
    jvm: Any = spark.sparkContext._jvm
    java: Any = spark._jsparkSession
    started = java.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query))
    return None if started is None else started.lastExecution().analyzed()
