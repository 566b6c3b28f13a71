"""Reads a Column as Spark Connect sends it: the ``Expression`` message, from ``column.to_plan(None)``.

Messages distinguish names from literals and have the literals' types. They are only read by their fields' names, so
that this module needs no Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from typing import Any

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.condition_reader import COMPARISONS, FUNCTIONS, read_condition
from deltamerge.sql.expression import Literal, Name, Node, Opaque, Operation, leaves, unreadable
from deltamerge.sql.literals import Typed, number_value
from deltamerge.sql.names import parse_name, quote_name

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Expressions that are not looked into, by what is in them.
_PARTS = {
    "cast": ("expr",),
    "unresolved_extract_value": ("child", "extraction"),
    "lambda_function": ("function",),
    "unresolved_named_lambda_variable": (),
}


def read_proto(expression: Any, double_quoted_identifiers: bool = False) -> Node:  # noqa: ANN401
    """Read a ``spark.connect.Expression`` message; the tree's nodes have no positions."""
    try:
        return _Reader(double_quoted_identifiers).node(expression)
    except RecursionError:
        return unreadable("")


class _Reader:
    def __init__(self, double_quoted_identifiers: bool) -> None:
        self.double_quoted_identifiers = double_quoted_identifiers

    def node(self, expression: Any) -> Node:  # noqa: ANN401
        kind: str = expression.WhichOneof("expr_type") or ""
        message: Any = getattr(expression, kind, None)
        if kind == "literal":
            value = _literal(message)
            return Literal(value[0], value[1], "", None) if value else _opaque(())
        if kind == "unresolved_attribute":
            return _name(message.unparsed_identifier)
        if kind == "expression_string":
            return read_condition(message.expression, self.double_quoted_identifiers)
        if kind == "unresolved_function":
            return self.function(message)
        if kind == "alias":
            return self.node(message.expr)
        if kind == "common_inline_user_defined_function":
            return _opaque(tuple(self.node(argument) for argument in message.arguments))
        if kind in _PARTS:
            return _opaque(tuple(self.node(getattr(message, part)) for part in _PARTS[kind]))
        return Opaque((), (), complete=False, subquery=kind == "subquery_expression", text="", span=None)

    def function(self, message: Any) -> Node:  # noqa: ANN401
        arguments = tuple(self.node(argument) for argument in message.arguments)
        name = message.function_name.lower()
        op, count = FUNCTIONS.get(name, (COMPARISONS.get(name, ""), 2))
        if name in ("not", "!"):
            op, count = "not", 1
        if (
            not op
            or message.is_user_defined_function
            or not arguments
            or (count is not None and len(arguments) != count)
        ):
            return _opaque(arguments)
        return Operation(op, arguments, "", None, prefix=True)


def _name(written: str) -> Node:
    try:
        parts = parse_name(written)
    except DeltaParseException:
        return unreadable(written)
    return Name(parts, quote_name(parts), None)


def _opaque(parts: tuple[Node, ...]) -> Opaque:
    """Make one node of parts that are not looked into."""
    names: list[Name] = []
    words: list[Name] = []
    complete, subquery = True, False
    for part in parts:
        for leaf in leaves(part):
            if isinstance(leaf, Name):
                names.append(leaf)
            elif isinstance(leaf, Opaque):
                names.extend(leaf.names)
                words.extend(leaf.words)
                complete &= leaf.complete
                subquery |= leaf.subquery
    return Opaque(tuple(names), tuple(words), complete, subquery, "", None)


def _literal(message: Any) -> Typed | None:  # noqa: ANN401
    kind = message.WhichOneof("literal_type")
    if kind == "null":
        return None, "void"
    if kind == "decimal":
        digits: str = message.decimal.value
        return number_value(digits.lstrip("-") + "BD", digits.startswith("-"))
    convert = _CONVERSIONS.get(kind)
    if convert is None:
        return None
    type_name, function = convert
    try:
        return function(getattr(message, kind)), type_name
    except OverflowError:
        return None


def _utc(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


_CONVERSIONS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "boolean": ("boolean", bool),
    "byte": ("tinyint", int),
    "short": ("smallint", int),
    "integer": ("int", int),
    "long": ("bigint", int),
    "float": ("float", float),
    "double": ("double", float),
    "string": ("string", str),
    "binary": ("binary", bytes),
    "date": ("date", lambda days: date(1970, 1, 1) + timedelta(days=days)),
    "timestamp": ("timestamp", _utc),
    "timestamp_ntz": ("timestamp_ntz", lambda micros: _utc(micros).replace(tzinfo=None)),
}
