"""Settings of the session that other writes leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPLICATION = "spark.databricks.delta.write.txnAppId"
VERSION = "spark.databricks.delta.write.txnVersion"
RESET = "spark.databricks.delta.write.txnVersion.autoReset.enabled"


@contextmanager
def transaction_of_session(spark: SparkSession, app_id: str, version: int, *, resets: bool = False) -> Iterator[None]:
    """Sets the session's application transaction for as long as the block runs."""
    settings = {APPLICATION: app_id, VERSION: str(version), RESET: str(resets).lower()}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            spark.conf.unset(key)
