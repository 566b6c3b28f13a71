"""The columns that the session's catalog has of a Delta table, by which Spark itself resolves views and DDL."""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import unquote

from pyspark.sql.types import StructField, StructType

from deltamerge.spark.catalog import with_location
from deltamerge.spark.own_calls import own_calls
from deltamerge.spark.session import is_connect
from deltamerge.spark.table import Table, open_table
from deltamerge.sql.names import quote_name

logger = logging.getLogger("deltamerge.spark.catalog")


def update_columns(table: Table, schema_string: str | None) -> None:
    """Give the entry of a table that was opened by its name the columns of a committed schema. Delta: UpdateCatalog.

    The entries that delta-spark made have none, so that Spark cannot resolve views over them. Spark Connect has no call
    for it.

    Args:
        schema_string: As JSON; None where the commit has none.
    """
    if schema_string is None or not table.entry or is_connect(table.spark):
        return
    try:
        _update_entry(table, table.entry[-2:], _struct(schema_string))
    except Exception:
        # The commit is there, so that whatever a catalog raises must not look like its failure.
        logger.warning("the entry of %s did not get the table's columns", quote_name(table.entry), exc_info=True)


def _struct(schema_string: str) -> StructType:
    return StructType.fromJson(json.loads(schema_string))


def _update_entry(table: Table, name: tuple[str, ...], schema: StructType) -> None:
    spark: Any = table.spark
    catalog = spark._jsparkSession.sharedState().externalCatalog()
    if not catalog.tableExists(*name):
        return
    entry = catalog.getTable(*name)
    provider, place = entry.provider(), open_table(spark, unquote(str(entry.location().toString())))
    is_of_table = provider.isDefined() and provider.get() == "delta" and place.store.root == table.store.root
    known = _struct(entry.schema().json())
    columns = StructType([StructField(f.name, f.dataType, True, f.metadata) for f in schema.fields])
    columns = with_location(columns, table.location)
    if not is_of_table or known == columns:
        return
    java = getattr(spark._jvm, "org.apache.spark.sql.types.DataType").fromJson(columns.json())
    catalog.alterTableDataSchema(*name, java)
    with own_calls():
        spark.catalog.refreshTable(quote_name(table.entry))
