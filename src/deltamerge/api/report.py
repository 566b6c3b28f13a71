"""The reports of a merge, run or planned, for programs and for people."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from deltamerge.merge.outcome import ClauseOutcome, MergeExplanation, MergeForecast, MergeOutcome, StepTiming
from deltamerge.merge.plan import MergePlan
from deltamerge.render.html import to_html, to_page
from deltamerge.render.printable import to_dict, to_json
from deltamerge.render.terminal import render_terminal, to_text


class Page(ABC):
    """A report that prints as plain text and that notebooks show as HTML."""

    @property
    @abstractmethod
    def _data(self) -> MergeOutcome | MergeExplanation: ...

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values.

        Returns:
            The content of `to_json`: dictionaries, lists, strings and numbers.
        """
        return to_dict(self._data)

    def to_json(self) -> str:
        """Return the report as JSON.

        Returns:
            One JSON object.
        """
        return to_json(self._data)

    def to_html(self) -> str:
        """Return the report as an HTML fragment, as notebooks show it.

        Returns:
            An HTML fragment.
        """
        return to_html(self._data)

    def save_html(self, path: str | PathLike[str]) -> None:
        """Save the report as a standalone HTML page, in the light or dark colours of the reader's system.

        Args:
            path: A local file; an existing one is replaced.

        Raises:
            OSError: The file cannot be written.
        """
        Path(path).write_text(to_page(self._data), encoding="utf-8")

    def __str__(self) -> str:
        return to_text(render_terminal(self._data))

    def _repr_html_(self) -> str:
        return to_html(self._data)


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


@dataclass(frozen=True)
class MergePlanReport(Page):
    """What a merge would do; printing it shows a page for the terminal, a notebook shows it as HTML.

    Args:
        explanation: The merge's explanation.
    """

    explanation: MergeExplanation

    @property
    def _data(self) -> MergeExplanation:
        return self.explanation

    @property
    def plan(self) -> MergePlan:
        """The plan: four decisions, each with its reason and the operators that were declined."""
        return self.explanation.plan

    @property
    def version(self) -> int:
        """The version of the table that was read."""
        return self.explanation.version

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on what makes the merge slower or wider than it need be, each with what to do."""
        return self.explanation.warnings

    @property
    def features(self) -> tuple[str, ...]:
        """Sentences on what the table's features cost in this merge."""
        return self.explanation.features

    @property
    def conflicts(self) -> tuple[str, ...]:
        """Sentences on which other writers' commits this merge would conflict with."""
        return self.explanation.conflicts

    @property
    def forecast(self) -> MergeForecast | None:
        """The rows that each clause would change, and the error if the merge would fail; None without ``analyze``."""
        return self.explanation.forecast
