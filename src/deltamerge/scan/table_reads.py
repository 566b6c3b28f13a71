"""Whether a frame reads the table that its rows go into.

A merge's source that does has the rows of the version that it was made from, so that the merge cannot be right on a
newer one; so has a frame whose rows replace some of the table's. There only what is shown not to read the table counts
as not reading it: each leaf of the frame's plan must be of a kind that reads no table, or name its files. Of an append,
only what is shown to read the table counts.
"""

from __future__ import annotations

import os.path
import pickle
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from deltamerge.scan.paths import file_key
from deltamerge.spark.catalog import catalog_entry
from deltamerge.spark.session import is_connect, physical_plan
from deltamerge.sql.names import parse_name
from deltamerge.storage.stored_file import SCHEME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltamerge.spark.table import Table

JavaObject: TypeAlias = Any

_NEWEST_VERSION, _OF_TABLE = "deltamerge.newestVersion", "deltamerge.newestVersionOf"

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


def newest_version_mark(table: Table, version: int) -> dict[str, str]:
    """Return options of a reader that mean nothing to Spark: which table it reads, at what was its newest version."""
    return {_NEWEST_VERSION: str(version), _OF_TABLE: table.store.absolute("")}


def reads_table(frame: DataFrame, table: Table) -> bool:
    """Return whether a frame may read a table's files: then it has the rows of the version that it was made from."""
    root = table.store.absolute("")
    try:
        if is_connect(frame.sparkSession):
            return _plan_may_read(physical_plan(frame), frame.inputFiles(), root)
        java: Any = frame._jdf.queryExecution().analyzed()
        return any(_may_read(leaf, frame.sparkSession, root) for leaf in _leaves(java))
    except (PySparkException, Py4JError):
        return True


def surely_reads_table(frame: DataFrame, table: Table) -> bool:
    """Return whether the plan of rows that are appended names the table or files of it."""
    root, spark = table.store.absolute(""), frame.sparkSession
    if is_connect(spark):
        plan: Any = frame
        places = [*frame.inputFiles(), *_tables_of_connect_plan(spark, plan._plan)]
    else:
        java: Any = frame._jdf.queryExecution().analyzed()
        places = [place for leaf in _leaves(java) for place in _places_of(leaf, spark)]
    return any(may_be_below(place, root) for place in places)


def version_read(frame: DataFrame, table: Table) -> int | None:
    """Return the oldest version of a table that a frame has read as the newest; None where it has read none."""
    root, spark = table.store.absolute(""), frame.sparkSession
    if is_connect(spark):
        plan: Any = frame
        found = list(_marked_in_connect_plan(plan._plan, root))
    else:
        java: Any = frame._jdf.queryExecution().analyzed()
        found = [version for leaf in _leaves(java) if (version := _marked(leaf, spark, root)) is not None]
    return min(found, default=None)


def _marked(leaf: JavaObject, spark: SparkSession, root: str) -> int | None:
    kind = leaf.getClass().getSimpleName()
    if kind == "DataSourceV2Relation" and _is_of_delta_source(leaf.table()):
        return _pinned(leaf, spark, root)
    if kind != "LogicalRelation":
        return None
    relation = leaf.relation()
    if relation.getClass().getName() != f"{_SOURCES}HadoopFsRelation":
        return None
    found = [relation.options().get(name) for name in (_NEWEST_VERSION, _OF_TABLE)]
    version, table = (option.get() if option.isDefined() else None for option in found)
    if version is None or table is None or not may_be_below(table, root):
        return None
    return int(version)


def _pinned(relation: JavaObject, spark: SparkSession, root: str) -> int | None:
    """Return the version at which a frame of ``format("delta")`` stays, though its query did not ask for one."""
    location = _location(relation, spark)
    is_own = location is not None and may_be_below(location, root)
    if not is_own or any(relation.options().containsKey(name) for name in ("versionAsOf", "timestampAsOf")):
        return None
    # Spark gives no way to what the source has said in Python but its own.
    field = relation.table().getClass().getDeclaredField("ds")
    field.setAccessible(True)
    made = field.get(relation.table()).dataSourceInPython()
    version: int | None = None if made is None else pickle.loads(made.dataSource()).pinned
    return version


def _marked_in_connect_plan(plan: object, root: str) -> Iterator[int]:
    for read in _reads_of_connect_plan(plan):
        options = getattr(read, "_options", None) or {}
        if _NEWEST_VERSION in options and may_be_below(options[_OF_TABLE], root):
            yield int(options[_NEWEST_VERSION])


def has_hidden_reads(frame: DataFrame) -> bool:
    """Return whether a frame over Connect has subqueries, of which nothing shows what they read."""
    return is_connect(frame.sparkSession) and "Subquery" in physical_plan(frame)


