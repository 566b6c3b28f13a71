"""One time for a whole statement: replaces current_timestamp() and the like by what they are at its start."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta, timezone

from deltamerge.exceptions import DeltaParseException
from deltamerge.skipping.timestamps import is_fixed, session_zone
from deltamerge.sql.names import quote
from deltamerge.sql.relations import AFTER_FROM
from deltamerge.sql.tokens import Kind, Token, is_keyword_place, tokenize, words

# Literals, by which files are skipped, too.
_TIMESTAMP = "TIMESTAMP_LTZ'{instant}'"
_DATE = "{date}"
_LOCAL = "CAST(TIMESTAMP_LTZ'{instant}' AS TIMESTAMP_NTZ)"
_CALLS = {
    "CURRENT_TIMESTAMP": _TIMESTAMP,
    "NOW": _TIMESTAMP,
    "CURRENT_DATE": _DATE,
    "CURDATE": _DATE,
    "LOCALTIMESTAMP": _LOCAL,
    "UNIX_TIMESTAMP": "CAST({seconds} AS BIGINT)",
}
# These need no parentheses, where no column has their name.
_WORDS = {"CURRENT_TIMESTAMP": _TIMESTAMP, "CURRENT_DATE": _DATE}
# How Spark calls a column that is such a call.
_NAMES = {
    "CURDATE": "current_date()",
    "UNIX_TIMESTAMP": "unix_timestamp(current_timestamp(), yyyy-MM-dd HH:mm:ss)",
}
_BEFORE_ITEM = words("SELECT DISTINCT ALL ,")
_AFTER_ITEMS = AFTER_FROM | words("FROM LATERAL")
_ABOUT = (timedelta(hours=-1), timedelta(0), timedelta(hours=1))
_NAMED = re.compile(rf"\b(?:{'|'.join(_CALLS)})\b", re.IGNORECASE)


def names_time(sql: str) -> bool:
    """Return whether SQL, or a Column as it prints, may hold a function of the current time."""
    return _NAMED.search(sql) is not None


def fix_current_time(
    sql: str, microseconds: int, columns: Collection[str] | None = None, zone: str | None = None
) -> str:
    """Replace the functions of the current time by a timestamp, in microseconds since 1970.

    SQL that cannot be split into tokens stays as it is. A column that a query selects keeps its name where it is such a
    function.

    Args:
        columns: Those that the expression can see, by name; None where they are not known, so that a function without
            parentheses may be one.
    """
    try:
        tokens = tokenize(sql)
    except DeltaParseException:
        return sql
    plain = set() if columns is None else _WORDS.keys() - {name.upper() for name in columns}
    items = _item_places(tokens)
    written = _literals(microseconds, zone)
    pieces: list[str] = []
    done = 0
    for index, token in enumerate(tokens):
        if token.kind is not Kind.WORD or (index and tokens[index - 1].text == "."):
            continue
        after = [t.text for t in tokens[index + 1 : index + 3]]
        if token.upper in _CALLS and after == ["(", ")"]:
            form, last = _CALLS[token.upper], tokens[index + 2]
            if index in items and _ends_item(tokens, index + 3):
                form += f" AS {quote(_NAMES.get(token.upper, f'{token.text.lower()}()'))}"
        elif token.upper in plain and after[:1] not in (["("], ["."], ["->"], ["=>"]):
            form, last = _WORDS[token.upper], token
        else:
            continue
        pieces += [sql[done : token.span.start], form.format(**written)]
        done = last.span.end
    return "".join([*pieces, sql[done:]])


def _item_places(tokens: Sequence[Token]) -> set[int]:
    """Return where the items of SELECT's lists begin."""
    places, selects = set[int](), dict[int, bool]()
    for index, token in enumerate(tokens):
        if selects.get(token.depth) and index and tokens[index - 1].upper in _BEFORE_ITEM:
            places.add(index)
        if token.upper == "SELECT":
            selects[token.depth] = True
        elif token.text == "(":
            selects[token.depth + 1] = False
        elif token.upper in _AFTER_ITEMS and is_keyword_place(tokens, index):
            selects[token.depth] = False
    return places


def _ends_item(tokens: Sequence[Token], index: int) -> bool:
    return index == len(tokens) or tokens[index].text in (",", ")", ";", "|>") or tokens[index].upper in _AFTER_ITEMS


def _literals(microseconds: int, zone: str | None) -> dict[str, str]:
    instant = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=microseconds)
    iso = instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    known = None if zone is None else session_zone(zone)
    # Near midnight it is Spark's to say, which may know newer rules of the time zone, or older ones.
    about = () if known is None else (timedelta(0),) if is_fixed(known) else _ABOUT
    days = {(instant + each).astimezone(known).date() for each in about}
    date = f"DATE'{days.pop()}'" if len(days) == 1 else f"CAST(TIMESTAMP_LTZ'{iso}' AS DATE)"
    return {"instant": iso, "date": date, "seconds": str(microseconds // 1_000_000)}
