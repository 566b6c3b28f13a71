"""delta-spark behind JSON lines: run by the oracle's own Python, one request a line, one answer a line.

Requests (``op`` and its values):

- ``sql``: ``statements``; runs them; gives the last one's rows.
- ``make_table``: ``target`` (as in the cases), ``path``.
- ``case``: ``topic``, ``values``, ``folder``, ``statement``; merges into the table that stands in the folder;
  gives the outcome.
- ``statements``: ``topic``, ``values``, ``setup``, ``folder``; makes a case's tables and runs its statements; gives
  what each did.
- ``read``: ``path``; gives ``rows`` as canonical JSON and ``schema`` as DDL.
- ``describe``: ``path``; gives what the table is: its newest snapshot, and its rows or an error.
- ``merge``: ``statement``, ``queries`` (of views); a merge with its time in ``seconds``, for benchmarks.
- ``run``: ``statement``; any statement with its time, for benchmarks.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

sys.path.insert(0, str(Path(__file__).parents[1]))

from corpus.canonical import canonical_lines
from corpus.cases import Case
from corpus.runner import Numbers, canonical_rows, logged_schema, run_case, views
from corpus.sql import fill, path_relation, quote, string_literal
from corpus.statements import StatementCase, filled, run_statements
from oracle.lines import answers, serve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.log.level": "ERROR",
}


class DeltaSpark:
    """delta-spark as an engine of the cases."""

    def make_table(self, spark: SparkSession, target: Mapping[str, Any], path: str) -> None:
        """Makes a case's target table; each INSERT becomes one file a partition."""
        table = path_relation(path)
        partitions = ", ".join(quote(name) for name in target.get("partition_by", []))
        clusters = ", ".join(quote(name) for name in target.get("cluster_by", []))
        properties = ", ".join(
            f"{string_literal(k)} = {string_literal(v)}" for k, v in target.get("properties", {}).items()
        )
        statements = [
            f"CREATE TABLE {table} ({target['ddl']}) USING delta"
            + (f" PARTITIONED BY ({partitions})" if partitions else "")
            + (f" CLUSTER BY ({clusters})" if clusters else "")
            + (f" TBLPROPERTIES ({properties})" if properties else "")
        ]
        listed = target.get("columns")
        columns = f" {listed if listed.startswith('(') else f'({listed})'}" if listed else ""
        statements += [
            f"INSERT INTO {table}{columns} SELECT /*+ COALESCE(1) */ * FROM VALUES {', '.join(rows)}"
            for rows in target["writes"]
        ]
        statements += [
            f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({condition})"
            for name, condition in target.get("constraints", {}).items()
        ]
        statements += [fill(text, target=table, source="") for text in target.get("setup_sql", [])]
        for statement in statements:
            spark.sql(statement)

    def write(self, spark: SparkSession, rows: DataFrame, path: str) -> None:
        """Makes a Delta table of rows."""
        rows.write.format("delta").save(path)

    def merge(self, spark: SparkSession, statement: str) -> tuple[Numbers, Numbers]:
        """Runs a MERGE; its metrics stand only in the commit."""
        try:
            return spark.sql(statement).collect()[0].asDict(), None
        except Exception as error:
            raise delta_spark_error(error) from error

    def read(self, spark: SparkSession, path: str) -> DataFrame:
        """Reads a Delta table."""
        return spark.sql(f"SELECT * FROM {path_relation(path)}")

    def select(self, spark: SparkSession, path: str, columns: list[str]) -> DataFrame:
        """Reads columns of a Delta table."""
        return self.read(spark, path).selectExpr(*columns)

    def sql(self, spark: SparkSession, statement: str) -> DataFrame:
        """Runs a statement."""
        try:
            frame = spark.sql(statement)
            # Some of its errors come only with the rows.
            frame.collect()
        except Exception as error:
            raise delta_spark_error(error) from error
        return frame

    def changes(self, spark: SparkSession, path: str, version: int) -> DataFrame:
        """Reads the change data of one version."""
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        return feed.option("startingVersion", version).option("endingVersion", version).load(path)


class DeltaSparkError(Exception):
    """An error of delta-spark: PySpark knows only some of its classes, so it is taken from the JVM.

    Args:
        java: The Java exception; the innermost of its causes that has an error class says what went wrong, but an
            error of analysis says so itself.
        message: What PySpark makes of it.
    """

    def __init__(self, java: Any, message: str, *, is_of_analysis: bool) -> None:
        self._condition = self._state = None
        messages = [message]
        while java is not None:
            condition = java.getCondition() if has_method(java, "getCondition") else None
            if condition:
                self._condition, self._state = condition, java.getSqlState()
                messages.append(java.getMessage())
            java = None if is_of_analysis and condition else java.getCause()
        super().__init__(messages[-1])

    def getCondition(self) -> str | None:  # noqa: N802
        """Gives the error class, as PySpark's exceptions do."""
        return self._condition

    def getSqlState(self) -> str | None:  # noqa: N802
        """Gives the SQLSTATE."""
        return self._state


