from __future__ import annotations

from html.parser import HTMLParser

import pytest

from deltamerge.render.html import to_html, to_page

from .outcomes import ALL, ODD, UPSERT

VOID = {"br", "hr", "img", "meta"}


class Balanced(HTMLParser):
    """Checks that elements nest, and keeps the text and the tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(html: str) -> Balanced:
    parser = Balanced()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser


@pytest.mark.parametrize("name", ALL)
def test_it_is_one_fragment_that_needs_nothing_else(name: str) -> None:
    html = to_html(ALL[name])
    assert html.startswith("<div")
    assert html.rstrip().endswith("</div>")
    page = parse(html)
    assert page.tags <= {"div", "pre", "table", "tr", "td", "th", "b"}
    assert "http" not in html


def test_what_it_says() -> None:
    text = parse(to_html(UPSERT)).text
    for words in (
        "Version 0 → 1: 29,740 rows changed.",
        "27,035",
        "rows inserted",
        "1 of the table's 10 files (562 kB of 5.5 MB), in 1 partition",
        "scanning files for matches",
        "6.5 s",
    ):
        assert words in text


def test_names_are_escaped() -> None:
    page = parse(to_html(ODD))
    assert "script" not in page.tags
    assert "writing <script>alert(1)</script> [red]now[/red]" in page.text
    assert "<b>t</b>" in page.text


def test_a_page_of_its_own() -> None:
    page = to_page(UPSERT)
    assert page.startswith("<!DOCTYPE html>")
    assert '<meta name="color-scheme" content="light dark">' in page
    assert to_html(UPSERT) in page
    assert "http" not in page
    parse(page)
    odd = parse(to_page(ODD))
    assert "script" not in odd.tags
    assert "<b>t</b>" in odd.text
