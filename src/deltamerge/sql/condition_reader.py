"""Parses a condition into a tree, with Spark's precedence (SqlBaseParser.g4: booleanExpression).

OR binds weakest, then AND, NOT, one predicate (IN, LIKE, IS NULL, …), comparison. Operands are looked into only as
far as they are names, literals or brackets. The same reader takes the printed form of a PySpark Column, in which
operators precede their operands: ``and(=(t.id, s.id), t.x > 1)``.
"""

from __future__ import annotations

import keyword
from contextlib import suppress
from itertools import pairwise

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.caret import Span
from deltamerge.sql.expression import Literal, Name, Node, Opaque, Operation, unreadable
from deltamerge.sql.literals import Typed, number_value, plain_string, typed_value
from deltamerge.sql.operands import NO_COLUMNS, VARIABLE, opaque_of, split_at, starts_subquery
from deltamerge.sql.tokens import Kind, Token, closing, is_keyword_place, name_end, slice_of, tokenize

COMPARISONS = {
    **{op: op for op in ("=", "<=>", "<>", "<", "<=", ">", ">=")},
    "==": "=",
    "!=": "<>",
    "!>": "<=",
    "!<": ">=",
}
_CONSTANTS: dict[str, Typed] = {
    "TRUE": (True, "boolean"),
    "FALSE": (False, "boolean"),
    "NULL": (None, "void"),
}
_PREDICATES = frozenset({"IS", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN"})
# Functions that are operators of the tree, with their number of arguments (None: any from one).
FUNCTIONS: dict[str, tuple[str, int | None]] = {
    **{name: (name, 2) for name in ("startswith", "like", "and", "or", "+", "-", "*", "%")},
    **{name: (name, 1) for name in ("isnull", "isnotnull", "year", "quarter", "month", "day")},
    **{name: (name, None) for name in ("in", "concat", "coalesce")},
    "dayofmonth": ("day", 1),
    "ifnull": ("coalesce", 2),
    "nvl": ("coalesce", 2),
    "if": ("case", 3),
    "when": ("case", None),
    "to_date": ("date", 1),
}
NAMED_OPERATORS = {
    name: op for name, (op, _) in FUNCTIONS.items() if name.isidentifier() and not keyword.iskeyword(name)
}
"""The operators that a function's name is read as: a user may have given the name to another function."""
# The operators between values by how tightly they bind, the loosest first; the tree has no division.
_BETWEEN_VALUES = ({"+": "+", "-": "-", "||": "concat"}, {"*": "*", "%": "%", "/": None, "DIV": None})
# Where one of these is among them, they bind in another way.
_OTHER_OPERATORS = frozenset({"&", "|", "^", "~", "<<", ">>", ">>>", ":", "->", "=>", "[", "!", "?"})

Tokens = tuple[Token, ...]


def operator_of(name: str, arguments: int) -> str | None:
    """Return the operator of the tree that a function or a printed operator with so many arguments is."""
    op, count = FUNCTIONS.get(name, (COMPARISONS.get(name), 2))
    return op if arguments and count in (None, arguments) else None


def read_condition(sql: str, double_quoted_identifiers: bool = False) -> Node:
    """Return the tree of a condition; what cannot be read becomes `Opaque`, never an error.

    Args:
        sql: A condition in Spark's SQL, or a Column's printed form (between ``Column<'`` and ``'>``).
        double_quoted_identifiers: ``spark.sql.ansi.doubleQuotedIdentifiers``: whether ``"a"`` is a name.
    """
    with suppress(DeltaParseException, RecursionError):
        # Recursion: hundreds of nested brackets, as of Columns joined in a loop.
        tokens = tokenize(sql)
        if tokens and VARIABLE not in sql:
            return _Reader(sql, double_quoted_identifiers).boolean(tokens)
    return unreadable(sql, Span(0, len(sql)))


class _Reader:
    """Reads one condition; each method takes a run of tokens, and reads all of it."""

    def __init__(self, sql: str, double_quoted_identifiers: bool) -> None:
        self.sql = sql
        self.double_quoted_identifiers = double_quoted_identifiers

    def boolean(self, tokens: Tokens) -> Node:
        for word in ("OR", "AND"):
            parts = _split(tokens, word)
            if len(parts) > 1:
                if not all(parts):
                    return self.opaque(tokens)
                return self.operation(word.lower(), tuple(self.boolean(part) for part in parts), tokens)
        if len(tokens) > 1 and tokens[0].upper in ("NOT", "!") and tokens[1].text != ".":
            return self.operation("not", (self.boolean(tokens[1:]),), tokens)
        return self.predicated(tokens)

    def predicated(self, tokens: Tokens) -> Node:
        depth = tokens[0].depth
        places = [
            index
            for index, token in enumerate(tokens)
            if token.depth == depth and token.upper in _PREDICATES and _is_predicate(tokens, index)
        ]
        if not places:
            return self.comparison(tokens)
        if len(places) > 1:
            return self.opaque(tokens)
        index = places[0]
        negated = tokens[index - 1].upper == "NOT" and index > 1
        left, right = tokens[: index - 1 if negated else index], tokens[index + 1 :]
        node = self.predicate(tokens[index].upper, left, right, tokens) if left and right else None
        if node is None:
            return self.opaque(tokens)
        return self.operation("not", (node,), tokens) if negated else node

    def predicate(self, word: str, left: Tokens, right: Tokens, whole: Tokens) -> Node | None:
        """Read ``left word right``; return None if it is not one of the tree's operators."""
        operand = self.operand(left)
        if _comparison_places(left):
            return None
        if word == "IN":
            if right[0].text != "(" or closing(right, 0) != len(right) - 1 or starts_subquery(right, 0):
                return None
            items = split_at(right[1:-1], ",")
            if not all(items) or any(_comparison_places(item) for item in items):
                return None
            return self.operation("in", (operand, *(self.operand(item) for item in items)), whole)
        if word == "BETWEEN":
            bounds = _split(right, "AND")
            if len(bounds) != 2 or not all(bounds) or any(_comparison_places(bound) for bound in bounds):
                return None
            return self.operation("between", (operand, *(self.operand(bound) for bound in bounds)), whole)
        if word == "LIKE":
            pattern = self.operand(right)
            return self.operation("like", (operand, pattern), whole) if isinstance(pattern, Literal) else None
        return self.is_predicate(operand, right, whole) if word == "IS" else None

    def is_predicate(self, operand: Node, right: Tokens, whole: Tokens) -> Node | None:
        words = [token.upper for token in right]
        negated = words[0] == "NOT"
        if negated:
            words, right = words[1:], right[1:]
        node: Node | None = None
        if words == ["NULL"]:
            return self.operation("isnotnull" if negated else "isnull", (operand,), whole)
        if words in (["TRUE"], ["FALSE"]):
            value = self.operand(right)
            node = self.operation("<=>", (operand, value), whole)
        elif words[:2] == ["DISTINCT", "FROM"] and len(right) > 2 and not _comparison_places(right[2:]):
            # IS NOT DISTINCT FROM is ``<=>``.
            node = self.operation("<=>", (operand, self.operand(right[2:])), whole)
            negated = not negated
        if node is None or not negated:
            return node
        return self.operation("not", (node,), whole)

    def comparison(self, tokens: Tokens) -> Node:
        places = _comparison_places(tokens)
        if not places:
            return self.operand(tokens)
        index = places[0]
        if len(places) > 1 or index == 0 or index == len(tokens) - 1:
            return self.prefix_call(tokens) or self.opaque(tokens)
        op = COMPARISONS[tokens[index].text]
        return self.operation(op, (self.operand(tokens[:index]), self.operand(tokens[index + 1 :])), tokens)

    def operand(self, tokens: Tokens) -> Node:
        """Read a value: a name, a literal, something in brackets, a call that is an operator, or anything."""
        if tokens[0].text == "(" and closing(tokens, 0) == len(tokens) - 1 and len(tokens) > 2:
            inner = tokens[1:-1]
            if not starts_subquery(tokens, 0) and len(split_at(inner, ",")) == 1:
                return self.boolean(inner)
            return self.opaque(tokens)
        return (
            self.literal(tokens)
            or self.name(tokens)
            or self.prefix_call(tokens)
            or self.case(tokens)
            or self.between_values(tokens)
            or self.opaque(tokens)
        )

    def between_values(self, tokens: Tokens) -> Node | None:
        """Read ``a + b``, ``a * b`` and the like: the last of the loosest operators joins what is on its sides."""
        depth = tokens[0].depth
        places = [index for index, token in enumerate(tokens) if token.depth == depth]
        if any(tokens[index].text in _OTHER_OPERATORS for index in places):
            return None
        for operators in _BETWEEN_VALUES:
            index = next((i for i in reversed(places) if tokens[i].upper in operators and _joins(tokens, i)), None)
            if index is not None:
                op, sides = operators[tokens[index].upper], (tokens[:index], tokens[index + 1 :])
                return None if op is None else self.operation(op, tuple(map(self.operand, sides)), tokens)
        return None

    def case(self, tokens: Tokens) -> Node | None:
        """Read ``CASE WHEN a THEN b … END``; None for one that compares a value with others."""
        if tokens[0].upper != "CASE" or len(tokens) < 3 or closing(tokens, 0) != len(tokens) - 1:
            return None
        inner, depth = tokens[1:-1], tokens[1].depth
        words = [
            index
            for index, token in enumerate(inner)
            if token.depth == depth
            and token.upper in ("WHEN", "THEN", "ELSE")
            and (index == 0 or is_keyword_place(inner, index))
        ]
        if not words or words[0] != 0:
            return None
        parts = [(inner[i].upper, inner[i + 1 : j]) for i, j in pairwise([*words, len(inner)])]
        expected = ["WHEN", "THEN"] * (len(parts) // 2) + ["ELSE"] * (len(parts) % 2)
        if [word for word, _ in parts] != expected or len(parts) < 2 or not all(part for _, part in parts):
            return None
        return self.operation("case", tuple(self.boolean(part) for _, part in parts), tokens)

    def prefix_call(self, tokens: Tokens) -> Node | None:
        """Read ``op(a, b)``: a function that is an operator, or an operator as Columns print it."""
        if len(tokens) < 3 or tokens[1].text != "(" or closing(tokens, 1) != len(tokens) - 1:
            return None
        word = tokens[0].text.lower() if tokens[0].kind is Kind.WORD else tokens[0].text
        inner = tokens[2:-1]
        if word == "cast" and [token.upper for token in inner[-2:]] == ["AS", "DATE"] and len(inner) > 2:
            return self.operation("date", (self.boolean(inner[:-2]),), tokens, prefix=True)
        arguments = split_at(inner, ",") if inner else []
        op = operator_of(word, len(arguments))
        if op is None or not all(arguments):
            return None
        operands = tuple(self.boolean(argument) for argument in arguments)
        return self.operation(op, operands, tokens, prefix=True)

    def literal(self, tokens: Tokens) -> Literal | None:
        negative = tokens[0].text == "-" and len(tokens) == 2
        value: Typed | None = None
        token = tokens[-1]
        if token.kind is Kind.NUMBER and (len(tokens) == 1 or negative):
            value = number_value(token.text, negative)
        elif len(tokens) == 1 and token.kind is Kind.STRING and not self.is_quoted_name(token):
            value = plain_string(token.text)
        elif len(tokens) == 1 and token.upper in _CONSTANTS:
            value = _CONSTANTS[token.upper]
        elif len(tokens) == 2 and tokens[0].kind is Kind.WORD and token.kind is Kind.STRING:
            plain = plain_string(token.text)
            if plain is not None and isinstance(plain[0], str) and not self.is_quoted_name(token):
                value = typed_value(tokens[0].upper, plain[0])
        if value is None:
            return None
        span = slice_of(tokens)
        return Literal(value[0], value[1], span.of(self.sql), span)

    def is_quoted_name(self, token: Token) -> bool:
        return self.double_quoted_identifiers and token.text.startswith('"')

    def name(self, tokens: Tokens) -> Name | None:
        if not tokens[0].is_identifier or name_end(tokens, 0) != len(tokens):
            return None
        if len(tokens) == 1 and tokens[0].upper in NO_COLUMNS:
            # A column's name, or, under spark.sql.ansi.enforceReservedKeywords, the function's.
            return None
        span = slice_of(tokens)
        return Name(tuple(token.name for token in tokens[::2]), span.of(self.sql), span)

    def operation(self, op: str, operands: tuple[Node, ...], tokens: Tokens, prefix: bool = False) -> Operation:
        span = slice_of(tokens)
        return Operation(op, operands, span.of(self.sql), span, prefix)

    def opaque(self, tokens: Tokens) -> Opaque:
        return opaque_of(self.sql, tokens, self.double_quoted_identifiers)


def _is_predicate(tokens: Tokens, index: int) -> bool:
    before = index - 1 if index and tokens[index - 1].upper == "NOT" else index
    return is_keyword_place(tokens, before) and (before == index or tokens[index - 1].text != ".")


def _joins(tokens: Tokens, index: int) -> bool:
    """Return whether an operator stands between two values, and is not the sign of one."""
    before = tokens[index - 1] if index else None
    is_operator = before is None or any(before.upper in operators for operators in _BETWEEN_VALUES)
    return index + 1 < len(tokens) and not is_operator


def _split(tokens: Tokens, word: str) -> list[Tokens]:
    """Split tokens at a word outside brackets; the AND of BETWEEN is none."""
    depth = tokens[0].depth
    parts: list[Tokens] = []
    start = betweens = 0
    for index, token in enumerate(tokens):
        if token.depth != depth or token.kind is not Kind.WORD:
            continue
        if token.upper == "BETWEEN" and _is_predicate(tokens, index):
            betweens += 1
        elif token.upper == "OR" and is_keyword_place(tokens, index):
            betweens = 0
        if token.upper == word and is_keyword_place(tokens, index):
            if word == "AND" and betweens:
                betweens -= 1
                continue
            parts.append(tokens[start:index])
            start = index + 1
    parts.append(tokens[start:])
    return parts


def _comparison_places(tokens: Tokens) -> list[int]:
    depth = tokens[0].depth
    return [
        index
        for index, token in enumerate(tokens)
        if token.depth == depth and token.kind is Kind.SYMBOL and token.text in COMPARISONS
    ]
