from __future__ import annotations

import pytest

from deltamerge.sql.caret import MAX_WIDTH, Span, line_and_column, point_at


@pytest.mark.parametrize(
    ("text", "offset", "expected"),
    [
        ("", 0, (1, 1)),
        ("abc", 2, (1, 3)),
        ("a\nbc", 3, (2, 2)),
        ("a\r\nbc", 3, (2, 1)),
        ("a\rb\n\nc", 5, (4, 1)),
        ("a\n", 2, (2, 1)),
    ],
)
def test_lines_and_columns_count_from_one(text: str, offset: int, expected: tuple[int, int]) -> None:
    assert line_and_column(text, offset) == expected


def test_carets_stand_below_the_piece() -> None:
    text = "MERGE INTO t\nUSNG s\nON x"
    assert point_at(text, Span(13, 17)) == "line 2, column 1:\n  USNG s\n  ^^^^"


def test_an_empty_place_gets_one_caret() -> None:
    assert point_at("abc", Span(3, 3)).splitlines()[2] == "     ^"
    assert point_at("", Span(0, 0)).splitlines() == ["line 1, column 1:", "  ", "  ^"]


def test_a_piece_of_several_lines_is_marked_on_the_first() -> None:
    assert point_at("ab cd\nef", Span(3, 8)).splitlines() == ["line 1, column 4:", "  ab cd", "     ^^"]


def test_tabs_and_wide_characters_keep_the_carets_in_place() -> None:
    assert point_at("\tx = 表 y", Span(7, 8)).splitlines()[2] == "  \t       ^"
    assert point_at("表 y", Span(0, 1)).splitlines()[2] == "  ^^"
    assert point_at("e\u0301 y", Span(3, 4)).splitlines()[2] == "    ^"


@pytest.mark.parametrize("start", [0, 10, 400, 990])
def test_long_lines_are_cut_around_the_piece(start: int) -> None:
    text = "".join(chr(97 + i % 26) for i in range(1000))
    _, line, carets = point_at(text, Span(start, start + 5)).splitlines()
    assert len(line) <= MAX_WIDTH + 4
    first = carets.index("^")
    assert carets.count("^") == 5
    assert line[first : first + 5] == text[start : start + 5]


def test_carets_end_where_a_long_line_is_cut() -> None:
    _, line, carets = point_at("x" * 1000, Span(0, 900)).splitlines()
    assert len(carets) <= len(line)
