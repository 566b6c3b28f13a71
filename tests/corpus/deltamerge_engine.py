"""deltamerge as an engine of the cases."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

        check_alterations(target.get("setup_sql", ()))
        builder = DeltaTable.create(spark).location(path)
        for column in split_columns(target["ddl"]):
            builder = _add_column(builder, column)
        if target.get("partition_by"):
            builder = builder.partitionedBy(*target["partition_by"])
        for name, value in target.get("properties", {}).items():
            builder = builder.property(name, value)
        for name, condition in target.get("constraints", {}).items():
            builder = builder.property(f"delta.constraints.{name}", condition)
        builder.execute()
        columns = written_columns(target)
        for rows in target["writes"]:
            write_delta(spark.sql(rows_query(columns, rows)).coalesce(1), path, mode="append")
        for statement in target.get("setup_sql", ()):
            alter_table(path, statement)

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


def _add_column(builder: Any, column: ColumnDefinition) -> Any:
    if column.identity:
        raise NotImplementedError("deltamerge creates no identity columns")
    if column.default is not None:
        from pyspark.sql.types import DataType, StructField, StructType

        data_type = DataType.fromDDL(column.data_type)
        metadata = {"CURRENT_DEFAULT": column.default}
        return builder.addColumns(
            StructType([StructField(column.name, data_type, column.nullable, metadata)])
        )
    return builder.addColumn(
        column.name,
        column.data_type,
        nullable=column.nullable,
        comment=column.comment,
        generatedAlwaysAs=column.generated,
    )


def is_ci() -> bool:
    """Tells whether a missing requirement is an error."""
    return os.environ.get("CI", "").lower() in ("1", "true")
