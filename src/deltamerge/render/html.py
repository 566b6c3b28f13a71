"""A merge's report for a notebook or a page."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from deltamerge.merge.outcome import MergeOutcome
from deltamerge.render.view import view_of


def to_html(outcome: MergeOutcome) -> str:
    """Return a report as one ``div`` that needs nothing else and takes the page's own text colour."""
    return _template().render(view=view_of(outcome))


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("deltamerge.render", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html")
