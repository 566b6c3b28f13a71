"""Reports and explanations as HTML: one ``div`` for a notebook, which takes its text colour, or a page around it."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from deltamerge.merge.outcome import MergeExplanation, MergeOutcome
from deltamerge.render.explanation_view import explanation_view
from deltamerge.render.printable import printable
from deltamerge.render.running_step import RunningStep
from deltamerge.render.view import view_of


def to_html(data: MergeOutcome | MergeExplanation) -> str:
    if isinstance(data, MergeExplanation):
        return _templates().get_template("explanation.html").render(view=explanation_view(data))
    return _templates().get_template("report.html").render(view=view_of(data))


def to_page(data: MergeOutcome | MergeExplanation) -> str:
    """Return a standalone page in the light or dark colours of the reader's system; it loads nothing else."""
    what = "Plan of a merge into" if isinstance(data, MergeExplanation) else "Merge into"
    title = f"{what} {printable(data).table}"
    return _templates().get_template("page.html").render(title=title, fragment=to_html(data))


def progress_html(step: RunningStep, now: float) -> str:
    return _templates().get_template("progress.html").render(step=printable(step), now=now)


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("deltamerge.render", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
