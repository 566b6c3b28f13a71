"""Places in a string, and how a message points at them."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

MAX_WIDTH = 110
"""The longest piece of a line that is shown, in characters; longer lines are cut around the place."""

_LINE_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters."""

    start: int
    end: int

    def of(self, string: str) -> str:
        return string[self.start : self.end]


def line_and_column(string: str, offset: int) -> tuple[int, int]:
    """Return line and column of an offset, from 1, as editors count them."""
    line, start = 1, 0
    for match in _LINE_BREAK.finditer(string, 0, offset):
        # A carriage return just before the offset may be half of a pair.
        if match.end() <= offset:
            line, start = line + 1, match.end()
    return line, offset - start + 1


def point_at(string: str, span: Span) -> str:
    r"""Return a place, and the line on which it begins with carets below: one if the range is empty.

    >>> print(point_at("MERGE INTO t\nUSNG s", Span(13, 17)))
    line 2, column 1:
      USNG s
      ^^^^
    """
    number, column = line_and_column(string, span.start)
    start = span.start - column + 1
    break_after = _LINE_BREAK.search(string, span.start)
    end = break_after.start() if break_after else len(string)
    first, last = span.start - start, max(min(span.end, end), span.start) - start
    line = string[start:end]
    line, first, last = _cut(line, first, last)
    padding = "".join("\t" if char == "\t" else " " * _cells(char) for char in line[:first])
    carets = "^" * max(1, sum(_cells(char) for char in line[first:last]))
    return f"line {number}, column {column}:\n  {line}\n  {padding}{carets}"


def _cut(line: str, first: int, last: int) -> tuple[str, int, int]:
    if len(line) <= MAX_WIDTH:
        return line, first, last
    low = max(0, min(first - MAX_WIDTH // 2, len(line) - MAX_WIDTH))
    high = min(len(line), low + MAX_WIDTH)
    prefix = "…" if low else ""
    suffix = "…" if high < len(line) else ""
    shift = len(prefix) - low
    return prefix + line[low:high] + suffix, first + shift, min(last, high) + shift


def _cells(char: str) -> int:
    """Return the number of terminal cells that a character takes."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
