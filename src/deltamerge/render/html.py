"""Reports and explanations for a notebook or a page: one ``div`` each, which takes the page's own text colour."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from deltamerge.merge.outcome import MergeExplanation, MergeOutcome
from deltamerge.render.explanation_view import explanation_view
from deltamerge.render.view import view_of


def to_html(data: MergeOutcome | MergeExplanation) -> str:
    """Return a report or an explanation as HTML."""
    if isinstance(data, MergeExplanation):
        return _templates().get_template("explanation.html").render(view=explanation_view(data))
    return _templates().get_template("report.html").render(view=view_of(data))


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("deltamerge.render", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
