"""What a session says about the data source ``delta``, and what the source takes from the session."""

from __future__ import annotations

from pyspark.sql import SparkSession, datasource

from deltamerge.spark.config import KEYS
from deltamerge.spark.default_file_system import known_bases
from deltamerge.spark.held_settings import set_if_allowed
from deltamerge.spark.own_calls import own_calls
from deltamerge.spark.session import (
    COMPUTED_DEFAULTS,
    SPARK_ERRORS,
    conf_value,
    effective_value,
    errors_not_logged,
    is_connect,
    settings_below,
)
from deltamerge.workers.data_source import PUSHES_FILTERS

_PREFIXES = ("spark.databricks.delta.", "spark.deltamerge.", "spark.hadoop.", "fs.", "dfs.")
_KEYS = (
    "spark.default.parallelism",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.maxRecordsPerFile",
    "spark.sql.files.openCostInBytes",
    "spark.sql.parquet.compression.codec",
    "spark.sql.session.timeZone",
    "spark.sql.storeAssignmentPolicy",
)
# They change from write to write, and the source would go on with what they were.
_OF_ONE_WRITE = tuple(KEYS[name] for name in ("txn_app_id", "txn_version", "user_metadata"))
_NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
# Of this library's own source's error where it gets no path.
_OWN = "DELTA_TABLE_PATH_NOT_GIVEN"

_DEFAULT = "spark.sql.sources.default"
_HIVE_BY_DEFAULT = "spark.sql.legacy.createHiveTableByDefault"

_CATALOG = "spark.sql.catalog.spark_catalog"
_CATALOG_OF_JAR = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_NO_CATALOG = ("PLUGIN_CLASS_NOT_FOUND", "Cannot find catalog plugin class")


def drop_missing_catalog(spark: SparkSession) -> None:
    """Unset the session's catalog where it is delta-spark's and no JAR has it: Spark would find no table at all."""
    if conf_value(spark, _CATALOG) != _CATALOG_OF_JAR:
        return
    with errors_not_logged(), own_calls():
        try:
            # A new session knows its current database without the catalog.
            spark.catalog.tableExists("deltamerge_no_table")
        except SPARK_ERRORS as error:
            # What else fails is of a catalog that is there: the user's own calls say what.
            if any(sign in str(error) for sign in _NO_CATALOG):
                spark.conf.unset(_CATALOG)


def is_default_source(spark: SparkSession) -> bool:
    """Return whether frames are read and written as Delta tables where no source is named."""
    return (conf_value(spark, _DEFAULT) or "").lower() == "delta"


def is_source_of_new_tables(spark: SparkSession) -> bool:
    """Return whether CREATE TABLE makes a Delta table where no source is named."""
    return is_default_source(spark) and (conf_value(spark, _HIVE_BY_DEFAULT) or "").lower() != "true"


def has_source_of_jar(spark: SparkSession) -> bool:
    """Return whether the session has a data source ``delta`` that is not this library's."""
    try:
        with errors_not_logged():
            spark.read.format("delta").load().schema  # noqa: B018
    except SPARK_ERRORS as error:
        return not any(sign in str(error) for sign in (_NOT_FOUND, _OWN, "deltamerge"))
    return True


def source_settings(spark: SparkSession) -> dict[str, str]:
    """Return the settings of a session that the source takes along; they may be secret.

    Where Spark pushes filters down to Python, it is asked to.
    """
    if hasattr(datasource, "Filter") and conf_value(spark, PUSHES_FILTERS) in (None, "false"):
        set_if_allowed(spark, PUSHES_FILTERS, "true")
    settings = {key: value for prefix in _PREFIXES for key, value in settings_below(spark, prefix).items()}
    for key in _OF_ONE_WRITE:
        settings.pop(key, None)
    for key in (*_KEYS, PUSHES_FILTERS):
        value = (effective_value if key in COMPUTED_DEFAULTS else conf_value)(spark, key)
        if value is not None:
            settings[key] = value
    if not is_connect(spark):
        settings["spark.default.parallelism"] = str(spark.sparkContext.defaultParallelism)
    settings["spark.version"] = spark.version
    return {**settings, **known_bases(spark)}
