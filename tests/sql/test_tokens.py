from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.tokens import Kind, closing, is_keyword_place, tokenize


def texts(sql: str) -> list[str]:
    tokens = tokenize(sql)
    assert all(token.span.of(sql) == token.text for token in tokens)
    return [token.text for token in tokens]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a<=>b", ["a", "<=>", "b"]),
        ("a==b!=c<>d!<e!>f", ["a", "==", "b", "!=", "c", "<>", "d", "!<", "e", "!>", "f"]),
        ("a::int", ["a", "::", "int"]),
        ("x -> x+1", ["x", "->", "x", "+", "1"]),
        (
            "1L 1.5D 1e3 10Y 1.5BD 1e-3 .5 5. 1_0 1abc",
            ["1L", "1.5D", "1e3", "10Y", "1.5BD", "1e-3", ".5", "5.", "1_0", "1abc"],
        ),
        ("t.5 t.1a t.1.b", ["t", ".", "5", "t", ".", "1a", "t", ".", "1", ".", "b"]),
        (r"'a\'b' = s", [r"'a\'b'", "=", "s"]),
        (r"r'a\' b", [r"r'a\'", "b"]),
        (r'R"a\" b', [r'R"a\"', "b"]),
        ("'it''s' x", ["'it''s'", "x"]),
        ('"c""d" x', ['"c""d"', "x"]),
        ("'a' 'b'", ["'a'", "'b'"]),
        ("X'1F' x'0a'", ["X'1F'", "x'0a'"]),
        ("`a``b`.`x.y`", ["`a``b`", ".", "`x.y`"]),
        ("`/*`,'--',\"/*\"", ["`/*`", ",", "'--'", ",", '"/*"']),
        ("$$ab$$ ${z}", ["$", "$", "ab", "$", "$", "$", "{", "z", "}"]),
        (r"a \ b", ["a", "\\", "b"]),
        ("é = 'ü😀' and 😀x", ["é", "=", "'ü😀'", "and", "😀x"]),
        ("ORDER  BY x", ["ORDER", "BY", "x"]),
        ("a\u00a0b", ["a", "b"]),
        ("a?::int ? :p", ["a", "?", "::", "int", "?", ":", "p"]),
        ("v::map<string,array<int>> , b", ["v", "::", "map<string,array<int>>", ",", "b"]),
        ("a -- it's\n b", ["a", "b"]),
        ("a -- it's \\\n still' \n b", ["a", "b"]),
        ("a /* it's /* nested */ ' */ b", ["a", "b"]),
        ("select /*+ BROADCAST(s) */ a", ["select", "a"]),
        ("--c", []),
        ("", []),
    ],
)
def test_tokens_are_the_users_text(sql: str, expected: list[str]) -> None:
    assert texts(sql) == expected


@pytest.mark.parametrize("word", ["show", "call", "explain", "optimize", "execute", "rename", "fetch", "cache"])
def test_no_word_swallows_the_rest(word: str) -> None:
    assert texts(f"{word} = 'it' and x") == [word, "=", "'it'", "and", "x"]


def test_kinds() -> None:
    kinds = {token.text: token.kind for token in tokenize("a `b` 'c' 1.5 r'd' X'0F' ( <=> 1x )")}
    assert kinds == {
        "a": Kind.WORD,
        "`b`": Kind.QUOTED,
        "'c'": Kind.STRING,
        "1.5": Kind.NUMBER,
        "r'd'": Kind.STRING,
        "X'0F'": Kind.STRING,
        "(": Kind.SYMBOL,
        ")": Kind.SYMBOL,
        "<=>": Kind.SYMBOL,
        "1x": Kind.WORD,
    }


def test_quoted_names_are_no_keywords() -> None:
    word, quoted = tokenize("when `when`")
    assert (word.upper, quoted.upper) == ("WHEN", "`when`")
    assert (word.name, quoted.name) == ("when", "when")


def test_depth_counts_brackets_and_cases() -> None:
    sql = "f(a, [b]) CASE WHEN x THEN (y) END c"
    assert [token.depth for token in tokenize(sql)] == [0, 0, 1, 1, 1, 2, 1, 0, 0, 1, 1, 1, 1, 2, 1, 0, 0]


@pytest.mark.parametrize("sql", ["t.case = 1", "case = 1", "(case, end)", "t.case + end", "s.end", "case"])
def test_case_and_end_may_be_columns(sql: str) -> None:
    assert all(token.depth == 0 or "(" in sql for token in tokenize(sql))


def test_columns_called_end_inside_case() -> None:
    tokens = tokenize("CASE WHEN t.end = end THEN end END x")
    assert tokens[closing(tokens, 0)].span.start == 31
    assert tokens[-1].depth == 0


def test_nested_cases_and_simple_cases() -> None:
    tokens = tokenize("CASE CASE a WHEN 1 THEN 2 END WHEN 2 THEN 3 END > CASE x WHEN 1 THEN 2 END")
    assert [token.text for token in tokens if token.depth == 0] == ["CASE", "END", ">", "CASE", "END"]


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("a 'bc", 2),
        ("a `bc", 2),
        ('"', 0),
        ("a /* b /* */", 2),
        ("(a", 0),
        ("a)", 1),
        ("(a]", 2),
        ("x CASE WHEN a THEN 1", 2),
    ],
)
def test_what_is_never_closed_is_shown(sql: str, place: int) -> None:
    with pytest.raises(DeltaParseException) as caught:
        tokenize(sql)
    assert caught.value.error_class == ("UNCLOSED_BRACKETED_COMMENT" if "/*" in sql else "PARSE_SYNTAX_ERROR")
    assert f"line 1, column {place + 1}:" in caught.value.message


def test_keyword_places() -> None:
    tokens = tokenize("when = 1 and t.when when.x when matched")
    places = [is_keyword_place(tokens, i) for i, token in enumerate(tokens) if token.upper == "WHEN"]
    assert places == [False, False, False, True]


SYMBOLS = """a é 😀 $ @ # ? ! < > | & ( ) [ ] , ; * ' " ` \\ .5 1L 1.5 <=> == != :: -> -- /* */ /*c*/ {{
    }} {% %} {# #} t.b `x``y` 'str' 'it''s' "d" r'\\' CASE WHEN END show call x'0F'"""
PIECES = st.sampled_from([*SYMBOLS.split(), "\n", "\t", "\r\n"])


@given(st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=25).map(" ".join))
def test_tokens_tile_any_text(sql: str) -> None:
    try:
        tokens = tokenize(sql)
    except DeltaParseException:
        return
    position = 0
    for token in tokens:
        assert token.span.of(sql) == token.text
        assert token.span.start >= position
        assert token.text
        gap = sql[position : token.span.start]
        assert gap.strip() == "" or re.search(r"--|/\*|\{#|[\x00-\x20\x7f-\xa0]", gap)
        position = token.span.end
