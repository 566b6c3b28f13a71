"""Reads how PySpark prints a Column: operators before their operands, ``and(=(t.id, s.id), >(t.d, 2020-01-01))``.

Classic PySpark prints ``=(t.a, 'x')``, ``!(…)`` and strings between quotes, names without the backticks they may need.
Spark Connect prints ``==(t.a, x)``, ``not(…)`` and strings bare, so that a string looks like a name, a number or a
date; only its qualified names are certain. (`connect_columns` reads the plan that Connect sends, which is unambiguous.)
Both print what `expr` was given verbatim.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from deltamerge.sql.condition_reader import read_condition
from deltamerge.sql.expression import Literal, Name, Node, Opaque, Operation, unreadable
from deltamerge.sql.literals import typed_value

_PRINTED = re.compile(r"Column<'(.*)'>", re.DOTALL)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_WHOLE_NUMBER = re.compile(r"-?\d+L?", re.ASCII)
_TRUTH = ("and", "or", "not")


def printed_text(column: str) -> str:
    """Return what is between ``Column<'`` and ``'>`` in a printed Column; other strings unchanged."""
    match = _PRINTED.fullmatch(column)
    return match[1] if match else column


def read_classic_column(column: str, double_quoted_identifiers: bool = False) -> Node:
    """Read a printed Column of classic PySpark.

    Fractional numbers, timestamps and whatever else prints alike for different Columns become `Opaque`.
    """
    tree = _settle(read_condition(printed_text(column), double_quoted_identifiers), _classic_operand)
    return _classic_operand(tree) if isinstance(tree, Name) else tree


def read_connect_column(column: str, double_quoted_identifiers: bool = False) -> Node:
    """Read a printed Column of Spark Connect; of the operands of printed operators only qualified names are certain."""
    return _settle(read_condition(printed_text(column), double_quoted_identifiers), _connect_operand)


def _settle(node: Node, operand: Callable[[Node], Node]) -> Node:
    """Replace the operands of printed operators by what is certain of them."""
    if not isinstance(node, Operation):
        return node
    operands = tuple(_settle(part, operand) for part in node.operands)
    if node.prefix and node.op not in _TRUTH:
        operands = tuple(operand(part) for part in operands)
    return replace(node, operands=operands)


def _classic_operand(node: Node) -> Node:
    if isinstance(node, Name) and node.text.lower() in ("nan", "infinity"):
        # A number prints like a name.
        return unreadable(node.text, node.span)
    if isinstance(node, Literal) and isinstance(node.value, (str, bytes, bool, type(None))):
        return node
    if isinstance(node, Literal):
        # 1.5 may be a double or a decimal; whole numbers compare alike whatever their type is.
        return node if _WHOLE_NUMBER.fullmatch(node.text) else _nothing_known(node)
    if isinstance(node, Opaque) and _DATE.fullmatch(node.text):
        typed = typed_value("DATE", node.text)
        return Literal(typed[0], typed[1], node.text, node.span) if typed else node
    return node


def _connect_operand(node: Node) -> Node:
    if isinstance(node, Name):
        return node if len(node.parts) > 1 else unreadable(node.text, node.span)
    if isinstance(node, Literal):
        return _nothing_known(node)
    if isinstance(node, Operation) and not node.prefix:
        # A string may read ``a is null``.
        return unreadable(node.text, node.span)
    return node


def _nothing_known(node: Literal) -> Opaque:
    return Opaque((), (), complete=True, subquery=False, text=node.text, span=node.span)
