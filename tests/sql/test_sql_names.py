from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.names import near_misses, parse_name, parse_table_name, quote, quote_name, unquote


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("id", ("id",)),
        ("x.a", ("x", "a")),
        ("t.`a.b`", ("t", "a.b")),
        ("`a``b`.c", ("a`b", "c")),
        ("`a.b`.`c d`", ("a.b", "c d")),
        ("my col.é-1", ("my col", "é-1")),
        ("`.`", (".",)),
        ("````", ("`",)),
    ],
)
def test_names_are_split_at_dots_outside_backticks(text: str, parts: tuple[str, ...]) -> None:
    assert parse_name(text) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "`a", "a`b`", "`a`b", "``", "a.``", "`a``"])
def test_malformed_names_are_refused_with_their_place(text: str) -> None:
    with pytest.raises(DeltaParseException) as caught:
        parse_name(text)
    assert caught.value.error_class == "INVALID_ATTRIBUTE_NAME_SYNTAX"
    assert caught.value.sqlstate == "42601"
    assert "^" in caught.value.message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("`t`\n", ("t",)),
        (" db . t\t", ("db", "t")),
        ("`a` .` b . ` ", ("a", " b . ")),
        ("` ``.``` . t", (" `.`", "t")),
        ("a b", ("a b",)),
    ],
)
def test_blanks_around_the_parts_of_a_tables_name(text: str, parts: tuple[str, ...]) -> None:
    assert parse_table_name(text) == parts


@given(st.lists(st.text(min_size=1), min_size=1))
def test_quoted_names_come_back(parts: list[str]) -> None:
    assert parse_name(quote_name(parts)) == tuple(parts)


@given(st.text(min_size=1))
def test_unquote_undoes_quote(part: str) -> None:
    assert unquote(quote(part)) == part


def test_near_misses_come_likeliest_first() -> None:
    assert near_misses("ID", ["idx", "id", "name"])[0] == "id"
    assert near_misses("custmer", ["customer_id", "customer", "amount"]) == ("customer", "customer_id")
    assert near_misses("zzz", ["a", "b"]) == ()
    assert len(near_misses("col", [f"col{i}" for i in range(9)])) == 3
