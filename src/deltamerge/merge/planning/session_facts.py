"""What a plan needs to know of a session, read from it once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltamerge.merge.planning.context import SessionFacts
from deltamerge.spark.session import conf_value, runs_in_local_mode
from deltamerge.storage.store import Store
from deltamerge.storage.task_files import NotOpened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session_facts(spark: SparkSession, store: Store) -> SessionFacts:
    rebase = conf_value(spark, "spark.sql.parquet.datetimeRebaseModeInRead") or "CORRECTED"
    records = int(conf_value(spark, "spark.sql.files.maxRecordsPerFile") or 0)
    return SessionFacts(
        compression=conf_value(spark, "spark.sql.parquet.compression.codec") or "snappy",
        rebases_dates=rebase.upper() != "CORRECTED",
        records_per_file=records if records > 0 else None,
        not_opened=store.files.reason if isinstance(store.files, NotOpened) else None,
        runs_in_local_mode=runs_in_local_mode(spark),
    )
