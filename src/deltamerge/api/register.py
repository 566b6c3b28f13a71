"""The data source ``delta`` of a session, without a JAR."""

from __future__ import annotations

import threading
import warnings

from pyspark.sql import SparkSession

from deltamerge.spark.data_source import drop_missing_catalog, has_source_of_jar, source_settings
from deltamerge.spark.own_python import own_python
from deltamerge.spark.session import as_active
from deltamerge.workers.data_source import DeltaSource
from deltamerge.workers.sealed import Sealed

ON_DEMAND = threading.Event()
"""Set where a session's source is registered as soon as something needs it: after `install_in_pyspark`."""


def register_source(spark: SparkSession) -> bool:
    """Give a session the data source ``delta`` in Python; one of a JAR stays, with a warning.

    The source keeps the settings that the session has now (its time zone, Delta's settings, the credentials of
    ``spark.hadoop.fs.*``); call this again when they have changed. Spark runs a part of the source in a Python worker
    next to its driver, where this package must be installed (over Spark Connect on the server); executors need only
    PyArrow. On Spark 4.1 and later it turns on ``spark.sql.python.filterPushdown.enabled``, also where that is
    false. It unsets ``spark.sql.catalog.spark_catalog`` if it names delta-spark's class and there is no such class.

    Returns:
        Whether the source is this library's.
    """
    drop_missing_catalog(spark)
    if has_source_of_jar(spark):
        warnings.warn(
            "The session has a data source delta of a JAR; format('delta') goes on using that one.", stacklevel=3
        )
        return False
    settings = Sealed(source_settings(spark))
    # Spark refuses a name that the active session has a source for, whichever session gets it.
    with as_active(spark), own_python(spark):
        spark.dataSource.register(type(DeltaSource.__name__, (DeltaSource,), {"settings": settings}))
    return True


def registered_on_demand(spark: SparkSession) -> bool:
    """Register the source of a session that lacks it, where that was asked for; return whether it was."""
    return ON_DEMAND.is_set() and register_source(spark)
