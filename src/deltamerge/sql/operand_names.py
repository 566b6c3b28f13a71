"""Finds the columns in a piece of SQL that is not looked into otherwise; rather too many than too few."""

from __future__ import annotations

from dataclasses import dataclass

from deltamerge.sql.expression import Name
from deltamerge.sql.operands import INTERVAL_UNITS
from deltamerge.sql.tokens import Kind, Token, slice_of, words

# Words that are no columns, unless there are columns of that name.
_GRAMMAR = INTERVAL_UNITS | words(
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
# Begins what Spark puts a setting's value for before it reads a text (spark.sql.variable.substitute).
VARIABLE = "${"
_SUBQUERY = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE", "MAP", "REDUCE"})
_NOT_AFTER_SUBQUERY_WORDS = words(
    "= == <=> <> != < <= > >= , . ) + - * / % || IS IN LIKE AND OR BETWEEN -> :: ("
)


@dataclass(frozen=True)
class FoundNames:
    """The names in a run of tokens; the fields are those of `deltamerge.sql.expression.Opaque`."""

    names: tuple[Name, ...]
    words: tuple[Name, ...]
    complete: bool
    subquery: bool


def starts_subquery(tokens: tuple[Token, ...], index: int) -> bool:
    """Says whether a bracket holds a query.

    Args:
        tokens: The tokens.
        index: The index of the opening bracket.
    """
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


def opaque_names(text: str, tokens: tuple[Token, ...], double_quoted_identifiers: bool = False) -> FoundNames:
    """Finds the names in some tokens.

    Args:
        text: The text that the tokens are of.
        tokens: The tokens.
        double_quoted_identifiers: Whether ``"a"`` is a name.

    Returns:
        Every name that may be a column.
    """
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
        if not token.is_identifier:
            index += 1
            continue
        end = _name_end(tokens, index)
        name = _name(text, tokens[index:end])
        kind = _role(tokens, index, end, parameters)
        if kind == "name":
            names.append(name)
        elif kind == "word":
            optional.append(name)
        index = end
    return FoundNames(tuple(names), tuple(optional), complete and not subquery, subquery)


def _role(tokens: tuple[Token, ...], start: int, end: int, parameters: frozenset[str]) -> str:
    """Says what a name is: ``name``, ``word`` (perhaps a column) or nothing."""
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
    if token.kind is Kind.WORD and end == start + 1 and token.upper in _GRAMMAR:
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


def _name_end(tokens: tuple[Token, ...], start: int) -> int:
    end = start + 1
    while (
        end + 1 < len(tokens)
        and tokens[end].text == "."
        and (tokens[end + 1].is_identifier or tokens[end + 1].kind is Kind.NUMBER)
    ):
        end += 2
    return end


def _name(text: str, tokens: tuple[Token, ...]) -> Name:
    span = slice_of(tokens)
    return Name(tuple(token.name for token in tokens[::2]), span.of(text), span)
