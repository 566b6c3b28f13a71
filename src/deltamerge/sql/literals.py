"""The values of Spark SQL's literals."""

from __future__ import annotations

import re
import struct
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_NUMBER = re.compile(r"([\d.]+)(e[+-]?\d+)?(bd|[lsyfd])?", re.IGNORECASE)
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d(?:\.\d{1,6})?)(Z|UTC|[+-]\d\d:\d\d)?)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INTEGRAL_SUFFIXES = {"L": ("bigint", 63), "S": ("smallint", 15), "Y": ("tinyint", 7)}

Typed = tuple[object, str]
"""A literal's Python value and Spark's name of its type."""


def string_value(token: str) -> str:
    r"""Return a string literal's value as Spark reads it by default (`SparkParserUtils.unescapeSQLString`).

    >>> string_value("'it''s \\n'")
    "it's \n"
    """
    if token[0] in "rR":
        return token[2:-1]
    quote = token[0]
    return _ESCAPE.sub(_unescape, token[1:-1].replace(quote * 2, quote))


def plain_string(token: str) -> Typed | None:
    """Return the value of a string or binary literal that no setting of the session can change.

    None for escapes and doubled quotes, which depend on ``spark.sql.parser.escapedStringLiterals`` and
    ``spark.sql.legacy.consecutiveStringLiterals.enabled``.
    """
    if token[0] in "xX":
        try:
            return bytes.fromhex(token[2:-1]), "binary"
        except ValueError:
            return None
    if token[0] in "rR":
        return token[2:-1], "string"
    quote = token[0]
    if quote not in "'\"" or "\\" in token or quote in token[1:-1]:
        return None
    return token[1:-1], "string"


def number_value(token: str, negative: bool = False) -> Typed | None:
    """Return a number's value (`AstBuilder.visitIntegerLiteral`, …); None if it is out of its type's range.

    >>> number_value("1.50")
    (Decimal('1.50'), 'decimal(3,2)')
    """
    match = _NUMBER.fullmatch(token)
    if match is None:
        return None
    digits, exponent, suffix = match.groups()
    suffix = (suffix or "").upper()
    sign = "-" if negative else ""
    if suffix in _INTEGRAL_SUFFIXES:
        whole = digits.isdigit() and not exponent
        return _integer(sign + digits, *_INTEGRAL_SUFFIXES[suffix]) if whole else None
    if suffix == "F":
        number = float(sign + digits + (exponent or ""))
        return (struct.unpack("f", struct.pack("f", number))[0], "float") if abs(number) < 3.4e38 else None
    if suffix == "D" or (exponent and not suffix):
        number = float(sign + digits + (exponent or ""))
        return (number, "double") if abs(number) < 1.7e308 else None
    if digits.isdigit() and not suffix:
        return _integer(sign + digits, "int", 31) or _integer(sign + digits, "bigint", 63) or _decimal(sign + digits)
    return None if exponent else _decimal(sign + digits)


def typed_value(type_word: str, content: str) -> Typed | None:
    """Return the value of a typed literal such as ``DATE'2020-01-01'``, whose word is in upper case.

    None for other types than dates and timestamps, and for spellings that Spark may read otherwise. A timestamp with an
    offset is an instant, one without is local time: of the session's zone for type ``timestamp``.
    """
    content = content.strip(" ")
    try:
        if type_word == "DATE" and _DATE.fullmatch(content):
            return date.fromisoformat(content), "date"
        if type_word in ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"):
            return _timestamp(type_word, content)
    except ValueError:
        return None
    return None


def _timestamp(type_word: str, content: str) -> Typed | None:
    match = _TIMESTAMP.fullmatch(content)
    if match is None:
        return None
    day, time, zone = match.groups()
    time, _, fraction = (time or "00:00:00").partition(".")
    value = datetime.fromisoformat(f"{day}T{time}.{fraction.ljust(6, '0')}")
    if zone is not None:
        if type_word == "TIMESTAMP_NTZ":
            return None
        value = value.replace(tzinfo=_offset(zone))
    return value, "timestamp_ntz" if type_word == "TIMESTAMP_NTZ" else "timestamp"


def _offset(zone: str) -> timezone:
    if zone in ("Z", "UTC"):
        return timezone.utc
    minutes = int(zone[1:3]) * 60 + int(zone[4:6])
    if minutes > 18 * 60 or int(zone[4:6]) > 59:
        raise ValueError(zone)
    return timezone(timedelta(minutes=-minutes if zone[0] == "-" else minutes))


def _integer(digits: str, type_name: str, bits: int) -> Typed | None:
    value = int(digits)
    return (value, type_name) if -(1 << bits) <= value < 1 << bits else None


def _decimal(number: str) -> Typed | None:
    value = Decimal(number)
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return None
    scale = max(-exponent, 0)
    precision = max(len(str(int("".join(map(str, digits))))), scale)
    return (value, f"decimal({precision},{scale})") if precision <= 38 else None


def _unescape(match: re.Match[str]) -> str:
    short, long, octal, other = match.groups()
    if octal:
        return chr(int(octal, 8))
    if short or long:
        code = int(short or long, 16)
        return chr(code) if code < 0x110000 else "?"
    return _ESCAPED.get(other, other)
