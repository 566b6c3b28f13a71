"""The tokens of a Spark SQL text, each with its exact place.

sqlglot's Spark tokenizer finds where a token begins and ends; what a token is, is read from the user's text,
because the tokenizer rewrites some (``1L`` becomes three tokens, ``ORDER BY`` one, strings lose escapes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.caret import Span, point_at
from deltamerge.sql.names import unquote


class Kind(Enum):
    """What a token is."""

    WORD = "word"
    QUOTED = "quoted identifier"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Args:
        kind: What it is.
        text: It, verbatim.
        span: Its place in the user's text.
        depth: How many brackets and CASE…END are open around it; an opening and a closing token have the
            depth outside.
    """

    kind: Kind
    text: str
    span: Span
    depth: int

    @property
    def upper(self) -> str:
        """A word in upper case; of every other token its text, so that a quoted name is never a keyword."""
        return self.text.upper() if self.kind is Kind.WORD else self.text

    @property
    def name(self) -> str:
        """The identifier, without backticks."""
        return unquote(self.text)

    @property
    def is_identifier(self) -> bool:
        """Whether it may be a part of a name."""
        return self.kind in (Kind.WORD, Kind.QUOTED)


def words(text: str) -> frozenset[str]:
    """Makes a set of the words in a text."""
    return frozenset(text.split())


# Words before an operand: what follows is a name and no keyword. The first may begin an expression, the
# second stand between operands; where an operand has to stand, these are names: ``a = when``.
_PREFIXES = words("NOT CASE INTERVAL ANY SOME EXISTS SELECT VALUES DISTINCT WITH")
_INFIXES = words(
    """AND OR IN IS LIKE ILIKE RLIKE REGEXP BETWEEN FROM ESCAPE DIV WHEN THEN ELSE AS ON USING SET COLLATE BY
    WHERE HAVING JOIN UNION EXCEPT INTERSECT INTO"""
)
# Words and symbols after CASE that say it is a column's name.
_AFTER_NAMES = words(
    "= == <=> <> != < <= > >= , . ) ] } : :: -> * / % | & ^ || ; ON THEN ELSE END AND OR IS IN AS USING"
)
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_OPENING.values())

# Strings, quoted identifiers and comments, as Spark's lexer (SqlBaseLexer) has them. A line comment goes on
# after a backslash at its end; block comments nest and are followed by hand.
_OPAQUE = re.compile(
    r"""(?P<string>(?<!\w)[rR](?:'[^']*'|"[^"]*")|(?:(?<!\w)[xX])?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<line>--(?:\\\r?\n|[^\r\n])*)
    |(?P<block>/\*)
    |(?P<open>['"`])""",
    re.VERBOSE | re.DOTALL,
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_NOT_BREAK = re.compile(r"[^\r\n]")
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[LSYFD])?", re.IGNORECASE)


class _Tokens(Spark):  # type: ignore[misc]
    """Spark's dialect without statements of which sqlglot reads the rest as one string (SHOW, CALL, …)."""

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        COMMANDS: frozenset[object] = frozenset()


_DIALECT = Dialect.get_or_raise(_Tokens)


def tokenize(text: str) -> tuple[Token, ...]:
    """Splits a text into tokens, without comments and hints.

    Args:
        text: A statement, a query or an expression in Spark's SQL.

    Returns:
        The tokens in order; their spans do not overlap, and between them are only blanks and comments.

    Raises:
        DeltaParseException: PARSE_SYNTAX_ERROR, a string, quoted name or bracket is not closed;
            UNCLOSED_BRACKETED_COMMENT, a comment is not.
    """
    blank = _without_comments(text)
    try:
        raw = _DIALECT.tokenize(blank)
    except SqlglotError as error:
        raise parse_error(
            text, Span(0, len(text)), f"the text cannot be split into tokens: {error}"
        ) from None
    spans = _spans(blank, [Span(token.start, token.end + 1) for token in raw])
    flat = [Token(_kind(span.of(text)), span.of(text), span, 0) for span in spans]
    return tuple(_with_depths(text, flat))


def slice_of(tokens: tuple[Token, ...]) -> Span:
    """Gives the place of a run of tokens, which must not be empty."""
    return Span(tokens[0].span.start, tokens[-1].span.end)


def closing(tokens: tuple[Token, ...], opening: int) -> int:
    """Finds the token that closes what the one at `opening` opens (a bracket or CASE).

    Args:
        tokens: The tokens.
        opening: The index of the opening token.

    Returns:
        The index of the closing token.
    """
    depth = tokens[opening].depth
    return next(i for i in range(opening + 1, len(tokens)) if tokens[i].depth == depth)


