from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import Literal

import pytest
from rich.console import Console

from deltamerge.render.html import to_html
from deltamerge.render.plan_view import plan_view
from deltamerge.render.printable import printable, to_dict, to_json
from deltamerge.render.terminal import render_terminal, to_text

from .explanations import (
    ANALYZED,
    EXPLANATIONS,
    FAILS,
    HOSTILE,
    NOTHING,
    ODD_EXPLANATION,
    PLANNED,
    UPSERT_PLAN,
    UPSERT_WITH_PLAN,
    WARNED,
)
from .test_html import parse

TREE = """\
Plan: low_shuffle
├── Source: checkpoint
│   The source is read more than once, so Spark keeps its rows.
├── Matches: join
│   Only rows that change are computed; the others are neither joined a second
│   time nor shuffled.
│   ├── declined key_lookup: an UPDATE computes a value from the target's row.
│   └── declined anti_join: there are clauses that update or delete.
├── Changed rows: spark
│   Spark evaluates the clauses.
└── Unchanged rows: patch
    PyArrow copies touched files without the rows that change; their other rows
    are not decoded into Spark's.
    └── declined deletion_vector: the table does not write deletion vectors
        (delta.enableDeletionVectors)."""

ANALYZED_AT_80 = f"""\
Plan of a merge into /data/flights
29,740 rows would change. Nothing was written; version 7 was read.

    MERGE INTO delta.`/data/flights` AS t
    USING feed AS s
    ON t.month = s.month AND t.time_hour = s.time_hour AND t.carrier = s.carrier
    AND t.flight = s.flight
    WHEN MATCHED AND NOT (t.arr_delay <=> s.arr_delay) THEN UPDATE SET *
    WHEN NOT MATCHED THEN INSERT *
    WHEN NOT MATCHED BY SOURCE AND t.month = 10 AND t.day >= 25 THEN DELETE

 2,704 rows  WHEN MATCHED AND NOT (t.arr_delay <=> s.arr_delay) THEN UPDATE SET
             *
27,035 rows  WHEN NOT MATCHED THEN INSERT *
      1 row  WHEN NOT MATCHED BY SOURCE AND t.month = 10 AND t.day >= 25 THEN
             DELETE

{TREE}

Source       33,512 rows
             3 rows have NULL in a key and match nothing
             1 row has the same key as another row
To read      at most 4 of the table's 10 files (2.2 MB of 5.5 MB)
             rows in the ranges of the source's keys or rows with month = 10 and
             day >= 25
To change    1 file (562 kB)
To write     about 1.1 MB
Features     Change data feed: each changed row is also written to the feed,
             each update twice.
Conflicts    Commits that delete or replace one of the 4 files that may be read;
             the merge then runs again."""

TREE_AFTER_THE_RUN = """\
Plan: low_shuffle
├── Source: checkpoint
│   33,512 rows read; 1.4 s
│   The source is read more than once, so Spark keeps its rows.
├── Matches: join
│   1 file (562 kB) read, 9 files skipped, 1 file touched; 1.3 s
│   Only rows that change are computed; the others are neither joined a second
│   time nor shuffled.
│   ├── declined key_lookup: an UPDATE computes a value from the target's row.
│   └── declined anti_join: there are clauses that update or delete.
├── Changed rows: spark
│   27,035 rows inserted, 2,704 rows updated, 1 row deleted, 2 files (1.1 MB)
│   written; 3.1 s
│   Spark evaluates the clauses.
└── Unchanged rows: patch
    26,181 rows copied, 1 file removed
    PyArrow copies touched files without the rows that change; their other rows
    are not decoded into Spark's.
    └── declined deletion_vector: the table does not write deletion vectors
        (delta.enableDeletionVectors)."""


def page(name: str, width: int = 80) -> str:
    return to_text(render_terminal(EXPLANATIONS[name]), width)


def test_a_whole_explanation() -> None:
    assert page("analyzed") == ANALYZED_AT_80


def test_without_a_forecast_nothing_is_foretold() -> None:
    text = page("planned")
    assert "\nNothing was written; version 7 was read.\n" in text
    assert TREE in text
    assert "would" not in text
    assert "To write" not in text


@pytest.mark.parametrize("name", EXPLANATIONS)
@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_no_line_is_too_long_or_ends_in_spaces(name: str, width: int) -> None:
    lines = page(name, width).split("\n")
    assert all(len(line) <= width and line == line.rstrip() for line in lines)
    assert lines[0]
    assert lines[-1]


def test_warnings_come_before_the_plan() -> None:
    text = page("warned")
    assert text.count("\nWarning      ") == 2
    assert text.index("\nWarning ") < text.index("Plan: low_shuffle")
    assert "To read      at most all of the table's 10 files (5.5 MB)" in text
    assert "Features" not in text
    assert "any row" not in text


def test_a_failure_is_shown_with_its_rows_and_without_a_forecast() -> None:
    text = page("fails")
    assert "\nThis merge would fail. Nothing was written; version 7 was read.\n" in text
    assert "\nError        Several source rows match one target row" in text
    assert "\n               flight = 1714, carrier = UA: 3 source rows\n" in text
    assert text.index("\nError ") < text.index("Plan: low_shuffle")
    assert "To write" not in text
    assert "Source  " not in text


def test_an_empty_table_and_an_empty_source() -> None:
    text = page("nothing")
    assert "No row would change." in text
    assert "0 rows  WHEN NOT MATCHED THEN INSERT *" in text
    assert "Source       0 rows" in text
    assert "To read      nothing: the table has no files" in text
    assert "To change    no file" in text
    assert "To write     nothing" in text


