"""A source that is read twice: whether it has as many rows the second time."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Observation

from deltamerge.exceptions import DeltaRuntimeException
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.output.frames import Rows, source_rows
from deltamerge.merge.source.source import Source
from deltamerge.spark import columns as F
from deltamerge.spark.config import MergeConf


@dataclass(frozen=True)
class SecondScan:
    """The source's rows as they are read again, and what counts them where they may have changed."""

    rows: Rows
    counted: Observation | None


def counted_again(source: Source, rows: Rows, merge: ResolvedMerge, conf: MergeConf) -> SecondScan:
    """Let the second scan count the source's rows (``merge.failIfSourceChanged``), unless Spark keeps them."""
    if source.summary is not None or not conf.fail_if_source_changed:
        return SecondScan(rows, None)
    counted = Observation()
    frame = source.frame.observe(counted, F.count(F.lit(1)).alias("rows"))
    return SecondScan(source_rows(frame, merge), counted)


def check_source_unchanged(second: SecondScan, first_count: int) -> None:
    """Refuse a source that has another number of rows when it was read again."""
    if second.counted is None:
        return
    count = int(second.counted.get.get("rows", first_count))
    if count != first_count:
        raise DeltaRuntimeException(
            "DELTA_MERGE_SOURCE_CHANGED",
            f"The source had {first_count} rows when it was read first and {count} when it was read again, and "
            "spark.databricks.delta.merge.failIfSourceChanged is true; the table is as it was. Set "
            "spark.databricks.delta.merge.materializeSource to auto, or make the source deterministic.",
        )
