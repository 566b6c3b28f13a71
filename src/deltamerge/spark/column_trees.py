"""Reads a Column as the tree of a condition: a classic one from its printed form, one of Connect from its message.

Connect's ``Expression`` messages, from ``column.to_plan(None)``, distinguish names from literals and have the literals'
types. They are only read by their fields' names, so that this module needs no Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from typing import Any

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.condition_reader import operator_of, read_condition
from deltamerge.sql.conditions import contains_star
from deltamerge.sql.expression import Literal, Name, Node, Opaque, Operation, leaves, unreadable
from deltamerge.sql.literals import Typed, number_value, typed_value
from deltamerge.sql.names import parse_name, quote_name, shown_name

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Expressions that are not looked into, by what is in them.
_PARTS = {
    "cast": ("expr",),
    "unresolved_extract_value": ("child", "extraction"),
    "lambda_function": ("function",),
    "unresolved_named_lambda_variable": (),
}


_PRINTED = re.compile(r"Column<'(.*)'>", re.DOTALL)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_WHOLE_NUMBER = re.compile(r"-?\d+L?", re.ASCII)
_TRUTH = ("and", "or", "not")


def read_proto(expression: Any, double_quoted_identifiers: bool = False) -> Node:  # noqa: ANN401
    """Read a ``spark.connect.Expression`` message; the tree's nodes have no positions."""
    try:
        return _Reader(double_quoted_identifiers).node(expression)
    except RecursionError:
        return unreadable("")


def proto_contains_star(message: Any) -> bool:  # noqa: ANN401
    """Return whether a message of Connect has a star that means columns; a string ``*`` prints alike."""
    for field, value in message.ListFields():
        if field.name == "unresolved_star":
            return True
        if field.name == "expression_string":
            found = contains_star(value.expression)
        else:
            parts = value if hasattr(value, "__len__") and not isinstance(value, (str, bytes)) else (value,)
            found = any(hasattr(part, "ListFields") and proto_contains_star(part) for part in parts)
        if found:
            return True
    return False


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
        is_not = name in ("not", "!") and len(arguments) == 1
        op = "not" if is_not else operator_of(name, len(arguments))
        if op is None or message.is_user_defined_function:
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


def printed_sql(column: str) -> str:
    """Return what is between ``Column<'`` and ``'>`` in a printed Column; other strings unchanged."""
    match = _PRINTED.fullmatch(column)
    return match[1] if match else column


def read_classic_column(column: str, double_quoted_identifiers: bool = False) -> Node:
    """Read a printed Column of classic PySpark.

    Fractional numbers, timestamps and whatever else prints alike for different Columns become `Opaque`.
    """
    tree = _settle(read_condition(printed_sql(column), double_quoted_identifiers))
    return _operand(tree) if isinstance(tree, Name) else tree


def _settle(node: Node) -> Node:
    """Replace the operands of printed operators by what is certain of them."""
    if _DATE.fullmatch(node.text):
        # It prints as a difference of numbers.
        typed = typed_value("DATE", node.text)
        if typed is None:
            return Opaque((), (), complete=True, subquery=False, text=node.text, span=node.span)
        return Literal(typed[0], typed[1], node.text, node.span)
    if isinstance(node, Name):
        # It prints without the backticks that SQL may need.
        return replace(node, text=shown_name(node.parts))
    if not isinstance(node, Operation):
        return node
    operands = tuple(map(_settle, node.operands))
    if (node.prefix or node.op == "case") and node.op not in _TRUTH:
        operands = tuple(map(_operand, operands))
    return replace(node, operands=operands)


def _operand(node: Node) -> Node:
    if isinstance(node, Name) and node.text.lower() in ("nan", "infinity"):
        # A number prints like a name.
        return unreadable(node.text, node.span)
    if isinstance(node, Literal) and isinstance(node.value, (str, bytes, bool, type(None))):
        return node
    if isinstance(node, Literal):
        # 1.5 may be a double or a decimal; whole numbers compare alike whatever their type is.
        if _WHOLE_NUMBER.fullmatch(node.text) or _DATE.fullmatch(node.text):
            return node
        return Opaque((), (), complete=True, subquery=False, text=node.text, span=node.span)
    return node
