"""The tokens of Spark SQL, each with its exact place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.caret import Span, point_at
from deltamerge.sql.names import unquote


class Kind(Enum):
    WORD = "word"
    QUOTED = "quoted identifier"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Args:
        depth: How many brackets and CASE…END are open around it; an opening and a closing token have the
            depth outside.
    """

    kind: Kind
    text: str
    span: Span
    depth: int

    @property
    def upper(self) -> str:
        """A word in upper case; any other token verbatim, so that a quoted name is never a keyword."""
        return self.text.upper() if self.kind is Kind.WORD else self.text

    @property
    def name(self) -> str:
        return unquote(self.text)

    @property
    def is_identifier(self) -> bool:
        return self.kind in (Kind.WORD, Kind.QUOTED)


def words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# Words before an operand: what follows is a name and no keyword. The first may begin an expression, the
# second are between operands; where an operand is due, these are names: ``a = when``.
_PREFIXES = words("NOT CASE INTERVAL ANY SOME EXISTS SELECT VALUES DISTINCT WITH")
_INFIXES = words(
    """AND OR IN IS LIKE ILIKE RLIKE REGEXP BETWEEN FROM ESCAPE DIV WHEN THEN ELSE AS ON USING SET COLLATE BY
    WHERE HAVING JOIN UNION EXCEPT INTERSECT INTO"""
)
# What may follow CASE where it is a column's name.
_AFTER_NAMES = words(
    "= == <=> <> != < <= > >= , . ) ] } : :: -> * / % | & ^ || ; ON THEN ELSE END AND OR IS IN AS USING"
)
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_OPENING.values())
_GENERIC_TYPES = frozenset({"ARRAY", "MAP", "STRUCT"})

