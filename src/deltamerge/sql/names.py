"""Names of columns, fields and tables: parts, backticks, and what a misspelled one may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.caret import Span, point_at


def quote(part: str) -> str:
    """Puts one part of a name between backticks.

    >>> quote("a`b")
    '`a``b`'
    """
    return "`" + part.replace("`", "``") + "`"


def quote_name(parts: Iterable[str]) -> str:
    """Joins the parts of a name, each between backticks.

    >>> quote_name(("t", "a.b"))
    '`t`.`a.b`'
    """
    return ".".join(quote(part) for part in parts)


def unquote(text: str) -> str:
    """Takes the backticks off one part of a name; a part without them is returned as it is.

    >>> unquote("`a``b`")
    'a`b'
    """
    if len(text) >= 2 and text[0] == "`" == text[-1]:
        return text[1:-1].replace("``", "`")
    return text


def parse_name(text: str) -> tuple[str, ...]:
    """Splits a name at its dots; backticks keep a part together.

    Args:
        text: A name such as ``id``, ``t.id``, ``t.`a.b` ``. Outside backticks every character but a dot and a
            backtick belongs to the part, as in Spark's `UnresolvedAttribute.parseAttributeName`.

    Returns:
        The parts, without backticks.

    Raises:
        DeltaParseException: INVALID_ATTRIBUTE_NAME_SYNTAX, an empty part or a backtick out of place.
    """
    parts: list[str] = []
    position = 0
    while True:
        if text[position : position + 1] == "`":
            end = _closing_backtick(text, position)
            parts.append(unquote(text[position:end]))
        else:
            end = text.find(".", position)
            end = len(text) if end < 0 else end
            stray = text.find("`", position, end)
            if stray >= 0:
                raise _bad_name(text, Span(stray, stray + 1), "a backtick stands inside a part of the name")
            parts.append(text[position:end])
        if not parts[-1]:
            raise _bad_name(text, Span(position, end), "a part of the name is empty")
        if end == len(text):
            return tuple(parts)
        if text[end] != ".":
            raise _bad_name(
                text, Span(end, end + 1), "a dot or the end is expected after the closing backtick"
            )
        position = end + 1


def near_misses(name: str, candidates: Iterable[str], n: int = 3) -> tuple[str, ...]:
    """Finds the names that someone who wrote `name` may have meant.

    Args:
        name: The name that was not found.
        candidates: The names that there are.
        n: How many to give at most.

    Returns:
        The candidates, likeliest first: equal but for case, then by likeness of spelling.

    >>> near_misses("custmer_id", ["id", "customer_id", "amount"])
    ('customer_id',)
    """
    folded = name.casefold()
    scored: list[tuple[float, int, str]] = []
    for order, candidate in enumerate(dict.fromkeys(candidates)):
        other = candidate.casefold()
        score = difflib.SequenceMatcher(None, folded, other, autojunk=False).ratio()
        if folded == other:
            score = 2.0
        elif len(folded) > 2 and len(other) > 2 and (folded in other or other in folded):
            score = max(score, 0.7)
        if score >= 0.6:
            scored.append((-score, order, candidate))
    return tuple(candidate for _, _, candidate in sorted(scored)[:n])


def _closing_backtick(text: str, start: int) -> int:
    """Gives the offset after the backtick that closes the one at `start`."""
    position = start + 1
    while True:
        position = text.find("`", position)
        if position < 0:
            raise _bad_name(text, Span(start, start + 1), "this backtick is never closed")
        if text[position + 1 : position + 2] != "`":
            return position + 1
        position += 2


def _bad_name(text: str, span: Span, problem: str) -> DeltaParseException:
    return DeltaParseException(
        "INVALID_ATTRIBUTE_NAME_SYNTAX",
        f"The name {text!r} cannot be read: {problem}. Parts are separated by dots; a part that holds a dot "
        f"or a backtick goes between backticks, with the backtick doubled.\n{point_at(text, span)}",
        sqlstate="42601",
        parameters={"name": text},
    )


def free_prefix(taken: Iterable[str]) -> str:
    """Finds a prefix that none of the names has, whatever their case.

    Args:
        taken: The users' column names.

    Returns:
        A prefix such as ``__dm_``.
    """
    lowered = [name.lower() for name in taken]
    prefix, number = "__dm_", 1
    while any(name.startswith(prefix) for name in lowered):
        number += 1
        prefix = f"__dm{number}_"
    return prefix
