"""Runs a case by an engine: table, source, views, settings, merge, and what came of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

from .cases import Case
from .outcome import Outcome, as_numbers, commit_actions, commit_info, commits, evaluate, schema_string
from .sql import canonical_json, fill, path_relation, quote, source_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Numbers = Mapping[str, int] | None


class Engine(Protocol):
    """What makes, merges and reads Delta tables."""

    def make_table(self, spark: SparkSession, target: Mapping[str, Any], path: str) -> None:
        """Makes a case's target table in a folder."""

    def write(self, spark: SparkSession, rows: DataFrame, path: str) -> None:
        """Makes a Delta table of rows in a folder."""

    def merge(self, spark: SparkSession, statement: str) -> tuple[Numbers, Numbers]:
        """Runs a MERGE; gives the row of counts and the metrics, as far as the engine reports them."""

    def read(self, spark: SparkSession, path: str) -> DataFrame:
        """Reads a Delta table."""

    def select(self, spark: SparkSession, path: str, columns: list[str]) -> DataFrame:
        """Reads columns of a Delta table, row ids among them (``_metadata.row_id``)."""


@contextmanager
def settings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Sets session settings and puts the old ones back."""
    before = {name: spark.conf.get(name, None) for name in conf}
    try:
        for name, value in conf.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextmanager
def views(spark: SparkSession, queries: Mapping[str, str]) -> Iterator[None]:
    """Makes temporary views, each of which may use those before it, and drops them."""
    try:
        for name, query in queries.items():
            spark.sql(query).createOrReplaceTempView(name)
        yield
    finally:
        for name in reversed(list(queries)):
            spark.catalog.dropTempView(name)


def canonical_rows(rows: DataFrame) -> tuple[str, ...]:
    """Gives each row as canonical JSON, sorted."""
    return tuple(sorted(row[0] for row in rows.selectExpr(canonical_json()).collect()))


def make_source(
    engine: Engine, spark: SparkSession, case: Case, folder: str, target: str
) -> tuple[str, dict[str, str]]:
    """Makes a case's source.

    Returns:
        What stands for ``{source}`` in the statement, and the temporary views that it needs.
    """
    source = case.source
    if source is None:
        return "", {}
    if "sql" in source:
        return "(" + fill(source["sql"], target=path_relation(target), source="") + ")", {}
    query = source_query(source)
    data_format = source.get("format")
    if data_format is None:
        return "src", {"src": query}
    path = os.path.join(folder, f"source-{data_format}")
    rows = spark.sql(query).coalesce(1)
    if data_format == "delta":
        engine.write(spark, rows, path)
    else:
        rows.write.format(data_format).save(path)
    return path_relation(path, data_format), {}


def table_folder(case: Case, folder: str) -> str:
    """Gives the folder of a case's target table."""
    return os.path.join(folder, case.target.get("dir", "target"))


def run_case(engine: Engine, spark: SparkSession, case: Case, folder: str, statement: str | None = None) -> Outcome:
    """Merges a case's source into its table, which stands already in ``folder``.

    Args:
        engine: Runs the merge and reads the table.
        spark: The session.
        case: The case.
        folder: Holds the target table; the source goes there too.
        statement: Another statement than the case's own.
    """
    target = table_folder(case, folder)
    before = commits(target)

    def merged() -> Outcome:
        # The source is made under the case's settings too: its literals may depend on the time zone.
        with settings(spark, case.conf):
            source, source_views = make_source(engine, spark, case, folder, target)
            sql = fill(statement or case.merge, target=path_relation(target), source=source)
            with views(spark, {**case.views, **source_views}):
                counts, reported = engine.merge(spark, sql)
        return describe(engine, spark, case, target, before, counts, reported)

    return evaluate(merged, target, before)


