"""The plan of a merge and what it would do, for programs and for people."""

from __future__ import annotations

from dataclasses import dataclass

from deltamerge.api.page import Page
from deltamerge.merge.outcome import MergeExplanation, MergeForecast
from deltamerge.merge.planning.plan import MergePlan


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
