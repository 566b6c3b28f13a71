from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from deltamerge.merge.outcome import MergeOutcome
from deltamerge.render.terminal import render_terminal, to_text

from .outcomes import ALL, ALREADY_COMMITTED, NOTHING_CHANGED, ODD, UPSERT

UPSERT_AT_80 = """\
Merge into /data/flights
Version 0 → 1: 29,740 rows changed.

    MERGE INTO delta.`/data/flights` AS t
    USING feed AS s
    ON t.month = s.month AND t.time_hour = s.time_hour AND t.carrier = s.carrier
    AND t.flight = s.flight
    WHEN MATCHED AND NOT (t.arr_delay <=> s.arr_delay) THEN UPDATE SET *
    WHEN NOT MATCHED THEN INSERT *
    WHEN NOT MATCHED BY SOURCE AND t.month = 10 AND t.day >= 25 THEN DELETE

 2,704 rows updated   WHEN MATCHED AND NOT (t.arr_delay <=> s.arr_delay)
27,035 rows inserted  WHEN NOT MATCHED
     1 row deleted    WHEN NOT MATCHED BY SOURCE AND t.month = 10 AND t.day >=
                      25

Source       33,512 rows
Read         1 of the table's 10 files (562 kB of 5.5 MB), in 1 partition
Removed      1 file (562 kB)
Written      2 files (1.1 MB); 26,181 unchanged rows had to be copied
Change data  2 files (731 kB)
Executor     classic, because there are clauses that update or delete
Note         9 of 10 files were not read, thanks to the source's key ranges and
             the conditions on the target.

Time         6.5 s
             resolving the statement                 0.4 s  █▎
             materializing the source                0.8 s  ██▌
             counting the source's rows and its      0.6 s  █▉
             keys' ranges
             scanning files for matches              1.3 s  ████
             rewriting 1 files                       3.1 s  █████████▋
             everything else                         0.3 s  ▉"""


def test_a_whole_report() -> None:
    assert to_text(render_terminal(UPSERT), 80) == UPSERT_AT_80


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_no_line_is_too_long_or_ends_in_spaces(name: str, width: int) -> None:
    lines = to_text(render_terminal(ALL[name]), width).split("\n")
    assert all(len(line) <= width and line == line.rstrip() for line in lines)
    assert lines[0]
    assert lines[-1]


def test_nothing_changed_says_so() -> None:
    text = to_text(render_terminal(NOTHING_CHANGED))
    assert "Nothing changed: no new version, the table stays at version 7." in text
    assert "none of the table's 10 files (5.5 MB)" in text
    assert "Written" not in text


def test_an_outcome_without_metrics() -> None:
    text = to_text(render_terminal(ALREADY_COMMITTED))
    assert "none, because the application transaction was committed before" in text
    assert "Time" not in text


def test_markup_in_names_is_text() -> None:
    text = to_text(render_terminal(ODD), 200)
    for literal in ("<b>t</b>/[red]x[/red]/deep", "`[bold]`", "One [bold]note[/bold].", "[red]now[/red]"):
        assert literal in text


def test_a_clause_that_does_nothing() -> None:
    text = to_text(render_terminal(ODD), 200)
    assert "no row changed by  WHEN MATCHED AND t.`<script>` = '[bold]'" in text


def test_a_long_line_of_the_statement_is_cut() -> None:
    text = to_text(render_terminal(ODD), 200)
    assert "column_99" not in text
    assert "more characters)" in text


def printed(outcome: MergeOutcome, *, colour: bool) -> str:
    file = io.StringIO()
    Console(file=file, width=80, force_terminal=colour, color_system="truecolor" if colour else None).print(
        render_terminal(outcome)
    )
    return file.getvalue()


def test_colour_adds_no_words() -> None:
    assert "\x1b[" in printed(UPSERT, colour=True)
    plain = printed(UPSERT, colour=False)
    assert "\x1b[" not in plain
    assert "\n".join(line.rstrip() for line in plain.rstrip().split("\n")) == UPSERT_AT_80


def test_a_deletion_vector_that_takes_anothers_place_is_one() -> None:
    assert re.search(r"Written +1 deletion vector\n", to_text(render_terminal(ODD), 200))