# As Spark's SqlBaseLexer: a line comment goes on after a backslash at its end, block comments nest (their ends are
# found apart), adjacent strings as in 'it''s' are one, a name may begin with a digit (``1a``), and ``.5`` is a number
# but not in ``t.5``.
_TOKEN = re.compile(
    r"""(?P<BLANK>\s+|--(?:\\\r?\n|[^\r\n])*)
    |(?P<COMMENT>/\*)
    |(?P<STRING>r(?:'[^']*'|"[^"]*")|x?(?:(?:'(?:[^'\\]|\\.)*')+|(?:"(?:[^"\\]|\\.)*")+))
    |(?P<QUOTED>`(?:[^`]|``)*`)
    |(?P<UNCLOSED>['"`])
    |(?P<NUMBER>(?:[0-9]+\.?[0-9]*|(?<![\w`)\]])\.[0-9]+)(?:e[+-]?[0-9]+)?(?:BD|[LSYFD])?(?!\w|[^\x00-\x7f\s]))
    |(?P<WORD>(?:\w|[^\x00-\x7f\s])+)
    |(?P<SYMBOL><=>|[<>!=]=|<>|![<>]|::|->|=>|\|\||.)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")


def tokenize(sql: str) -> tuple[Token, ...]:
    """Split a statement, query or expression into tokens, without comments and hints.

    Raises:
        DeltaParseException: PARSE_SYNTAX_ERROR, a string, quoted name or bracket is not closed;
            UNCLOSED_BRACKETED_COMMENT, a comment is not.
    """
    return tuple(_with_depths(sql, _with_whole_types(sql, list(_lexed(sql)))))


def _lexed(sql: str) -> Iterator[Token]:
    position = 0
    while match := _TOKEN.match(sql, position):
        position = match.end()
        group, span = match.lastgroup, Span(match.start(), match.end())
        assert group is not None
        if group == "COMMENT":
            position = _comment_end(sql, match.start())
        elif group == "UNCLOSED":
            what = "quoted name" if match.group() == "`" else "string"
            raise parse_error(sql, span, f"a {what} that begins here is never closed")
        elif group != "BLANK":
            yield Token(Kind[group], match.group(), span, 0)


def _comment_end(sql: str, start: int) -> int:
    depth = 0
    for match in _BLOCK_EDGE.finditer(sql, start):
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return match.end()
    raise parse_error(
        sql,
        Span(start, start + 2),
        "a comment that begins here is never closed",
        error_class="UNCLOSED_BRACKETED_COMMENT",
    )


def _with_whole_types(sql: str, tokens: list[Token]) -> list[Token]:
    """Join a type with arguments after ``::`` into one token, so that its commas and ``<`` stay within."""
    result: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        index += 1
        if result and result[-1].text == "::" and token.upper in _GENERIC_TYPES:
            depth = 0
            while index < len(tokens) and (depth or tokens[index].text == "<"):
                depth += (tokens[index].text == "<") - (tokens[index].text == ">")
                index += 1
                if depth == 0:
                    break
            span = Span(token.span.start, tokens[index - 1].span.end)
            token = replace(token, text=span.of(sql), span=span)
        result.append(token)
    return result


def slice_of(tokens: Sequence[Token]) -> Span:
    """Return the place of a run of tokens, which must not be empty."""
    return Span(tokens[0].span.start, tokens[-1].span.end)


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the index of the token that closes what the one at `opening` opens (a bracket or CASE)."""
    depth = tokens[opening].depth
    return next(i for i in range(opening + 1, len(tokens)) if tokens[i].depth == depth)


def name_end(tokens: Sequence[Token], start: int) -> int:
    """Return the index after the last part of the name that begins at `start`."""
    end = start + 1
    while (
        end + 1 < len(tokens)
        and tokens[end].text == "."
        and (tokens[end + 1].is_identifier or tokens[end + 1].kind is Kind.NUMBER)
    ):
        end += 2
    return end


def ends_operand(tokens: Sequence[Token], index: int) -> bool:
    """Return whether an operand may end with a token, so that the next one can be a keyword or an operator."""
    names = 0
    while index >= 0 and tokens[index].upper in _INFIXES and (index == 0 or tokens[index - 1].text != "."):
        index -= 1
        names += 1
    return _ends_operand(tokens, index) != (names % 2 == 1)


def _ends_operand(tokens: Sequence[Token], index: int) -> bool:
    if index < 0:
        return False
    token = tokens[index]
    if token.kind is Kind.SYMBOL:
        return token.text in _CLOSING or token.text == "?"
    return token.upper not in _PREFIXES or (index > 0 and tokens[index - 1].text == ".")


def is_keyword_place(tokens: Sequence[Token], index: int, start: int = 0) -> bool:
    """Return whether a keyword may be at `index`: after an operand of the expression from `start`, outside a name."""
    if index + 1 < len(tokens) and tokens[index + 1].text == ".":
        return False
    return index > start and ends_operand(tokens, index - 1)


def may_end_in_alias(sql: str) -> bool:
    """Return whether the last word of an expression may be its alias; only Spark's parser knows."""
    tokens = tokenize(sql)
    last = len(tokens) - 1
    return last > 0 and tokens[last].is_identifier and (tokens[-2].upper == "AS" or is_keyword_place(tokens, last))


def parse_error(
    sql: str,
    span: Span,
    problem: str,
    *,
    error_class: str = "PARSE_SYNTAX_ERROR",
    hint: str = "",
) -> DeltaParseException:
    """Return the error for a place in a statement; `problem` has no full stop, `hint` is a sentence."""
    head = problem[:1].upper() + problem[1:]
    found = span.of(sql) if span.end > span.start else "end of input"
    message = f"{head}.{' ' + hint if hint else ''}\n{point_at(sql, span)}\n"
    return DeltaParseException(error_class, message, parameters={"error": f"'{found}'", "hint": hint})


def _with_depths(sql: str, tokens: list[Token]) -> list[Token]:
    pairs = _pairs(sql, tokens)
    _check_cases(sql, tokens, {opening for opening, _ in pairs})
    change = [0] * (len(tokens) + 1)
    for opening, end in pairs:
        change[opening + 1] += 1
        change[end] -= 1
    depths = zip(tokens, accumulate(change), strict=False)
    return [Token(token.kind, token.text, token.span, depth) for token, depth in depths]


def _pairs(sql: str, tokens: list[Token]) -> list[tuple[int, int]]:
    """Return where brackets open and close, and each CASE with its END; a CASE without END is a name."""
    opened: list[int] = []
    pairs: list[tuple[int, int]] = []
    for index, token in enumerate(tokens):
        if token.text in _OPENING or _is_case(tokens, index):
            opened.append(index)
        elif token.text in _CLOSING:
            while opened and tokens[opened[-1]].kind is Kind.WORD:
                opened.pop()
            if not opened or _OPENING[tokens[opened[-1]].text] != token.text:
                raise parse_error(sql, token.span, f"nothing is open that this '{token.text}' could close")
            pairs.append((opened.pop(), index))
        elif (
            token.upper == "END" and opened and tokens[opened[-1]].kind is Kind.WORD and ends_operand(tokens, index - 1)
        ):
            pairs.append((opened.pop(), index))
    for index in opened:
        if tokens[index].kind is Kind.SYMBOL:
            raise parse_error(sql, tokens[index].span, f"this '{tokens[index].text}' is never closed")
    return pairs


def _check_cases(sql: str, tokens: list[Token], closed: set[int]) -> None:
    for index in range(len(tokens) - 2):
        if index in closed or not _is_case(tokens, index) or tokens[index + 1].upper != "WHEN":
            continue
        after = [token.upper for token in tokens[index + 2 : index + 4]]
        if after[0] != "MATCHED" and after != ["NOT", "MATCHED"]:
            raise parse_error(sql, tokens[index].span, "this CASE has no END")


def _is_case(tokens: list[Token], index: int) -> bool:
    if tokens[index].upper != "CASE" or (index and tokens[index - 1].text == "."):
        return False
    following = tokens[index + 1].upper if index + 1 < len(tokens) else ";"
    return following == "WHEN" or (following not in _AFTER_NAMES and not ends_operand(tokens, index - 1))