def _places_of(leaf: JavaObject, spark: SparkSession) -> list[str]:
    """Return where a leaf reads: a table's folder, or the first of its files, which are all of one table."""
    kind = leaf.getClass().getSimpleName()
    if kind == "LogicalRelation" and leaf.relation().getClass().getName() == f"{_SOURCES}HadoopFsRelation":
        return [str(path.toString()) for path in _each(leaf.relation().location().rootPaths().take(1))]
    if kind == "DataSourceV2Relation" and _is_of_delta_source(leaf.table()):
        location = _location(leaf, spark)
        return [] if location is None else [location]
    return []


def _tables_of_connect_plan(spark: SparkSession, plan: object) -> Iterator[str]:
    """Yield the folders of Delta tables that a frame over Connect was made of."""
    for read in _reads_of_connect_plan(plan):
        if type(read).__name__ == "Read":
            entry = catalog_entry(spark, parse_name(read.table_name))
            if entry is not None and entry.location:
                yield entry.location
        elif str(read._format).lower() == "delta":
            options = {name.lower(): value for name, value in (read._options or {}).items()}
            yield from [*(read._paths or ()), *filter(None, [options.get("path")])]


def _reads_of_connect_plan(plan: object) -> Iterator[Any]:
    if not isinstance(plan, (list, tuple)) and type(plan).__module__ != "pyspark.sql.connect.plan":
        return
    if type(plan).__name__ in ("DataSource", "Read"):
        yield plan
        return
    for part in plan if isinstance(plan, (list, tuple)) else vars(plan).values():
        yield from _reads_of_connect_plan(part)


def may_be_below(uri: str, root: str) -> bool:
    """Return whether a file or folder may be a table's folder or in it, whatever way its file system is spelled."""
    authority, path = _place(uri)
    table_authority, table_path = _place(root)
    if authority and table_authority and authority != table_authority:
        return False
    return path == table_path or path.startswith(table_path.rstrip("/") + "/")


def _place(uri: str) -> tuple[str, str]:
    """Return a location's bucket or container, empty where that is not certain, and its path."""
    scheme = SCHEME.match(uri)
    if scheme is None or scheme.group(1).lower() == "file":
        return "", os.path.realpath(file_key(uri))
    decoded = file_key(uri[scheme.end() - 1 :])
    authority, _, path = decoded[2:].partition("/") if decoded.startswith("//") else ("", "", decoded)
    kind = scheme.group(1).lower()
    if kind.startswith(("abfs", "wasb")):
        authority = authority.partition(".")[0]
    elif kind not in ("s3", "s3a", "s3n", "gs"):
        authority = ""
    return authority, os.path.normpath("/" + path.lstrip("/"))


def _plan_may_read(plan: str, files: list[str], root: str) -> bool:
    """Read a physical plan as Spark prints it, which is all that Connect shows of a frame."""
    if any(may_be_below(file, root) for file in files) or any(word in plan for word in _HOLDS_ROWS):
        return True
    lines = [line for line in plan.splitlines() if line.strip() and not line.startswith("== ")]
    depths = [len(line) - len(line.lstrip(" :+-")) for line in lines]
    leaves = (line for line, depth, below in zip(lines, depths, [*depths[1:], 0], strict=True) if below <= depth)
    return not all(_LEAF_OF_PHYSICAL_PLAN.match(re.sub(r"^[ :+-]*(\*?\(\d+\) )?", "", leaf)) for leaf in leaves)


def _leaves(plan: JavaObject) -> Iterator[JavaObject]:
    for part in (plan, *_each(plan.subqueriesAll())):
        yield from _each(part.collectLeaves())


def _each(found: JavaObject) -> Iterator[JavaObject]:
    return (found.apply(index) for index in range(found.size()))


def _may_read(leaf: JavaObject, spark: SparkSession, root: str) -> bool:
    kind = leaf.getClass().getSimpleName()
    if kind in _READ_NOTHING:
        return False
    if kind == "LogicalRDD":
        return _rdd_may_read(leaf.rdd(), spark, root)
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
    # One call for all: each element of Java's array would be another. URIs have no blanks.
    jvm: Any = spark.sparkContext._jvm
    files = str(jvm.java.util.Arrays.toString(index.inputFiles())).strip("[]").split(", ")
    return any(may_be_below(folder, root) for folder in {file.rpartition("/")[0] for file in files if file})


def _rdd_may_read(rdd: JavaObject, spark: SparkSession, root: str) -> bool:
    if rdd.getClass().getSimpleName() != "SQLExecutionRDD":
        return not _DRIVERS_ROWS.issuperset(_RDD.findall(rdd.toDebugString()))
    # A batch of a stream, whose plan only its query has, which another session may have started.
    query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    if query is None:
        return True
    jvm: Any = spark.sparkContext._jvm
    java: Any = spark._jsparkSession
    started = java.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query))
    return started is None or any(_may_read(leaf, spark, root) for leaf in _leaves(started.lastExecution().analyzed()))
