"""Where a table of the session's catalog is stored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from deltamerge.exceptions import DeltaTableNotFoundException
from deltamerge.log.snapshot import table_exists
from deltamerge.spark.table import open_table
from deltamerge.sql.names import parse_name, quote_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table_location(spark: SparkSession, name: str) -> str:
    """Return the path or URL of a named table: the catalog's, else that of a managed table in the session's warehouse.

    Raises:
        DeltaTableNotFoundException: There is no Delta table in either place.
    """
    parts = parse_name(name)
    if len(parts) == 2 and parts[0].lower() == "delta":
        return parts[1]
    location = _described(spark, quote_name(parts)) or warehouse_location(spark, name)
    if not table_exists(open_table(spark, location).store):
        raise DeltaTableNotFoundException(
            "DELTA_TABLE_NOT_FOUND",
            f"Delta table {name} doesn't exist: the catalog does not know it as a Delta table, and there is none at "
            f"{location}. Open it with forPath, or check the name and the current database.",
            sqlstate="42P01",
            parameters={"tableName": name},
        )
    return location


def warehouse_location(spark: SparkSession, name: str) -> str:
    """Return the folder of a managed table in the session's warehouse."""
    parts = parse_name(name)
    database = parts[-2] if len(parts) > 1 else str(spark.catalog.currentDatabase())
    warehouse = re.sub(r"^file:/+", "/", str(spark.conf.get("spark.sql.warehouse.dir")))
    folder = parts[-1].lower() if database == "default" else f"{database.lower()}.db/{parts[-1].lower()}"
    return f"{warehouse.rstrip('/')}/{folder}" if "://" in warehouse else str(Path(warehouse) / folder)


def _described(spark: SparkSession, name: str) -> str | None:
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except PySparkException:
        return None
    details = {row["col_name"]: row["data_type"] for row in rows}
    location = details.get("Location")
    if location is None:
        location = _shown(spark, name)
    return None if location is None else re.sub(r"^file:/+", "/", location)


def _shown(spark: SparkSession, name: str) -> str | None:
    """Return the location of a table of a data source in Python, which DESCRIBE does not show."""
    *above, last = parse_name(name)
    if not last.isidentifier():
        # It would be a pattern.
        return None
    database = f"IN {quote_name(above)} " if above else ""
    try:
        rows = spark.sql(f"SHOW TABLE EXTENDED {database}LIKE '{last}'").collect()
    except PySparkException:
        return None
    information = "\n".join(row["information"] for row in rows if row["tableName"] == last.lower())
    found = re.search(r"^Location: (.+)$", information, re.MULTILINE)
    return None if found is None else found.group(1)
