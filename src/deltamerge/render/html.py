"""Reports and explanations as HTML: one ``div`` for a notebook, which takes its text colour, or a page around it."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from deltamerge.merge.outcome import MergeExplanation, MergeOutcome
from deltamerge.render.explanation_view import page_view
from deltamerge.render.printable import printable
from deltamerge.render.running_step import RunningStep


def to_html(data: MergeOutcome | MergeExplanation) -> str:
    return _templates().get_template("report.html").render(view=page_view(data))


def to_page(data: MergeOutcome | MergeExplanation) -> str:
    """Return a standalone page in the light or dark colours of the reader's system; it loads nothing else."""
    view = page_view(data)
    title = f"{view.heading} {view.table}"
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
