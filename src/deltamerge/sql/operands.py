"""Operands: where a value ends, and which columns a piece of SQL may name; rather too many than too few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltamerge.sql.caret import Span
from deltamerge.sql.expression import Name, Opaque
from deltamerge.sql.literals import string_value
from deltamerge.sql.tokens import Kind, Token, closing, name_end, slice_of, words

_SINGULAR = words("YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND NANOSECOND")
INTERVAL_UNITS = _SINGULAR | {unit + "S" for unit in _SINGULAR}
_BINARY = frozenset(["+", "-", "*", "/", "%", "||", "&", "|", "^", "DIV"])
_PREFIX = frozenset(["+", "-", "~"])
# Words that are no columns, unless there are columns of that name.
GRAMMAR = INTERVAL_UNITS | words(
    """AS CASE WHEN THEN ELSE END AND OR NOT IN IS NULL TRUE FALSE UNKNOWN LIKE ILIKE RLIKE REGEXP BETWEEN DISTINCT
    FROM ESCAPE DIV INTERVAL TO DATE TIMESTAMP TIMESTAMP_NTZ TIMESTAMP_LTZ TIME INT INTEGER BIGINT LONG SMALLINT
    SHORT TINYINT BYTE FLOAT REAL DOUBLE DECIMAL DEC NUMERIC STRING BINARY BOOLEAN VOID CHAR CHARACTER VARCHAR ARRAY
    MAP STRUCT VARIANT ZONE AT BOTH LEADING TRAILING FOR PLACING COLLATE ANY SOME ALL EXISTS CURRENT_DATE
    CURRENT_TIMESTAMP CURRENT_TIME CURRENT_USER USER SESSION_USER LOCALTIMESTAMP CURRENT_CATALOG CURRENT_DATABASE
    CURRENT_SCHEMA DOW DOY DAYOFWEEK YEAROFWEEK ISOYEAR EPOCH OVER PARTITION BY ORDER ROWS RANGE NULLS FIRST LAST
    ASC DESC IGNORE RESPECT FILTER WHERE WITHIN GROUP UNBOUNDED PRECEDING FOLLOWING CURRENT ROW DEFAULT"""
)
# Functions that need no brackets, where no column has their name.
NO_COLUMNS = words(
    "CURRENT_DATE CURRENT_TIMESTAMP CURRENT_TIME CURRENT_USER SESSION_USER USER LOCALTIMESTAMP CURRENT_CATALOG "
    "CURRENT_DATABASE CURRENT_SCHEMA"
)
# Begins what Spark replaces by a setting's value before it parses (spark.sql.variable.substitute).
VARIABLE = "${"
# Types before a string, which are one constant.
_TYPED = words("DATE TIMESTAMP TIMESTAMP_NTZ TIMESTAMP_LTZ TIME")
_SUBQUERY = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE", "MAP", "REDUCE"})
_NOT_AFTER_SUBQUERY_WORDS = words("= == <=> <> != < <= > >= , . ) + - * / % || IS IN LIKE AND OR BETWEEN -> :: (")


def skip_value(tokens: tuple[Token, ...], start: int) -> int:
    """Return the index after a value (operands and arithmetic, no comparison); `start` where none begins there."""
    index = start
    while True:
        end = _skip_operand(tokens, index)
        if end == index:
            return start if index == start else index - 1
        index = end
        if index >= len(tokens) or tokens[index].upper not in _BINARY:
            return index
        index += 1


def _skip_operand(tokens: tuple[Token, ...], start: int) -> int:
    index = start
    while index < len(tokens) and tokens[index].text in _PREFIX:
        index += 1
    if index >= len(tokens):
        return start
    token = tokens[index]
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    if token.text == "(" or (token.upper == "CASE" and following is not None and following.depth > token.depth):
        index = closing(tokens, index) + 1
    elif token.upper == "INTERVAL" and following is not None and following.text != ".":
        index = _skip_interval(tokens, index)
    elif token.kind is Kind.WORD and following is not None and following.kind is Kind.STRING:
        # DATE'2020-01-01'
        index += 2
    elif token.kind is Kind.SYMBOL and token.text not in (":", "?"):
        return start
    else:
        index += 2 if token.text == ":" else 1
    return _skip_postfix(tokens, index)


def _skip_postfix(tokens: tuple[Token, ...], index: int) -> int:
    while index < len(tokens):
        text = tokens[index].text
        if text in ("(", "["):
            index = closing(tokens, index) + 1
        elif text in (".", "::"):
            index += 2
        else:
            break
    return min(index, len(tokens))


def _skip_interval(tokens: tuple[Token, ...], start: int) -> int:
    index = start + 1
    while index < len(tokens):
        end = _skip_operand(tokens, index) if tokens[index].upper not in INTERVAL_UNITS else index
        if end >= len(tokens) or end == index or tokens[end].upper not in INTERVAL_UNITS:
            return end if index == start + 1 else index
        index = end + 1
        if index + 1 < len(tokens) and tokens[index].upper == "TO" and tokens[index + 1].upper in INTERVAL_UNITS:
            return index + 2
    return index


def starts_subquery(tokens: tuple[Token, ...], index: int) -> bool:
    """Return whether a bracket opens at `index` and holds a query."""
    if tokens[index].text != "(":
        return False
    index += 1
    while index < len(tokens) and tokens[index].text == "(":
        index += 1
    if index + 1 >= len(tokens) or tokens[index].upper not in _SUBQUERY:
        return False
    return tokens[index + 1].upper not in _NOT_AFTER_SUBQUERY_WORDS or (
        tokens[index].upper in ("SELECT", "VALUES") and tokens[index + 1].text in ("*", "(", "-", "+")
    )


def opaque_of(sql: str, tokens: tuple[Token, ...], double_quoted_identifiers: bool = False) -> Opaque:
    """Return all names that may be columns in some tokens of `sql`; the flag is whether ``"a"`` is a name."""
    parameters = _lambda_parameters(tokens)
    names: list[Name] = []
    optional: list[Name] = []
    complete = not (double_quoted_identifiers and any(token.text.startswith('"') for token in tokens))
    subquery = False
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.text == "(" and starts_subquery(tokens, index):
            subquery = True
        if token.text in ("{", "$") or (
            token.text == "*" and (index == 0 or tokens[index - 1].upper in (".", "(", ",", "SELECT"))
        ):
            complete = False
        if token.upper == "IDENTIFIER" and index + 1 < len(tokens) and tokens[index + 1].text == "(":
            # It names a column, perhaps by what is only computed.
            complete = False
        if not token.is_identifier:
            index += 1
            continue
        end = name_end(tokens, index)
        span = slice_of(tokens[index:end])
        name = Name(tuple(part.name for part in tokens[index:end:2]), span.of(sql), span)
        kind = _role(tokens, index, end, parameters)
        if kind == "name":
            names.append(name)
        elif kind == "word":
            optional.append(name)
        index = end
    span = slice_of(tokens) if tokens else Span(0, 0)
    return Opaque(tuple(names), tuple(optional), complete and not subquery, subquery, text=span.of(sql), span=span)


def _role(tokens: tuple[Token, ...], start: int, end: int, parameters: frozenset[str]) -> str:
    """Return what a name is: ``name``, ``word`` (perhaps a column) or the empty string."""
    before = tokens[start - 1].text if start else ""
    after = tokens[end].text if end < len(tokens) else ""
    token = tokens[start]
    if before in ("::", ":") or before == ".":
        # A type, a parameter marker or a path into JSON, a field of an expression.
        return ""
    if after == "(":
        return "word" if end - start > 1 else ""
    if token.kind is Kind.WORD and end == start + 1 and end < len(tokens) and tokens[end].kind is Kind.STRING:
        return ""
    if token.name.casefold() in parameters or after in ("->", "=>") or before.upper() == "COLLATE":
        return "word"
    if token.kind is Kind.WORD and end == start + 1 and token.upper in GRAMMAR:
        return "word"
    return "name"


def _lambda_parameters(tokens: tuple[Token, ...]) -> frozenset[str]:
    found: set[str] = set()
    for index, token in enumerate(tokens):
        if token.text != "->" or index == 0:
            continue
        if tokens[index - 1].is_identifier:
            found.add(tokens[index - 1].name.casefold())
        place = index - 2
        while tokens[index - 1].text == ")" and place >= 0 and tokens[place].text != "(":
            if tokens[place].is_identifier:
                found.add(tokens[place].name.casefold())
            place -= 1
    return frozenset(found)


def constant_string(tokens: tuple[Token, ...], args: Mapping[str, Any] | None = None) -> str | None:
    """Return the string that literals are, or parameters, joined by ``||`` or CONCAT; None for any other expression."""
    if [token.kind for token in tokens] == [Kind.STRING]:
        return string_value(tokens[0].text)
    if len(tokens) == 2 and tokens[0].text == ":":
        value = (args or {}).get(tokens[1].text)
        return value if isinstance(value, str) else None
    words_before = [token.upper for token in tokens[:2]]
    is_call = words_before == ["CONCAT", "("] and closing(tokens, 1) == len(tokens) - 1
    terms = split_at(tokens[2:-1], ",") if is_call else split_at(tokens, "||")
    if not is_call and len(terms) < 2:
        return None
    found = [constant_string(term, args) for term in terms]
    return None if None in found else "".join(filter(None, found))


def is_constant(tokens: tuple[Token, ...]) -> bool:
    """Return whether tokens are one constant of Spark's grammar, or what parameters become: a CAST of one, or (-1)."""
    found = [token.upper for token in tokens]
    if found[:1] == ["("]:
        return closing(tokens, 0) == len(tokens) - 1 and is_constant(tokens[1:-1])
    if found[:2] == ["CAST", "("]:
        return closing(tokens, 1) == len(tokens) - 1 and "AS" in found and is_constant(tokens[2 : found.index("AS")])
    if found[:1] == ["INTERVAL"]:
        return skip_value(tokens, 0) == len(tokens) and all(token.kind is not Kind.SYMBOL for token in tokens)
    kinds = [token.kind for token in tokens]
    if len(tokens) == 2 and found[0] in ("-", *_TYPED):
        return kinds[1] is (Kind.NUMBER if found[0] == "-" else Kind.STRING)
    is_plain = kinds == [Kind.NUMBER] or found in (["NULL"], ["TRUE"], ["FALSE"])
    return is_plain or (bool(kinds) and set(kinds) == {Kind.STRING})


def split_at(tokens: tuple[Token, ...], separator: str) -> list[tuple[Token, ...]]:
    base = tokens[0].depth if tokens else 0
    ends = [at for at, token in enumerate(tokens) if token.text == separator and token.depth == base]
    firsts = [0, *(end + 1 for end in ends)]
    return [tokens[first:end] for first, end in zip(firsts, [*ends, len(tokens)], strict=True)]
