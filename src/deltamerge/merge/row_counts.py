"""How many rows an executor inserted and copied, by clause where there are several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from deltamerge.errors import DeltaRuntimeException
from deltamerge.log.add_file_stats import logical_rows
from deltamerge.merge.execution import Execution
from deltamerge.merge.observed import observed
from deltamerge.merge.resolved import ResolvedMerge
from deltamerge.merge.touched_files import (
    TouchedFiles,
)
from deltamerge.write.data_files import WrittenFiles

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def observing_clauses(
    merge: ResolvedMerge, frame: DataFrame, number: Column
) -> tuple[DataFrame, Observation | None]:
    """Counts the rows of each INSERT clause where there are several."""
    inserting = [c for c in merge.not_matched if c.action == "insert"]
    if len(inserting) < 2:
        return frame, None
    observation = Observation()
    counts = [F.sum((number == F.lit(c.number)).cast("int")).alias(f"clause_{c.number}") for c in inserting]
    return frame.observe(observation, *counts), observation


def observed_inserts(
    merge: ResolvedMerge, observation: Observation | None, inserted: int
) -> dict[tuple[str, int], int]:
    """Reads the counts of `observing_clauses`; one clause has all rows."""
    if observation is None:
        return only_clause(merge, inserted)
    found = observed(observation)
    return {
        ("not_matched", c.number): int(found.get(f"clause_{c.number}") or 0)
        for c in merge.not_matched
        if c.action == "insert"
    }


def only_clause(merge: ResolvedMerge, inserted: int) -> dict[tuple[str, int], int]:
    """Counts all inserted rows for the one INSERT clause."""
    return {("not_matched", c.number): inserted for c in merge.not_matched if c.action == "insert"}


def count_rows(execution: Execution, touched: TouchedFiles, written: WrittenFiles) -> tuple[int, int]:
    """Finds how many rows were copied and inserted, from what the files themselves say.

    Raises:
        DeltaRuntimeException: The written rows do not add up; committing them would lose or double rows.
    """
    merge = execution.merge
    before = sum(logical_rows(execution.table.store, file) for file in touched.rewrite)
    clauses = (*merge.matched, *merge.not_matched_by_source)
    updated, deleted = touched.rows(clauses, "update"), touched.rows(clauses, "delete")
    copied = 0 if execution.writes_deletion_vectors else before - updated - deleted
    inserted = written.row_count - updated - copied
    if copied < 0 or inserted < 0 or (inserted and not merge.inserts):
        raise DeltaRuntimeException(
            "DELTA_MERGE_SOURCE_CHANGED",
            f"The merge found {updated} rows to update and {deleted} to delete among {before}, but then wrote "
            f"{written.row_count} rows. The source gave other rows when it was read again; the table is as it was. Set "
            "spark.databricks.delta.merge.materializeSource to auto, or make the source deterministic.",
            sqlstate="XXKDS",
        )
    return copied, inserted