def ends_operand(tokens: tuple[Token, ...] | list[Token], index: int) -> bool:
    """Says whether an operand may end with a token, so that the next one can be a keyword or an operator.

    Args:
        tokens: The tokens.
        index: The index of one; with a negative index the answer is no.
    """
    names = 0
    while index >= 0 and tokens[index].upper in _INFIXES and (index == 0 or tokens[index - 1].text != "."):
        index -= 1
        names += 1
    return _ends_operand(tokens, index) != (names % 2 == 1)


def _ends_operand(tokens: tuple[Token, ...] | list[Token], index: int) -> bool:
    if index < 0:
        return False
    token = tokens[index]
    if token.kind is Kind.SYMBOL:
        return token.text in _CLOSING or token.text == "?"
    return token.upper not in _PREFIXES or (index > 0 and tokens[index - 1].text == ".")


def is_keyword_place(tokens: tuple[Token, ...] | list[Token], index: int, start: int = 0) -> bool:
    """Says whether a word stands where a keyword may stand: after an operand, and not within a name.

    Args:
        tokens: The tokens.
        index: The index of the word.
        start: The index at which the expression begins.
    """
    if index + 1 < len(tokens) and tokens[index + 1].text == ".":
        return False
    return index > start and ends_operand(tokens, index - 1)


def parse_error(
    text: str,
    span: Span,
    problem: str,
    *,
    error_class: str = "PARSE_SYNTAX_ERROR",
    sqlstate: str = "42601",
    hint: str = "",
) -> DeltaParseException:
    """Makes the error for a place in a text.

    Args:
        text: The whole text.
        span: What is at fault.
        problem: What is wrong, without a full stop.
        error_class: Spark's error class.
        sqlstate: Its SQLSTATE.
        hint: What to do, as a sentence.
    """
    head = problem[:1].upper() + problem[1:]
    found = span.of(text) if span.end > span.start else "end of input"
    message = f"{head}.{' ' + hint if hint else ''}\n{point_at(text, span)}\n"
    return DeltaParseException(
        error_class, message, sqlstate=sqlstate, parameters={"error": f"'{found}'", "hint": hint}
    )


def _without_comments(text: str) -> str:
    """Puts blanks in the place of comments, so that every offset stays."""
    pieces: list[str] = []
    position = 0
    while match := _OPAQUE.search(text, position):
        end = match.end()
        pieces.append(text[position : match.start()])
        if match["open"]:
            what = "quoted name" if match["open"] == "`" else "string"
            raise parse_error(text, Span(match.start(), end), f"a {what} that begins here is never closed")
        if match["block"]:
            end = _block_end(text, match.start())
        piece = text[match.start() : end]
        pieces.append(_NOT_BREAK.sub(" ", piece) if match["block"] or match["line"] else _opaque(piece))
        position = end
    return "".join(pieces) + text[position:]


def _opaque(piece: str) -> str:
    """Hides what is between quotes, and a prefix, so that escapes mean nothing to the tokenizer."""
    return piece[-1] + "0" * (len(piece) - 2) + piece[-1]


def _block_end(text: str, start: int) -> int:
    depth = 0
    for match in _BLOCK_EDGE.finditer(text, start):
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return match.end()
    raise parse_error(
        text,
        Span(start, start + 2),
        "a comment that begins here is never closed",
        error_class="UNCLOSED_BRACKETED_COMMENT",
    )


def _spans(blank: str, raw: list[Span]) -> list[Span]:
    """Merges what the tokenizer took apart, and takes apart what it merged."""
    spans: list[Span] = []
    for span in raw:
        last = spans[-1] if spans else Span(0, 0)
        if span.start < last.end:
            # A number's suffix comes as tokens of its own, at the number's place.
            continue
        piece = span.of(blank)
        if spans and last.end == span.start and _belong_together(blank, last, piece):
            spans[-1] = Span(last.start, span.end)
        elif piece == "?::":
            # Not every version of the tokenizer knows this operator.
            spans.extend((Span(span.start, span.start + 1), Span(span.start + 1, span.end)))
        elif piece[0] not in "'\"`" and len(piece.split()) > 1:
            spans.extend(
                Span(span.start + m.start(), span.start + m.end()) for m in re.finditer(r"\S+", piece)
            )
        elif piece[0].isdigit() and "." in piece and not _NUMBER.fullmatch(piece):
            # ``t.1.b`` names a column ``1``.
            spans.extend(
                Span(span.start + m.start(), span.start + m.end()) for m in re.finditer(r"\.|[^.]+", piece)
            )
        else:
            spans.append(span)
    return _with_types_whole(blank, spans)


