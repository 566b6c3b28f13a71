"""One time for a whole statement: replaces current_timestamp() and the like by what they are at its start."""

from __future__ import annotations

import re
from collections.abc import Collection

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.tokens import Kind, tokenize

_TIMESTAMP = "timestamp_micros({0})"
_DATE = "CAST(timestamp_micros({0}) AS DATE)"
_LOCAL = "CAST(timestamp_micros({0}) AS TIMESTAMP_NTZ)"
_CALLS = {
    "CURRENT_TIMESTAMP": _TIMESTAMP,
    "NOW": _TIMESTAMP,
    "CURRENT_DATE": _DATE,
    "CURDATE": _DATE,
    "LOCALTIMESTAMP": _LOCAL,
    "UNIX_TIMESTAMP": "CAST({1} AS BIGINT)",
}
# These need no parentheses, where no column has their name.
_WORDS = {"CURRENT_TIMESTAMP": _TIMESTAMP, "CURRENT_DATE": _DATE}
_NAMED = re.compile(rf"\b(?:{'|'.join(_CALLS)})\b", re.IGNORECASE)


def names_time(sql: str) -> bool:
    """Return whether SQL, or a Column as it prints, may hold a function of the current time."""
    return _NAMED.search(sql) is not None


def fix_current_time(sql: str, microseconds: int, columns: Collection[str] | None = None) -> str:
    """Replace the functions of the current time by a timestamp, in microseconds since 1970.

    `columns` are those that the expression can see, by name; None where they are not known, so that a function without
    parentheses may be one. SQL that cannot be split into tokens stays as it is.
    """
    try:
        tokens = tokenize(sql)
    except DeltaParseException:
        return sql
    words = set() if columns is None else _WORDS.keys() - {name.upper() for name in columns}
    pieces: list[str] = []
    done = 0
    for index, token in enumerate(tokens):
        if token.kind is not Kind.WORD or (index and tokens[index - 1].text == "."):
            continue
        after = [t.text for t in tokens[index + 1 : index + 3]]
        if token.upper in _CALLS and after == ["(", ")"]:
            form, last = _CALLS[token.upper], tokens[index + 2]
        elif token.upper in words and after[:1] not in (["("], ["."], ["->"], ["=>"]):
            form, last = _WORDS[token.upper], token
        else:
            continue
        pieces += [sql[done : token.span.start], form.format(microseconds, microseconds // 1_000_000)]
        done = last.span.end
    return "".join([*pieces, sql[done:]])
