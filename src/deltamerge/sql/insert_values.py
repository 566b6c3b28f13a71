"""DEFAULT as a value of INSERT INTO … VALUES, which a query by itself does not know."""

from __future__ import annotations

from collections.abc import Sequence

from deltamerge.sql.caret import Span
from deltamerge.sql.relations import replace_references
from deltamerge.sql.tokens import closing, tokenize


def with_defaults(query: str, defaults: Sequence[str | None]) -> str:
    """Replace DEFAULT in the rows of ``VALUES (…), (…)`` by the SQL of a column's default; any other query stays.

    Args:
        defaults: By column, in the order of the values; None for NULL.
    """
    tokens = tokenize(query)
    if not tokens or tokens[0].upper != "VALUES":
        return query
    replaced: dict[Span, str] = {}
    row = 1
    while row < len(tokens) and tokens[row].text == "(":
        end = closing(tokens, row)
        column = 0
        for index in range(row + 1, end):
            token = tokens[index]
            if token.text == "," and token.depth == tokens[row].depth + 1:
                column += 1
            alone = tokens[index - 1].text in ("(", ",") and tokens[index + 1].text in (")", ",")
            if token.upper == "DEFAULT" and token.depth == tokens[row].depth + 1 and alone and column < len(defaults):
                default = defaults[column]
                replaced[token.span] = "NULL" if default is None else f"({default})"
        row = end + 2 if end + 1 < len(tokens) and tokens[end + 1].text == "," else len(tokens)
    return replace_references(query, replaced)