@pytest.mark.parametrize(
    ("null_keys", "repeated_keys", "lines"),
    [
        (None, None, "9 rows\nTo read"),
        (0, 0, "9 rows; no key is NULL or occurs twice\nTo read"),
        (1, 0, "9 rows\n             1 row has NULL in a key and matches nothing\nTo read"),
        (0, 2, "9 rows\n             2 rows have the same key as another row\nTo read"),
    ],
)
def test_keys_of_the_source(null_keys: int | None, repeated_keys: int | None, lines: str) -> None:
    assert ANALYZED.forecast is not None
    forecast = replace(ANALYZED.forecast, source_rows=9, null_keys=null_keys, repeated_keys=repeated_keys)
    text = to_text(render_terminal(replace(ANALYZED, forecast=forecast)), 80)
    assert f"\nSource       {lines}" in text


def test_a_report_shows_the_plan_with_what_each_part_did() -> None:
    text = to_text(render_terminal(UPSERT_WITH_PLAN), 80)
    assert f"\n\n{TREE_AFTER_THE_RUN}\n\n" in text
    assert "Executor" not in text


def test_counts_of_other_names_are_shown_too() -> None:
    source = replace(UPSERT_PLAN.source, done={"rows": 0, "requests_in_sequence": 1_200})
    match = replace(UPSERT_PLAN.match, done={"files": 0, "bytes": 0, "milliseconds": 0})
    done = [node.done for node in plan_view(replace(UPSERT_PLAN, source=source, match=match)).nodes[:2]]
    assert done == ["requests in sequence: 1,200", "nothing read"]


def test_settings_keep_their_first_letter() -> None:
    assert plan_view(NOTHING.plan).nodes[0].reason == "spark.databricks.delta.merge.materializeSource is none."


def test_colour_adds_no_words() -> None:
    def printed(*, colour: bool) -> str:
        file = io.StringIO()
        system: Literal["truecolor"] | None = "truecolor" if colour else None
        Console(file=file, width=80, force_terminal=colour, color_system=system).print(render_terminal(ANALYZED))
        return file.getvalue()

    assert "\x1b[" not in printed(colour=False)
    assert re.sub(r"\x1b\[[0-9;]*m", "", printed(colour=True)) == printed(colour=False)


def test_strings_of_the_table_control_no_terminal() -> None:
    text = page("odd", 200) + page("odd failure", 200)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    for literal in ("<script>alert(1)</script> [red]x[/red] ␛[2J␛]0;title␇�31m �evil� &amp;", "/deep/deep"):
        assert literal in text
    report = to_text(render_terminal(printable(UPSERT_WITH_PLAN)), 80)
    assert report == to_text(render_terminal(UPSERT_WITH_PLAN), 80)


def test_strings_of_a_report_control_no_terminal() -> None:
    outcome = replace(UPSERT_WITH_PLAN, table=HOSTILE, statement=HOSTILE, notes=(HOSTILE,))
    for shown in (to_text(render_terminal(outcome), 200), to_html(outcome)):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "␛[2J" in shown


@pytest.mark.parametrize("name", EXPLANATIONS)
def test_html_is_one_fragment_that_needs_nothing_else(name: str) -> None:
    html = to_html(EXPLANATIONS[name])
    assert html.startswith("<div")
    assert html.rstrip().endswith("</div>")
    assert parse(html).tags <= {"div", "pre", "table", "tr", "td", "th", "b"}
    assert "http" not in html


def test_html_of_a_report_has_the_plan() -> None:
    page = parse(to_html(UPSERT_WITH_PLAN))
    assert page.tags <= {"div", "pre", "table", "tr", "td", "th", "b"}
    assert "1 file (562 kB) read, 9 files skipped, 1 file touched; 1.3 s" in page.text


def test_html_has_all_that_the_terminal_has() -> None:
    for explanation, words in (
        (ANALYZED, ("27,035 rows", "about 1.1 MB", "declined anti_join: there are clauses")),
        (WARNED, ("Warning The key column flight has no statistics",)),
        (FAILS, ("Error Several source rows match", "flight = 1714, carrier = UA: 3 source rows")),
    ):
        text = parse(to_html(explanation)).text
        assert all(word in text for word in words)


def test_html_escapes() -> None:
    page = parse(to_html(ODD_EXPLANATION))
    assert "script" not in page.tags
    assert page.text.count("<script>alert(1)</script> [red]x[/red] ␛[2J␛]0;title␇�31m �evil� &amp;") == 9


@pytest.mark.parametrize("name", EXPLANATIONS)
def test_json_holds_the_dict(name: str) -> None:
    assert json.loads(to_json(EXPLANATIONS[name])) == to_dict(EXPLANATIONS[name])


def test_what_json_holds() -> None:
    values = to_dict(ANALYZED)
    assert list(values["plan"]) == ["name", "source", "match", "changed_rows", "unchanged_rows"]
    assert values["plan"]["name"] == "low_shuffle"
    assert values["plan"]["match"]["declined"][0] == {
        "decision": "match",
        "choice": "key_lookup",
        "reason": "an UPDATE computes a value from the target's row",
    }
    assert values["forecast"]["clauses"][2]["rows"] == 1
    assert to_dict(PLANNED)["forecast"] is None
    assert to_dict(UPSERT_WITH_PLAN)["plan"]["match"]["done"]["files_skipped"] == 9
    assert to_dict(ODD_EXPLANATION)["warnings"][0].startswith(f"Warning {HOSTILE}")
