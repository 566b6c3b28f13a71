"""The report of a merge, for programs and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltamerge.merge.outcome import ClauseOutcome, MergeOutcome, StepTiming
from deltamerge.merge.planning.plan import MergePlan
from deltamerge.render.html import to_html
from deltamerge.render.json import to_dict, to_json
from deltamerge.render.terminal import render_terminal, to_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class MergeReport:
    """What a merge did; printing it shows a page for the terminal, a notebook shows it as HTML.

    Args:
        outcome: The merge's outcome.
    """

    outcome: MergeOutcome

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

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values.

        Returns:
            What `to_json` holds: dictionaries, lists, strings and numbers.
        """
        return to_dict(self.outcome)

    def to_json(self) -> str:
        """Return the report as JSON.

        Returns:
            One JSON object.
        """
        return to_json(self.outcome)

    def to_html(self) -> str:
        """Return the report as an HTML fragment, as notebooks show it.

        Returns:
            HTML without a page around it.
        """
        return to_html(self.outcome)

    def __str__(self) -> str:
        return to_text(render_terminal(self.outcome))

    def _repr_html_(self) -> str:
        return to_html(self.outcome)