def describe(
    engine: Engine,
    spark: SparkSession,
    case: Case,
    target: str,
    before: Sequence[int],
    counts: Numbers,
    reported: Numbers,
) -> Outcome:
    """Reads what a merge has left: rows, schema, metrics, change data."""
    table = engine.read(spark, target)
    # Row ids and the like can be read only through the engine; the other cases read the table as it is.
    result = table if case.read == ["*"] else engine.select(spark, target, case.read)
    made = [version for version in commits(target) if version not in before]
    info = commit_info(target, made[-1]) if made else {}
    feed = case.target.get("properties", {}).get("delta.enableChangeDataFeed") == "true"
    changes = change_data(spark, target, made[-1], table.schema) if made and feed else None
    queries = {"rows_check": result, "changes_check": changes}
    checked: dict[str, Any] = {name: check(spark, case.values.get(name, ()), result, changes) for name in queries}
    return Outcome(
        rows=canonical_rows(result) if "rows_check" not in case.values else (),
        schema=logged_schema(target),
        counts=counts,
        new_version=bool(made),
        metrics=as_numbers(info.get("operationMetrics") or {}),
        reported_metrics=reported,
        parameters=info.get("operationParameters") or {},
        changes=canonical_rows(changes) if changes is not None else None,
        **checked,
    )


def logged_schema(table: str) -> str:
    """Gives the schema that the table's log has, as DDL: what is read may say less, such as of NOT NULL."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(schema_string(table))).toDDL()


def check(
    spark: SparkSession, queries: Sequence[str], result: DataFrame, changes: DataFrame | None
) -> tuple[bool, ...]:
    """Asks a case's queries about the table and its changes."""
    if not queries:
        return ()
    result.createOrReplaceTempView("result")
    if changes is not None:
        changes.createOrReplaceTempView("changes")
    try:
        return tuple(spark.sql(query).collect()[0][0] for query in queries)
    finally:
        for name in ("result", "changes"):
            spark.catalog.dropTempView(name)


def change_data(spark: SparkSession, table: str, version: int, schema: Any) -> DataFrame:
    """Reads one version's change data from its files, without an engine that knows the feed.

    A commit with change files says its changes with those alone; of one without, each added file is inserts
    and each removed file deletes (Protocol: Add CDC File). Deletion vectors are not read.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    actions = commit_actions(table, version)
    files: list[tuple[Any, str | None]] = [(a["cdc"], None) for a in actions if "cdc" in a]
    if not files:
        files = [(a["add"], "insert") for a in actions if a.get("add", {}).get("dataChange")]
        files += [(a["remove"], "delete") for a in actions if a.get("remove", {}).get("dataChange")]
    kind = StructField("_change_type", StringType())
    whole = StructType([StructField(f.name, f.dataType) for f in schema] + [kind])
    stored = stored_type(StructType(whole.fields[:-1]), json.loads(schema_string(table))).add(kind)
    rows = spark.createDataFrame([], whole)
    for file, change in files:
        if file.get("deletionVector"):
            raise NotImplementedError("change data of a commit with deletion vectors and no change files")
        values = file.get("partitionValues") or {}
        fields = [f for f in stored if f.name not in values and not (change and f.name == kind.name)]
        path = os.path.join(table, unquote(file["path"]))
        data = spark.read.schema(StructType(fields)).parquet(glob_escape(path))
        columns = [
            F.lit(change).alias(f.name)
            if f.name == kind.name and change
            else F.lit(values[s.name]).cast(f.dataType).alias(f.name)
            if s.name in values
            # Structs are cast by position, whatever their fields are called.
            else F.col(quote(s.name)).cast(f.dataType).alias(f.name)
            for f, s in zip(whole, stored, strict=True)
        ]
        rows = rows.unionAll(data.select(*columns))
    return rows


def stored_type(data_type: Any, logged: Any) -> Any:
    """Gives a type under the names that files have for its fields (Protocol: Column Mapping).

    Args:
        data_type: The type.
        logged: The same type as the log's schema has it.
    """
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(data_type, ArrayType):
        return ArrayType(stored_type(data_type.elementType, logged["elementType"]))
    if isinstance(data_type, MapType):
        key, value = logged["keyType"], logged["valueType"]
        return MapType(stored_type(data_type.keyType, key), stored_type(data_type.valueType, value))
    if not isinstance(data_type, StructType):
        return data_type
    return StructType(
        [
            StructField(
                field["metadata"].get("delta.columnMapping.physicalName", field["name"]),
                stored_type(f.dataType, field["type"]),
            )
            for f, field in zip(data_type.fields, logged["fields"], strict=True)
        ]
    )


def glob_escape(path: str) -> str:
    """Escapes what Hadoop's path patterns take for themselves."""
    return "".join("\\" + c if c in "*?[]{}\\" else c for c in path)