def delta_spark_error(error: Exception) -> DeltaSparkError:
    """Return an error of Py4J or PySpark as delta-spark's."""
    java = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    return DeltaSparkError(java, str(error), is_of_analysis=isinstance(error, AnalysisException))


def error_of(error: Exception) -> dict[str, str | None]:
    """Return an error's class and the first line of its message."""
    found = delta_spark_error(error)
    return {"class": found.getCondition(), "message": str(found).splitlines()[0]}


def has_method(java: Any, method: str) -> bool:
    """Tells whether a Java object has a method without arguments."""
    return any(m.getName() == method and m.getParameterCount() == 0 for m in java.getClass().getMethods())


class Requests:
    """Answers requests; one method for each."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._engine = DeltaSpark()

    def sql(self, statements: list[str]) -> list[dict[str, Any]]:
        """Runs statements and gives the last one's rows."""
        rows = [[r.asDict(recursive=True) for r in self._spark.sql(text).collect()] for text in statements]
        return rows[-1]

    def make_table(self, target: dict[str, Any], path: str) -> None:
        """Makes a case's target table."""
        self._engine.make_table(self._spark, target, path)

    def case(self, topic: str, values: dict[str, Any], folder: str, statement: str | None = None) -> dict[str, Any]:
        """Merges by a case."""
        return run_case(self._engine, self._spark, Case(topic, values["id"], values), folder, statement).to_dict()

    def statements(self, topic: str, values: dict[str, Any], setup: list[str], folder: str) -> dict[str, Any]:
        """Makes a case's tables and runs its statements."""
        for statement in setup:
            self._spark.sql(filled(statement, folder))
        return run_statements(self._engine, self._spark, StatementCase(topic, values, tuple(setup)), folder)

    def read(self, path: str) -> dict[str, Any]:
        """Reads a table."""
        table = self._engine.read(self._spark, path)
        return {"rows": canonical_rows(table), "schema": logged_schema(path)}

    def lines(self, path: str) -> list[str]:
        """Reads a table's rows as canonical JSON."""
        return canonical_lines(self._engine.read(self._spark, path))

    def describe(self, path: str) -> dict[str, Any]:
        """Describe a table: its newest snapshot, and its rows or the error of opening or reading it."""
        jvm: Any = self._spark._jvm
        delta_log = jvm.org.apache.spark.sql.delta.DeltaLog
        try:
            snapshot = delta_log.forTable(self._spark._jsparkSession, path).unsafeVolatileSnapshot()
        except (Py4JJavaError, PySparkException) as error:
            return {"error": {"phase": "open", **error_of(error)}}
        described: dict[str, Any] = {}
        if snapshot.version() >= 0:
            described = {
                "version": snapshot.version(),
                "protocol": json.loads(snapshot.protocol().json())["protocol"],
                "metadata": json.loads(snapshot.metadata().json())["metaData"],
                "files": [json.loads(text) for text in snapshot.allFiles().toJSON().collectAsList()],
            }
        try:
            frame = DeltaTable.forPath(self._spark, path).toDF()
            return {**described, "ddl": frame.schema.simpleString(), "lines": canonical_lines(frame)}
        except (Py4JJavaError, PySparkException) as error:
            phase = "read" if described else "open"
            return {**described, "error": {"phase": phase, **error_of(error)}}

    def merge(self, statement: str, queries: dict[str, str]) -> dict[str, Any]:
        """Merges and takes the time."""
        with views(self._spark, queries):
            start = time.perf_counter()
            counts, _ = self._engine.merge(self._spark, statement)
            return {"seconds": time.perf_counter() - start, "counts": counts}

    def run(self, statement: str) -> dict[str, Any]:
        """Runs any statement and takes the time."""
        start = time.perf_counter()
        self._spark.sql(statement).collect()
        return {"seconds": time.perf_counter() - start}


def main() -> None:
    """Starts Spark and answers until the input ends."""
    with answers() as answer:
        from pyspark.sql import SparkSession

        # PySpark looks up an error's message in Spark's own list to log it, and fails on Delta's classes.
        PySparkException._log_exception = lambda self: None  # type: ignore[method-assign]
        builder = SparkSession.builder.appName("oracle")
        for name, value in {**SETTINGS, **json.loads(sys.argv[1])}.items():
            builder = builder if value is None else builder.config(name, value)
        spark = builder.getOrCreate()
        serve(Requests(spark), answer)
        spark.stop()


if __name__ == "__main__":
    main()