def _belong_together(blank: str, last: Span, piece: str) -> bool:
    before = last.of(blank)
    if before == "!":
        return piece in ("<", ">")
    if before == "." and piece[0].isdigit():
        # ``.5`` is a number, ``t.5`` a name.
        char = blank[last.start - 1 : last.start]
        return not (char.isalnum() or (char != "" and char in "_`)]"))
    # ``'it''s'`` is one string.
    return piece[0] in "'\"" and before[-1] == piece[0]


def _with_types_whole(blank: str, spans: list[Span]) -> list[Span]:
    """Makes one token of a type with arguments after ``::``, so that its commas and ``<`` stay within."""
    result: list[Span] = []
    index = 0
    while index < len(spans):
        end = index + 1
        if (
            result
            and result[-1].of(blank) == "::"
            and spans[index].of(blank).upper() in ("ARRAY", "MAP", "STRUCT")
            and end < len(spans)
            and spans[end].of(blank) == "<"
        ):
            depth = 0
            while end < len(spans):
                piece = spans[end].of(blank)
                depth += (piece == "<") - (piece == ">")
                end += 1
                if depth == 0:
                    break
        result.append(Span(spans[index].start, spans[end - 1].end))
        index = end
    return result


def _kind(piece: str) -> Kind:
    if piece[0] == "`":
        return Kind.QUOTED
    if piece[-1] in "'\"":
        return Kind.STRING
    if piece[0].isdigit() or (piece[0] == "." and len(piece) > 1):
        return Kind.NUMBER if _NUMBER.fullmatch(piece) else Kind.WORD
    if piece[0].isalnum() or piece[0] == "_" or ord(piece[0]) > 127:
        return Kind.WORD
    return Kind.SYMBOL


def _with_depths(text: str, tokens: list[Token]) -> list[Token]:
    """Finds what belongs together: brackets, and each CASE with its END; a CASE without END is a name."""
    opened: list[int] = []
    pairs: list[tuple[int, int]] = []
    for index, token in enumerate(tokens):
        if (token.kind is Kind.SYMBOL and token.text in _OPENING) or _is_case(tokens, index):
            opened.append(index)
        elif token.kind is Kind.SYMBOL and token.text in _CLOSING:
            while opened and tokens[opened[-1]].kind is Kind.WORD:
                opened.pop()
            if not opened or _OPENING[tokens[opened[-1]].text] != token.text:
                raise parse_error(text, token.span, f"nothing is open that this '{token.text}' could close")
            pairs.append((opened.pop(), index))
        elif (
            token.upper == "END"
            and opened
            and tokens[opened[-1]].kind is Kind.WORD
            and ends_operand(tokens, index - 1)
        ):
            pairs.append((opened.pop(), index))
    for index in opened:
        if tokens[index].kind is Kind.SYMBOL:
            raise parse_error(text, tokens[index].span, f"this '{tokens[index].text}' is never closed")
    _check_cases(text, tokens, pairs)
    change = [0] * (len(tokens) + 1)
    for opening, end in pairs:
        change[opening + 1] += 1
        change[end] -= 1
    depth = 0
    result: list[Token] = []
    for token, delta in zip(tokens, change, strict=False):
        depth += delta
        result.append(Token(token.kind, token.text, token.span, depth))
    return result


def _check_cases(text: str, tokens: list[Token], pairs: list[tuple[int, int]]) -> None:
    closed = {opening for opening, _ in pairs}
    for index in range(len(tokens) - 2):
        if index in closed or not _is_case(tokens, index) or tokens[index + 1].upper != "WHEN":
            continue
        after = [token.upper for token in tokens[index + 2 : index + 4]]
        if after[0] != "MATCHED" and after != ["NOT", "MATCHED"]:
            raise parse_error(text, tokens[index].span, "this CASE has no END")


def _is_case(tokens: list[Token], index: int) -> bool:
    if tokens[index].upper != "CASE" or (index and tokens[index - 1].text == "."):
        return False
    following = tokens[index + 1].upper if index + 1 < len(tokens) else ";"
    return following == "WHEN" or (following not in _AFTER_NAMES and not ends_operand(tokens, index - 1))
