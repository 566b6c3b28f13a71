"""Names of columns, fields and tables: parts, backticks, and what a misspelled one may have meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.caret import Span, point_at

# It matches everywhere, if only the empty string.
_PART = re.compile(r"`(?:[^`]|``)*`(?!`)|[^.`]*")
# Blanks around parts; those between backticks belong to them.
_BLANKS = re.compile(r"(`[^`]*`)|^\s+|\s*\.\s*|\s+$")
_IN_PATHS = re.compile(r"[/\\:]")


def is_path(name: str) -> bool:
    """Return whether a string is a path and not a name: it has a slash, a backslash or a colon."""
    return _IN_PATHS.search(name) is not None


def names_path(parts: Sequence[str]) -> bool:
    """Return whether a name is ``delta.`path` ``, and not one of a database ``delta``."""
    return len(parts) == 2 and parts[0].lower() == "delta" and is_path(parts[1])


def quote(part: str) -> str:
    """Return one part of a name between backticks.

    >>> quote("a`b")
    '`a``b`'
    """
    return "`" + part.replace("`", "``") + "`"


def quote_name(parts: Iterable[str]) -> str:
    """Return the parts of a name, each between backticks, with dots between.

    >>> quote_name(("t", "a.b"))
    '`t`.`a.b`'
    """
    return ".".join(quote(part) for part in parts)


def shown_name(parts: Iterable[str]) -> str:
    """Return the parts of a name with dots between, and backticks only where SQL needs them.

    >>> shown_name(("t", "a b"))
    't.`a b`'
    """
    return ".".join(part if part.isidentifier() and part.isascii() else quote(part) for part in parts)


def unquote(name: str) -> str:
    """Return one part of a name without its backticks, if it has any.

    >>> unquote("`a``b`")
    'a`b'
    """
    if len(name) >= 2 and name[0] == "`" == name[-1]:
        return name[1:-1].replace("``", "`")
    return name


def parse_name(name: str) -> tuple[str, ...]:
    """Split a name at its dots; backticks keep a part together.

    Outside backticks every character but a dot and a backtick belongs to the part, as in Spark's
    `UnresolvedAttribute.parseAttributeName`.

    Raises:
        DeltaParseException: INVALID_ATTRIBUTE_NAME_SYNTAX, an empty part or a backtick out of place.
    """
    parts: list[str] = []
    position = 0
    while match := _PART.match(name, position):
        part, end = match.group(), match.end()
        following = name[end : end + 1]
        if not part and following == "`":
            raise _bad_name(name, Span(end, end + 1), "this backtick is never closed")
        if not unquote(part):
            raise _bad_name(name, Span(position, end), "a part of the name is empty")
        parts.append(unquote(part))
        if not following:
            break
        if following != ".":
            closed = "a dot or the end is expected after the closing backtick"
            problem = closed if part[0] == "`" else "a backtick is inside a part of the name"
            raise _bad_name(name, Span(end, end + 1), problem)
        position = end + 1
    return tuple(parts)


def parse_table_name(name: str) -> tuple[str, ...]:
    """Split the name of a table, a view or a database, which Spark's parser reads: it skips blanks around parts.

    Raises:
        DeltaParseException: As `parse_name`.
    """
    return parse_name(_BLANKS.sub(lambda found: found[1] or found[0].strip(), name))


def near_misses(name: str, candidates: Iterable[str]) -> tuple[str, ...]:
    """Return the candidates that a misspelled name may have meant, three at most, the likeliest first.

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
    return tuple(candidate for _, _, candidate in sorted(scored)[:3])


def _bad_name(name: str, span: Span, problem: str) -> DeltaParseException:
    return DeltaParseException(
        "INVALID_ATTRIBUTE_NAME_SYNTAX",
        f"The name {name!r} cannot be read: {problem}. Parts are separated by dots; a part that holds a dot "
        f"or a backtick goes between backticks, with the backtick doubled.\n{point_at(name, span)}",
        parameters={"name": name},
    )


def free_prefix(taken: Iterable[str]) -> str:
    """Return a prefix such as ``__dm_`` that none of the users' column names has, whatever their case."""
    lowered = [name.lower() for name in taken]
    prefix, number = "__dm_", 1
    while any(name.startswith(prefix) for name in lowered):
        number += 1
        prefix = f"__dm{number}_"
    return prefix


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return a question that follows a message about an unknown name; empty where no candidate is like it."""
    misses = near_misses(name, candidates)
    return f" Did you mean {' or '.join(map(quote, misses))}?" if misses else ""
