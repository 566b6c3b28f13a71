"""The columns that the session's catalog has of a Delta table, by which Spark itself resolves views and DDL."""

from __future__ import annotations

import json
import logging
from typing import Any

from pyspark.sql.types import StructField, StructType

from deltamerge.log.actions import Action, Metadata
from deltamerge.spark.catalog import location_in, qualified, with_location, without_location
from deltamerge.spark.session import SPARK_ERRORS, is_connect
from deltamerge.spark.table import Table
from deltamerge.sql.names import quote_name

logger = logging.getLogger("deltamerge.spark.catalog")


def update_columns(table: Table, schema: StructType) -> None:
    """Give the entry of a table that was opened by its name the columns that the table has now. Delta: UpdateCatalog.

    The commit is there, so that a failure is only a warning in the log. Spark Connect has no call for it, and of tables
    that delta-spark made the catalog has no columns.
    """
    if not table.entry or is_connect(table.spark):
        return
    name = quote_name(table.entry)
    try:
        _update(table, qualified(table.spark, table.entry)[-2:], schema)
    except SPARK_ERRORS:
        logger.warning("the catalog's entry of %s did not get the columns of the table", name, exc_info=True)


def update_to_metadata(table: Table, actions: tuple[Action, ...]) -> None:
    """Give a table's entry the columns of the metadata among committed actions, if there is one."""
    for action in actions:
        if isinstance(action, Metadata) and action.schema_string is not None:
            update_columns(table, StructType.fromJson(json.loads(action.schema_string)))


def _update(table: Table, name: tuple[str, ...], schema: StructType) -> None:
    spark: Any = table.spark
    catalog = spark._jsparkSession.sharedState().externalCatalog()
    if not catalog.tableExists(*name):
        return
    known = StructType.fromJson(json.loads(catalog.getTable(*name).schema().json()))
    columns = StructType([StructField(f.name, f.dataType, True, f.metadata) for f in schema.fields])
    if not known.fields or without_location(known) == columns:
        return
    location = location_in(known)
    columns = columns if location is None else with_location(columns, location)
    java = getattr(spark._jvm, "org.apache.spark.sql.types.DataType").fromJson(columns.json())
    catalog.alterTableDataSchema(*name, java)
    spark.catalog.refreshTable(quote_name(table.entry))
