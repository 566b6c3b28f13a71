"""The values of Spark SQL's literals."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def string_value(token: str) -> str:
    r"""Reads a string literal as Spark does by default (`SparkParserUtils.unescapeSQLString`).

    Args:
        token: The literal with its quotes: ``'…'``, ``"…"``, ``r'…'``; a doubled quote stands for one.

    Returns:
        Its value.

    >>> string_value("'it''s \\n'")
    "it's \n"
    """
    if token[0] in "rR":
        return token[2:-1]
    quote = token[0]
    return _ESCAPE.sub(_unescape, token[1:-1].replace(quote * 2, quote))


def _unescape(match: re.Match[str]) -> str:
    short, long, octal, other = match.groups()
    if octal:
        return chr(int(octal, 8))
    if short or long:
        code = int(short or long, 16)
        return chr(code) if code < 0x110000 else "?"
    return _ESCAPED.get(other, other)
