"""deltamerge as an engine of the cases."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltamerge.sql.names import quote

from .alterations import alter_table, check_alterations
from .runner import Numbers
from .sql import ColumnDefinition, rows_query, split_columns, written_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTS = {
    "num_updated_rows": "numTargetRowsUpdated",
    "num_deleted_rows": "numTargetRowsDeleted",
    "num_inserted_rows": "numTargetRowsInserted",
}


class Deltamerge:
    """Makes tables, merges and reads with deltamerge alone.

    Args:
        cache: A folder for tables that several cases share; they are copied from there.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._made: dict[str, Path] = {}

    def make_table(self, spark: SparkSession, target: Mapping[str, Any], path: str) -> None:
        """Makes a case's target table; each INSERT becomes one file a partition."""
        # A Delta log names its files relative to the table, so a copy of the folder is a table.
        key = json.dumps({name: value for name, value in target.items() if name != "dir"}, sort_keys=True)
        if key not in self._made:
            made = self._cache / f"table{len(self._made)}"
            self._make(spark, target, str(made))
            self._made[key] = made
        shutil.copytree(self._made[key], path)

    def _make(self, spark: SparkSession, target: Mapping[str, Any], path: str) -> None:
        from deltamerge import DeltaTable, write_delta

        statements = target.get("setup_sql", ())
        deletes = [condition for text in statements if (condition := _deleted(text)) is not None]
        alterations = [text for text in statements if _deleted(text) is None]
        check_alterations(alterations)
        builder = DeltaTable.create(spark).location(path)
        for column in split_columns(target["ddl"]):
            builder = add_column(builder, column)
        if target.get("partition_by"):
            builder = builder.partitionedBy(*target["partition_by"])
        if target.get("cluster_by"):
            builder = builder.clusterBy(*map(quote, target["cluster_by"]))
        for name, value in target.get("properties", {}).items():
            builder = builder.property(name, value)
        for name, condition in target.get("constraints", {}).items():
            builder = builder.property(f"delta.constraints.{name}", condition)
        builder.execute()
        columns = written_columns(target)
        for rows in target["writes"]:
            write_delta(spark.sql(rows_query(columns, rows)).coalesce(1), path, mode="append")
        for statement in alterations:
            alter_table(path, statement)
        for condition in deletes:
            one = spark.sql("SELECT 1")
            DeltaTable.forPath(spark, path).merge(one, condition).whenMatchedDelete().execute()

    def write(self, spark: SparkSession, rows: DataFrame, path: str) -> None:
        """Makes a Delta table of rows."""
        from deltamerge import write_delta

        write_delta(rows, path, mode="error")

    def merge(self, spark: SparkSession, statement: str) -> tuple[Numbers, Numbers]:
        """Runs a MERGE."""
        from deltamerge import merge_sql

        metrics = dict(merge_sql(spark, statement).metrics)
        counts = {name: metrics[metric] for name, metric in COUNTS.items()}
        return {"num_affected_rows": sum(counts.values()), **counts}, metrics

    def read(self, spark: SparkSession, path: str) -> DataFrame:
        """Reads a Delta table."""
        from deltamerge import DeltaTable

        return DeltaTable.forPath(spark, path).toDF()

    def select(self, spark: SparkSession, path: str, columns: list[str]) -> DataFrame:
        """Reads columns of a Delta table; row ids are in the struct ``_metadata``, which ``*`` leaves out."""
        from deltamerge import DeltaTable

        if not any(column.startswith("_metadata.") for column in columns):
            return self.read(spark, path).selectExpr(*columns)
        rows = DeltaTable.forPath(spark, path).with_row_ids()
        star = [f"`{name}`" for name in rows.columns if name != "_metadata"]
        return rows.selectExpr(*(c for column in columns for c in (star if column == "*" else [column])))

    def sql(self, spark: SparkSession, statement: str) -> DataFrame:
        """Runs a statement."""
        import deltamerge

        return deltamerge.sql(spark, statement)

    def changes(self, spark: SparkSession, path: str, version: int) -> DataFrame:
        """Reads the change data of one version."""
        from deltamerge import DeltaTable

        return DeltaTable.forPath(spark, path).changes(version, version)


def _deleted(statement: str) -> str | None:
    """Gives the condition of a DELETE, None of another statement."""
    found = re.fullmatch(r"DELETE FROM \{target\} WHERE (.*)", statement)
    return None if found is None else found.group(1)


def add_column(builder: Any, column: ColumnDefinition) -> Any:
    """Adds a column to a table's builder."""
    if column.identity:
        return builder.addColumns([_identity(column)])
    if column.default is not None:
        from pyspark.sql.types import DataType, StructField, StructType

        data_type = DataType.fromDDL(column.data_type)
        metadata = {"CURRENT_DEFAULT": column.default}
        return builder.addColumns(StructType([StructField(column.name, data_type, column.nullable, metadata)]))
    return builder.addColumn(
        column.name,
        column.data_type,
        nullable=column.nullable,
        comment=column.comment,
        generatedAlwaysAs=column.generated,
    )


def _identity(column: ColumnDefinition) -> Any:
    from deltamerge import DeltaTable

    builder = DeltaTable.columnBuilder(None, column.name)  # type: ignore[arg-type]
    builder = builder.dataType(column.data_type).nullable(column.nullable)
    numbers = [re.search(rf"{word}\s+(-?\d+)", column.options) for word in (r"START\s+WITH", r"INCREMENT\s+BY")]
    start, step = (int(found.group(1)) if found else 1 for found in numbers)
    if "BY DEFAULT" in column.options:
        return builder.generatedByDefaultAsIdentity(start, step).build()
    return builder.generatedAlwaysAsIdentity(start, step).build()


def is_ci() -> bool:
    """Tells whether a missing requirement is an error."""
    return os.environ.get("CI", "").lower() in ("1", "true")
