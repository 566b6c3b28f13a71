"""Reads how classic PySpark prints a Column: ``and(=(t.id, s.id), >(t.d, 2020-01-01))``.

Strings are between quotes, names without the backticks they may need; what `expr` was given is printed verbatim.
(`connect_columns` reads the plan that Connect sends.)
"""

from __future__ import annotations

import re
from dataclasses import replace

from deltamerge.sql.condition_reader import read_condition
from deltamerge.sql.expression import Literal, Name, Node, Opaque, Operation, unreadable
from deltamerge.sql.literals import typed_value

_PRINTED = re.compile(r"Column<'(.*)'>", re.DOTALL)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_WHOLE_NUMBER = re.compile(r"-?\d+L?", re.ASCII)
_TRUTH = ("and", "or", "not")


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
    if not isinstance(node, Operation):
        return node
    operands = tuple(map(_settle, node.operands))
    if node.prefix and node.op not in _TRUTH:
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
        return node if _WHOLE_NUMBER.fullmatch(node.text) else _nothing_known(node)
    if isinstance(node, Opaque) and _DATE.fullmatch(node.text):
        typed = typed_value("DATE", node.text)
        return Literal(typed[0], typed[1], node.text, node.span) if typed else node
    return node


def _nothing_known(node: Literal) -> Opaque:
    return Opaque((), (), complete=True, subquery=False, text=node.text, span=node.span)
