"""Draws the results of merge_lineitem.py: each case a line, each engine a dot on an axis of seconds.

It takes the results and the picture::

    python benchmarks/chart.py .bench/merge_lineitem.json docs/merge_lineitem.svg
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment

COLOURS = {"deltamerge": "#0b6e4f", "delta-spark": "#c8553d", "delta-rs": "#5b7db1"}
LINE, LEFT, WIDTH, TOP = 17, 210, 520, 54
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)

SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{ left + width + 30 }} {{ bottom + 34 }}" \
font-family="sans-serif" font-size="11">
<rect width="100%" height="100%" fill="white"/>
{% for name, colour in colours -%}
<circle cx="{{ left + 110 * loop.index0 + 6 }}" cy="16" r="5" fill="{{ colour }}"/>
<text x="{{ left + 110 * loop.index0 + 16 }}" y="20">{{ name }}</text>
{% endfor -%}
{% for tick, x in ticks -%}
<line x1="{{ x }}" y1="{{ top - 16 }}" x2="{{ x }}" y2="{{ bottom }}" stroke="#ddd"/>
<text x="{{ x }}" y="{{ bottom + 14 }}" text-anchor="middle" fill="#555">{{ tick }}</text>
{% endfor -%}
<text x="{{ left + width / 2 }}" y="{{ bottom + 29 }}" text-anchor="middle" fill="#555">seconds</text>
{% for row in rows -%}
<text x="{{ left - 10 }}" y="{{ row.y + 4 }}" text-anchor="end">{{ row.name }}</text>
<line x1="{{ row.first }}" y1="{{ row.y }}" x2="{{ row.last }}" y2="{{ row.y }}" stroke="#bbb"/>
{% for colour, x, title in row.dots -%}
<circle cx="{{ x }}" cy="{{ row.y }}" r="4.5" fill="{{ colour }}"><title>{{ title }}</title></circle>
{% endfor -%}
{% endfor -%}
</svg>
"""


def drawn(results: list[dict[str, Any]]) -> str:
    """Draws results.

    Args:
        results: What merge_lineitem.py wrote: layout, case, engine and seconds.

    Returns:
        The picture as SVG.
    """
    seconds = [result["seconds"] for result in results]
    low, high = math.log(min(seconds) * 0.9), math.log(max(seconds) * 1.1)

    def place(value: float) -> float:
        return round(LEFT + WIDTH * (math.log(value) - low) / (high - low), 1)

    cases: dict[tuple[str, str], dict[str, float]] = {}
    for result in results:
        cases.setdefault((result["layout"], result["case"]), {})[result["engine"]] = result["seconds"]
    rows = [
        {
            "name": f"{case}, {layout}",
            "y": TOP + LINE * number,
            "first": min(map(place, times.values())),
            "last": max(map(place, times.values())),
            "dots": [(COLOURS[name], place(value), f"{name}: {value:.2f} s") for name, value in times.items()],
        }
        for number, ((layout, case), times) in enumerate(cases.items())
    ]
    shown = {result["engine"] for result in results}
    return (
        Environment(autoescape=True)
        .from_string(SVG)
        .render(
            left=LEFT,
            width=WIDTH,
            top=TOP,
            bottom=TOP + LINE * len(rows),
            colours=[(name, colour) for name, colour in COLOURS.items() if name in shown],
            ticks=[(f"{t:g}", place(t)) for t in TICKS if min(seconds) <= t <= max(seconds)],
            rows=rows,
        )
    )


def main() -> None:
    """Draws from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    options.picture.write_text(drawn(json.loads(options.results.read_text())["results"]))


if __name__ == "__main__":
    main()
