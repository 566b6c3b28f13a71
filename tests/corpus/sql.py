"""A case's tables and sources as SQL text. Pure, so that the oracle's own Python can use it too."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_NAME = re.compile(r"\s*(?:`((?:[^`]|``)*)`|(\w+))\s+", re.UNICODE)
_OPTION = re.compile(r"\s(NOT\s+NULL|COMMENT\s|DEFAULT\s|GENERATED\s)", re.IGNORECASE)
_OPENING = {"(": ")", "<": ">", "[": "]", "{": "}"}


@dataclass(frozen=True)
class ColumnDefinition:
    """One column of a CREATE TABLE.

    Args:
        name: Its name, unquoted.
        data_type: Its type as SQL.
        options: What follows the type, such as ``NOT NULL`` or ``DEFAULT 5``.
    """

    name: str
    data_type: str
    options: str

    @property
    def nullable(self) -> bool:
        """Tells whether the column takes NULL."""
        return not re.search(r"\bNOT\s+NULL\b", self.options, re.IGNORECASE)

    @property
    def default(self) -> str | None:
        """Gives the DEFAULT expression as SQL."""
        return self._option(r"\bDEFAULT\s+(.*)", generated=False)

    @property
    def generated(self) -> str | None:
        """Gives the generation expression as SQL; None for identity columns too."""
        return self._option(r"\bGENERATED\s+ALWAYS\s+AS\s+\((.*)\)\s*$", generated=True)

    @property
    def identity(self) -> bool:
        """Tells whether the column is an identity column."""
        return "IDENTITY" in self.options

    @property
    def comment(self) -> str | None:
        """Gives the comment."""
        return self._option(r"\bCOMMENT\s+'(.*)'", generated=False)

    def _option(self, pattern: str, *, generated: bool) -> str | None:
        if not generated and "GENERATED" in self.options:
            return None
        found = re.search(pattern, self.options, re.IGNORECASE | re.DOTALL)
        return found.group(1) if found else None


def quote(name: str) -> str:
    """Quotes an identifier.

    >>> quote("tick`s")
    '`tick``s`'
    """
    return "`" + name.replace("`", "``") + "`"


def string_literal(text: str) -> str:
    """Writes a text as an SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _top_level(text: str) -> Iterator[tuple[int, str]]:
    """Yields the characters (and their places) that stand outside brackets and quotes."""
    closing: list[str] = []
    quote_mark = ""
    for place, character in enumerate(text):
        if quote_mark:
            quote_mark = "" if character == quote_mark else quote_mark
        elif character in "'`\"":
            quote_mark = character
        elif character in _OPENING:
            closing.append(_OPENING[character])
        elif closing and character == closing[-1]:
            closing.pop()
        elif not closing:
            yield place, character


def split_columns(ddl: str) -> list[ColumnDefinition]:
    """Takes the column list of a CREATE TABLE apart.

    >>> [c.name for c in split_columns("id INT NOT NULL, `a.b` STRUCT<x: INT, y: INT> COMMENT 'x, y'")]
    ['id', 'a.b']
    >>> split_columns("c STRING DEFAULT concat('x', 'y')")[0].default
    "concat('x', 'y')"
    """
    commas = [place for place, character in _top_level(ddl) if character == ","]
    edges = [-1, *commas, len(ddl)]
    return [_column(ddl[a + 1 : b]) for a, b in itertools.pairwise(edges)]


def _column(text: str) -> ColumnDefinition:
    found = _NAME.match(text)
    if not found:
        raise ValueError(f"no column definition: {text!r}")
    name = found.group(1).replace("``", "`") if found.group(1) is not None else found.group(2)
    rest = text[found.end() :]
    outside = {place for place, _ in _top_level(rest)}
    option = next((m for m in _OPTION.finditer(rest) if m.start() in outside), None)
    end = option.start() if option else len(rest)
    return ColumnDefinition(name, rest[:end].strip(), rest[end:].strip())


def rows_query(columns: Sequence[ColumnDefinition], rows: Sequence[str]) -> str:
    """Makes a query of row expressions, each value cast to its column's type."""
    names = ", ".join(quote(f"c{i}") for i in range(len(columns)))
    values = ", ".join(f"CAST({quote(f'c{i}')} AS {c.data_type}) AS {quote(c.name)}" for i, c in enumerate(columns))
    if not rows:
        nulls = ", ".join(f"CAST(NULL AS {c.data_type}) AS {quote(c.name)}" for c in columns)
        return f"SELECT {nulls} WHERE false"
    return f"SELECT {values} FROM VALUES {', '.join(rows)} AS v({names})"


def written_columns(target: Mapping[str, Any]) -> list[ColumnDefinition]:
    """Gives the columns that the table's INSERTs name."""
    columns = split_columns(target["ddl"])
    listed = target.get("columns")
    if not listed:
        return columns
    names = [part.strip().strip("`") for part in listed.strip("() ").split(",")]
    return [next(c for c in columns if c.name == name) for name in names]


def source_query(source: Mapping[str, Any]) -> str:
    """Makes the query that the source's columns and rows stand for."""
    return rows_query(split_columns(source["ddl"]), source["rows"])


def fill(statement: str, *, target: str, source: str) -> str:
    """Puts the target and the source in a statement's places."""
    return statement.replace("{source}", source).replace("{target}", target)


def path_relation(path: str, data_format: str = "delta") -> str:
    """Names a folder as a relation.

    >>> path_relation("/tmp/t")
    'delta.`/tmp/t`'
    """
    return f"{data_format}.{quote(path)}"


def canonical_json(columns: str = "*") -> str:
    """Makes the expression that turns a row into its canonical JSON text."""
    options = {
        "ignoreNullFields": "false",
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    }
    entries = ", ".join(f"{string_literal(k)}, {string_literal(v)}" for k, v in options.items())
    return f"to_json(struct({columns}), map({entries})) AS json"
