"""What ``saveAsTable``, ``insertInto`` and ``writeTo`` ask for of a Delta table."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.save_frame import Save, save_to_table
from deltamerge.api.statements.changes import check_arity
from deltamerge.api.statements.creation import create_from_rows
from deltamerge.api.statements.tables import Tables
from deltamerge.spark.table import spark_schema
from deltamerge.sql.names import parse_name
from deltamerge.sql.statements.ast import CreateMode, CreateTable, TableName

# Table properties that Spark takes for parts of the table's definition.
_LOCATION, _COMMENT = "location", "comment"


def find_table(spark: SparkSession, name: str) -> DeltaTable | None:
    """Open the Delta table that a writer names, None where it is no Delta table."""
    return Tables(spark).called(parse_name(name))


def save_as_table(frame: DataFrame, name: str, asked: Save) -> None:
    """Write a frame to the table of a name."""
    found = find_table(frame.sparkSession, name)
    if found is not None and asked.mode != "error":
        save_to_table(frame, found.table, asked)
        return
    create_as(frame, name, "create", asked)


def create_as(frame: DataFrame, name: str, mode: CreateMode, asked: Save) -> None:
    """Make a table of a name, or at a path that is named as ``delta.`path` ``, with a frame's rows."""
    given = {key.lower(): value for key, value in asked.properties.items()}
    statement = CreateTable(
        TableName.of(parse_name(name)),
        mode,
        partitioned_by=asked.partitions or (),
        clustered_by=asked.cluster_by,
        properties={key: value for key, value in asked.properties.items() if key.lower() not in (_LOCATION, _COMMENT)},
        comment=given.get(_COMMENT),
        location=asked.options.get("path", given.get(_LOCATION)),
    )
    create_from_rows(Tables(frame.sparkSession), statement, frame, asked.notes)


def insert_into(frame: DataFrame, found: DeltaTable, asked: Save) -> None:
    """Write a frame's columns, by their places, to an existing table."""
    names = spark_schema(found.table.snapshot()).names
    check_arity(found, len(names), len(frame.columns), names_given=False)
    mode = "overwrite" if asked.mode == "overwrite" else "append"
    save_to_table(frame.toDF(*names), found.table, replace(asked, mode=mode))
