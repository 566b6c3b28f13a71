"""The report of a merge, for programs and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from deltamerge.api.page import Page
from deltamerge.merge.outcome import ClauseOutcome, MergeOutcome, StepTiming
from deltamerge.merge.planning.plan import MergePlan


@dataclass(frozen=True)
class MergeReport(Page):
    """What a merge did; printing it shows a page for the terminal, a notebook shows it as HTML.

    Args:
        outcome: The merge's outcome.
    """

    outcome: MergeOutcome

    @property
    def _data(self) -> MergeOutcome:
        return self.outcome

    @property
    def version(self) -> int | None:
        """The version that the merge made, or None where nothing changed."""
        return self.outcome.version

    @property
    def read_version(self) -> int:
        """The version that the merge read."""
        return self.outcome.read_version

    @property
    def metrics(self) -> Mapping[str, int]:
        """Delta's operation metrics by name: rows, files, bytes, milliseconds."""
        return self.outcome.metrics

    @property
    def clauses(self) -> tuple[ClauseOutcome, ...]:
        """The clauses in the statement's order, each with the rows it changed."""
        return self.outcome.clauses

    @property
    def steps(self) -> tuple[StepTiming, ...]:
        """The steps in the order they ran, each with its milliseconds."""
        return self.outcome.steps

    @property
    def plan(self) -> MergePlan | None:
        """The plan with what each decision's operator read, wrote and took; None where nothing ran."""
        return self.outcome.plan

    def counts(self, spark: SparkSession) -> DataFrame:
        """Return the row that MERGE returns.

        Args:
            spark: The session that makes the frame.

        Returns:
            One row: num_affected_rows, num_updated_rows, num_deleted_rows, num_inserted_rows (BIGINT).
        """
        updated = self.metrics.get("numTargetRowsUpdated", 0)
        deleted = self.metrics.get("numTargetRowsDeleted", 0)
        inserted = self.metrics.get("numTargetRowsInserted", 0)
        return spark.createDataFrame(
            [(updated + deleted + inserted, updated, deleted, inserted)],
            "num_affected_rows BIGINT, num_updated_rows BIGINT, num_deleted_rows BIGINT, num_inserted_rows BIGINT",
        )
