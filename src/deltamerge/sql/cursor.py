"""A place among a statement's tokens that moves on as the statement is parsed, and the errors at it."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import NoReturn, TypeVar

from deltamerge.sql.caret import Span
from deltamerge.sql.merge_ast import Expression, NameParts
from deltamerge.sql.tokens import (
    Kind,
    Token,
    closing,
    is_keyword_place,
    parse_error,
    slice_of,
    tokenize,
    words,
)

_KEYWORDS = words(
    "MERGE WITH SCHEMA EVOLUTION INTO USING ON WHEN NOT MATCHED BY SOURCE TARGET AND THEN UPDATE SET INSERT "
    "VALUES DELETE DO NOTHING EXCEPT AS EXPLAIN ANALYZE"
)
_AFTER_COLUMN = words(". = == < > <=> IS IN")
T = TypeVar("T")


class Cursor:
    """Reads a statement's tokens from left to right."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.tokens = tokenize(sql)
        self.index = 0

    def peek(self, ahead: int = 0) -> str:
        """Return a coming token, a word in upper case; the empty string after the last."""
        index = self.index + ahead
        return self.tokens[index].upper if index < len(self.tokens) else ""

    @property
    def token(self) -> Token | None:
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    def span(self, index: int | None = None) -> Span:
        """Return the place of a token, by default the next; after the last an empty place."""
        index = self.index if index is None else index
        if index < len(self.tokens):
            return self.tokens[index].span
        end = self.tokens[-1].span.end if self.tokens else 0
        return Span(end, end)

    def since(self, start: int) -> Span:
        return slice_of(self.tokens[start : self.index])

    def sql_since(self, start: int) -> str:
        return self.since(start).of(self.sql)

    def accept(self, *words: str) -> bool:
        """Step over some words if exactly they come next."""
        if all(self.peek(ahead) == word for ahead, word in enumerate(words)):
            self.index += len(words)
            return True
        return False

    def expect(self, where: str, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                self.fail(where, [word])

    def expect_one(self, where: str, *words: str) -> str:
        """Step over whichever of some words comes next, and return it."""
        for word in words:
            if self.accept(word):
                return word
        return self.fail(where, words)

    def fail(
        self, where: str, expected: list[str] | tuple[str, ...], hint: str = "", at: int | None = None
    ) -> NoReturn:
        """Raise the error that something else was expected in a clause.

        `expected` holds keywords in upper case and descriptions; `at` is the token at fault, by default the next.
        """
        index = self.index if at is None else at
        found = f"'{self.tokens[index].text}'" if index < len(self.tokens) else "the end of the statement"
        if not hint and index < len(self.tokens) and self.tokens[index].kind is Kind.WORD:
            meant = like(self.tokens[index].upper, expected)
            hint = f"Did you mean {meant}?" if meant else ""
        elif not hint and found == "'-'":
            hint = "A name that holds a dash goes between backticks."
        choice = ", ".join(expected[:-1]) + " or " + expected[-1] if len(expected) > 1 else expected[0]
        raise parse_error(self.sql, self.span(index), f"{where}: expected {choice}, found {found}", hint=hint)

    def name(self, where: str, what: str) -> NameParts:
        """Read a name of one or more parts for `what`, such as ``a column``."""
        parts: list[str] = []
        while True:
            token = self.token
            # Spark's lexer takes ``1a`` for a name; after a dot a number is one too.
            if token is None or not (token.is_identifier or (parts and token.kind is Kind.NUMBER)):
                self.fail(where, [what])
            parts.append(token.name)
            self.index += 1
            if not self.accept("."):
                return tuple(parts)

    def identifier(self, where: str, what: str) -> str:
        """Read a name of one part."""
        start = self.index
        (first, *rest) = self.name(where, what)
        if rest:
            self.fail(where, [f"{what} of one part"], "A name that holds a dot goes between backticks.", at=start + 1)
        return first

    def listed(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Read what `item` reads, once and again after each comma."""
        found = [item()]
        while self.accept(","):
            found.append(item())
        return tuple(found)

    def in_brackets(self, where: str, item: Callable[[], T]) -> tuple[T, ...]:
        """Read a list between brackets: ``(a, b, …)``."""
        self.expect(where, "(")
        found = self.listed(item)
        if self.peek() != ")":
            self.fail(where, [",", ")"])
        self.index += 1
        return found

    def names_in_brackets(self, where: str) -> tuple[NameParts, ...]:
        return self.in_brackets(where, lambda: self.name(where, "a column"))

    def skip_brackets(self) -> None:
        self.index = closing(self.tokens, self.index) + 1

    def behind_brackets(self) -> str:
        """Return the token after the bracket that comes next, as `peek` does."""
        return self.peek(closing(self.tokens, self.index) + 1 - self.index)

    def expression(self, where: str, what: str, *stops: str) -> Expression:
        """Read an expression up to a stop outside brackets and CASE, a WHEN clause or the end; the stop is left."""
        start = self.index
        base = self.tokens[start].depth if start < len(self.tokens) else 0
        while (token := self.token) is not None and token.depth >= base:
            if token.depth == base and self._ends_expression(start, stops):
                break
            if token.text in ("(", "[", "{"):
                self.skip_brackets()
            else:
                self.index += 1
        if self.index == start:
            self.fail(where, [what])
        span = self.since(start)
        return Expression(span.of(self.sql), span=span)

    def _ends_expression(self, start: int, stops: tuple[str, ...]) -> bool:
        token = self.tokens[self.index]
        if token.kind is Kind.SYMBOL:
            return token.text in stops or token.text in (";", ")", "]", "}")
        if token.kind is not Kind.WORD:
            return False
        if self.index == start:
            # At its beginning only what cannot be a name ends it: ``AND THEN``, ``ON WHEN MATCHED``.
            return token.upper in (*stops, "WHEN") and self.peek(1) not in _AFTER_COLUMN
        if not is_keyword_place(self.tokens, self.index, start):
            return False
        if token.upper in stops or token.upper == "WHEN":
            return True
        follows = self.peek(1)
        if (follows == "MATCHED" or (follows == "NOT" and self.peek(2) == "MATCHED")) and like(token.upper, ["WHEN"]):
            self.fail("WHEN clause", ["WHEN"])
        return False


def like(word: str, keywords: list[str] | tuple[str, ...]) -> str | None:
    """Return the keyword that a misspelled word may have meant."""
    if not word or word in _KEYWORDS:
        return None
    likely = [keyword for keyword in keywords if keyword.isupper() and (len(keyword) > 2 or len(word) <= 3)]
    found = difflib.get_close_matches(word, likely, n=1, cutoff=0.6)
    if not found and len(word) == 2:
        found = [keyword for keyword in likely if len(keyword) == 2 and {*word} & {*keyword}]
    return found[0] if found else None
